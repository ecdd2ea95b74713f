//! Memory on the GPU.

use crate::context::Gpu;
use crate::error::GpuError;
use crate::raw;
use crate::stream::Stream;
use heist_launch::element::Element;
use heist_launch::{Buffer, ElementType};
use std::fmt;
use std::marker::PhantomData;

/// Bytes on the GPU, freed when dropped.
pub struct DeviceMemory {
    gpu: Gpu,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Where it is; what a kernel takes for a pointer. Aligned to 256 bytes.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn range(&self, offset: usize, bytes: usize) -> Result<u64, GpuError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + offset as u64),
            _ => Err(GpuError::OutsideBuffer {
                offset,
                bytes,
                len: self.bytes,
            }),
        }
    }

    /// Writes bytes at an offset; done when it returns.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), GpuError> {
        let address = self.range(offset, bytes.len())?;
        self.gpu.enter()?;
        let stream = self.gpu.copies();
        let copied = raw::copy_to_device(address, bytes, stream)
            .and_then(|()| raw::stream_synchronize(stream));
        self.gpu.check(copied)
    }

    /// Reads bytes at an offset, after everything on every stream is done.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), GpuError> {
        let address = self.range(offset, bytes.len())?;
        self.gpu.synchronize()?;
        let copied = raw::copy_from_device(bytes, address, self.gpu.copies());
        self.gpu.check(copied)
    }

    /// Writes a word at an offset, a multiple of four, in stream order. No kernel is needed for
    /// that, so it does not wait for room on the GPU.
    pub fn write_in(&self, stream: &Stream, offset: usize, value: u32) -> Result<(), GpuError> {
        let address = self.range(offset, 4)?;
        self.gpu.enter()?;
        self.gpu
            .check(raw::stream_write_word(stream.raw(), address, value))
    }

    /// Reads bytes at an offset now, while kernels run: what they write at the same time
    /// may be seen or not.
    pub fn peek(&self, offset: usize, bytes: &mut [u8]) -> Result<(), GpuError> {
        let address = self.range(offset, bytes.len())?;
        self.gpu.enter()?;
        let stream = self.gpu.copies();
        let copied = raw::copy_from_device(bytes, address, stream)
            .and_then(|()| raw::stream_synchronize(stream));
        self.gpu.check(copied)
    }

    /// Sets every byte, in the stream's order.
    pub fn fill(&self, byte: u8, stream: &Stream) -> Result<(), GpuError> {
        self.gpu.enter()?;
        self.gpu.check(raw::fill_bytes(
            self.address,
            byte,
            self.bytes,
            stream.raw(),
        ))
    }

    /// Copies from other memory of the same size or less, in the stream's order.
    pub fn copy_from(&self, from: &DeviceMemory, stream: &Stream) -> Result<(), GpuError> {
        let to = self.range(0, from.bytes)?;
        self.gpu.enter()?;
        self.gpu.check(raw::copy_on_device(
            to,
            from.address,
            from.bytes,
            stream.raw(),
        ))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.gpu.enter_to_drop() {
            // Waits for kernels that may use it. A fault that surfaces here is
            // reported by the next call that can.
            let _ = raw::memory_free(self.address);
        }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.address)
    }
}

/// Elements of one type on the GPU.
pub struct Array<T> {
    memory: DeviceMemory,
    element: PhantomData<T>,
}

impl<T: Element> Array<T> {
    /// How many elements.
    pub fn len(&self) -> usize {
        self.memory.bytes / T::TYPE.bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The bytes behind it.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.memory.address
    }

    /// Overwrites elements from the first on; done when it returns.
    pub fn write(&self, values: &[T]) -> Result<(), GpuError> {
        self.memory.write(0, Buffer::from_slice(values).bytes())
    }

    /// Every element, after everything on every stream is done.
    pub fn read(&self) -> Result<Vec<T>, GpuError> {
        let mut bytes = vec![0; self.memory.bytes];
        self.memory.read(0, &mut bytes)?;
        let size = T::TYPE.bytes();
        Ok(bytes
            .chunks_exact(size)
            .map(|chunk| {
                let mut wide = [0; 8];
                wide[..size].copy_from_slice(chunk);
                T::from_bits(u64::from_le_bytes(wide))
            })
            .collect())
    }
}

impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}[{}] at {:#x}",
            T::TYPE,
            self.len(),
            self.memory.address
        )
    }
}

impl Gpu {
    /// Uninitialised memory.
    pub fn allocate(&self, bytes: usize) -> Result<DeviceMemory, GpuError> {
        self.enter()?;
        // The driver gives no memory of size zero, and a pointer is needed anyway.
        let address = self.check_alloc(bytes, raw::memory_alloc(bytes.max(1)))?;
        Ok(DeviceMemory {
            gpu: self.clone(),
            address,
            bytes,
        })
    }

    /// Memory that holds a copy of these bytes.
    pub fn allocate_with(&self, bytes: &[u8]) -> Result<DeviceMemory, GpuError> {
        let memory = self.allocate(bytes.len())?;
        memory.write(0, bytes)?;
        Ok(memory)
    }

    /// An array of these values.
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<Array<T>, GpuError> {
        Ok(Array {
            memory: self.allocate_with(Buffer::from_slice(values).bytes())?,
            element: PhantomData,
        })
    }

    /// An uninitialised array: poisoned, so that elements that no thread writes are visible.
    pub fn output<T: Element>(&self, count: usize) -> Result<Array<T>, GpuError> {
        Ok(Array {
            memory: self.allocate_with(Buffer::poisoned(T::TYPE, count).bytes())?,
            element: PhantomData,
        })
    }

    /// An array of zeros.
    pub fn zeros<T: Element>(&self, count: usize) -> Result<Array<T>, GpuError> {
        let ty: ElementType = T::TYPE;
        let memory = self.allocate(count * ty.bytes())?;
        self.enter()?;
        let filled = raw::fill_bytes(memory.address, 0, memory.bytes, self.copies())
            .and_then(|()| raw::stream_synchronize(self.copies()));
        self.check(filled)?;
        Ok(Array {
            memory,
            element: PhantomData,
        })
    }
}
