//! Calls, with the parameter space of the ABI.
//!
//! A device function's results and parameters lie at the start of its frame, laid
//! out by its signature alone. The caller's frame ends where the callee's begins,
//! so a call copies the arguments there and, when it comes back, the results from there.

use crate::access::context::Cx;
use crate::code::{Flow, Reach, Slot};
use crate::decode::declare::signature_layout;
use crate::decode::map::with;
use crate::decode::mods::Mods;
use crate::decode::names::{Memory, Named, Register, Storage, Targets, TargetsKey, rows_of};
use crate::decode::{Cost, Decoded, Decoder, Leaves};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, each};
use heist_ptx::{Function, Instruction, Name, Operand, ScalarType, Statement, Variable, rule};
use rustc_hash::FxHashMap;

/// Loads a register parameter from the function's own frame.
pub(crate) fn load_formal(register: Register, offset: u32) -> Box<dyn Instr> {
    with(move |cx| {
        let offsets = [u64::from(cx.fragment.local + offset); LANES];
        let (values, _) = cx
            .warp
            .local
            .load(&offsets, cx.mask, register.ty.bytes().min(8));
        crate::decode::qualifier::write_bits(cx, register.slot(0), register.rows(), &values);
        Flow::Next
    })
}

/// Stores a register result to the function's own frame.
pub(crate) fn store_formal(register: Register, offset: u32) -> Box<dyn Instr> {
    with(move |cx| {
        let offsets = [u64::from(cx.fragment.local + offset); LANES];
        let values = crate::decode::qualifier::read_bits(cx, register.slot(0), register.rows());
        cx.warp
            .local
            .store(&offsets, cx.mask, register.ty.bytes().min(8), &values);
        Flow::Next
    })
}

/// One argument or result: between the caller and the callee's frame.
#[derive(Clone, Copy, Debug)]
enum Passed {
    /// Bytes of the caller's frame.
    Frame { at: u32, formal: u32, size: u32 },
    /// A register of the caller, or a constant.
    Register {
        slot: Slot,
        rows: u32,
        formal: u32,
        size: u32,
    },
}

/// Results and parameters.
type Signature<'m> = (&'m [Variable], &'m [Variable]);

/// Whom a call calls.
enum Callee {
    Direct(u32),
    /// The address in a register; functions by their addresses.
    Indirect(Slot, Targets),
}

struct Call {
    callee: Callee,
    arguments: Vec<Passed>,
    signature: u32,
}

pub(crate) fn decode<'m>(d: &mut Decoder<'m>, i: &'m Instruction, _mods: &Mods<'_>) -> Decoded<()> {
    // call (ret), name, (args), prototype;  with everything but the name left out at will.
    let mut operands = i.operands.iter().peekable();
    let returns: &[Operand] = match operands.peek() {
        Some(Operand::Tuple(list)) => {
            operands.next();
            list
        }
        _ => &[],
    };
    let Some(Operand::Name(name)) = operands.next() else {
        return Err(d.wrong(rule::OPERAND_KIND, "a function is wanted here"));
    };
    let arguments: &[Operand] = match operands.peek() {
        Some(Operand::Tuple(list)) => {
            operands.next();
            list
        }
        _ => &[],
    };
    let list = operands.next();
    if super::builtin::is_known(d, name) {
        return super::builtin::decode(d, i, name, returns, arguments);
    }
    let (callee, formals): (Callee, (&[Variable], &[Variable])) = match d.by_name.get(name).copied()
    {
        Some(function) => {
            let number = d.number_of(function);
            (
                Callee::Direct(number),
                (&function.returns, &function.params),
            )
        }
        None => indirect(d, name, list)?,
    };
    if formals.0.len() != returns.len() || formals.1.len() != arguments.len() {
        return Err(d.wrong(
            rule::CALL_SIGNATURE,
            format!(
                "`{name}` takes {} arguments and gives {} results, and the call has {} and {}",
                formals.1.len(),
                formals.0.len(),
                arguments.len(),
                returns.len()
            ),
        ));
    }
    let (places, signature) = signature_layout(formals.0.iter().chain(formals.1));
    let mut passed = Vec::new();
    for ((operand, variable), &(formal, size)) in arguments
        .iter()
        .zip(formals.1)
        .zip(&places[formals.0.len()..])
    {
        pass(d, operand, variable.ty, (formal, size), false, &mut passed)?;
    }
    let mut results = Vec::new();
    for ((operand, variable), &(formal, size)) in returns.iter().zip(formals.0).zip(&places) {
        pass(d, operand, variable.ty, (formal, size), true, &mut results)?;
    }
    let call = Call {
        callee,
        arguments: passed,
        signature,
    };
    d.emit_with(Box::new(call), Cost::new(8, 0), Reach::Own, Leaves::On);
    if !results.is_empty() {
        d.emit(with(move |cx| collect(cx, &results)), Cost::new(2, 4));
    }
    Ok(())
}

