//! PyTorch's stable C interface, found in the library that Python has loaded: nothing
//! of PyTorch is needed to build or to load this.
//!
//! The names and signatures are those of `torch/csrc/inductor/aoti_torch/c/shim.h`,
//! which PyTorch keeps for extensions that were built with another version.

#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

/// A tensor of PyTorch. Its owner releases it with [`Abi::release`].
pub(crate) type Tensor = *mut c_void;

/// What PyTorch calls for an operation: the arguments come in the list, the results
/// go there.
pub(crate) type Boxed = unsafe extern "C-unwind" fn(*mut u64, u64, u64);

type Status = i32;

/// A shape with the place of every element, as PyTorch has it.
pub(crate) struct Strided<'t> {
    pub(crate) sizes: &'t [i64],
    pub(crate) strides: &'t [i64],
    pub(crate) dtype: i32,
    pub(crate) device: (i32, i32),
}

/// The functions that are called.
pub(crate) struct Abi {
    library_new: unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const c_char,
        u32,
        *mut *mut c_void,
    ) -> Status,
    library_impl: unsafe extern "C" fn(*mut c_void, *const c_char, Boxed) -> Status,
    call: unsafe extern "C" fn(*const c_char, *const c_char, *mut u64) -> Status,
    check: unsafe extern "C-unwind" fn(bool, *const c_char, *const c_char, u32, *const c_char),
    dim: unsafe extern "C" fn(Tensor, *mut i64) -> Status,
    sizes: unsafe extern "C" fn(Tensor, *mut *const i64) -> Status,
    strides: unsafe extern "C" fn(Tensor, *mut *const i64) -> Status,
    dtype: unsafe extern "C" fn(Tensor, *mut i32) -> Status,
    device_type: unsafe extern "C" fn(Tensor, *mut i32) -> Status,
    device_index: unsafe extern "C" fn(Tensor, *mut i32) -> Status,
    data: unsafe extern "C" fn(Tensor, *mut *mut c_void) -> Status,
    delete: unsafe extern "C" fn(Tensor) -> Status,
    empty: unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut Tensor) -> Status,
    /// Only a PyTorch that was built for CUDA has it.
    stream: Option<unsafe extern "C" fn(i32, *mut *mut c_void) -> Status>,
    /// They stay loaded for as long as the functions are called: for ever.
    _libraries: Vec<Library>,
}

impl Abi {
    /// Of PyTorch's libraries: the one that must be there, and the one for CUDA.
    ///
    /// # Errors
    /// The function that this PyTorch does not have.
    pub(crate) fn of(core: &str, cuda: Option<&str>) -> Result<Abi, String> {
        let open = |path: &str| {
            // SAFETY: the interpreter has loaded it already, so nothing is run here.
            unsafe { Library::new(path) }.map_err(|error| format!("{path}: {error}"))
        };
        let main = open(core)?;
        let cuda = cuda.and_then(|path| open(path).ok());
        macro_rules! find {
            ($library:expr, $name:literal) => {
                // SAFETY: the type of the field is the declaration in PyTorch's header.
                *unsafe { $library.get($name.as_bytes()) }.map_err(|error| error.to_string())?
            };
        }
        let stream = match &cuda {
            Some(library) => Some(find!(library, "aoti_torch_get_current_cuda_stream")),
            None => None,
        };
        Ok(Abi {
            library_new: find!(main, "aoti_torch_library_init_impl"),
            library_impl: find!(main, "aoti_torch_library_impl"),
            call: find!(main, "aoti_torch_call_dispatcher"),
            check: find!(main, "aoti_torch_check"),
            dim: find!(main, "aoti_torch_get_dim"),
            sizes: find!(main, "aoti_torch_get_sizes"),
            strides: find!(main, "aoti_torch_get_strides"),
            dtype: find!(main, "aoti_torch_get_dtype"),
            device_type: find!(main, "aoti_torch_get_device_type"),
            device_index: find!(main, "aoti_torch_get_device_index"),
            data: find!(main, "aoti_torch_get_data_ptr"),
            delete: find!(main, "aoti_torch_delete_tensor_object"),
            empty: find!(main, "aoti_torch_empty_strided"),
            stream,
            _libraries: std::iter::once(main).chain(cuda).collect(),
        })
    }

