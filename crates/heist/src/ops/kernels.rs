//! The kernels that plans launch: what is known of one is found out once, though it has many launches.

use heist_gpu::{Gpu, GpuError, JitOptions, Kernel, PtxText};
use heist_kernels::Step;
use heist_ptx::Module;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How many are kept: those that were asked for last.
const KEPT: usize = 64;

/// The kernels of a device.
#[derive(Default)]
pub(super) struct Kernels {
    known: Mutex<VecDeque<(Arc<Module>, Arc<Known>)>>,
}

/// A kernel.
pub(super) struct Known {
    text: PtxText,
    /// Which of its parameters it reads.
    reads: Vec<bool>,
    /// Loaded on a real GPU.
    kernel: OnceLock<Arc<Kernel>>,
}

impl Kernels {
    /// The kernel of a step. Steps that share a module share it.
    pub(super) fn of(&self, step: &Step) -> Arc<Known> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |list: &VecDeque<(Arc<Module>, Arc<Known>)>| {
            let found = list.iter().find(|(one, _)| Arc::ptr_eq(one, &step.module));
            found.map(|(_, known)| known.clone())
        };
        if let Some(known) = known(&lock()) {
            return known;
        }
        let text = step.ptx();
        let entry = step.module.entries().find(|one| *one.name == step.entry);
        let reads = match entry {
            Some(entry) => {
                let names = entry.params.iter().map(|param| param.name.to_string());
                names.map(|name| is_read(&text, &name)).collect()
            }
            None => vec![true; step.params.len()],
        };
        let made = Arc::new(Known {
            text: PtxText::new(step.entry.clone(), text),
            reads,
            kernel: OnceLock::new(),
        });
        let mut list = lock();
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back((step.module.clone(), made.clone()));
        made
    }
}

impl Known {
    /// Whether the kernel reads a parameter.
    pub(super) fn reads(&self, parameter: usize) -> bool {
        self.reads.get(parameter).copied().unwrap_or(true)
    }

    /// The kernel on a real GPU, whose operations these are.
    ///
    /// # Errors
    /// Why the driver does not take it.
    pub(super) fn on(&self, gpu: &Gpu) -> Result<Arc<Kernel>, GpuError> {
        if let Some(kernel) = self.kernel.get() {
            return Ok(kernel.clone());
        }
        let program = gpu.load(&self.text, &JitOptions::default())?;
        let kernel = Arc::new(program.kernel(&self.text.name)?);
        Ok(self.kernel.get_or_init(|| kernel).clone())
    }
}

/// Whether a name is more than declared: then it stands in the text once.
fn is_read(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let whole = text.match_indices(name).filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(word) && !after.is_some_and(word)
    });
    whole.take(2).count() > 1
}
