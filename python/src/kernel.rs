//! A kernel of PTX on a real GPU, launched over memory that is there already.

use crate::error::{HeistError, bad_word};
use crate::launch::{Argument, entry_of, parsed};
use heist::gpu::{Gpu, GpuError, JitOptions, PtxText};
use heist::launch::text::{no_files, parse_arg};
use heist::launch::{Arg, BufferRef, Dim3, Launch, Role};
use heist::ops::BorrowedStream;
use heist::ptx::Source;
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;

/// A kernel that was assembled for a GPU.
#[pyclass(frozen, module = "heist._native")]
pub(crate) struct Kernel {
    gpu: Gpu,
    kernel: Arc<heist::gpu::Kernel>,
    parameters: Vec<(String, String, Option<u64>)>,
}

#[pymethods]
impl Kernel {
    #[new]
    #[pyo3(signature = (text, name, entry, device))]
    fn new(
        py: Python<'_>,
        text: &str,
        name: &str,
        entry: Option<&str>,
        device: u32,
    ) -> PyResult<Kernel> {
        let module = parsed(py, &Source::new(name, text))?;
        let function = entry_of(&module, entry)?;
        let of = |p: &heist::ptx::Variable| (p.name.to_string(), p.ty.as_str().into(), p.size());
        let parameters = function.params.iter().map(of).collect();
        let entry = function.name.to_string();
        let assembled = py.detach(|| {
            let gpu = Gpu::open(device)?;
            let program = gpu.load(&PtxText::new(name, text), &JitOptions::default())?;
            let kernel = Arc::new(program.kernel(&entry)?);
            Ok((gpu, kernel))
        });
        let (gpu, kernel) = assembled.map_err(of_gpu)?;
        Ok(Kernel {
            gpu,
            kernel,
            parameters,
        })
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.kernel.info().name
    }

    /// Name, type and bytes of each parameter.
    #[getter]
    fn parameters(&self) -> Vec<(String, String, Option<u64>)> {
        self.parameters.clone()
    }

    /// Puts it into the stream with this handle. With `wait`, it returns when all
    /// that is in the device's streams is done; buffers that are given as text live
    /// for as long.
    #[pyo3(signature = (grid, block, arguments, buffers, *, cluster=None, shared=0, stream=0, wait=false))]
    #[expect(clippy::too_many_arguments, reason = "by keyword, from Python")]
    fn launch(
        &self,
        py: Python<'_>,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        arguments: Vec<Argument>,
        buffers: Vec<(String, Argument)>,
        cluster: Option<(u32, u32, u32)>,
        shared: u32,
        stream: u64,
        wait: bool,
    ) -> PyResult<()> {
        let dim = |(x, y, z)| Dim3::new(x, y, z);
        let mut launch = Launch::new(dim(grid), dim(block)).dynamic_shared(shared);
        if let Some(cluster) = cluster {
            launch = launch.cluster(dim(cluster));
        }
        let ready = self.kernel.ready(&launch).map_err(of_gpu)?;
        let sizes = &self.kernel.info().parameters;
        if arguments.len() != sizes.len() {
            return Err(PyValueError::new_err(format!(
                "`{}` takes {} arguments; given: {}",
                self.name(),
                sizes.len(),
                arguments.len()
            )));
        }
        let mut bytes = vec![0; ready.parameter_bytes()];
        let mut own = Vec::new();
        for (index, (argument, size)) in arguments.iter().zip(sizes).enumerate() {
            let value = match argument {
                Argument::Array(address, ..) => address.to_le_bytes().to_vec(),
                Argument::Text(text) => {
                    let arg = parse_arg(text, &mut no_files).map_err(bad_word)?;
                    if let Arg::Buffer { role, data } = &arg {
                        if !wait || *role == Role::Out {
                            return Err(PyValueError::new_err(format!(
                                "argument {index}: a kernel on a GPU writes into an array that is there: pass one instead of `{text}`"
                            )));
                        }
                        let memory = self.gpu.allocate_with(data.bytes()).map_err(of_gpu)?;
                        let address = memory.address();
                        own.push(memory);
                        address.to_le_bytes().to_vec()
                    } else {
                        self.by_value(&arg, &arguments, &buffers)?
                    }
                }
            };
            if value.len() != *size {
                return Err(PyValueError::new_err(format!(
                    "argument {index}: its parameter takes {size} bytes; given: {}",
                    value.len()
                )));
            }
            let at = ready.offsets()[index];
            bytes[at..at + size].copy_from_slice(&value);
        }
        py.detach(|| {
            ready.launch(BorrowedStream(stream), &bytes)?;
            if wait { self.gpu.synchronize() } else { Ok(()) }
        })
        .map_err(of_gpu)
    }

    fn __repr__(&self) -> String {
        let info = self.kernel.info();
        format!(
            "<Kernel {}: {} registers, {} bytes of shared memory>",
            info.name, info.registers, info.static_shared
        )
    }
}

impl Kernel {
    /// The bytes of a number, a struct, a pointer or a tensor map.
    fn by_value(
        &self,
        arg: &Arg,
        arguments: &[Argument],
        buffers: &[(String, Argument)],
    ) -> PyResult<Vec<u8>> {
        let find = |buffer: &BufferRef| {
            let found = match buffer {
                BufferRef::Named(name) => buffers
                    .iter()
                    .find(|(known, _)| known == name)
                    .map(|(_, array)| array),
                BufferRef::Argument(index) => arguments.get(*index),
            };
            match found {
                Some(Argument::Array(address, bytes, ..)) => Ok((*address, *bytes)),
                _ => Err(PyValueError::new_err(format!(
                    "there is no array `{buffer}`: name it with `buffers`"
                ))),
            }
        };
        match arg {
            Arg::Scalar(scalar) => Ok(scalar.to_bytes()),
            Arg::Bytes(bytes) => Ok(bytes.clone()),
            Arg::Pointer { buffer, offset } => {
                // A buffer without elements has no address, and nobody reads it.
                let (address, bytes) = find(buffer)?;
                if *offset > bytes {
                    return Err(PyValueError::new_err(format!(
                        "a pointer {offset} bytes into `{buffer}`, which has {bytes}"
                    )));
                }
                Ok((address + offset).to_le_bytes().to_vec())
            }
            Arg::TensorMap(map) => {
                let (address, bytes) = find(&map.buffer)?;
                map.validate().map_err(bad_word)?;
                map.validate_within(bytes).map_err(bad_word)?;
                let encoded = self.gpu.encode_tensor_map(map);
                let encoded = encoded.and_then(|map| map.at(&self.gpu, address));
                let encoded = encoded.map_err(of_gpu)?;
                Ok(encoded.to_vec())
            }
            Arg::Buffer { .. } => Err(PyValueError::new_err("a buffer is no value")),
            Arg::Struct(_) | Arg::Function(_) => Err(PyValueError::new_err(format!(
                "`{arg}` is not for a kernel of `heist.compile`: give the pointers one by one"
            ))),
        }
    }
}

fn of_gpu(error: GpuError) -> PyErr {
    match error {
        GpuError::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
        other => HeistError::new_err(other.to_string()),
    }
}