    /// Makes PyTorch call `bodies` for operations of the namespace `heist`, for
    /// tensors of a kind of device (`CPU` or `CUDA`).
    ///
    /// # Errors
    /// The operation that PyTorch does not take.
    pub(crate) fn register(&self, key: &CStr, bodies: &[(CString, Boxed)]) -> Result<(), String> {
        let mut library = ptr::null_mut();
        let (space, file) = (c"heist", c"heist");
        // SAFETY: all names end with a zero and live through the call; the library is
        // never deleted, so the operations stay.
        let made = unsafe {
            (self.library_new)(space.as_ptr(), key.as_ptr(), file.as_ptr(), 0, &mut library)
        };
        if made != 0 {
            return Err(format!("PyTorch takes no operations for {key:?}"));
        }
        for (name, body) in bodies {
            // SAFETY: as above, and `body` is a function of this library, which is
            // never unloaded.
            if unsafe { (self.library_impl)(library, name.as_ptr(), *body) } != 0 {
                return Err(format!("PyTorch does not take {name:?} for {key:?}"));
            }
        }
        Ok(())
    }

    /// Calls an operation. Its arguments are released; its results are in the list. Returns whether
    /// it could be called.
    ///
    /// # Safety
    /// The list has arguments of the types that the operation takes, and room for its
    /// results.
    pub(crate) unsafe fn call(&self, name: &CStr, stack: &mut [u64]) -> bool {
        // SAFETY: the caller's promise; an overload without a name is the only one.
        unsafe { (self.call)(name.as_ptr(), c"".as_ptr(), stack.as_mut_ptr()) == 0 }
    }

    /// Throws a C++ exception to PyTorch.
    pub(crate) fn throw(&self, why: &CStr) {
        // SAFETY: names that end with a zero. It unwinds through this function, which
        // has nothing to clean up.
        unsafe { (self.check)(false, c"heist".as_ptr(), c"".as_ptr(), 0, why.as_ptr()) }
    }

    /// Shape, type and device of a tensor; nothing where PyTorch does not say.
    ///
    /// # Safety
    /// The tensor was given by PyTorch and not let go; the answer is not used after
    /// it was.
    pub(crate) unsafe fn strided<'t>(&self, tensor: Tensor) -> Option<Strided<'t>> {
        let (mut dim, mut dtype, mut device) = (0, 0, (0, 0));
        let (mut sizes, mut strides) = (ptr::null(), ptr::null());
        // SAFETY: the tensor is one, and each call writes one number.
        let wrong = unsafe {
            (self.dim)(tensor, &mut dim)
                | (self.sizes)(tensor, &mut sizes)
                | (self.strides)(tensor, &mut strides)
                | (self.dtype)(tensor, &mut dtype)
                | (self.device_type)(tensor, &mut device.0)
                | (self.device_index)(tensor, &mut device.1)
        };
        if wrong != 0 || dim < 0 || (dim > 0 && (sizes.is_null() || strides.is_null())) {
            return None;
        }
        let list = |from: *const i64| match dim {
            0 => &[][..],
            // SAFETY: PyTorch's own arrays, which live as long as the tensor and have
            // a number for each dimension.
            _ => unsafe { std::slice::from_raw_parts(from, dim as usize) },
        };
        Some(Strided {
            sizes: list(sizes),
            strides: list(strides),
            dtype,
            device,
        })
    }

    /// Where the first element lies; zero where PyTorch does not say.
    ///
    /// # Safety
    /// The tensor was given by PyTorch and not let go.
    pub(crate) unsafe fn address(&self, tensor: Tensor) -> u64 {
        let mut data = ptr::null_mut();
        // SAFETY: the caller's promise; one pointer is written.
        match unsafe { (self.data)(tensor, &mut data) } {
            0 => data.expose_provenance() as u64,
            _ => 0,
        }
    }

    /// A tensor of PyTorch's allocator, with any contents; nothing where there is no
    /// memory for it.
    pub(crate) fn empty(&self, like: &Strided<'_>) -> Option<Tensor> {
        let mut tensor = ptr::null_mut();
        // SAFETY: both lists have a number for each dimension; one pointer is written.
        let status = unsafe {
            (self.empty)(
                like.sizes.len() as i64,
                like.sizes.as_ptr(),
                like.strides.as_ptr(),
                like.dtype,
                like.device.0,
                like.device.1,
                &mut tensor,
            )
        };
        (status == 0).then_some(tensor)
    }

    /// Releases a tensor.
    ///
    /// # Safety
    /// It was given by PyTorch, and is not used any more.
    pub(crate) unsafe fn release(&self, tensor: Tensor) {
        // SAFETY: the caller's promise. Nobody can act on a failure.
        let _ = unsafe { (self.delete)(tensor) };
    }

    /// PyTorch's current stream on a GPU.
    pub(crate) fn stream(&self, index: i32) -> Option<u64> {
        let mut stream = ptr::null_mut();
        // SAFETY: one pointer is written.
        match unsafe { self.stream?(index, &mut stream) } {
            0 => Some(stream.expose_provenance() as u64),
            _ => None,
        }
    }
}
