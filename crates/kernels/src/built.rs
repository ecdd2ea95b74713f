//! Kernels that were built before.
//!
//! To build a kernel takes milliseconds. It is the same for all lengths of a problem, which in a model
//! may be others in every call: such a call plans its launch alone.

use heist_builder::{BuildError, BuiltKernel};
use heist_ptx::Module;
use heist_sched::TiledKernel;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How many are kept: those that were asked for last.
const KEPT: usize = 64;

/// By everything that they are built from.
type Known = VecDeque<(String, Arc<dyn Any + Send + Sync>)>;

static BUILT: Mutex<Known> = Mutex::new(VecDeque::new());

/// A kernel whose launches share its module.
pub(crate) struct Shared<K> {
    pub(crate) kernel: K,
    pub(crate) module: Arc<Module>,
}

/// What is built.
pub(crate) trait Built: Any + Send + Sync {
    /// Its PTX.
    fn module(&self) -> &Module;
}

impl<P: 'static> Built for BuiltKernel<P> {
    fn module(&self) -> &Module {
        &self.module
    }
}

impl<P: 'static> Built for TiledKernel<P> {
    fn module(&self) -> &Module {
        &self.built.module
    }
}

/// The kernel of a key, which must have everything in it that `build` looks at; kernels with other
/// parameters are told apart.
pub(crate) fn built<K: Built>(
    key: &str,
    build: impl FnOnce() -> Result<K, BuildError>,
) -> Result<Arc<Shared<K>>, BuildError> {
    let key = format!("{} {key}", std::any::type_name::<K>());
    let find = |known: &mut Known| {
        let at = known.iter().position(|(one, _)| *one == key)?;
        let found = known.remove(at)?;
        let shared = found.1.clone().downcast::<Shared<K>>().ok();
        known.push_back(found);
        shared
    };
    let known = || BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = find(&mut known()) {
        // With a key that lacks something it would be another's kernel: tests build it once more.
        debug_assert_eq!(build()?.module(), &*found.module, "of the key {key}");
        return Ok(found);
    }
    // Without the lock: two threads may build the same.
    let kernel = build()?;
    let module = Arc::new(kernel.module().clone());
    let made = Arc::new(Shared { kernel, module });
    let mut known = known();
    if known.len() == KEPT {
        known.pop_front();
    }
    known.push_back((key, made.clone()));
    Ok(made)
}
