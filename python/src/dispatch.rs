//! The dispatch of PyTorch's operations: a repeated call does not enter the interpreter.
//!
//! PyTorch calls [`body`] for an operation `heist::NAME`. The call's shapes, strides, types,
//! devices and numbers are the key of a cache: if there is a plan, results are allocated and it is
//! launched. In every other case the operation `heist::_NAME` is called, which is implemented in
//! Python: it checks, plans, launches, and caches the plan ([`remember`]). So nothing is decided
//! here, and a call that fails here is tried again there, where errors have full messages.

#![allow(unsafe_code)]

use crate::abi::{Abi, Boxed, Strided, Tensor};
use crate::error::HeistError;
use crate::ops::Plan;
use heist::ops::{BorrowedStream, Memory, SLOTS, Slots, WorkspaceMemory};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The most numbers that describe a call; a longer one is always Python's.
const LONGEST: usize = 160;

/// Everything that the bodies need, once for the process.
struct Dispatch {
    abi: Abi,
    operations: Vec<Operation>,
    recipes: RwLock<FxHashMap<Box<[u64]>, Arc<Recipe>>>,
    workspaces: RwLock<FxHashMap<(i32, u64), Workspaces>>,
}

/// An operation that PyTorch calls.
struct Operation {
    /// The one that Python does, with its namespace.
    python: CString,
    /// Which of the arguments are tensors.
    tensors: Vec<bool>,
}

/// How a call is done that was planned.
struct Recipe {
    plan: Plan,
    /// The GPU; -1 for a simulated one.
    index: i32,
    /// The operand that each tensor is; none, where the plan has no use for it.
    inputs: Vec<Option<usize>>,
    outputs: Vec<Output>,
    /// Operands that are the same in every such call, and their addresses; Python
    /// holds them for as long as the plan.
    constants: Vec<(usize, u64)>,
}

struct Output {
    sizes: Vec<i64>,
    strides: Vec<i64>,
    dtype: i32,
    slot: usize,
}

/// Counters and scratch memory of a stream: addresses and bytes.
#[derive(Clone, Copy)]
struct Workspaces {
    counters: (u64, u64),
    scratch: (u64, u64),
}

static DISPATCH: OnceLock<Dispatch> = OnceLock::new();

