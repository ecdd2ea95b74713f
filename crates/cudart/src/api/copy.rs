//! Copies and fills: of rows, of boxes, of variables and of arrays.

use crate::operation::{ANY, Copy, DEVICE_TO_DEVICE, Fill, Operation, Place};
use crate::perform::submit;
use crate::raw;
use crate::runtime::{Runtime, call, host_has_waited, runtime};
use crate::status::INVALID_VALUE;
use std::ffi::{c_int, c_void};

type Pointer = *mut c_void;
type Stream = *mut c_void;

/// The stream of calls that name none.
const DEFAULT: Stream = std::ptr::null_mut();

/// The host waits for a copy to or from its memory that names no stream; one between two places of the device is
/// only begun.
pub(crate) fn waited(status: c_int, between_host: bool) -> c_int {
    if status == 0 && between_host {
        host_has_waited(DEFAULT.addr());
    }
    status
}

/// Whether an address is of the host; pinned memory is.
pub(crate) fn is_of_host(at: *const c_void) -> bool {
    let place = runtime().heap.place(at as u64);
    place.is_none_or(|(_, _, host)| host.is_some())
}

fn copy(stream: Stream, copy: Copy) -> c_int {
    submit(stream, |_| Ok(Operation::Copy(copy)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy(
    to: Pointer,
    from: *const c_void,
    len: usize,
    kind: c_int,
) -> c_int {
    let between_host = is_of_host(to) || is_of_host(from);
    waited(copy(DEFAULT, Copy::row(to, from, len, kind)), between_host)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyAsync(
    to: Pointer,
    from: *const c_void,
    len: usize,
    kind: c_int,
    stream: Stream,
) -> c_int {
    copy(stream, Copy::row(to, from, len, kind))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyPeer(
    to: Pointer,
    _: c_int,
    from: *const c_void,
    _: c_int,
    len: usize,
) -> c_int {
    copy(DEFAULT, Copy::row(to, from, len, DEVICE_TO_DEVICE))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyPeerAsync(
    to: Pointer,
    _: c_int,
    from: *const c_void,
    _: c_int,
    len: usize,
    stream: Stream,
) -> c_int {
    copy(stream, Copy::row(to, from, len, DEVICE_TO_DEVICE))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2D(
    to: Pointer,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    let status = cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, DEFAULT);
    waited(status, is_of_host(to) || is_of_host(from))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2DAsync(
    to: Pointer,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: Stream,
) -> c_int {
    let rows = Copy {
        to: Place::rows(to, to_pitch),
        from: Place::rows(from, from_pitch),
        size: [width, height, 1],
        kind,
    };
    copy(stream, rows)
}

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Pitched {
    pub(super) at: u64,
    pub(super) pitch: usize,
    /// Elements of a row, and rows of a plane.
    pub(super) width: usize,
    pub(super) height: usize,
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Box3 {
    from_array: u64,
    from_place: [usize; 3],
    from: Pitched,
    to_array: u64,
    to_place: [usize; 3],
    to: Pitched,
    extent: [usize; 3],
    kind: c_int,
}

/// A copy as `cudaMemcpy3D` describes it: with an array on a side, the first coordinate and the
/// width count its elements, else bytes.
pub(super) fn box_of(runtime: &Runtime, from: *const c_void) -> Result<Copy, c_int> {
    let wish = raw::get(from.cast::<Box3>()).ok_or(INVALID_VALUE)?;
    let element = |array: u64| {
        let found = runtime.arrays.get(&array);
        found.map(|array| array.format.bytes() as usize)
    };
    let element = element(wish.from_array)
        .or(element(wish.to_array))
        .unwrap_or(1);
    let side = |array: u64, memory: Pitched, [x, y, z]: [usize; 3]| match array {
        0 => {
            let plane = memory.pitch * memory.height;
            let at = memory.at + (z * plane + y * memory.pitch + x) as u64;
            Ok(Place {
                at,
                pitch: memory.pitch,
                plane,
            })
        }
        array => runtime.array(array)?.place(array, [x * element, y, z]),
    };
    let [width, height, depth] = wish.extent;
    Ok(Copy {
        to: side(wish.to_array, wish.to, wish.to_place)?,
        from: side(wish.from_array, wish.from, wish.from_place)?,
        size: [width * element, height, depth],
        kind: wish.kind,
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy3D(wish: *const c_void) -> c_int {
    waited(cudaMemcpy3DAsync(wish, DEFAULT), true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy3DAsync(wish: *const c_void, stream: Stream) -> c_int {
    submit(stream, |runtime| box_of(runtime, wish).map(Operation::Copy))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2DToArray(
    to: u64,
    x: usize,
    y: usize,
    from: *const c_void,
    pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    let status = cudaMemcpy2DToArrayAsync(to, x, y, from, pitch, width, height, kind, DEFAULT);
    waited(status, true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2DToArrayAsync(
    to: u64,
    x: usize,
    y: usize,
    from: *const c_void,
    pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: Stream,
) -> c_int {
    submit(stream, |runtime| {
        Ok(Operation::Copy(Copy {
            to: runtime.array(to)?.place(to, [x, y, 0])?,
            from: Place::rows(from, pitch),
            size: [width, height, 1],
            kind,
        }))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2DFromArray(
    to: Pointer,
    pitch: usize,
    from: u64,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    let status = cudaMemcpy2DFromArrayAsync(to, pitch, from, x, y, width, height, kind, DEFAULT);
    waited(status, true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2DFromArrayAsync(
    to: Pointer,
    pitch: usize,
    from: u64,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: Stream,
) -> c_int {
    submit(stream, |runtime| {
        Ok(Operation::Copy(Copy {
            to: Place::rows(to, pitch),
            from: runtime.array(from)?.place(from, [x, y, 0])?,
            size: [width, height, 1],
            kind,
        }))
    })
}

/// The rows of an array lie behind each other, so a run of bytes may go over their ends.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyToArray(
    to: u64,
    x: usize,
    y: usize,
    from: *const c_void,
    len: usize,
    kind: c_int,
) -> c_int {
    let status = cudaMemcpy2DToArrayAsync(to, x, y, from, len, len, 1, kind, DEFAULT);
    waited(status, true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyFromArray(
    to: Pointer,
    from: u64,
    x: usize,
    y: usize,
    len: usize,
    kind: c_int,
) -> c_int {
    let status = cudaMemcpy2DFromArrayAsync(to, len, from, x, y, len, 1, kind, DEFAULT);
    waited(status, true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyToArrayAsync(
    to: u64,
    x: usize,
    y: usize,
    from: *const c_void,
    len: usize,
    kind: c_int,
    stream: Stream,
) -> c_int {
    cudaMemcpy2DToArrayAsync(to, x, y, from, len, len, 1, kind, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyFromArrayAsync(
    to: Pointer,
    from: u64,
    x: usize,
    y: usize,
    len: usize,
    kind: c_int,
    stream: Stream,
) -> c_int {
    cudaMemcpy2DFromArrayAsync(to, len, from, x, y, len, 1, kind, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy2DArrayToArray(
    to: u64,
    to_x: usize,
    to_y: usize,
    from: u64,
    from_x: usize,
    from_y: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> c_int {
    submit(DEFAULT, |runtime| {
        Ok(Operation::Copy(Copy {
            to: runtime.array(to)?.place(to, [to_x, to_y, 0])?,
            from: runtime.array(from)?.place(from, [from_x, from_y, 0])?,
            size: [width, height, 1],
            kind,
        }))
    })
}

fn fill(stream: Stream, to: Place, value: c_int, size: [usize; 3]) -> c_int {
    submit(stream, |_| {
        let value = vec![value as u8];
        Ok(Operation::Fill(Fill {
            to,
            value,
            size,
            is_signal: false,
        }))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemset(to: Pointer, value: c_int, len: usize) -> c_int {
    fill(DEFAULT, Place::row(to), value, [len, 1, 1])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemsetAsync(
    to: Pointer,
    value: c_int,
    len: usize,
    stream: Stream,
) -> c_int {
    fill(stream, Place::row(to), value, [len, 1, 1])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemset2D(
    to: Pointer,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
) -> c_int {
    cudaMemset2DAsync(to, pitch, value, width, height, DEFAULT)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemset2DAsync(
    to: Pointer,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: Stream,
) -> c_int {
    fill(stream, Place::rows(to, pitch), value, [width, height, 1])
}

/// `cudaExtent`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Extent(pub(super) [usize; 3]);

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemset3D(to: Pitched, value: c_int, extent: Extent) -> c_int {
    cudaMemset3DAsync(to, value, extent, DEFAULT)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemset3DAsync(
    to: Pitched,
    value: c_int,
    extent: Extent,
    stream: Stream,
) -> c_int {
    let place = Place {
        at: to.at,
        pitch: to.pitch,
        plane: to.pitch * to.height,
    };
    fill(stream, place, value, extent.0)
}

/// The address of a part of a variable.
fn within(runtime: &Runtime, symbol: *const c_void, offset: usize) -> Result<Pointer, c_int> {
    let (at, size) = runtime.symbol(symbol)?;
    if offset as u64 > size {
        return Err(INVALID_VALUE);
    }
    Ok((at + offset as u64) as Pointer)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyToSymbol(
    symbol: *const c_void,
    from: *const c_void,
    len: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    let status = cudaMemcpyToSymbolAsync(symbol, from, len, offset, kind, DEFAULT);
    waited(status, true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyToSymbolAsync(
    symbol: *const c_void,
    from: *const c_void,
    len: usize,
    offset: usize,
    _: c_int,
    stream: Stream,
) -> c_int {
    submit(stream, |runtime| {
        let to = within(runtime, symbol, offset)?;
        Ok(Operation::Copy(Copy::row(to, from, len, ANY)))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyFromSymbol(
    to: Pointer,
    symbol: *const c_void,
    len: usize,
    offset: usize,
    kind: c_int,
) -> c_int {
    let status = cudaMemcpyFromSymbolAsync(to, symbol, len, offset, kind, DEFAULT);
    waited(status, true)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyFromSymbolAsync(
    to: Pointer,
    symbol: *const c_void,
    len: usize,
    offset: usize,
    _: c_int,
    stream: Stream,
) -> c_int {
    submit(stream, |runtime| {
        let from = within(runtime, symbol, offset)?;
        Ok(Operation::Copy(Copy::row(to, from, len, ANY)))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetSymbolAddress(to: *mut Pointer, symbol: *const c_void) -> c_int {
    call(|runtime| {
        let (at, _) = runtime.symbol(symbol)?;
        raw::put(to, at as Pointer);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGetSymbolSize(to: *mut usize, symbol: *const c_void) -> c_int {
    call(|runtime| {
        let (_, size) = runtime.symbol(symbol)?;
        raw::put(to, size as usize);
        Ok(())
    })
}
