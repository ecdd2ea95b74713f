//! PTX in the driver's hands: assembled programs.

use crate::cache::{JitOptions, Loaded, OptIn, ProgramKey};
use crate::context::Gpu;
use crate::error::GpuError;
use crate::kernel::Kernel;
use crate::ptx::PtxText;
use crate::raw::{self, JitRequest};
use std::borrow::Cow;
use std::ffi::CString;
use std::sync::Arc;

/// An assembled program.
#[derive(Clone)]
pub struct Program {
    gpu: Gpu,
    name: String,
    loaded: Arc<Loaded>,
}

impl Gpu {
    /// Assembles PTX, or finds that it was assembled before with the same options.
    ///
    /// The error has what the assembler said, or, for PTX that is too new or for
    /// another chip, what that means.
    pub fn load(&self, ptx: &PtxText, options: &JitOptions) -> Result<Program, GpuError> {
        let ptx = self.as_taken(ptx, options);
        let key = ProgramKey::new(&ptx.text, self.info(), options);
        if let Some(loaded) = self
            .cached_program(&key)
            .filter(|l| l.text.text == ptx.text)
        {
            return Ok(self.program(&ptx, loaded));
        }
        let loaded = Arc::new(self.assemble(&ptx, options)?);
        self.cache_program(key, Arc::clone(&loaded));
        Ok(self.program(&ptx, loaded))
    }

    /// A program for one run. What was assembled before is taken only where no run can have left
    /// something in it: variables in global memory live as long as the module.
    pub(crate) fn load_for_a_run(
        &self,
        ptx: &PtxText,
        options: &JitOptions,
    ) -> Result<ForARun, GpuError> {
        let own = ptx.has_global_variables();
        let program = if own {
            let ptx = self.as_taken(ptx, options);
            self.program(&ptx, Arc::new(self.assemble(&ptx, options)?))
        } else {
            self.load(ptx, options)?
        };
        Ok(ForARun { program, own })
    }

    /// The text as the driver gets it.
    fn as_taken<'p>(&self, ptx: &'p PtxText, options: &JitOptions) -> Cow<'p, PtxText> {
        if options.clamp_version {
            ptx.clamped(self.info().driver.ptx_isa())
        } else {
            Cow::Borrowed(ptx)
        }
    }

    fn program(&self, ptx: &PtxText, loaded: Arc<Loaded>) -> Program {
        Program {
            gpu: self.clone(),
            name: ptx.name.clone(),
            loaded,
        }
    }

    fn assemble(&self, ptx: &PtxText, options: &JitOptions) -> Result<Loaded, GpuError> {
        self.enter()?;
        let image = CString::new(ptx.text.as_str()).map_err(|error| GpuError::ZeroByte {
            module: ptx.name.clone(),
            at: error.nul_position(),
        })?;
        let request = JitRequest {
            max_registers: options.max_registers,
            optimization: options.optimization,
            line_info: options.line_info,
        };
        let (result, logs) = raw::module_load(&image, &request);
        let module = match result {
            Ok(module) => module,
            Err(status) if status.is_fault() => return self.check(Err(status)),
            Err(status) => {
                let log = [logs.error, logs.info].join("\n").trim().to_owned();
                return Err(GpuError::from_jit(
                    &ptx.name,
                    status,
                    log,
                    ptx.version(),
                    ptx.target(),
                    self.info().capability,
                    self.info().driver,
                ));
            }
        };
        Ok(Loaded::new(module, ptx.clone(), logs.info))
    }
}

/// A program that is unloaded after its run, if it is that run's own.
pub(crate) struct ForARun {
    pub(crate) program: Program,
    own: bool,
}

impl Drop for ForARun {
    fn drop(&mut self) {
        if self.own && self.program.gpu.enter_to_drop() {
            // What fails here has no one left to be reported to.
            let _ = raw::module_unload(self.program.module());
        }
    }
}

impl Program {
    /// The GPU it is loaded on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the assembler had to say: registers, spills, shared memory. Empty when
    /// the driver had the result in its own cache.
    pub fn log(&self) -> &str {
        &self.loaded.log
    }

    /// A kernel of it.
    pub fn kernel(&self, name: &str) -> Result<Kernel, GpuError> {
        Kernel::find(self, name)
    }

    pub(crate) fn module(&self) -> raw::CUmodule {
        self.loaded.module.0
    }

    pub(crate) fn kernel_names(&self) -> Vec<String> {
        self.text().kernels()
    }

    pub(crate) fn text(&self) -> &PtxText {
        &self.loaded.text
    }

    pub(crate) fn opt_in(&self, kernel: &str) -> Arc<OptIn> {
        self.loaded.opt_in(kernel)
    }

    /// Whether two programs are the same assembled one.
    pub fn is_same(&self, other: &Program) -> bool {
        Arc::ptr_eq(&self.loaded, &other.loaded)
    }
}
