//! The device code of a program: its modules, kernels and variables, and what a kernel takes.

use super::{Function, MODULE_ROOM, Module, Runtime, VARIABLES};
use crate::raw;
use crate::status::{
    INVALID_FUNCTION, INVALID_HANDLE, INVALID_PTX, INVALID_SYMBOL, INVALID_VALUE, NO_IMAGE,
    NOT_FOUND,
};
use heist_fatbin as fatbin;
use heist_ptx::Source;
use heist_sim::{Needs, Program};
use std::ffi::{c_int, c_void};

impl Runtime {
    /// Takes a fat binary; the number by which the program means it.
    pub(crate) fn register(&mut self, wrapper: *const c_void) -> usize {
        let mut modules = Vec::new();
        // SAFETY: nvcc's own code registers it.
        let containers = unsafe { fatbin::containers(wrapper) };
        for container in containers {
            let images = fatbin::images(&container);
            if images.ptx.is_empty() && images.machine.is_empty() {
                continue;
            }
            let number = self.modules.len();
            let module = self.module(number, &images);
            modules.push(number);
            self.modules.push(module);
        }
        self.registered.push(modules);
        self.registered.len() - 1
    }

    /// The text for the newest architecture that the device takes.
    fn module(&mut self, number: usize, images: &fatbin::Images) -> Module {
        let best = images.best(self.device.gpu().arch);
        let Some(text) = best else {
            let why = self.no_image(images);
            return Module {
                name: String::new(),
                program: Err(why),
            };
        };
        let name = self.report.keep(number, text);
        let source = Source::new(name.clone(), text.clone());
        let base = VARIABLES + number as u64 * MODULE_ROOM;
        let program = heist_ptx::parse(&source).and_then(|module| Program::based(module, base));
        let program = program.map_err(|found| {
            self.report.refused(&name, "", "as it was loaded", &found);
            "its PTX can't be run".to_owned()
        });
        if let Ok(program) = &program {
            for one in program.variables() {
                let mut bytes = one.init.to_vec();
                bytes.resize(one.size as usize, 0);
                // Constants of all modules lie at the same addresses: each launch has its own.
                if !one.constant {
                    let label = match number {
                        0 => one.name.to_owned(),
                        _ => format!("{} of module {number}", one.name),
                    };
                    self.heap.variable(&label, one.at, bytes);
                }
            }
        }
        Module { name, program }
    }

    fn no_image(&self, images: &fatbin::Images) -> String {
        let here = self.device.gpu().arch;
        let list = |names: Vec<String>| names.join(", ");
        if let Some(broken) = images.broken.first() {
            format!("the program's PTX can't be unpacked: {broken}")
        } else if images.ptx.is_empty() {
            let machine = images.machine.iter().map(|arch| format!("sm_{arch}"));
            format!(
                "the program has machine code for {} and no PTX: build it with \
                 `-gencode arch=compute_{2},code=compute_{2}` as well, where the device is {1}",
                list(machine.collect()),
                self.device,
                here.name()
                    .trim_start_matches("sm_")
                    .trim_end_matches(char::is_alphabetic),
            )
        } else {
            let have = images.ptx.iter().map(|text| said_target(text));
            format!(
                "the program has PTX for {}, which does not run on {} ({}): choose another with --device",
                list(have.collect()),
                self.device,
                here.name()
            )
        }
    }

    /// Notes a kernel of a registration.
    pub(crate) fn add_function(&mut self, handle: usize, host: *const c_void, name: String) {
        let modules = self.registered.get(handle).cloned().unwrap_or_default();
        let has = |module: &usize| match &self.modules[*module].program {
            Ok(program) => program.module().entries().any(|entry| entry.name == *name),
            Err(_) => false,
        };
        let Some(module) = modules
            .iter()
            .copied()
            .find(has)
            .or(modules.first().copied())
        else {
            return;
        };
        let function = Function {
            module,
            name,
            dynamic: 0,
        };
        self.functions.insert(host as usize, function);
    }

