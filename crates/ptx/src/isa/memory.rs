//! Memory and addresses: moves, loads, stores, atomics, and cache hints.

use super::modifiers::lanes_of;
use super::needs::{Asking, Needs};
use super::operands::{ANYTHING, BadOpcode, Form, Lookup, Slot, UNKNOWN, at_least, exactly};
use super::operands::{is_bits, is_integer};
use super::row::{Family, Memory, Results, Row, Unit, Value};
use crate::arch::Feature;
use crate::types::ScalarType;

const POLICY: &str = "tests/ptx/memory/policy.ptx";
const STACK: &str = "tests/ptx/space/alloca.ptx";
const SPACE: &str = "tests/ptx/space/generic.ptx";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    Row::computing("mov", Family::Move, moved).value(Value::Moved).unit(Unit::Merged).reading_special().tested("tests/ptx/memory/mov.ptx"),
    Row::computing("cvta", Family::Move, generic).needs(param_needs).tested(SPACE),
    Row::computing("isspacep", Family::Move, |_| exactly(vec![Slot::OutPred, Slot::Any])).value(Value::Decided).needs(param_needs).tested(SPACE),
    Row::doing("ld", Family::Load, load).memory(Memory::Load).unit(Unit::Memory).in_block().needs(access_needs).tested("tests/ptx/memory/load_store.ptx"),
    Row::doing("ldu", Family::Load, load).memory(Memory::Load).unit(Unit::Memory).needs(access_needs).tested("tests/ptx/memory/load_uniform.ptx"),
    Row::doing("st", Family::Store, store).results(Results::None).memory(Memory::Store).unit(Unit::Memory).in_block().needs(store_needs).tested("tests/ptx/memory/load_store.ptx"),
    Row::doing("atom", Family::Atomic, atomic).memory(Memory::Update).unit(Unit::Memory).needs(atomic_needs).tested("tests/ptx/atomic/own_slots.ptx"),
    Row::doing("red", Family::Atomic, reduction).results(Results::None).memory(Memory::Update).unit(Unit::Memory).needs(reduction_needs).tested("tests/ptx/atomic/shared.ptx"),
    Row::doing("multimem", Family::Multimem, ANYTHING).results(Results::With(&["ld_reduce"]))
        .memory_by(&[("ld_reduce", Memory::Load), ("st", Memory::Store), ("red", Memory::Update)])
        .needs(multimem_needs).untested("memory that several devices share is not simulated"),
    Row::doing("prefetch", Family::Hint, address).results(Results::None).needs(prefetch_needs).tested("tests/ptx/tensor/prefetch.ptx"),
    Row::doing("prefetchu", Family::Hint, address).results(Results::None).tested(POLICY),
    Row::doing("createpolicy", Family::Hint, ANYTHING).needs(|_, needs| needs.add(Feature::CreatePolicy)).tested(POLICY),
    Row::doing("applypriority", Family::Hint, ANYTHING).results(Results::None).needs(|_, needs| needs.add(Feature::ApplyPriority)).tested(POLICY),
    Row::doing("discard", Family::Hint, ANYTHING).results(Results::None).needs(|_, needs| needs.add(Feature::Discard)).tested("tests/ptx/memory/load_uniform.ptx"),
    Row::doing("cctl", Family::Internal, ANYTHING).results(Results::None).untested("the vendor's compilers alone use it"),
    Row::doing("cctlu", Family::Internal, ANYTHING).results(Results::None).untested("the vendor's compilers alone use it"),
    Row::doing("fabric", Family::Internal, ANYTHING).results(Results::None).untested("the vendor's compilers alone use it"),
    Row::doing("mapa", Family::Cluster, peer).needs(|_, needs| needs.add(Feature::Mapa)).tested("tests/ptx/cluster/ranks.ptx"),
    Row::doing("getctarank", Family::Cluster, |_| exactly(vec![Slot::Out(ScalarType::U32), Slot::Any])).needs(|_, needs| needs.add(Feature::Mapa)).tested("tests/ptx/cluster/ranks.ptx"),
    Row::doing("alloca", Family::Stack, ANYTHING).needs(|_, needs| needs.add(Feature::Alloca)).tested(STACK),
    Row::doing("stacksave", Family::Stack, ANYTHING).needs(|_, needs| needs.add(Feature::Alloca)).tested(STACK),
    Row::doing("stackrestore", Family::Stack, ANYTHING).results(Results::None).needs(|_, needs| needs.add(Feature::Alloca)).tested(STACK),
];

fn moved(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let ty = form.typed()?;
    match lanes_of(form.op) {
        Some(lanes) => exactly(vec![Whole(lanes, ty), Whole(lanes, ty)]),
        None => exactly(vec![MoveTo(ty), MoveFrom(ty)]),
    }
}

fn generic(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match form.first() {
        Some(ty) if form.has("to") => exactly(vec![Out(ty), In(ty)]),
        Some(ty) => exactly(vec![Out(ty), InOrAddress(ty)]),
        None => UNKNOWN,
    }
}

fn peer(form: &Form<'_>) -> Lookup {
    use Slot::*;
    match form.first() {
        Some(ty) => exactly(vec![Out(ty), InOrAddress(ty), In(ScalarType::U32)]),
        None => UNKNOWN,
    }
}

fn address(_: &Form<'_>) -> Lookup {
    exactly(vec![Slot::Address])
}

/// The type of an access; `None` for forms with rules of their own.
fn accessed(form: &Form<'_>) -> Result<Option<ScalarType>, BadOpcode> {
    if form.has("async") || form.has("bulk") {
        return Ok(None);
    }
    form.typed().map(Some)
}

