//! Launches over other libraries' arrays: one allocation for each array, at an address that the
//! Python side has chosen, so that pointers may be stored anywhere.

#![allow(unsafe_code)]

use crate::error::{Finding, HeistError, bad_word, found};
use crate::launch::Report;
use crate::trace::Trace;
use heist::launch::text::{no_files, parse_arg};
use heist::launch::{Arg, Arguments, Dim3, Launch, Placed, Written};
use heist::ptx::Source;
use heist::run::{Device, DeviceName, NotRun, Program, Schedules, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// PTX that is parsed once and launched often.
#[pyclass(frozen, module = "heist")]
pub(crate) struct Module {
    program: Arc<Program>,
}

#[pymethods]
impl Module {
    #[new]
    fn new(py: Python<'_>, text: &str, name: &str) -> PyResult<Module> {
        let program = Program::new(Source::new(name, text));
        let program = program.map_err(|error| not_run(py, error))?;
        Ok(Module {
            program: Arc::new(program),
        })
    }

    /// Name, type and bytes of each parameter of a kernel.
    fn parameters(&self, entry: &str) -> PyResult<Vec<(String, String, Option<u64>)>> {
        let mut entries = self.program.module().entries();
        let kernel = entries.find(|kernel| kernel.name == entry);
        let kernel =
            kernel.ok_or_else(|| PyValueError::new_err(format!("there is no kernel `{entry}`")))?;
        let of =
            |p: &heist::ptx::Variable| (p.name.to_string(), p.ty.as_str().to_owned(), p.size());
        Ok(kernel.params.iter().map(of).collect())
    }
}

/// One parameter of a launch.
#[derive(FromPyObject)]
pub(crate) enum Parameter {
    /// `tensormap(..)`, as the command takes it.
    Text(String),
    /// Its bytes.
    Bytes(Vec<u8>),
}

/// An array that a kernel may touch.
#[derive(FromPyObject)]
pub(crate) struct Memory {
    /// What messages and tensor maps call it.
    name: String,
    /// Its address on the device.
    at: u64,
    /// Its address in the host's memory.
    host: u64,
    /// Its bytes.
    len: u64,
    /// Whether it may be written in the host's memory.
    writable: bool,
    /// Which bytes were written before, a bit for each; all, where nothing is said.
    written: Option<Vec<u8>>,
}

impl Memory {
    fn placed(&self) -> PyResult<Placed> {
        let len = usize::try_from(self.len).map_err(bad_word)?;
        let from = std::ptr::with_exposed_provenance::<u8>(self.host as usize);
        let copy = if len == 0 {
            Vec::new()
        } else {
            // SAFETY: the Python side passes the address and the size of an array in host
            // memory that it holds until the launch is over.
            unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
        };
        let written = self.written.as_ref().map(|bits| Written {
            lines: bits.chunks(16).map(line).collect(),
        });
        Ok(Placed {
            written,
            ..Placed::filled(self.name.clone(), self.at, copy)
        })
    }

    /// Copies the kernel's output into the array; returns which of its bytes were ever written.
    fn take_back(&self, after: &Placed) -> Option<Vec<u8>> {
        let len = after.bytes.len().min(self.len as usize);
        if self.writable && len > 0 {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(self.host as usize);
            // SAFETY: the Python side passes an array that can be written, which it holds;
            // `after` is memory of our own.
            unsafe { std::ptr::copy_nonoverlapping(after.bytes.as_ptr(), to, len) };
        }
        let written = after.written.as_ref()?;
        let bytes = written.lines.iter().flat_map(|line| line.to_le_bytes());
        Some(bytes.collect())
    }
}

fn line(bytes: &[u8]) -> u128 {
    let mut whole = [0; 16];
    whole[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(whole)
}

fn not_run(py: Python<'_>, error: NotRun) -> PyErr {
    match error {
        NotRun::Refused(list, source) => found(py, &list, &source),
        NotRun::Gpu(error) => HeistError::new_err(error.to_string()),
    }
}

/// How a launch is simulated.
#[derive(FromPyObject)]
pub(crate) struct How {
    device: String,
    /// How many schedules are tried; a few where that is cheap, if nothing is said.
    explore: Option<u64>,
    seed: u64,
    cooperative: bool,
    limit_s: f64,
}

impl How {
    fn settings(&self) -> PyResult<Settings> {
        Ok(Settings {
            seed: self.seed,
            schedules: self
                .explore
                .map_or(Schedules::WhileCheap, Schedules::Exactly),
            cooperative: self.cooperative,
            limit: Duration::try_from_secs_f64(self.limit_s).map_err(bad_word)?,
            ..Settings::default()
        })
    }
}

/// Launches a kernel on a simulated GPU and waits. Arrays are written in place. Besides the
/// report: of each array, the bytes that were ever written, where those are not all.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "called by one place, in Python")]
pub(crate) fn simulate(
    py: Python<'_>,
    module: &Module,
    entry: &str,
    grid: (u32, u32, u32),
    block: (u32, u32, u32),
    cluster: Option<(u32, u32, u32)>,
    shared: u32,
    parameters: Vec<Parameter>,
    memory: Vec<Memory>,
    how: How,
) -> PyResult<(Report, Vec<Option<Vec<u8>>>)> {
    let name: DeviceName = how.device.parse().map_err(bad_word)?;
    let device = Device::open(name).map_err(|error| HeistError::new_err(error.to_string()))?;
    let dim = |(x, y, z)| Dim3::new(x, y, z);
    let mut launch = Launch::new(dim(grid), dim(block)).dynamic_shared(shared);
    if let Some(cluster) = cluster {
        launch = launch.cluster(dim(cluster));
    }
    let params = parameters.into_iter().map(|parameter| match parameter {
        Parameter::Text(text) => parse_arg(&text, &mut no_files).map_err(bad_word),
        Parameter::Bytes(bytes) => Ok(Arg::Bytes(bytes)),
    });
    let arguments = Arguments {
        placed: memory.iter().map(Memory::placed).collect::<PyResult<_>>()?,
        ..Arguments::new(params.collect::<PyResult<Vec<_>>>()?)
    };
    let settings = how.settings()?;
    let program = Arc::clone(&module.program);
    let ran = py.detach(|| device.inspect(&program, entry, &launch, &arguments, &settings));
    let ran = ran.map_err(|error| not_run(py, error))?;
    let left = |one: &Memory| {
        let mut after = ran.placed.iter();
        one.take_back(after.find(|after| after.name == one.name)?)
    };
    let written = memory.iter().map(left).collect();
    let finding = |d| Py::new(py, Finding::compiled(d, &program));
    let findings = ran.findings.iter().map(finding).collect::<PyResult<_>>()?;
    let name = entry.to_owned();
    let trace = ran.outcome.trace.map(|trace| Trace { name, trace });
    let trace = trace.map(|trace| Py::new(py, trace)).transpose()?;
    let elapsed = ran.elapsed.map(|time| time.ns());
    Ok((Report::new(findings, ran.printed, elapsed, trace), written))
}

/// What kernels are compiled for and planned by: name, architecture (`sm_90a`), SMs, shared
/// memory of a block and registers of an SM.
#[pyfunction]
pub(crate) fn simulated(device: &str) -> PyResult<(String, String, u32, u32, u32)> {
    let name = match device.split_once(':') {
        None => format!("sim:{device}"),
        Some(_) => device.to_owned(),
    };
    match name.parse().map_err(bad_word)? {
        DeviceName::Sim(gpu) => {
            let limits = gpu.arch.limits();
            Ok((
                name,
                gpu.arch.name().to_owned(),
                gpu.sms,
                limits.shared_opt_in,
                limits.registers_per_sm,
            ))
        }
        DeviceName::Gpu(_) => Err(PyValueError::new_err(format!(
            "`{device}` is a real GPU: kernels run on it as they are; name a simulated one, such as `h200`"
        ))),
    }
}