    /// Takes device code that the program loads itself; its handle, or an error and what is wrong.
    pub(crate) fn load(&mut self, images: &fatbin::Images) -> Result<usize, (c_int, String)> {
        let number = self.modules.len();
        let has_text = images.best(self.device.gpu().arch).is_some();
        let module = self.module(number, images);
        let why = module.program.as_ref().err().cloned();
        self.modules.push(module);
        if let Some(why) = why {
            if !has_text {
                self.report
                    .remark(&format!("a module can't be loaded: {why}"));
            }
            return Err((if has_text { INVALID_PTX } else { NO_IMAGE }, why));
        }
        let handle = self.handle();
        self.loaded.insert(handle, number);
        Ok(handle)
    }

    /// Forgets a module that the program has loaded, with its kernels and its variables.
    pub(crate) fn unload(&mut self, handle: usize) -> Result<(), c_int> {
        let number = self.loaded.remove(&handle).ok_or(INVALID_HANDLE)?;
        self.functions
            .retain(|_, function| function.module != number);
        let start = VARIABLES + number as u64 * MODULE_ROOM;
        for at in self.heap.starts_in(start, MODULE_ROOM as usize) {
            self.heap.free(at);
        }
        Ok(())
    }

    fn loaded(&self, handle: usize) -> Result<(usize, &Program), c_int> {
        let number = *self.loaded.get(&handle).ok_or(INVALID_HANDLE)?;
        let program = self.modules[number].program.as_ref();
        Ok((number, program.map_err(|_| NO_IMAGE)?))
    }

    /// The names of the kernels of a module that the program has loaded.
    pub(crate) fn kernels_of(&self, handle: usize) -> Result<Vec<String>, c_int> {
        let entries = self.loaded(handle)?.1.module().entries();
        Ok(entries.map(|entry| entry.name.to_string()).collect())
    }

    /// The handle of a kernel of a module that the program has loaded.
    pub(crate) fn function_of(&mut self, handle: usize, name: &str) -> Result<usize, c_int> {
        let (module, program) = self.loaded(handle)?;
        if !program.module().entries().any(|entry| entry.name == *name) {
            return Err(NOT_FOUND);
        }
        let mut known = self.functions.iter();
        let known = known.find(|(_, one)| one.module == module && one.name == name);
        if let Some((&known, _)) = known {
            return Ok(known);
        }
        let function = Function {
            module,
            name: name.to_owned(),
            dynamic: 0,
        };
        let made = self.handle();
        self.functions.insert(made, function);
        Ok(made)
    }

    /// The module that a kernel is of.
    pub(crate) fn module_of(&self, function: usize) -> Result<usize, c_int> {
        let function = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let mut all = self.loaded.iter();
        let found = all.find(|(_, number)| **number == function.module);
        found.map(|(handle, _)| *handle).ok_or(INVALID_HANDLE)
    }

    /// The address and the bytes of a variable of a module that the program has loaded.
    pub(crate) fn variable_of(
        &mut self,
        handle: usize,
        name: &str,
    ) -> Result<Option<(u64, u64)>, c_int> {
        let (number, _) = self.loaded(handle)?;
        Ok(self.variable(number, name))
    }

    /// Where a variable of a module is, and how long it is.
    fn variable(&mut self, number: usize, name: &str) -> Option<(u64, u64)> {
        let program = self.modules[number].program.as_ref().ok()?;
        let one = program.variables().find(|one| one.name == name)?;
        if !one.constant {
            return Some((one.at, one.size));
        }
        // Constants are kept under an address of their own.
        let at = VARIABLES + number as u64 * MODULE_ROOM + MODULE_ROOM / 2 + (one.at & 0xffff_ffff);
        if self.heap.place(at).is_none() {
            let mut bytes = one.init.to_vec();
            bytes.resize(one.size as usize, 0);
            let label = format!("{name} (constant, module {number})");
            self.heap.variable(&label, at, bytes);
        }
        Some((at, one.size))
    }

    /// Notes a variable of a registration; its address and its bytes.
    pub(crate) fn add_variable(
        &mut self,
        handle: usize,
        host: *const c_void,
        name: &str,
    ) -> Option<(u64, u64)> {
        let modules = self.registered.get(handle).cloned().unwrap_or_default();
        let found = modules
            .into_iter()
            .filter_map(|number| self.variable(number, name));
        let found = found.last();
        let found = found?;
        self.symbols.insert(host as usize, found);
        Some(found)
    }

