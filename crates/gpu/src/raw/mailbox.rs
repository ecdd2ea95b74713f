//! Host memory that the device writes launch numbers into.

use super::{CUdeviceptr, CUstream, check, sys};
use crate::status::Status;
use std::ffi::c_void;
use std::ptr;

/// Host memory that the device can write, for as long as the value lives, also
/// when the context that it came from no longer works.
pub(crate) struct Mailbox {
    host: *mut u32,
    device: CUdeviceptr,
    slots: usize,
}

// SAFETY: the pointer is to memory of its own, read with volatile reads only.
unsafe impl Send for Mailbox {}
// SAFETY: as above; the device is the only writer.
unsafe impl Sync for Mailbox {}

impl Mailbox {
    pub(crate) fn new(slots: usize) -> Result<Mailbox, Status> {
        let mut host: *mut c_void = ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let bytes = slots * size_of::<u32>();
        call!(cuMemHostAlloc(&mut host, bytes, flags))?;
        // SAFETY: just allocated, `bytes` long, nobody else has it.
        unsafe { ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        let mut device = 0;
        if let Err(status) = call!(cuMemHostGetDevicePointer_v2(&mut device, host, 0)) {
            // Nothing refers to it yet, and nothing more can be done about a failure.
            let _ = call!(cuMemFreeHost(host));
            return Err(status);
        }
        Ok(Mailbox {
            host: host.cast(),
            device,
            slots,
        })
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// What the device wrote last; zero before that.
    pub(crate) fn read(&self, slot: usize) -> u32 {
        assert!(slot < self.slots, "a slot of this mailbox");
        // SAFETY: inside the allocation, aligned; volatile since a device writes it.
        unsafe { self.host.add(slot).read_volatile() }
    }

    /// Sets a slot to zero; only while no write to it is in flight.
    pub(crate) fn clear(&self, slot: usize) {
        assert!(slot < self.slots, "a slot of this mailbox");
        // SAFETY: inside the allocation, aligned, and nobody writes it now.
        unsafe { self.host.add(slot).write_volatile(0) }
    }

    /// Has the device write a value once everything before it is done.
    pub(crate) fn write_later(
        &self,
        slot: usize,
        value: u32,
        stream: CUstream,
    ) -> Result<(), Status> {
        assert!(slot < self.slots, "a slot of this mailbox");
        let address = self.device + (slot * size_of::<u32>()) as u64;
        call!(cuStreamWriteValue32_v2(stream, address, value, 0))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // Fails when the context is gone, and then the memory is gone too.
        let _ = call!(cuMemFreeHost(self.host.cast()));
    }
}
