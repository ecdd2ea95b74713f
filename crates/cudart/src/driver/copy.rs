//! Copies and fills.

use super::context::with;
use crate::api::{is_of_host, waited};
use crate::operation::{ANY, Copy, DEVICE_TO_DEVICE, DEVICE_TO_HOST, Fill, HOST_TO_DEVICE};
use crate::operation::{Operation, Place};
use crate::perform::submit;
use crate::raw;
use crate::runtime::Runtime;
use crate::status::INVALID_VALUE;
use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

type Pointer = *mut c_void;
type Stream = *mut c_void;

const DEFAULT: Stream = std::ptr::null_mut();

fn copy(to: Pointer, from: Pointer, len: usize, kind: c_int, stream: Stream) -> c_int {
    with(|| {
        let copy = Copy::row(to, from, len, kind);
        submit(stream, |_| Ok(Operation::Copy(copy)))
    })
}

/// Copies of a row of bytes: in which direction, at once or in a stream.
macro_rules! rows {
    ($($now:ident($kind:expr);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $now(to: Pointer, from: Pointer, len: usize) -> c_int {
            let between_host = is_of_host(to) || is_of_host(from);
            waited(copy(to, from, len, $kind, DEFAULT), between_host)
        }
    )*};
}

macro_rules! rows_of_stream {
    ($($later:ident($kind:expr);)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $later(to: Pointer, from: Pointer, len: usize, stream: Stream) -> c_int {
            copy(to, from, len, $kind, stream)
        }
    )*};
}

rows! {
    cuMemcpy(ANY);
    cuMemcpyHtoD_v2(HOST_TO_DEVICE);
    cuMemcpyDtoH_v2(DEVICE_TO_HOST);
    cuMemcpyDtoD_v2(DEVICE_TO_DEVICE);
}

rows_of_stream! {
    cuMemcpyAsync(ANY);
    cuMemcpyHtoDAsync_v2(HOST_TO_DEVICE);
    cuMemcpyDtoHAsync_v2(DEVICE_TO_HOST);
    cuMemcpyDtoDAsync_v2(DEVICE_TO_DEVICE);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyPeer(
    to: Pointer,
    _: usize,
    from: Pointer,
    _: usize,
    len: usize,
) -> c_int {
    copy(to, from, len, DEVICE_TO_DEVICE, DEFAULT)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyPeerAsync(
    to: Pointer,
    _: usize,
    from: Pointer,
    _: usize,
    len: usize,
    stream: Stream,
) -> c_int {
    copy(to, from, len, DEVICE_TO_DEVICE, stream)
}

/// A side of `CUDA_MEMCPY2D`: a place in memory of the host, of the device or of an array.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side2 {
    place: [usize; 2],
    kind: c_int,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Box2 {
    from: Side2,
    to: Side2,
    size: [usize; 2],
}

/// A side of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side3 {
    place: [usize; 3],
    level: usize,
    kind: c_int,
    host: u64,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Box3 {
    from: Side3,
    to: Side3,
    size: [usize; 3],
}

impl Side2 {
    fn deep(self) -> Side3 {
        Side3 {
            place: [self.place[0], self.place[1], 0],
            level: 0,
            kind: self.kind,
            host: self.host,
            device: self.device,
            array: self.array,
            reserved: 0,
            pitch: self.pitch,
            height: 0,
        }
    }
}

impl Side3 {
    /// `CUmemorytype`: host, device, array, or wherever the device's pointer is.
    fn place(&self, runtime: &Runtime, width: usize, rows: usize) -> Result<Place, c_int> {
        let start = match self.kind {
            1 => self.host,
            2 | 4 => self.device,
            3 => return runtime.array(self.array)?.place(self.array, self.place),
            _ => return Err(INVALID_VALUE),
        };
        let [x, y, z] = self.place;
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        let plane = pitch * if self.height == 0 { rows } else { self.height };
        Ok(Place {
            at: start + (x + y * pitch + z * plane) as u64,
            pitch,
            plane,
        })
    }
}

fn boxed(wish: Option<Box3>, stream: Stream) -> c_int {
    with(|| {
        submit(stream, |runtime| {
            let wish = wish.ok_or(INVALID_VALUE)?;
            let [width, rows, _] = wish.size;
            let kind = match (wish.from.kind, wish.to.kind) {
                (1, 2 | 3) => HOST_TO_DEVICE,
                (2 | 3, 1) => DEVICE_TO_HOST,
                (2 | 3, 2 | 3) => DEVICE_TO_DEVICE,
                _ => ANY,
            };
            Ok(Operation::Copy(Copy {
                to: wish.to.place(runtime, width, rows)?,
                from: wish.from.place(runtime, width, rows)?,
                size: wish.size,
                kind,
            }))
        })
    })
}

fn flat(wish: *const Box2, stream: Stream) -> c_int {
    let deep = |wish: Box2| Box3 {
        from: wish.from.deep(),
        to: wish.to.deep(),
        size: [wish.size[0], wish.size[1], 1],
    };
    boxed(raw::get(wish).map(deep), stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpy2D_v2(wish: *const Box2) -> c_int {
    waited(flat(wish, DEFAULT), true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpy2DUnaligned_v2(wish: *const Box2) -> c_int {
    waited(flat(wish, DEFAULT), true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpy2DAsync_v2(wish: *const Box2, stream: Stream) -> c_int {
    flat(wish, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpy3D_v2(wish: *const Box3) -> c_int {
    waited(boxed(raw::get(wish), DEFAULT), true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpy3DAsync_v2(wish: *const Box3, stream: Stream) -> c_int {
    boxed(raw::get(wish), stream)
}

/// Fills rows with a value of some bytes.
fn fill(to: Place, value: &[u8], width: usize, rows: usize, stream: Stream) -> c_int {
    with(|| {
        if !to.at.is_multiple_of(value.len() as u64) {
            return INVALID_VALUE;
        }
        submit(stream, |_| {
            Ok(Operation::Fill(Fill {
                to,
                value: value.to_vec(),
                size: [width * value.len(), rows, 1],
                is_signal: false,
            }))
        })
    })
}

macro_rules! fills {
    ($($now:ident, $later:ident, $flat:ident, $flat_later:ident: $value:ty;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $now(to: Pointer, value: $value, count: usize) -> c_int {
            fill(Place::row(to), &value.to_le_bytes(), count, 1, DEFAULT)
        }

        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $later(to: Pointer, value: $value, count: usize, stream: Stream) -> c_int {
            fill(Place::row(to), &value.to_le_bytes(), count, 1, stream)
        }

        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $flat(to: Pointer, pitch: usize, value: $value, width: usize, rows: usize) -> c_int {
            fill(Place::rows(to, pitch), &value.to_le_bytes(), width, rows, DEFAULT)
        }

        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $flat_later(to: Pointer, pitch: usize, value: $value, width: usize, rows: usize, stream: Stream) -> c_int {
            fill(Place::rows(to, pitch), &value.to_le_bytes(), width, rows, stream)
        }
    )*};
}

fills! {
    cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD2D8_v2, cuMemsetD2D8Async: c_uchar;
    cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD2D16_v2, cuMemsetD2D16Async: c_ushort;
    cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD2D32_v2, cuMemsetD2D32Async: c_uint;
}
