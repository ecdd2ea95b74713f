//! PTX on a simulated or a real GPU, with arrays of other libraries as arguments.

#![allow(unsafe_code)]

use crate::error::{Finding, HeistError, bad_word, found};
use crate::trace::Trace;
use heist::launch::text::{no_files, parse_arg};
use heist::launch::{Arg, Arguments, Buffer, Dim3, ElementType, Launch, Role};
use heist::ptx::{Module, Source, parse};
use heist::run::{Device, DeviceName, NotRun, Program, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// One argument of a launch.
#[derive(FromPyObject)]
pub(crate) enum Argument {
    /// As the command takes it: `u32:7`, `out:f32:64`, `tensormap(..)`.
    Text(String),
    /// An array: its address, its bytes, the type of its elements, and whether it
    /// is `in`, `out` or `inout`.
    Array(u64, u64, String, String),
}

/// What a run gave.
#[pyclass(frozen, module = "heist", get_all)]
pub(crate) struct Report {
    /// What was found; nothing, where all is well.
    findings: Vec<Py<Finding>>,
    /// What the kernel printed.
    printed: String,
    /// How long it took, in nanoseconds: modelled on a simulated GPU, measured on a
    /// real one.
    elapsed_ns: Option<f64>,
    /// Which block ran when, on a simulated GPU.
    trace: Option<Py<Trace>>,
    /// The bytes of buffers that were written as text, by the argument's number.
    outputs: Vec<(usize, Vec<u8>)>,
}

impl Report {
    /// Of a launch whose arrays were written in place.
    pub(crate) fn new(
        findings: Vec<Py<Finding>>,
        printed: String,
        elapsed_ns: Option<f64>,
        trace: Option<Py<Trace>>,
    ) -> Report {
        Report {
            findings,
            printed,
            elapsed_ns,
            trace,
            outputs: Vec::new(),
        }
    }
}

#[pymethods]
impl Report {
    /// Of a kernel that ran on a real GPU, on arrays there: it has ended, and nothing more is
    /// known.
    #[staticmethod]
    fn done() -> Report {
        Report {
            findings: Vec::new(),
            printed: String::new(),
            elapsed_ns: None,
            trace: None,
            outputs: Vec::new(),
        }
    }

    fn __repr__(&self) -> String {
        format!(
            "<Report: {} found, {}>",
            self.findings.len(),
            self.elapsed_ns
                .map_or("no time".to_owned(), |ns| format!("{:.1} us", ns / 1e3))
        )
    }
}

pub(crate) fn parsed(py: Python<'_>, source: &Source) -> PyResult<Module> {
    parse(source).map_err(|list| found(py, &list, source))
}

/// The kernel that is asked for, or the only one.
pub(crate) fn entry_of<'m>(
    module: &'m Module,
    asked: Option<&str>,
) -> PyResult<&'m heist::ptx::Function> {
    let names: Vec<_> = module.entries().map(|f| f.name.to_string()).collect();
    let wrong =
        |why: &str| PyValueError::new_err(format!("{why}; there are: {}", names.join(", ")));
    match asked {
        Some(name) => module
            .entries()
            .find(|f| f.name.as_str() == name)
            .ok_or_else(|| wrong(&format!("there is no kernel `{name}`"))),
        None if names.len() == 1 => module.entries().next().ok_or_else(|| wrong("no kernel")),
        None => Err(wrong("say which kernel with `entry`")),
    }
}

/// Name, type and bytes of each parameter of a kernel.
#[pyfunction]
#[pyo3(signature = (text, name, entry=None))]
pub(crate) fn parameters(
    py: Python<'_>,
    text: &str,
    name: &str,
    entry: Option<&str>,
) -> PyResult<Vec<(String, String, Option<u64>)>> {
    let module = parsed(py, &Source::new(name, text))?;
    let function = entry_of(&module, entry)?;
    let of = |p: &heist::ptx::Variable| (p.name.to_string(), p.ty.as_str().to_owned(), p.size());
    Ok(function.params.iter().map(of).collect())
}