    /// The address on the device of a variable, and its bytes.
    pub(crate) fn symbol(&self, host: *const c_void) -> Result<(u64, u64), c_int> {
        let known = self.symbols.get(&(host as usize)).copied();
        known.ok_or(INVALID_SYMBOL)
    }

    /// The kernel behind a host function.
    pub(super) fn function(&self, host: usize) -> Result<&Function, c_int> {
        self.functions.get(&host).ok_or(INVALID_FUNCTION)
    }

    /// What blocks of a kernel need of the device, and how much dynamic shared memory it was allowed.
    pub(crate) fn needs(
        &self,
        host: *const c_void,
        threads: u32,
        dynamic: u32,
    ) -> Result<(Needs, u32), c_int> {
        let function = self.function(host.addr())?;
        let program = self.modules[function.module].program.as_ref();
        let program = program.map_err(|_| NO_IMAGE)?;
        let needs = program.needs(&self.device, &function.name, threads, dynamic);
        Ok((needs.map_err(|_| INVALID_FUNCTION)?, function.dynamic))
    }

    /// Lets a kernel have more dynamic shared memory.
    pub(crate) fn allow_dynamic(&mut self, host: *const c_void, bytes: u32) -> Result<(), c_int> {
        let most = self.device.gpu().arch.limits().shared_opt_in;
        let function = self.functions.get_mut(&(host as usize));
        let function = function.ok_or(INVALID_FUNCTION)?;
        if bytes > most {
            return Err(INVALID_VALUE);
        }
        function.dynamic = bytes;
        Ok(())
    }

    /// The parameters of a kernel: where each is in the list of arguments, and its bytes.
    pub(crate) fn parameters(&self, host: *const c_void) -> Result<Vec<(usize, usize)>, c_int> {
        let function = self.function(host.addr())?;
        let Ok(program) = &self.modules[function.module].program else {
            return Ok(Vec::new());
        };
        let mut entries = program.module().entries();
        let entry = entries.find(|entry| entry.name == *function.name);
        let params = entry.map_or(&[][..], |entry| &entry.params);
        let mut end = 0usize;
        let place = |param: &heist_ptx::Variable| {
            let len = param.size().unwrap_or(0) as usize;
            let at = end.next_multiple_of(param.alignment().max(1) as usize);
            end = at + len;
            (at, len)
        };
        Ok(params.iter().map(place).collect())
    }

    /// The name of a kernel.
    pub(crate) fn name_of(&self, host: *const c_void) -> Result<&str, c_int> {
        Ok(&self.function(host.addr())?.name)
    }

    /// The arguments of a launch from one buffer, laid out as the parameters are.
    pub(crate) fn unpacked(
        &self,
        host: *const c_void,
        buffer: &[u8],
    ) -> Result<Vec<Vec<u8>>, c_int> {
        let one = |(at, len): (usize, usize)| buffer.get(at..at + len).map(<[u8]>::to_vec);
        let all: Option<Vec<_>> = self.parameters(host)?.into_iter().map(one).collect();
        all.ok_or(INVALID_VALUE)
    }

    /// The arguments of a launch by the kernel's own list: as many bytes as each parameter has.
    pub(crate) fn arguments(
        &self,
        host: *const c_void,
        from: *const *const c_void,
    ) -> Result<Vec<Vec<u8>>, c_int> {
        let value = |(at, (_, len)): (usize, (usize, usize))| {
            let at = raw::element(from, at).unwrap_or(std::ptr::null());
            raw::bytes(at, len)
        };
        let params = self.parameters(host)?;
        Ok(params.into_iter().enumerate().map(value).collect())
    }
}

/// The architecture that a PTX text is for, as it says itself; it may be none that is known here.
fn said_target(text: &str) -> String {
    let said = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(".target"));
    let word = said.and_then(|rest| rest.split([',', ' ']).find(|word| !word.is_empty()));
    word.unwrap_or("no target that it says").to_owned()
}
