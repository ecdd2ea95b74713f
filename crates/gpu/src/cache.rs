//! The cache of assembled programs: its key, and what is stored for each.

use crate::capability::CudaVersion;
use crate::device::DeviceInfo;
use crate::ptx::PtxText;
use crate::raw::{self, Handle};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Options of the assembler in the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JitOptions {
    /// At most this many registers a thread.
    pub max_registers: Option<u32>,
    /// From 0 to 4; the driver's own choice is 4.
    pub optimization: Option<u32>,
    /// Keep source lines for profilers and sanitizers.
    pub line_info: bool,
    /// Lower the `.version` to the newest that the driver takes, for files that
    /// say a later one than they need. For tests; see [`PtxText::clamped`].
    pub clamp_version: bool,
}

/// Everything that an assembled program depends on. The text stands in it by two
/// hashes and its length, and is compared besides when the key is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProgramKey {
    hashes: [u64; 2],
    length: usize,
    device: [u8; 16],
    driver: CudaVersion,
    options: JitOptions,
}

impl ProgramKey {
    pub(crate) fn new(text: &str, device: &DeviceInfo, options: &JitOptions) -> ProgramKey {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            text.hash(&mut hasher);
            hasher.finish()
        };
        ProgramKey {
            hashes: [hash(0), hash(1)],
            length: text.len(),
            device: device.uuid,
            driver: device.driver,
            options: options.clone(),
        }
    }
}

/// A program in the context. The context unloads it when it closes, or the run whose own it is.
pub(crate) struct Loaded {
    pub(crate) module: Handle<raw::CUmodule>,
    pub(crate) text: PtxText,
    pub(crate) log: String,
    opt_ins: Mutex<HashMap<String, Arc<OptIn>>>,
}

impl Loaded {
    pub(crate) fn new(module: raw::CUmodule, text: PtxText, log: String) -> Loaded {
        Loaded {
            module: Handle(module),
            text,
            log,
            opt_ins: Mutex::default(),
        }
    }

    /// What a kernel was opted in to, by whoever looked it up.
    pub(crate) fn opt_in(&self, kernel: &str) -> Arc<OptIn> {
        let mut all = self.opt_ins.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(kernel.to_owned()).or_default())
    }
}

/// How much dynamic shared memory a kernel of a module was opted in to. The driver keeps what it was told last,
/// not the most, so all that launch the kernel raise one bound.
#[derive(Default)]
pub(crate) struct OptIn {
    most: AtomicU32,
    raising: Mutex<()>,
}

impl OptIn {
    /// Has the driver told of `bytes`, unless it was told of as many before.
    pub(crate) fn raise<E>(
        &self,
        bytes: u32,
        tell: impl FnOnce(u32) -> Result<(), E>,
    ) -> Result<(), E> {
        if bytes <= self.most.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.raising.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > self.most.load(Ordering::Acquire) {
            tell(bytes)?;
            self.most.store(bytes, Ordering::Release);
        }
        Ok(())
    }
}