fn argument(given: &Argument) -> PyResult<Arg> {
    match given {
        Argument::Text(text) => parse_arg(text, &mut no_files).map_err(bad_word),
        Argument::Array(address, bytes, ty, role) => {
            let ty: ElementType = ty.parse().map_err(bad_word)?;
            let role = match role.as_str() {
                "in" => Role::In,
                "out" => Role::Out,
                "inout" => Role::InOut,
                other => {
                    return Err(PyValueError::new_err(format!(
                        "`{other}` is no role of an array: in, out or inout"
                    )));
                }
            };
            let data = if role == Role::Out {
                Buffer::poisoned(ty, *bytes as usize / ty.bytes())
            } else {
                let from = std::ptr::with_exposed_provenance::<u8>(*address as usize);
                let copy = if *bytes == 0 {
                    Vec::new()
                } else {
                    // SAFETY: the Python side passes the address and the size of an
                    // array in host memory that the caller holds until this is over.
                    unsafe { std::slice::from_raw_parts(from, *bytes as usize) }.to_vec()
                };
                Buffer::from_bytes(ty, copy).ok_or_else(|| {
                    PyValueError::new_err(format!("{bytes} bytes are no whole number of {ty}"))
                })?
            };
            Ok(Arg::Buffer { role, data })
        }
    }
}

/// Copies a kernel's output into a writable array.
fn write(array: &Argument, after: &Buffer) {
    let Argument::Array(address, bytes, ..) = array else {
        return;
    };
    let length = after.bytes().len().min(*bytes as usize);
    let to = std::ptr::with_exposed_provenance_mut::<u8>(*address as usize);
    // SAFETY: the Python side passes an array that can be written, which the caller
    // holds; `after` is memory of our own.
    unsafe { std::ptr::copy_nonoverlapping(after.bytes().as_ptr(), to, length) };
}

/// Launches a kernel and waits. Arrays are written in place.
#[pyfunction]
#[pyo3(signature = (text, name, entry, grid, block, arguments, buffers, *, cluster=None, shared=0, device="sim:h200", seed=0, chaos=false, limit_s=60.0))]
#[expect(clippy::too_many_arguments, reason = "by keyword, from Python")]
pub(crate) fn run(
    py: Python<'_>,
    text: &str,
    name: &str,
    entry: Option<&str>,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    arguments: Vec<Argument>,
    buffers: Vec<(String, Argument)>,
    cluster: Option<(u32, u32, u32)>,
    shared: u32,
    device: &str,
    seed: u64,
    chaos: bool,
    limit_s: f64,
) -> PyResult<Report> {
    let source = Source::new(name, text);
    let module = parsed(py, &source)?;
    let entry = entry_of(&module, entry)?.name.to_string();
    let device: DeviceName = device.parse().map_err(bad_word)?;
    let dim = |(x, y, z)| Dim3::new(x, y, z);
    let mut launch = Launch::new(dim(grid), dim(block)).dynamic_shared(shared);
    if let Some(cluster) = cluster {
        launch = launch.cluster(dim(cluster));
    }
    let params: Vec<Arg> = arguments.iter().map(argument).collect::<PyResult<_>>()?;
    let settings = Settings {
        seed,
        chaos,
        limit: Duration::try_from_secs_f64(limit_s).map_err(bad_word)?,
        ..Settings::default()
    };
    let mut params = Arguments::new(params);
    for (name, given) in &buffers {
        let Arg::Buffer { role, data } = argument(given)? else {
            return Err(PyValueError::new_err(format!("`{name}` is no buffer")));
        };
        params = params.buffer(name.as_str(), role, data);
    }
    let device = Device::open(device).map_err(|error| HeistError::new_err(error.to_string()))?;
    let program = Program::parsed(source.clone(), module);
    let ran = py.detach(|| device.inspect(&program, &entry, &launch, &params, &settings));
    let ran = ran.map_err(|error| match error {
        NotRun::Refused(list, source) => found(py, &list, &source),
        NotRun::Gpu(error) => HeistError::new_err(error.to_string()),
    })?;
    let mut outputs = Vec::new();
    for (index, given) in arguments.iter().enumerate() {
        let Some(after) = ran.outcome.output(index) else {
            continue;
        };
        match given {
            Argument::Array(..) => write(given, after),
            Argument::Text(_) => outputs.push((index, after.bytes().to_vec())),
        }
    }
    for (name, given) in &buffers {
        if let Some(after) = ran.outcome.output(name.as_str()) {
            write(given, after);
        }
    }
    let finding = |d| Py::new(py, Finding::new(d, &source));
    let trace = ran.outcome.trace.map(|trace| Trace { name: entry, trace });
    Ok(Report {
        findings: ran.findings.iter().map(finding).collect::<PyResult<_>>()?,
        printed: ran.printed,
        elapsed_ns: ran.elapsed.map(|time| time.ns()),
        trace: trace.map(|trace| Py::new(py, trace)).transpose()?,
        outputs,
    })
}
