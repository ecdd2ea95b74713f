//! An open GPU: its context, the launches in flight, and the loss of the context.

use crate::cache::{Loaded, ProgramKey};
use crate::device::{self, DeviceInfo};
use crate::error::GpuError;
use crate::fault::{Fault, LaunchRecord, Pending, suspects};
use crate::raw::sys::code;
use crate::raw::{self, Handle, Mailbox};
use crate::status::Status;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// How many streams can be tracked at a time; further ones are not.
const MAILBOX_SLOTS: usize = 256;

/// How many launches of an untracked stream are remembered.
const UNTRACKED_MEMORY: usize = 32;

/// An open GPU. Clones are the same one.
///
/// ```no_run
/// use heist_gpu::{Gpu, JitOptions, KernelArg, PtxText};
/// use heist_launch::Launch;
/// # fn main() -> Result<(), heist_gpu::GpuError> {
/// # let text = "";
/// let gpu = Gpu::open(0)?;
/// let kernel = gpu.load(&PtxText::new("add.ptx", text), &JitOptions::default())?.kernel("add")?;
/// let data = gpu.upload(&[1.0f32, 2.0, 3.0])?;
/// let stream = gpu.stream()?;
/// kernel.launch(&stream, &Launch::new(1, 32), &[KernelArg::pointer(&data)])?;
/// stream.synchronize()?;
/// println!("{:?}", data.read()?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Gpu {
    shared: Arc<Shared>,
}

struct Shared {
    info: DeviceInfo,
    device: raw::CUdevice,
    context: Handle<raw::CUcontext>,
    /// For copies that are complete when they return.
    copies: Handle<raw::CUstream>,
    /// None where the driver does not do it; faults are then less exact.
    mailbox: Option<Mailbox>,
    state: Mutex<State>,
    /// Whether `state` has a fault: every launch asks, and takes no lock for it.
    lost: AtomicBool,
}

#[derive(Default)]
struct State {
    pending: Vec<Pending>,
    lost: Option<Fault>,
    streams: u64,
    /// Which mailbox slot a tracked stream has.
    slots: HashMap<u64, usize>,
    free_slots: Vec<usize>,
    programs: HashMap<ProgramKey, Arc<Loaded>>,
}

impl Gpu {
    /// Opens the GPU with this number.
    pub fn open(ordinal: u32) -> Result<Gpu, GpuError> {
        let driver = device::driver()?;
        let count = raw::device_count().map_err(GpuError::call)?;
        match count {
            0 => return Err(GpuError::NoDevice),
            _ if ordinal >= count => return Err(GpuError::NoSuchDevice { ordinal, count }),
            _ => {}
        }
        let info = device::info(ordinal, driver)?;
        let device = raw::device(ordinal).map_err(GpuError::call)?;
        let context = raw::context_retain(device).map_err(GpuError::call)?;
        let opened = raw::context_make_current(context).and_then(|()| raw::stream_create(0));
        let copies = match opened {
            Ok(copies) => copies,
            Err(status) => {
                // What went wrong first is what is reported.
                let _ = raw::context_release(device);
                return Err(GpuError::call(status));
            }
        };
        let mailbox = Mailbox::new(MAILBOX_SLOTS).ok();
        let state = State {
            free_slots: (0..mailbox.as_ref().map_or(0, Mailbox::slots))
                .rev()
                .collect(),
            ..State::default()
        };
        Ok(Gpu {
            shared: Arc::new(Shared {
                info,
                device,
                context: Handle(context),
                copies: Handle(copies),
                mailbox,
                state: Mutex::new(state),
                lost: AtomicBool::new(false),
            }),
        })
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    /// Opens the same GPU anew after its context was lost. Everything that
    /// belongs to the old one is gone and answers with the fault that ended it.
    /// A context that is not lost stays as it is.
    ///
    /// Some faults leave the whole process without a GPU; then this fails, and
    /// only a new process helps. The context is the process's primary one, so other users of it in
    /// the process lose it too.
    pub fn reopen(&self) -> Result<Gpu, GpuError> {
        if self.state().lost.is_none() {
            return Ok(self.clone());
        }
        raw::context_reset(self.shared.device).map_err(GpuError::call)?;
        Gpu::open(self.shared.info.ordinal)
    }

    /// Waits until everything on every stream is done.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.enter()?;
        self.check(raw::context_synchronize())?;
        self.state().pending.clear();
        Ok(())
    }

