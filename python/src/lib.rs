//! The compiled part of the Python package `heist`.
//!
//! It takes numbers and text and gives numbers and text: tensors, arrays and devices
//! of other libraries are the business of the Python files beside it, so nothing
//! here needs PyTorch or numpy to be built or loaded.

mod abi;
mod dispatch;
mod dlpack;
mod error;
mod inspect;
mod kernel;
mod launch;
mod ops;
mod simulate;
mod trace;

use pyo3::prelude::*;

/// The compiled part of `heist`.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::dispatch::{dispatch, forget, refuse, remember, remembered, workspace};
    #[pymodule_export]
    use crate::dlpack::dlpack;
    #[pymodule_export]
    use crate::error::{Finding, FindingError, HeistError, UnsupportedError};
    #[pymodule_export]
    use crate::inspect::{check, command, explain, policies, policy};
    #[pymodule_export]
    use crate::kernel::Kernel;
    #[pymodule_export]
    use crate::launch::{Report, parameters, run};
    #[pymodule_export]
    use crate::ops::{Ops, Plan};
    #[pymodule_export]
    use crate::simulate::{Module, simulate, simulated};
    #[pymodule_export]
    use crate::trace::Trace;

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