thread_local! {
    /// The call that Python is asked to do on this thread.
    static ASKED: RefCell<Option<Box<[u64]>>> = const { RefCell::new(None) };
    /// Why Python did not do it.
    static REFUSED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes PyTorch call the bodies below for operations of the namespace `heist`: each
/// by its name and which of its arguments are tensors (a `T` for one).
#[pyfunction]
#[pyo3(signature = (core, cuda, operations))]
pub(crate) fn dispatch(
    core: &str,
    cuda: Option<&str>,
    operations: Vec<(String, String)>,
) -> PyResult<()> {
    if operations.len() > BODIES.len() {
        return Err(PyValueError::new_err(format!(
            "{} operations; there are bodies for {}",
            operations.len(),
            BODIES.len()
        )));
    }
    let name = |text: String| CString::new(text).map_err(PyValueError::new_err);
    let abi = Abi::of(core, cuda).map_err(HeistError::new_err)?;
    let mut known = Vec::new();
    let mut bodies: Vec<(CString, Boxed)> = Vec::new();
    for ((operation, kinds), body) in operations.into_iter().zip(BODIES) {
        known.push(Operation {
            python: name(format!("heist::_{operation}"))?,
            tensors: kinds.bytes().map(|kind| kind == b'T').collect(),
        });
        bodies.push((name(operation)?, body));
    }
    let ready = DISPATCH.get_or_init(|| Dispatch {
        abi,
        operations: known,
        recipes: RwLock::default(),
        workspaces: RwLock::default(),
    });
    for key in [c"CPU", c"CUDA"] {
        ready
            .abi
            .register(key, &bodies)
            .map_err(HeistError::new_err)?;
    }
    Ok(())
}

/// Remembers how the call is done that Python was asked for on this thread: the
/// operand that each tensor is, and size, strides, type and operand of each result;
/// `constants` are operands of the plan's own, with their addresses. Of a call that
/// came another way nothing is remembered.
#[pyfunction]
pub(crate) fn remember(
    plan: &Bound<'_, Plan>,
    index: i32,
    inputs: Vec<Option<usize>>,
    outputs: Vec<(Vec<i64>, Vec<i64>, i32, usize)>,
    constants: Vec<(usize, u64)>,
) -> PyResult<()> {
    let slots = inputs.iter().flatten().chain(outputs.iter().map(|o| &o.3));
    if let Some(slot) = slots
        .chain(constants.iter().map(|c| &c.0))
        .find(|slot| **slot >= SLOTS)
    {
        return Err(PyValueError::new_err(format!(
            "operand {slot}; there are {SLOTS}"
        )));
    }
    let Some(dispatch) = DISPATCH.get() else {
        return Ok(());
    };
    let Some(call) = ASKED.with_borrow_mut(Option::take) else {
        return Ok(());
    };
    let recipe = Recipe {
        plan: plan.get().clone(),
        index,
        inputs,
        outputs: outputs
            .into_iter()
            .map(|(sizes, strides, dtype, slot)| Output {
                sizes,
                strides,
                dtype,
                slot,
            })
            .collect(),
        constants,
    };
    let mut recipes = dispatch
        .recipes
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    recipes.insert(call, Arc::new(recipe));
    Ok(())
}

/// Records why Python refused the call on this thread.
#[pyfunction]
pub(crate) fn refuse(why: String) {
    REFUSED.set(Some(why));
}

/// Says where counters and scratch memory of a stream lie: addresses and bytes.
#[pyfunction]
pub(crate) fn workspace(index: i32, stream: u64, counters: (u64, u64), scratch: (u64, u64)) {
    if let Some(dispatch) = DISPATCH.get() {
        let mut known = dispatch
            .workspaces
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert((index, stream), Workspaces { counters, scratch });
    }
}

/// Forgets all that was remembered, and with it all counters and scratch memory.
#[pyfunction]
pub(crate) fn forget() {
    if let Some(dispatch) = DISPATCH.get() {
        let mut recipes = dispatch
            .recipes
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        recipes.clear();
        let mut known = dispatch
            .workspaces
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }
}

/// How many calls are remembered.
#[pyfunction]
pub(crate) fn remembered() -> usize {
    DISPATCH.get().map_or(0, |dispatch| {
        let recipes = dispatch
            .recipes
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        recipes.len()
    })
}

/// One body for each operation: PyTorch does not pass the operation's name.
const BODIES: [Boxed; 40] = [
    body::<0>, body::<1>, body::<2>, body::<3>, body::<4>, body::<5>, body::<6>, body::<7>,
    body::<8>, body::<9>, body::<10>, body::<11>, body::<12>, body::<13>, body::<14>, body::<15>,
    body::<16>, body::<17>, body::<18>, body::<19>, body::<20>, body::<21>, body::<22>, body::<23>,
    body::<24>, body::<25>, body::<26>, body::<27>, body::<28>, body::<29>, body::<30>, body::<31>,
    body::<32>, body::<33>, body::<34>, body::<35>, body::<36>, body::<37>, body::<38>, body::<39>,
];

/// The body of operation `N`.
///
/// # Safety
/// PyTorch calls it, with arguments and room for results as the operation has them.
unsafe extern "C-unwind" fn body<const N: usize>(stack: *mut u64, arguments: u64, results: u64) {
    let Some(dispatch) = DISPATCH.get() else {
        return;
    };
    let (arguments, results) = (arguments as usize, results as usize);
    // SAFETY: PyTorch's list, with room for both.
    let stack = unsafe { std::slice::from_raw_parts_mut(stack, arguments.max(results)) };
    // A panic must not leave into C++.
    let done = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: PyTorch gave the arguments as the operation has them.
        unsafe { dispatch.call(&dispatch.operations[N], stack, arguments, results) }
    }));
    let why = match done {
        Ok(Ok(())) => return,
        Ok(Err(why)) => why,
        Err(_) => "heist: the operation panicked; the panic is on the error output".to_owned(),
    };
    let why = CString::new(why.replace('\0', " ")).unwrap_or_default();
    dispatch.abi.throw(&why);
}

impl Dispatch {
    /// # Safety
    /// The list has the arguments of the operation, and room for its results.
    unsafe fn call(
        &self,
        operation: &Operation,
        stack: &mut [u64],
        arguments: usize,
        results: usize,
    ) -> Result<(), String> {
        let mut numbers = [0; LONGEST];
        // SAFETY: the caller's promise.
        let call = unsafe { self.describe(operation, &stack[..arguments], &mut numbers) };
        if let Some(call) = call {
            let known = {
                let recipes = self.recipes.read().unwrap_or_else(PoisonError::into_inner);
                recipes.get(call).cloned()
            };
            if let Some(recipe) = known {
                // SAFETY: the tensors have the shapes that the recipe was made for.
                if unsafe { self.follow(&recipe, operation, stack, arguments) } {
                    return Ok(());
                }
            }
        }
        // SAFETY: as above; the operation of Python takes the same arguments.
        unsafe { self.ask(operation, call, stack, results) }
    }