/// The type of a load or store.
fn moved_type(form: &Form<'_>) -> Result<Option<ScalarType>, BadOpcode> {
    let Some(ty) = accessed(form)? else {
        return Ok(None);
    };
    if is_bits(ty) || is_integer(ty) || matches!(ty, ScalarType::F32 | ScalarType::F64) {
        return Ok(Some(ty));
    }
    Err(BadOpcode::Type(
        ty,
        "loads and stores move `.b8` to `.b128`, integers, `.f32` and `.f64`",
    ))
}

/// These slots, and that of a cache policy.
fn hinted(form: &Form<'_>, mut slots: Vec<Slot>) -> Lookup {
    let required = slots.len();
    if form.has("L2::cache_hint") {
        slots.push(Slot::In(ScalarType::B64));
    }
    at_least(required, slots)
}

fn load(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let Some(ty) = moved_type(form)? else {
        return UNKNOWN;
    };
    let to = lanes_of(form.op).map_or(OutWide(ty), |count| OutList(count, ty));
    hinted(form, vec![to, Address])
}

/// Constant memory is only read.
fn writable(form: &Form<'_>) -> Result<(), BadOpcode> {
    form.refused(
        |word| word == "const",
        "constant memory is written by the host before a launch: a kernel reads it; \
         what a kernel writes belongs into `.global` or `.shared`",
    )
}

/// What an atomic does to memory, which it can't do without.
fn operation(form: &Form<'_>) -> Result<(), BadOpcode> {
    const OPERATIONS: [&str; 12] = [
        "add", "and", "or", "xor", "min", "max", "inc", "dec", "exch", "cas", "popc", "safeadd",
    ];
    match OPERATIONS.iter().any(|name| form.has(name)) {
        true => Ok(()),
        false => Err(BadOpcode::Missing("an operation such as `.add` or `.max`")),
    }
}

fn store(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let Some(ty) = moved_type(form)? else {
        return UNKNOWN;
    };
    writable(form)?;
    let from = lanes_of(form.op).map_or(InWide(ty), |count| InList(count, ty));
    hinted(form, vec![Address, from])
}

fn reduction(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let Some(ty) = accessed(form)? else {
        return UNKNOWN;
    };
    operation(form)?;
    writable(form)?;
    let from = lanes_of(form.op).map_or(In(ty), |count| InList(count, ty));
    hinted(form, vec![Address, from])
}

fn atomic(form: &Form<'_>) -> Lookup {
    use Slot::*;
    let Some(ty) = accessed(form)? else {
        return UNKNOWN;
    };
    operation(form)?;
    writable(form)?;
    if lanes_of(form.op).is_some() {
        return UNKNOWN;
    }
    let mut slots = vec![OutOrSink(ty), Address, In(ty)];
    if form.has("cas") {
        slots.push(In(ty));
    }
    if is_bits(ty) && !form.has("L2::cache_hint") {
        // ptxas overlooks one operand too many here.
        let required = slots.len();
        slots.push(Any);
        return at_least(required, slots);
    }
    hinted(form, slots)
}

fn param_needs(i: &Asking<'_>, needs: &mut Needs) {
    needs.when(i.any(|m| m.starts_with("param")), Feature::ParamGeneric);
}

fn multimem_needs(i: &Asking<'_>, needs: &mut Needs) {
    let fp8 = |m: &str| m.starts_with("e4m3") || m.starts_with("e5m2");
    needs.when(i.any(fp8), Feature::MultimemFp8);
    needs.add(Feature::Multimem);
}

fn prefetch_needs(i: &Asking<'_>, needs: &mut Needs) {
    needs.when(i.has("tensormap"), Feature::TensormapPrefetch);
    needs.when(
        i.any(|m| m.starts_with("L2::evict")),
        Feature::PrefetchEviction,
    );
}

fn store_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    if i.has("async") {
        needs.add(if i.has("global") {
            StAsyncGlobal
        } else {
            StAsync
        });
    } else {
        needs.when(i.has("bulk"), StBulk);
    }
    access_needs(i, needs);
}

fn access_needs(i: &Asking<'_>, needs: &mut Needs) {
    let wide = access_bits(i).is_some_and(|bits| bits > 128);
    needs.when(wide, Feature::Access256);
    common_needs(i, needs);
}

fn reduction_needs(i: &Asking<'_>, needs: &mut Needs) {
    needs.when(i.has("async"), Feature::RedAsync);
    atomic_needs(i, needs);
}

fn atomic_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    let vector = lanes_of(&i.instruction.opcode).is_some();
    needs.when(vector, VectorReduction);
    needs.when(i.has("b128"), Atomic128);
    needs.when(i.has("bf16") || i.has("bf16x2"), AtomicBf16);
    common_needs(i, needs);
}

fn common_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    needs.when(i.has("b128"), Access128);
    needs.when(i.has("mmio"), Mmio);
    needs.when(i.has("L2::cache_hint"), CacheHint);
    needs.when(i.has("L2::256B"), Prefetch256);
    needs.when(i.has("L2::64B") || i.has("L2::128B"), PrefetchSize);
    needs.when(i.any(|m| m.starts_with("L1::")), L1Eviction);
}

/// How many bits a vector load or store moves for each thread.
fn access_bits(i: &Asking<'_>) -> Option<u32> {
    let ty: ScalarType = i.modifiers().next_back()?.parse().ok()?;
    Some(lanes_of(&i.instruction.opcode)? * ty.bits())
}