/// An indirect call: the functions and the signature that its list tells.
fn indirect<'m>(
    d: &mut Decoder<'m>,
    name: &Name,
    list: Option<&'m Operand>,
) -> Decoded<(Callee, Signature<'m>)> {
    let Some(Operand::Name(list)) = list else {
        return Err(d.wrong(
            rule::UNDECLARED_FUNCTION,
            format!(
                "`{name}` is no function, and an indirect call names its targets or its prototype"
            ),
        ));
    };
    let register = d.register(name)?;
    let slot = register.slot(0);
    let formals: Signature<'m> = match d.find_list(list) {
        Some(Statement::CallTargets { targets, .. }) => {
            let Some(first) = targets.first() else {
                return Err(d.wrong(rule::CALL_SIGNATURE, "the list of targets is empty"));
            };
            let first = named(d, first)?;
            (&first.returns, &first.params)
        }
        Some(Statement::CallPrototype(prototype)) => (&prototype.returns, &prototype.params),
        _ => {
            return Err(d.wrong(
                rule::UNDECLARED_LABEL,
                format!("`{list}` is neither `.calltargets` nor `.callprototype`"),
            ));
        }
    };
    Ok((Callee::Indirect(slot, targets(d, list)?), formals))
}

/// The functions that a list or a prototype means. Calls that mean the same ones share them.
fn targets<'m>(d: &mut Decoder<'m>, list: &'m Name) -> Decoded<Targets> {
    let (key, functions): (TargetsKey, Vec<&'m Function>) = match d.find_list(list) {
        Some(Statement::CallTargets { targets, .. }) => {
            let key = TargetsKey::List(targets.as_ptr() as usize);
            if let Some(known) = d.targets.get(&key) {
                return Ok(known.clone());
            }
            let functions = targets.iter().map(|target| named(d, target));
            (key, functions.collect::<Decoded<_>>()?)
        }
        Some(Statement::CallPrototype(prototype)) => {
            // Any function of the module with this signature can be meant.
            let (params, returns) = (prototype.params.len(), prototype.returns.len());
            let key = TargetsKey::Signature { params, returns };
            if let Some(known) = d.targets.get(&key) {
                return Ok(known.clone());
            }
            let is_meant = |function: &&Function| {
                function.kind == heist_ptx::FunctionKind::Func
                    && function.body.is_some()
                    && (function.params.len(), function.returns.len()) == (params, returns)
            };
            (key, d.module.functions().filter(is_meant).collect())
        }
        _ => return Ok(Targets::default()),
    };
    let mut by_address = FxHashMap::default();
    for function in functions {
        let number = d.number_of(function);
        if let Some(&address) = d.variables.functions.get(&function.name) {
            by_address.insert(address, number);
        }
    }
    let targets = Targets::new(by_address);
    d.targets.insert(key, targets.clone());
    Ok(targets)
}

/// The function that is called so.
fn named<'m>(d: &Decoder<'m>, name: &Name) -> Decoded<&'m Function> {
    d.by_name.get(name).copied().ok_or_else(|| {
        d.wrong(
            rule::UNDECLARED_FUNCTION,
            format!("`{name}` is no function"),
        )
    })
}

