//! The parameters of a launch: what is fixed when it is planned, and what each
//! call fills in.

use super::error::OpError;
use super::kernels::Known;
use super::memory::Memory;
use super::operand::{Operand, SLOTS, Workspace, WorkspaceMemory};
use heist_gpu::{BorrowedStream, DeviceMemory, EncodedTensorMap, Gpu, GpuError, ReadyLaunch};
use heist_kernels::{BufferSpec, KernelError, LaunchPlan, Step};
use heist_launch::{Arg, Buffer, BufferRef, NamedBuffer, Role};
use std::sync::Arc;

/// The most bytes that a kernel's parameters take here, and what is enough for almost all.
const MOST_BYTES: usize = 4096;
const FEW_BYTES: usize = 768;

/// Where parts of the workspace begin.
const PART: u64 = 256;

/// The parameters of one launch as bytes, with places to fill in.
pub(super) struct Parameters {
    bytes: Vec<u8>,
    places: Vec<(usize, Patch)>,
    /// What the kernel only reads and is the same in every launch.
    _constants: Vec<DeviceMemory>,
}

/// What is written into a parameter when it is launched.
enum Patch {
    /// An operand's address, and the part of the workspace for one left out.
    Operand {
        slot: usize,
        offset: u64,
        spare: Option<u64>,
    },
    /// A tensor map over an operand.
    Map {
        slot: usize,
        map: Box<EncodedTensorMap>,
    },
    /// A tensor map over a part of the scratch memory.
    ScratchMap {
        place: u64,
        map: Box<EncodedTensorMap>,
    },
    /// An address among the counters.
    Counter(u64),
    /// An address in the scratch memory.
    Scratch(u64),
}

/// The workspace layout of a job.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) workspace: Workspace,
    /// Named buffers, and where they begin.
    named: Vec<(String, u64)>,
    /// Buffers of a step's own that it writes: the step, the parameter, and where
    /// they begin among the counters.
    own: Vec<(usize, usize, u64)>,
}

/// The buffer that a parameter refers to by name.
fn named(arg: &Arg) -> Option<&str> {
    let buffer = match arg {
        Arg::Pointer { buffer, .. } => buffer,
        Arg::TensorMap(map) => &map.buffer,
        _ => return None,
    };
    match buffer {
        BufferRef::Named(name) => Some(name),
        BufferRef::Argument(_) => None,
    }
}

/// Which of the operands some kernel reads or writes.
pub(super) fn used(steps: &[Step], kernels: &[Arc<Known>], operands: &[Operand]) -> Vec<bool> {
    let mut used = vec![false; operands.len()];
    for (step, kernel) in steps.iter().zip(kernels) {
        for (at, param) in step.params.iter().enumerate() {
            let Some(name) = named(param) else { continue };
            let slot = operands.iter().position(|operand| operand.name == name);
            if let Some(slot) = slot
                && kernel.reads(at)
            {
                used[slot] = true;
            }
        }
    }
    used
}

impl Scratch {
    /// Lays out the workspace of a job: the counters, which must be zero; and the scratch memory,
    /// for buffers that are not operands and for written operands that may be omitted.
    pub(super) fn of(
        plan: &LaunchPlan,
        kernels: &[Arc<Known>],
        operands: &[Operand],
    ) -> Result<Scratch, KernelError> {
        let mut scratch = Scratch::default();
        for (index, (step, kernel)) in plan.steps.iter().zip(kernels).enumerate() {
            for (at, param) in step.params.iter().enumerate() {
                let Arg::Buffer { role, data } = param else {
                    continue;
                };
                if *role == Role::In || !kernel.reads(at) {
                    continue;
                }
                if data.bytes().iter().any(|byte| *byte != 0) {
                    return Err(KernelError::unfit(format!(
                        "{}: parameter {at} begins with contents of its own, and a workspace begins with zeros",
                        step.entry
                    )));
                }
                let place = take(&mut scratch.workspace.counters, data.bytes().len() as u64);
                scratch.own.push((index, at, place));
            }
        }
        for buffer in &plan.buffers {
            if !operands.iter().any(|operand| operand.name == buffer.name) {
                let place = take(&mut scratch.workspace.scratch, buffer.bytes() as u64);
                scratch.named.push((buffer.name.clone(), place));
            }
        }
        for operand in operands {
            if operand.optional && operand.role == Role::Out && operand.bytes > 0 {
                let place = take(&mut scratch.workspace.scratch, operand.bytes);
                scratch.named.push((operand.name.to_owned(), place));
            }
        }
        Ok(scratch)
    }

    fn find(&self, name: &str) -> Option<u64> {
        let found = self.named.iter().find(|(known, _)| known == name);
        found.map(|(_, place)| *place)
    }

    /// The buffers of the plan that are no operands, as a simulated device takes
    /// them: never written, so that a read before a write shows.
    pub(super) fn buffers(plan: &LaunchPlan, operands: &[Operand]) -> Vec<NamedBuffer> {
        let other = |buffer: &&BufferSpec| !operands.iter().any(|o| o.name == buffer.name);
        let named = |buffer: &BufferSpec| NamedBuffer {
            name: buffer.name.clone(),
            role: Role::Out,
            data: Buffer::poisoned(buffer.element, buffer.len),
        };
        plan.buffers.iter().filter(other).map(named).collect()
    }
}

/// Takes room, and says where it begins.
fn take(total: &mut u64, bytes: u64) -> u64 {
    let place = *total;
    *total += bytes.next_multiple_of(PART);
    place
}

