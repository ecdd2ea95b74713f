//! The memory of a launch: the module's variables, the arguments' buffers, and what already
//! has an address.

use super::{ModuleMemory, Touched};
use crate::decode::names::Storage;
use crate::decode::variables::{ModuleVariable, Variables};
use crate::state::machine::Machine;
use crate::state::memory::global::Global;
use crate::state::memory::region::Region;
use crate::state::memory::window;
use heist_launch::{Bound, Buffer, BufferRef, Placed, Role, Slot, Written};
use std::sync::Arc;

/// A variable with an address; those in shared memory have none.
pub(super) fn of_variable(variable: &ModuleVariable) -> Option<ModuleMemory<'_>> {
    let (at, constant) = match variable.place? {
        Storage::Global(at) => (at, false),
        Storage::Const(at) => (window::CONST + at, true),
        _ => return None,
    };
    Some(ModuleMemory {
        name: variable.name.as_str(),
        at,
        size: variable.size,
        init: &variable.init,
        constant,
    })
}

/// Global memory with the variables that start anew, and constant memory. What the caller
/// has placed at a variable's address stands for it.
pub(super) fn of_variables(variables: &Variables, bound: &Bound) -> (Global, Vec<u8>) {
    let mut global = Global::default();
    let mut constants = vec![0u8; variables.const_len as usize];
    let placed = |at: u64| bound.slots.iter().find(|slot| is_at(slot, at));
    for one in variables.iter().filter_map(of_variable) {
        let kept = placed(one.at);
        if one.constant {
            let start = ((one.at - window::CONST) as usize).min(constants.len());
            let room = &mut constants[start..];
            let bytes = kept.map_or(one.init, |slot| slot.data.bytes());
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
        } else if kept.is_none() {
            // A variable without a value starts as zeros.
            let mut bytes = vec![0; one.size as usize];
            let len = one.init.len().min(bytes.len());
            bytes[..len].copy_from_slice(&one.init[..len]);
            let name = format!("variable `{}`", one.name);
            global.put(one.at, name, one.size, Region::of(bytes));
        }
    }
    (global, constants)
}

fn is_at(slot: &Slot, at: u64) -> bool {
    slot.place.as_ref().is_some_and(|place| place.at == at)
}

/// Moves the argument buffers into global memory; their addresses. `still` says that
/// inputs are not expected to be written.
pub(super) fn allocate(machine: &mut Machine, bound: &mut Bound, still: bool) -> Vec<u64> {
    // What has an address comes first: the rest lies behind it.
    for slot in bound.slots.iter_mut() {
        let (name, bytes) = (
            name_of(&slot.name),
            taken(&mut slot.data, slot.place.is_some()),
        );
        if let Some(place) = &slot.place
            && !is_constant(place.at)
        {
            let len = bytes.len() as u64;
            let region = match &place.written {
                None => Region::over(bytes, true),
                Some(written) => Region::partly(bytes, &written.lines),
            };
            let mut region = region;
            if machine.options.touched {
                region.tell_touched();
            }
            machine.global.put(place.at, name, len, region);
        }
    }
    let add = |slot: &mut Slot| {
        if let Some(place) = &slot.place {
            return place.at;
        }
        let written = slot.data.written().cloned();
        let bytes = taken(&mut slot.data, true);
        let len = bytes.len() as u64;
        let mut region = match &written {
            Some(written) => Region::partly(bytes, &written.lines),
            None => Region::over(bytes, slot.role != Role::Out),
        };
        // Reads of still memory are not looked at.
        if still && slot.role == Role::In && written.is_none() {
            region.history.keep_still();
        }
        let name = format!("the buffer of {}", name_of(&slot.name));
        machine.global.add(name, len, region)
    };
    bound.slots.iter_mut().map(add).collect()
}

/// The bytes of a buffer, which is empty after that, if they are wanted.
fn taken(data: &mut Buffer, wanted: bool) -> Arc<Vec<u8>> {
    if !wanted {
        return Arc::default();
    }
    let none = Buffer::zeros(data.ty(), 0);
    std::mem::replace(data, none).into_shared()
}

/// Whether an address is one of a constant variable: nothing is written there.
fn is_constant(at: u64) -> bool {
    window::Window::of(at).0 == window::Window::Const
}

fn name_of(name: &BufferRef) -> String {
    match name {
        BufferRef::Argument(at) => format!("argument {at}"),
        other => format!("`{other}`"),
    }
}

/// What a launch leaves.
pub(super) struct ReadBack {
    pub(super) outputs: Vec<(BufferRef, Buffer)>,
    pub(super) placed: Vec<Placed>,
    pub(super) touched: Vec<Touched>,
}

/// The buffers that are read back, and what has an address, as the kernel left them. Memory that
/// kernels took and did not give back is among the latter.
pub(super) fn read_back(
    machine: &mut Machine,
    bound: &Bound,
    addresses: &[u64],
    lengths: &[usize],
) -> ReadBack {
    let (mut outputs, mut placed, mut touched) = (Vec::new(), Vec::new(), Vec::new());
    for one in machine.global.take_heap() {
        let given = bound.slots.iter().find(|slot| is_at(slot, one.base));
        // A thread may take memory often, and names tell the memory of a launch apart.
        let name = given.map_or_else(
            || format!("{} ({:#x})", one.name, one.base),
            |slot| slot.name.to_string(),
        );
        placed.push(kept(name, one.base, one.region, one.len as usize));
    }
    for ((slot, &address), &len) in bound.slots.iter().zip(addresses).zip(lengths) {
        if !slot.role.is_read_back() || slot.place.is_some() && is_constant(address) {
            continue;
        }
        if slot.place.is_some() && address >= window::HEAP {
            continue;
        }
        let region = machine.global.take(address).unwrap_or_default();
        if slot.place.is_some() {
            let lines = region.touched();
            if !lines.is_empty() {
                touched.push(Touched { at: address, lines });
            }
            placed.push(kept(slot.name.to_string(), address, region, len));
        } else if let Some(buffer) = Buffer::from_shared(slot.data.ty(), region.into_bytes(len)) {
            outputs.push((slot.name.clone(), buffer));
        }
    }
    ReadBack {
        outputs,
        placed,
        touched,
    }
}

/// Memory with an address, as it is after the launch.
fn kept(name: String, at: u64, region: Region, len: usize) -> Placed {
    let written = Written {
        lines: region.written().to_vec(),
    };
    Placed {
        name,
        at,
        written: (!written.is_all(len)).then_some(written),
        bytes: region.into_bytes(len),
    }
}
