//! The caller's memory.

#![allow(unsafe_code)]

use heist_gpu::DeviceMemory;
use std::marker::PhantomData;

/// Bytes of the caller, on the device that an operation runs on: a GPU's memory, or the host's for
/// a simulated one.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'m> {
    address: u64,
    bytes: u64,
    writable: bool,
    /// Whether a pointer to it may be followed here.
    on_host: bool,
    owner: PhantomData<&'m [u8]>,
}

/// Numbers that have no padding and no forbidden bits.
///
/// # Safety
/// Any bytes of the size of `Self` are a value of it, and all of a value's bytes
/// are initialised.
pub unsafe trait Plain: Copy {}
macro_rules! plain {
    ($($ty:ty)*) => { $(
        // SAFETY: a number, of which every pattern of bits is one.
        unsafe impl Plain for $ty {}
    )* };
}
plain!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

impl<'m> Memory<'m> {
    /// No memory.
    pub const NONE: Memory<'static> = Memory {
        address: 0,
        bytes: 0,
        writable: false,
        on_host: false,
        owner: PhantomData,
    };

    /// Host memory that is only read.
    pub fn host<T: Plain>(values: &'m [T]) -> Memory<'m> {
        Memory {
            address: values.as_ptr().expose_provenance() as u64,
            bytes: size_of_val(values) as u64,
            writable: false,
            on_host: true,
            owner: PhantomData,
        }
    }

    /// Host memory that may be written.
    pub fn host_mut<T: Plain>(values: &'m mut [T]) -> Memory<'m> {
        let bytes = size_of_val(values) as u64;
        Memory {
            address: values.as_mut_ptr().expose_provenance() as u64,
            bytes,
            writable: true,
            on_host: true,
            owner: PhantomData,
        }
    }

    /// Memory of a GPU. It must be kept until what was launched with it is done.
    pub fn device(memory: &'m DeviceMemory) -> Memory<'m> {
        Memory {
            address: memory.address(),
            bytes: memory.len() as u64,
            writable: true,
            on_host: false,
            owner: PhantomData,
        }
    }

    /// Memory of a GPU by its address, such as a tensor of another library.
    ///
    /// A kernel that is given a wrong address reads or writes other memory of the
    /// GPU, or faults; the host is not touched.
    pub fn at_device(address: u64, bytes: u64) -> Memory<'m> {
        Memory {
            address,
            bytes,
            writable: true,
            on_host: false,
            owner: PhantomData,
        }
    }

    /// Memory of the host by its address.
    ///
    /// # Safety
    /// The bytes can be read, and written if an operation writes to this operand,
    /// for as long as `'m`, and nobody else writes to them meanwhile.
    pub unsafe fn at_host(address: u64, bytes: u64) -> Memory<'m> {
        Memory {
            address,
            bytes,
            writable: true,
            on_host: true,
            owner: PhantomData,
        }
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether it is the host's.
    pub fn is_on_host(&self) -> bool {
        self.on_host
    }

    /// A copy of its first bytes, where it is the host's and has as many.
    pub(super) fn read(&self, bytes: u64) -> Option<Vec<u8>> {
        if !self.on_host || bytes > self.bytes {
            return None;
        }
        if bytes == 0 {
            return Some(Vec::new());
        }
        let from = std::ptr::with_exposed_provenance::<u8>(self.address as usize);
        // SAFETY: the constructor's contract guarantees that these bytes can be read.
        let slice = unsafe { std::slice::from_raw_parts(from, bytes as usize) };
        Some(slice.to_vec())
    }

    /// Overwrites its first bytes, where it is the host's; whether it was done.
    pub(super) fn write(&self, bytes: &[u8]) -> bool {
        if !self.on_host || !self.writable || bytes.len() as u64 > self.bytes {
            return false;
        }
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.address as usize);
        // SAFETY: the constructor's contract guarantees that these bytes can be written, and
        // `bytes` is a vector of our own, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }
}
