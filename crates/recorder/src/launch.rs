//! A launch as the driver is asked for it.

use crate::driver::Handle;
use heist_launch::{Dim3, Launch};
use heist_ptx::Variable;
use std::ffi::{c_int, c_uint, c_void};

/// What the program wants.
pub(crate) struct Wish {
    pub(crate) function: Handle,
    pub(crate) launch: Launch,
    pub(crate) cooperative: bool,
    pub(crate) stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// The driver's description of a launch.
#[repr(C)]
pub(crate) struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    count: c_uint,
}

#[repr(C)]
struct Attribute {
    id: c_int,
    pad: [u8; 4],
    value: [c_uint; 16],
}

/// The attributes that a record keeps.
const COOPERATIVE: c_int = 2;
const CLUSTER: c_int = 4;

impl Wish {
    pub(crate) fn plain(
        function: Handle,
        grid: (c_uint, c_uint, c_uint),
        block: (c_uint, c_uint, c_uint),
        shared: c_uint,
        stream: Handle,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Wish {
        Wish {
            function,
            launch: Launch::new(grid, block).dynamic_shared(shared),
            cooperative: false,
            stream,
            params,
            extra,
        }
    }

    /// The same with all blocks on the device at once.
    pub(crate) fn cooperative(self) -> Wish {
        Wish {
            cooperative: true,
            ..self
        }
    }

    /// A launch from a description.
    ///
    /// # Safety
    /// It is null, or one that the driver takes.
    pub(crate) unsafe fn described(
        config: *const Config,
        function: Handle,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Option<Wish> {
        // SAFETY: as the caller guarantees.
        let (config, attributes) = unsafe {
            let config = config.as_ref()?;
            let attributes = match config.attributes.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(config.attributes, config.count as usize),
            };
            (config, attributes)
        };
        let mut wish = Wish {
            function,
            launch: Launch::new(config.grid, config.block).dynamic_shared(config.shared),
            cooperative: false,
            stream: config.stream,
            params,
            extra,
        };
        for attribute in attributes {
            let [x, y, z, ..] = attribute.value;
            match attribute.id {
                COOPERATIVE => wish.cooperative = x != 0,
                CLUSTER => wish.launch.cluster = Some(Dim3::new(x, y, z)),
                _ => {}
            }
        }
        Some(wish)
    }

    /// The bytes of each parameter, by the kernel's own list.
    ///
    /// # Safety
    /// The kernel has these parameters.
    pub(crate) unsafe fn arguments(&self, params: &[Variable]) -> Option<Vec<Vec<u8>>> {
        let sizes = params
            .iter()
            .map(|param| param.size().map(|size| size as usize));
        let sizes = sizes.collect::<Option<Vec<usize>>>()?;
        // SAFETY: the driver reads the same bytes, by the same list.
        unsafe {
            let bytes = |from: *const c_void, len: usize| {
                std::slice::from_raw_parts(from.cast::<u8>(), len).to_vec()
            };
            if !self.params.is_null() {
                let one = |(at, &size): (usize, &usize)| bytes(*self.params.add(at), size);
                return Some(sizes.iter().enumerate().map(one).collect());
            }
            let packed = packed(self.extra)?;
            let mut at = 0;
            let one = |(param, &size): (&Variable, &usize)| {
                at = usize::next_multiple_of(at, alignment(param));
                at += size;
                bytes(packed.byte_add(at - size), size)
            };
            Some(params.iter().zip(&sizes).map(one).collect())
        }
    }
}

/// The buffer of a launch whose parameters come in one piece.
///
/// # Safety
/// It is null, or a list as the driver takes it.
unsafe fn packed(extra: *mut *mut c_void) -> Option<*const c_void> {
    const END: usize = 0;
    const POINTER: usize = 1;
    if extra.is_null() {
        return None;
    }
    let mut at = 0;
    // SAFETY: pairs of a word and its value, until the word that ends them.
    unsafe {
        loop {
            match *extra.add(at) as usize {
                END => return None,
                POINTER => return Some(*extra.add(at + 1)),
                _ => at += 2,
            }
        }
    }
}

fn alignment(param: &Variable) -> usize {
    let own = param.ty.bytes() as usize;
    param.align.map_or(own, |align| align as usize).max(1)
}