    /// Free and total bytes of its memory.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        self.enter()?;
        self.check(raw::memory_info())
    }

    pub(crate) fn context(&self) -> raw::CUcontext {
        self.shared.context.0
    }

    /// An error if the context was lost.
    pub(crate) fn alive(&self) -> Result<(), GpuError> {
        if !self.shared.lost.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.state().lost {
            Some(fault) => Err(GpuError::Lost(Box::new(fault.clone()))),
            None => Ok(()),
        }
    }

    /// Makes the context current here; an error if it was lost.
    pub(crate) fn enter(&self) -> Result<(), GpuError> {
        self.alive()?;
        raw::context_make_current(self.shared.context.0).map_err(GpuError::call)
    }

    /// Makes the context current for a destructor; whether that makes sense.
    pub(crate) fn enter_to_drop(&self) -> bool {
        self.state().lost.is_none() && raw::context_make_current(self.shared.context.0).is_ok()
    }

    /// Turns a status into an error, and a fault into the end of the context.
    pub(crate) fn check<T>(&self, result: Result<T, Status>) -> Result<T, GpuError> {
        result.map_err(|status| {
            if status.is_fault() {
                GpuError::Fault(Box::new(self.lose(status)))
            } else {
                GpuError::call(status)
            }
        })
    }

    /// As [`Gpu::check`] for an allocation.
    pub(crate) fn check_alloc<T>(
        &self,
        bytes: usize,
        result: Result<T, Status>,
    ) -> Result<T, GpuError> {
        match result {
            Err(status) if status.is(code::OUT_OF_MEMORY) => {
                let (free, total) = raw::memory_info().unwrap_or((0, self.shared.info.memory));
                Err(GpuError::OutOfMemory {
                    bytes: bytes as u64,
                    free,
                    total,
                })
            }
            other => self.check(other),
        }
    }

    fn lose(&self, status: Status) -> Fault {
        let mut state = self.state();
        if let Some(fault) = &state.lost {
            return fault.clone();
        }
        let mailbox = self.shared.mailbox.as_ref();
        let found = suspects(&state.pending, |stream| {
            let slot = state.slots.get(&stream)?;
            mailbox.map(|mailbox| mailbox.read(*slot))
        });
        let fault = Fault {
            device: self.shared.info.name.clone(),
            status,
            suspects: found,
        };
        state.lost = Some(fault.clone());
        self.shared.lost.store(true, Ordering::Release);
        fault
    }

    /// Marks a context that no longer responds as lost.
    pub(crate) fn abandon(&self, status: Status) {
        self.lose(status);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding it, and if it did, the data would be whole.
        self.shared
            .state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn copies(&self) -> raw::CUstream {
        self.shared.copies.0
    }

    /// A number for a new stream, with a mailbox slot if it is to be tracked.
    pub(crate) fn register_stream(&self, tracked: bool) -> (u64, Option<usize>) {
        let mut state = self.state();
        state.streams += 1;
        let id = state.streams;
        let slot = if tracked {
            state.free_slots.pop()
        } else {
            None
        };
        if let (Some(slot), Some(mailbox)) = (slot, &self.shared.mailbox) {
            mailbox.clear(slot);
            state.slots.insert(id, slot);
        }
        (id, slot)
    }

    pub(crate) fn unregister_stream(&self, id: u64) {
        let mut state = self.state();
        if state.lost.is_none() {
            state.pending.retain(|launch| launch.stream != id);
            if let Some(slot) = state.slots.remove(&id) {
                state.free_slots.push(slot);
            }
        }
    }

    /// Remembers a launch before it is made.
    pub(crate) fn remember(&self, stream: u64, number: u32, record: LaunchRecord) {
        let mut state = self.state();
        let ended = match (state.slots.get(&stream), &self.shared.mailbox) {
            (Some(slot), Some(mailbox)) => Some(mailbox.read(*slot)),
            _ => None,
        };
        match ended {
            Some(ended) => state
                .pending
                .retain(|launch| launch.stream != stream || launch.number > ended),
            None => {
                let oldest = number.saturating_sub(UNTRACKED_MEMORY as u32);
                state
                    .pending
                    .retain(|launch| launch.stream != stream || launch.number > oldest);
            }
        }
        state.pending.push(Pending {
            stream,
            number,
            record,
        });
    }

    /// Has the device say when the launch before is done.
    pub(crate) fn mark_end(
        &self,
        slot: usize,
        number: u32,
        stream: raw::CUstream,
    ) -> Result<(), Status> {
        match &self.shared.mailbox {
            Some(mailbox) => mailbox.write_later(slot, number, stream),
            None => Ok(()),
        }
    }

    /// Forgets the launches of a stream that was seen to be done.
    pub(crate) fn settled(&self, stream: u64) {
        self.state()
            .pending
            .retain(|launch| launch.stream != stream);
    }

    /// The launches of a stream that are not known to have ended.
    pub(crate) fn at_work(&self, stream: u64) -> Vec<LaunchRecord> {
        let state = self.state();
        let ended = match (state.slots.get(&stream), &self.shared.mailbox) {
            (Some(slot), Some(mailbox)) => mailbox.read(*slot),
            _ => 0,
        };
        state
            .pending
            .iter()
            .filter(|launch| launch.stream == stream && launch.number > ended)
            .map(|launch| launch.record.clone())
            .collect()
    }

    pub(crate) fn cached_program(&self, key: &ProgramKey) -> Option<Arc<Loaded>> {
        self.state().programs.get(key).cloned()
    }

    pub(crate) fn cache_program(&self, key: ProgramKey, loaded: Arc<Loaded>) {
        self.state().programs.insert(key, loaded);
    }

    /// How many different programs are loaded.
    pub fn cached_programs(&self) -> usize {
        self.state().programs.len()
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Gpu({}, {})",
            self.shared.info.ordinal, self.shared.info.name
        )
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self
            .state
            .get_mut()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // In a lost context nothing can be given back, and nothing needs to be:
        // the reset that follows a loss takes it all. Otherwise what fails here
        // has no one left to be reported to.
        if state.lost.is_some() || raw::context_make_current(self.context.0).is_err() {
            // By now the address may be another's, so it must not be freed.
            std::mem::forget(self.mailbox.take());
            return;
        }
        for loaded in state.programs.values() {
            let _ = raw::module_unload(loaded.module.0);
        }
        let _ = raw::stream_destroy(self.copies.0);
        self.mailbox = None;
        let _ = raw::context_release(self.device);
    }
}