    /// The cache key of a plan, as numbers; none where they are too many.
    ///
    /// # Safety
    /// The list has the arguments of the operation.
    unsafe fn describe<'n>(
        &self,
        operation: &Operation,
        arguments: &[u64],
        numbers: &'n mut [u64; LONGEST],
    ) -> Option<&'n [u64]> {
        let mut count = 0;
        let mut put = |number: u64| {
            *numbers.get_mut(count)? = number;
            count += 1;
            Some(())
        };
        put(std::ptr::from_ref(operation).addr() as u64)?;
        for (argument, is_tensor) in arguments.iter().zip(&operation.tensors) {
            if !is_tensor {
                put(*argument)?;
                continue;
            }
            // SAFETY: PyTorch gave it and it was not let go.
            let tensor = unsafe { self.abi.strided(handle(*argument)) }?;
            let (kind, index) = tensor.device;
            put(tensor.sizes.len() as u64)?;
            // SAFETY: as above.
            let address = unsafe { self.abi.address(handle(*argument)) };
            // A view may begin anywhere, which is for another plan.
            let anywhere = u64::from(!address.is_multiple_of(16));
            put((tensor.dtype as u32 as u64) << 32
                | anywhere << 24
                | (kind as u8 as u64) << 16
                | index as u16 as u64)?;
            for number in tensor.sizes.iter().chain(tensor.strides) {
                put(*number as u64)?;
            }
        }
        Some(&numbers[..count])
    }

    /// Allocates the results and launches. On success the arguments are let go and
    /// the results are in the list; else the list is as it was.
    ///
    /// # Safety
    /// The list has arguments of the shapes that the recipe was made for.
    unsafe fn follow(
        &self,
        recipe: &Recipe,
        operation: &Operation,
        stack: &mut [u64],
        arguments: usize,
    ) -> bool {
        let abi = &self.abi;
        let mut operands = Slots::default();
        let given = stack[..arguments].iter().zip(&operation.tensors);
        let tensors = given.filter_map(|(argument, is)| is.then_some(handle(*argument)));
        for (tensor, slot) in tensors.zip(&recipe.inputs) {
            let Some(slot) = *slot else { continue };
            // SAFETY: PyTorch gave it and it was not let go.
            let address = unsafe { abi.address(tensor) };
            operands.0[slot] = Some(recipe.plan.memory(slot, address));
        }
        for (slot, address) in &recipe.constants {
            operands.0[*slot] = Some(recipe.plan.memory(*slot, *address));
        }
        let mut made: [Tensor; 4] = [std::ptr::null_mut(); 4];
        let device = match recipe.index {
            -1 => (0, -1),
            index => (1, index),
        };
        let mut ready = recipe.outputs.len() <= made.len();
        for (output, made) in recipe.outputs.iter().zip(&mut made) {
            let like = Strided {
                sizes: &output.sizes,
                strides: &output.strides,
                dtype: output.dtype,
                device,
            };
            let Some(tensor) = abi.empty(&like) else {
                ready = false;
                break;
            };
            *made = tensor;
            // SAFETY: it was made above.
            let address = unsafe { abi.address(tensor) };
            operands.0[output.slot] = Some(recipe.plan.memory(output.slot, address));
        }
        if !ready || self.launch(recipe, &operands).is_none() {
            for tensor in made.into_iter().filter(|tensor| !tensor.is_null()) {
                // SAFETY: it was made above and nobody else has it.
                unsafe { abi.release(tensor) };
            }
            return false;
        }
        for (argument, is_tensor) in stack[..arguments].iter().zip(&operation.tensors) {
            if *is_tensor {
                // SAFETY: PyTorch gave it to be let go, and the launch is in its stream.
                unsafe { abi.release(handle(*argument)) };
            }
        }
        for (place, tensor) in stack.iter_mut().zip(&made[..recipe.outputs.len()]) {
            *place = tensor.expose_provenance() as u64;
        }
        true
    }

    /// Launches into PyTorch's current stream.
    fn launch(&self, recipe: &Recipe, operands: &Slots<'_>) -> Option<()> {
        let stream = match recipe.index {
            -1 => 0,
            index => self.abi.stream(index)?,
        };
        let need = recipe.plan.plan.workspace();
        let mut workspace = WorkspaceMemory::NONE;
        if recipe.index >= 0 && (need.counters > 0 || need.scratch > 0) {
            // A graph has memory of its own, which Python allocates.
            if recipe.plan.plan.is_captured(BorrowedStream(stream)) {
                return None;
            }
            let known = self
                .workspaces
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            let held = *known.get(&(recipe.index, stream))?;
            workspace = WorkspaceMemory {
                counters: Memory::at_device(held.counters.0, held.counters.1),
                scratch: Memory::at_device(held.scratch.0, held.scratch.1),
            };
        }
        recipe
            .plan
            .plan
            .launch(operands, workspace, BorrowedStream(stream))
            .ok()
    }

    /// Asks Python to do it.
    ///
    /// # Safety
    /// The list has the arguments of the operation, and room for its results.
    unsafe fn ask(
        &self,
        operation: &Operation,
        call: Option<&[u64]>,
        stack: &mut [u64],
        results: usize,
    ) -> Result<(), String> {
        let before = ASKED.replace(call.map(Box::from));
        REFUSED.set(None);
        // SAFETY: the operation of Python takes the same arguments.
        let called = unsafe { self.abi.call(&operation.python, stack) };
        ASKED.set(before);
        if !called {
            return Err(format!(
                "PyTorch could not call {}; the reason is on the error output",
                operation.python.to_string_lossy()
            ));
        }
        let Some(why) = REFUSED.take() else {
            return Ok(());
        };
        for result in &stack[..results] {
            // SAFETY: the results of the call, which nobody gets.
            unsafe { self.abi.release(handle(*result)) };
        }
        Err(why)
    }
}

/// A tensor, as it is in PyTorch's list.
fn handle(value: u64) -> Tensor {
    std::ptr::with_exposed_provenance_mut(value as usize)
}