impl Parameters {
    /// Of a step, with its number and its kernel.
    pub(super) fn new(
        gpu: &Gpu,
        ready: &ReadyLaunch,
        (index, step, kernel): (usize, &Step, &Known),
        operands: &[Operand],
        scratch: &Scratch,
    ) -> Result<Parameters, OpError> {
        let mut parameters = Parameters {
            bytes: vec![0; ready.parameter_bytes()],
            places: Vec::new(),
            _constants: Vec::new(),
        };
        let wrong = |why: String| KernelError::unfit(format!("{}: {why}", step.entry));
        if parameters.bytes.len() > MOST_BYTES || ready.offsets().len() != step.params.len() {
            return Err(wrong(format!(
                "{} parameters of {} bytes, and the kernel takes {}",
                step.params.len(),
                parameters.bytes.len(),
                ready.offsets().len()
            ))
            .into());
        }
        for (number, (param, &at)) in step.params.iter().zip(ready.offsets()).enumerate() {
            if !kernel.reads(number) {
                continue;
            }
            let slot = named(param)
                .and_then(|name| operands.iter().position(|operand| operand.name == name));
            match param {
                Arg::Scalar(scalar) => parameters.put(at, &scalar.to_bytes()),
                Arg::Bytes(bytes) => parameters.put(at, bytes),
                Arg::Buffer {
                    role: Role::In,
                    data,
                } => parameters.constant(gpu, at, data)?,
                Arg::Buffer { .. } => {
                    let found = |own: &&(usize, usize, u64)| (own.0, own.1) == (index, number);
                    let own = scratch.own.iter().find(found);
                    let place = own.map_or(0, |own| own.2);
                    parameters.places.push((at, Patch::Counter(place)));
                }
                Arg::Pointer { buffer, offset } => {
                    let spare = named(param).and_then(|name| scratch.find(name));
                    let place = match (slot, spare) {
                        (Some(slot), spare) => Patch::Operand {
                            slot,
                            offset: *offset,
                            spare,
                        },
                        (None, Some(place)) => Patch::Scratch(place + offset),
                        (None, None) => {
                            return Err(wrong(format!("there is no buffer `{buffer}`")).into());
                        }
                    };
                    parameters.places.push((at, place));
                }
                Arg::TensorMap(map) => {
                    map.validate().map_err(|error| wrong(error.to_string()))?;
                    let spare = named(param).and_then(|name| scratch.find(name));
                    let boxed = Box::new(gpu.encode_tensor_map(map)?);
                    let patch = match (slot, spare) {
                        (Some(slot), _) => {
                            map.validate_within(operands[slot].bytes)
                                .map_err(|error| wrong(error.to_string()))?;
                            Patch::Map { slot, map: boxed }
                        }
                        (None, Some(place)) => Patch::ScratchMap { place, map: boxed },
                        (None, None) => {
                            return Err(wrong(format!(
                                "a tensor map over `{}`, which is neither operand nor workspace",
                                map.buffer
                            ))
                            .into());
                        }
                    };
                    parameters.places.push((at, patch));
                }
                Arg::Struct(_) | Arg::Function(_) => {
                    let why = format!("`{param}`: no operation takes addresses in a struct");
                    return Err(wrong(why).into());
                }
            }
        }
        Ok(parameters)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn constant(&mut self, gpu: &Gpu, at: usize, data: &Buffer) -> Result<(), GpuError> {
        let memory = gpu.allocate_with(data.bytes())?;
        self.put(at, &memory.address().to_le_bytes());
        self._constants.push(memory);
        Ok(())
    }

    /// Fills the places in and launches.
    pub(super) fn launch(
        &self,
        gpu: &Gpu,
        ready: &ReadyLaunch,
        memory: &[Option<Memory<'_>>; SLOTS],
        workspace: WorkspaceMemory<'_>,
        stream: BorrowedStream,
    ) -> Result<(), OpError> {
        // On the stack, and cleared first, which for the most bytes takes longer than all that follows.
        let (mut few, mut most);
        let room: &mut [u8] = if self.bytes.len() <= FEW_BYTES {
            few = [0; FEW_BYTES];
            &mut few
        } else {
            most = [0; MOST_BYTES];
            &mut most
        };
        let bytes = &mut room[..self.bytes.len()];
        bytes.copy_from_slice(&self.bytes);
        let address = |slot: usize| memory[slot].map(|memory| memory.address());
        for (at, place) in &self.places {
            let pointer = match place {
                Patch::Operand {
                    slot,
                    offset,
                    spare,
                } => match (address(*slot), spare) {
                    (Some(address), _) => address + offset,
                    (None, Some(spare)) => workspace.scratch.address() + spare + offset,
                    (None, None) => 0,
                },
                Patch::Counter(place) => workspace.counters.address() + place,
                Patch::Scratch(place) => workspace.scratch.address() + place,
                Patch::Map { slot, map } => {
                    let encoded = map.at(gpu, address(*slot).unwrap_or(0))?;
                    bytes[*at..*at + encoded.len()].copy_from_slice(&encoded);
                    continue;
                }
                Patch::ScratchMap { place, map } => {
                    let encoded = map.at(gpu, workspace.scratch.address() + place)?;
                    bytes[*at..*at + encoded.len()].copy_from_slice(&encoded);
                    continue;
                }
            };
            bytes[*at..*at + 8].copy_from_slice(&pointer.to_le_bytes());
        }
        Ok(ready.launch(stream, bytes)?)
    }
}