/// Adds what is passed for one parameter: a vector register part by part.
fn pass(
    d: &mut Decoder<'_>,
    operand: &Operand,
    ty: ScalarType,
    (formal, size): (u32, u32),
    result: bool,
    passed: &mut Vec<Passed>,
) -> Decoded<()> {
    if let Operand::Name(name) = operand
        && let Some(Named::Memory(Memory {
            place: Storage::Frame(at),
            size: have,
        })) = d.find(name)
    {
        passed.push(Passed::Frame {
            at,
            formal,
            size: size.max(have as u32).min(have.max(1) as u32),
        });
        return Ok(());
    }
    let parts = d.parts_of(operand).unwrap_or_else(|| vec![operand.clone()]);
    let size = size / parts.len().max(1) as u32;
    for (part, formal) in parts.iter().zip((formal..).step_by(size.max(1) as usize)) {
        let slot = if result {
            d.dst(part, ty)?
        } else {
            d.src(part, ty)?
        };
        passed.push(Passed::Register {
            slot,
            rows: rows_of(ty),
            formal,
            size,
        });
    }
    Ok(())
}

impl Instr for Call {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let frame = cx.code.functions[cx.fragment.function as usize].frame;
        let base = cx.fragment.local + frame;
        cx.warp.local.grow(base + self.signature + 64);
        cx.warp.local.fresh(base, self.signature, cx.mask);
        let mask = cx.mask;
        for passed in &self.arguments {
            match *passed {
                Passed::Frame { at, formal, size } => {
                    copy(
                        cx,
                        u64::from(cx.fragment.local + at),
                        u64::from(base + formal),
                        size,
                    );
                }
                Passed::Register {
                    slot,
                    rows,
                    formal,
                    size,
                } => {
                    let offsets = [u64::from(base + formal); LANES];
                    let values = crate::decode::qualifier::read_bits(cx, slot, rows);
                    cx.warp.local.store(&offsets, mask, size.min(8), &values);
                }
            }
        }
        match &self.callee {
            Callee::Direct(function) => Flow::Call(*function),
            Callee::Indirect(slot, targets) => {
                let addresses = cx.read::<u64>(*slot);
                let first = addresses[crate::lanes::first(mask)];
                let Some(&function) = targets.get(&first) else {
                    cx.report(rule::INDIRECT_TARGET, mask, |_, mut told| {
                        told.message = format!(
                            "calls {first:#x}, which is the address of no function that it may call"
                        );
                        told
                    });
                    return Flow::Stop;
                };
                // Lanes that call another function run this instruction again.
                let here = each(mask)
                    .filter(|&lane| addresses[lane] == first)
                    .fold(0, |mask, lane| mask | 1 << lane);
                if here != mask {
                    cx.divide(mask & !here);
                }
                cx.mask = here;
                Flow::Call(function)
            }
        }
    }
}

/// Copies bytes between two places of the lanes' local memories; what was not
/// written stays so.
fn copy(cx: &mut Cx<'_>, from: u64, to: u64, size: u32) {
    let mask = cx.mask;
    let local = &mut cx.warp.local;
    let mut at = 0;
    while at < size {
        let step = if size - at >= 4 { 4 } else { 1 };
        let (from, to) = (from + u64::from(at), to + u64::from(at));
        let (values, unwritten) = local.load(&[from; LANES], mask, step);
        local.store(&[to; LANES], mask, step, &values);
        for lane in each(unwritten) {
            for byte in each(local.unwritten_of(lane, from, step as usize).into()) {
                local.unmark(lane, to + byte as u64);
            }
        }
        if unwritten != 0
            && let Some(&origin) = local.undefined.get(&(from / 4))
        {
            local.undefined.insert(to / 4, origin);
        }
        at += step;
    }
}

/// Takes the results of a call that has come back.
fn collect(cx: &mut Cx<'_>, results: &[Passed]) -> Flow {
    let frame = cx.code.functions[cx.fragment.function as usize].frame;
    let base = cx.fragment.local + frame;
    for passed in results {
        match *passed {
            Passed::Frame { at, formal, size } => {
                copy(
                    cx,
                    u64::from(base + formal),
                    u64::from(cx.fragment.local + at),
                    size,
                );
            }
            Passed::Register {
                slot,
                rows,
                formal,
                size,
            } => {
                let offsets = [u64::from(base + formal); LANES];
                let (values, _) = cx.warp.local.load(&offsets, cx.mask, size.min(8));
                crate::decode::qualifier::write_bits(cx, slot, rows, &values);
            }
        }
    }
    Flow::Next
}
