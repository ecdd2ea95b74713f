//! The variables of a module: where they lie, and what they start with.

use super::constant::{Symbols, evaluate};
use super::names::Storage;
use crate::state::memory::window;
use heist_ptx::{
    Constant, Diagnostic, Initializer, Linkage, Module, Name, Space, Span, Statement, Variable,
    rule,
};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Where functions' addresses begin; sixteen apart.
const FUNCTIONS: u64 = 0x7e00_0000_0000;

/// Where a module's symbols lie, as far as somebody else has settled it: memory that was kept from
/// another GPU holds their addresses there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Variables of global memory, by name.
    pub variables: HashMap<String, u64>,
    /// Functions, by name.
    pub functions: HashMap<String, u64>,
}

/// A variable of the module.
#[derive(Clone, Debug)]
pub(crate) struct ModuleVariable {
    pub(crate) name: Name,
    /// Where it lies; none for a static shared variable, which each kernel that
    /// uses it places.
    pub(crate) place: Option<Storage>,
    pub(crate) size: u64,
    pub(crate) align: u64,
    pub(crate) span: Span,
    /// What it starts with; empty for zeros.
    pub(crate) init: Vec<u8>,
}

/// All variables of a module.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    list: Vec<ModuleVariable>,
    by_name: FxHashMap<Name, usize>,
    pub(crate) const_len: u64,
    /// The address of each function.
    pub(crate) functions: FxHashMap<Name, u64>,
}

impl Variables {
    /// Places every variable of the module; those in global memory from `base` on, unless their
    /// address is settled.
    pub(crate) fn of(
        module: &Module,
        base: u64,
        settled: &Addresses,
    ) -> Result<Variables, Vec<Diagnostic>> {
        let mut variables = Variables::default();
        let mut errors = Vec::new();
        let mut next = base.max(window::GLOBAL);
        let mut declared: Vec<&Variable> = Vec::new();
        for function in module.functions() {
            let next = FUNCTIONS + 16 * variables.functions.len() as u64;
            let there = settled.functions.get(function.name.as_str()).copied();
            let address = variables.functions.entry(function.name.clone());
            address.or_insert(there.unwrap_or(next));
            if let Some(body) = &function.body {
                static_variables(body, &mut declared);
            }
        }
        declared.splice(0..0, module.variables());
        for variable in &declared {
            let at = settled.variables.get(variable.name.as_str()).copied();
            if let Err(error) = variables.place(variable, at, &mut next) {
                errors.push(*error);
            }
        }
        let addresses = variables.addresses();
        for variable in &declared {
            if let Some(init) = &variable.init {
                match bytes_of(variable, init, &addresses) {
                    Ok(bytes) => {
                        if let Some(&at) = variables.by_name.get(&variable.name) {
                            variables.list[at].init = bytes;
                        }
                    }
                    Err(error) => errors.push(*error),
                }
            }
        }
        if errors.is_empty() {
            Ok(variables)
        } else {
            Err(errors)
        }
    }

    fn place(
        &mut self,
        variable: &Variable,
        settled: Option<u64>,
        next: &mut u64,
    ) -> Result<(), Box<Diagnostic>> {
        let size = variable.size();
        let align = variable.alignment();
        let is_extern = variable.linkage == Linkage::Extern;
        let place = match variable.space {
            Space::Global if is_extern && size.is_none() => return Ok(()),
            Space::Global => {
                let size = checked(variable)?;
                let at = settled.unwrap_or_else(|| {
                    let at = next.next_multiple_of(512);
                    *next = at + size + (1 << 20);
                    at
                });
                Some(Storage::Global(at))
            }
            Space::Const => {
                let at = self.const_len.next_multiple_of(align.clamp(1, MOST_BYTES));
                self.const_len = at + checked(variable)?;
                Some(Storage::Const(at))
            }
            Space::Shared if is_extern || size.is_none() => Some(Storage::Dynamic(0)),
            Space::Shared => None,
            other => {
                return Err(Box::new(Diagnostic::error(
                    rule::UNSUPPORTED,
                    variable.span,
                    format!("the simulator has no `.{other}` variables outside functions"),
                )));
            }
        };
        let at = self.list.len();
        self.list.push(ModuleVariable {
            name: variable.name.clone(),
            place,
            size: size.unwrap_or(0),
            align,
            span: variable.span,
            init: Vec::new(),
        });
        self.by_name.insert(variable.name.clone(), at);
        Ok(())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&ModuleVariable> {
        self.by_name.get(name).map(|&at| &self.list[at])
    }

    /// The place of a `.global` or `.const` variable that a function declares.
    pub(crate) fn find_local(&self, variable: &Variable) -> Option<Storage> {
        self.find(&variable.name)?.place
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ModuleVariable> {
        self.list.iter()
    }

    /// The generic address of every symbol.
    fn addresses(&self) -> Symbols {
        let mut symbols = Symbols::default();
        for variable in &self.list {
            let (plain, generic) = match variable.place {
                Some(Storage::Global(at)) => (at, at),
                Some(Storage::Const(at)) => (at, window::CONST + at),
                _ => continue,
            };
            symbols.insert(variable.name.clone(), (plain, generic));
        }
        for (name, &address) in &self.functions {
            symbols.insert(name.clone(), (address, address));
        }
        symbols
    }
}

/// Bytes of a variable that an address space has room for.
const MOST_BYTES: u64 = 1 << 40;

/// The most that the start of dynamic shared memory is aligned to.
pub(crate) const MOST_ALIGNED: u64 = 1 << 15;

/// A variable's size, or that nothing has room for it.
fn checked(variable: &Variable) -> Result<u64, Box<Diagnostic>> {
    match variable.size().unwrap_or(0) {
        size if size <= MOST_BYTES => Ok(size),
        size => Err(Box::new(Diagnostic::error(
            rule::MEMORY_BUDGET,
            variable.span,
            format!(
                "`{}` takes {size} bytes, and no GPU has that",
                variable.name
            ),
        ))),
    }
}

/// `.global` and `.const` variables inside functions.
fn static_variables<'m>(body: &'m [Statement], out: &mut Vec<&'m Variable>) {
    for statement in body {
        match statement {
            Statement::Variable(variable)
                if matches!(variable.space, Space::Global | Space::Const) =>
            {
                out.push(variable);
            }
            Statement::Block(inner) => static_variables(inner, out),
            _ => {}
        }
    }
}

fn bytes_of(
    variable: &Variable,
    init: &Initializer,
    symbols: &Symbols,
) -> Result<Vec<u8>, Box<Diagnostic>> {
    let mut values = Vec::new();
    flatten(init, &mut values);
    let size = variable.ty.bytes() as usize;
    let mut bytes = Vec::with_capacity(values.len() * size);
    for value in values {
        let bits = evaluate(value, variable.ty, symbols).ok_or_else(|| {
            Box::new(Diagnostic::error(
                rule::BAD_NUMBER,
                variable.span,
                format!(
                    "`{}` starts with a value that can't be computed",
                    variable.name
                ),
            ))
        })?;
        bytes.extend_from_slice(&bits.to_le_bytes()[..size.min(8)]);
    }
    Ok(bytes)
}

fn flatten<'i>(init: &'i Initializer, out: &mut Vec<&'i Constant>) {
    match init {
        Initializer::Value(value) => out.push(value),
        Initializer::List(list) => list.iter().for_each(|inner| flatten(inner, out)),
        // Only samplers and textures have fields, and those have no bytes.
        Initializer::Field(..) => {}
    }
}
