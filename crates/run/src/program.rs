//! A program: PTX as text and as a module.

use crate::execution::NotRun;
use heist_launch::Dim3;
use heist_ptx::{Diagnostic, FunctionDirective, Module, Source};
use std::fmt;
use std::sync::OnceLock;

/// PTX as text and as a module, parsed once; a simulation decodes it once besides.
pub struct Program {
    source: Source,
    module: Module,
    simulated: OnceLock<Result<heist_sim::Program, Vec<Diagnostic>>>,
}

impl Program {
    /// Parses a text.
    ///
    /// # Errors
    /// What the parser says.
    pub fn new(source: Source) -> Result<Program, NotRun> {
        match heist_ptx::parse(&source) {
            Ok(module) => Ok(Program::parsed(source, module)),
            Err(found) => Err(NotRun::Refused(found, Box::new(source))),
        }
    }

    /// A built module: printed and parsed again, so that findings have lines.
    pub fn from_module(name: impl Into<String>, module: &Module) -> Program {
        let source = Source::new(name.into(), heist_ptx::print(module));
        let read = heist_ptx::parse(&source).unwrap_or_else(|_| module.clone());
        Program::parsed(source, read)
    }

    /// A text and its own module.
    pub fn parsed(source: Source, module: Module) -> Program {
        Program {
            source,
            module,
            simulated: OnceLock::new(),
        }
    }

    /// The same with its symbols at addresses that another GPU gave them.
    #[must_use]
    pub fn at(&self, addresses: &heist_sim::Addresses) -> Program {
        let simulated = heist_sim::Program::at(self.module.clone(), addresses);
        Program {
            source: self.source.clone(),
            module: self.module.clone(),
            simulated: OnceLock::from(simulated),
        }
    }

    /// The text.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The kernel of that name, or the module's only one.
    ///
    /// # Errors
    /// When there is none, or there are several and none was asked for.
    pub fn entry(&self, asked: Option<&str>) -> Result<&str, EntryError> {
        let names = || self.module.entries().map(|entry| entry.name.as_str());
        let error = |what: String| EntryError {
            file: self.source.name().to_owned(),
            what,
            known: names().map(str::to_owned).collect(),
        };
        match asked {
            Some(asked) => names()
                .find(|name| *name == asked)
                .ok_or_else(|| error(format!("there is no kernel `{asked}`"))),
            None => match (names().next(), names().nth(1)) {
                (Some(only), None) => Ok(only),
                _ => Err(error("which kernel? say --entry".to_owned())),
            },
        }
    }

    /// The threads of a block that a kernel says it is launched with: the exact number,
    /// or else the most.
    pub fn block(&self, entry: &str) -> Option<Dim3> {
        let kernel = self.module.entries().find(|kernel| kernel.name == entry)?;
        let said = |asked: &str| {
            kernel
                .directives
                .iter()
                .find_map(|directive| match directive {
                    FunctionDirective::Numbers { name, values, .. } if name == asked => {
                        let at = |axis: usize| {
                            let value = values.get(axis).copied().unwrap_or(1);
                            u32::try_from(value).unwrap_or(u32::MAX)
                        };
                        Some(Dim3::new(at(0), at(1), at(2)))
                    }
                    _ => None,
                })
        };
        said("reqntid").or_else(|| said("maxntid"))
    }

    /// The same for the simulator.
    ///
    /// # Errors
    /// Why it does not accept the module.
    pub fn simulated(&self) -> Result<&heist_sim::Program, NotRun> {
        self.simulated
            .get_or_init(|| heist_sim::Program::new(self.module.clone()))
            .as_ref()
            .map_err(|found| NotRun::Refused(found.clone(), Box::new(self.source.clone())))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({})", self.source.name())
    }
}

/// How many names a message lists.
const LISTED: usize = 10;

/// Names for a message: the first of many, and how many more there are.
pub fn some_of<S: AsRef<str>>(names: &[S]) -> String {
    let listed: Vec<&str> = names.iter().take(LISTED).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(LISTED) {
        0 => listed.join(", "),
        more => format!("{}, and {more} more", listed.join(", ")),
    }
}

/// No kernel of that name, or several to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError {
    file: String,
    what: String,
    known: Vec<String>,
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known.as_slice() {
            [] => write!(f, "{}: it has no kernel (`.entry`)", self.file),
            known => write!(f, "{}: {}; it has {}", self.file, self.what, some_of(known)),
        }
    }
}

impl std::error::Error for EntryError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kernels: usize, asked: Option<&str>) -> String {
        let entries = (0..kernels).map(|at| format!(".entry k{at}() {{ ret; }}\n"));
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n{}",
            entries.collect::<String>()
        );
        let program = Program::new(Source::new("k.ptx", text)).expect("PTX");
        let error = program.entry(asked).expect_err("no kernel is meant");
        error.to_string()
    }

    #[test]
    fn a_module_of_many_kernels_lists_some() {
        assert_eq!(
            told(2, None),
            "k.ptx: which kernel? say --entry; it has k0, k1"
        );
        let all = "k0, k1, k2, k3, k4, k5, k6, k7, k8, k9";
        for (kernels, end) in [(10, ""), (11, ", and 1 more"), (2000, ", and 1990 more")] {
            assert_eq!(
                told(kernels, Some("scale")),
                format!("k.ptx: there is no kernel `scale`; it has {all}{end}")
            );
        }
    }
}
