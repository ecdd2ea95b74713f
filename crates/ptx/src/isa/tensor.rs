//! Tensor cores: fragments, products, and tensor maps.

use super::matrix::{mma, wgmma};
use super::needs::{Asking, Needs};
use super::operands::{ANYTHING, BadOpcode, Form, Lookup, Slot, UNKNOWN, exactly};
use super::row::{Family, Memory, ProxyRule, Results, Row, Unit, Value};
use crate::arch::Feature;
use crate::types::ScalarType::B32;

const FRAGMENTS: &str = "tests/ptx/matrix/ldmatrix.ptx";

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    Row::doing("ldmatrix", Family::Matrix, load).memory(Memory::Load).in_block().tested(FRAGMENTS)
        .needs(|i, needs| needs.add(if i.has("b16") { Feature::Ldmatrix } else { Feature::LdmatrixB8 })),
    Row::doing("stmatrix", Family::Matrix, store).results(Results::None).memory(Memory::Store).in_block().tested(FRAGMENTS)
        .needs(|i, needs| needs.add(if i.has("b16") { Feature::Stmatrix } else { Feature::StmatrixB8 })),
    Row::computing("movmatrix", Family::Matrix, |_| exactly(vec![Slot::Out(B32), Slot::In(B32)])).tested(FRAGMENTS)
        .needs(|_, needs| needs.add(Feature::Movmatrix)),
    Row::computing("mma", Family::Matrix, mma).value(Value::Computed).unit(Unit::Tensor).needs(mma_needs).tested("tests/ptx/matrix/mma_float.ptx"),
    Row::doing("wmma", Family::Matrix, ANYTHING).results(Results::Without("store")).unit(Unit::Tensor)
        .memory_by(&[("load", Memory::Load), ("store", Memory::Store)]).needs(wmma_needs).tested("tests/ptx/matrix/wmma.ptx"),
    Row::doing("wgmma", Family::Warpgroup, wgmma).results(Results::Updates("mma_async")).unit(Unit::Tensor).proxy(ProxyRule::Async)
        .needs(|_, needs| needs.add(Feature::Wgmma)).tested("tests/ptx/matrix/wgmma.ptx"),
    Row::doing("tcgen05", Family::TensorMemory, ANYTHING).results(Results::With(&["ld"])).unit(Unit::Tensor).proxy(ProxyRule::Async)
        .needs(tcgen05_needs).tested("tests/ptx/tcgen05/product.ptx"),
    Row::doing("tensormap", Family::TensorMap, ANYTHING).results(Results::None).memory_by(&[("replace", Memory::Update)])
        .needs(map_needs).tested("rules/A026-tensor-map-fence/good.ptx"),
    Row::doing("spdecompress", Family::Internal, ANYTHING).untested("the vendor's compilers alone use it"),
];

/// How many 8x8 matrices of 16-bit elements are moved; `None` for other elements.
fn matrices(form: &Form<'_>) -> Result<Option<u32>, BadOpcode> {
    if !form.has("m8n8") || !form.has("b16") {
        return Ok(None);
    }
    for (modifier, count) in [("x1", 1), ("x2", 2), ("x4", 4)] {
        if form.has(modifier) {
            return Ok(Some(count));
        }
    }
    Err(BadOpcode::Missing("`.x1`, `.x2` or `.x4`"))
}

fn load(form: &Form<'_>) -> Lookup {
    match matrices(form)? {
        Some(count) => exactly(vec![Slot::OutList(count, B32), Slot::Address]),
        None => UNKNOWN,
    }
}

fn store(form: &Form<'_>) -> Lookup {
    match matrices(form)? {
        Some(count) => exactly(vec![Slot::Address, Slot::InList(count, B32)]),
        None => UNKNOWN,
    }
}

fn wmma_needs(i: &Asking<'_>, needs: &mut Needs) {
    needs.when(i.has("bf16") || i.has("tf32"), Feature::WmmaBf16);
    needs.when(i.has("f64"), Feature::WmmaF64);
}

fn tcgen05_needs(i: &Asking<'_>, needs: &mut Needs) {
    needs.when(i.has("mma") && i.has("kind::i8"), Feature::Tcgen05Int8);
    needs.add(Feature::Tcgen05);
}

fn map_needs(i: &Asking<'_>, needs: &mut Needs) {
    needs.add(if i.has("replace") {
        Feature::TensormapReplace
    } else {
        Feature::TensormapFence
    });
}

fn mma_needs(i: &Asking<'_>, needs: &mut Needs) {
    use Feature::*;
    let shape = i
        .modifiers()
        .find(|m| m.starts_with('m') && m.contains('n') && m.contains('k'))
        .unwrap_or("");
    if i.has("block_scale") {
        needs.add(MmaBlockScale);
        return;
    }
    if i.has("e3m2") || i.has("e2m3") || i.has("e2m1") {
        needs.add(MmaFp6);
        return;
    }
    needs.when(i.has("e4m3") || i.has("e5m2"), MmaFp8);
    if i.has("f64") {
        needs.add(if shape == "m8n8k4" {
            MmaF64
        } else {
            MmaF64Large
        });
        return;
    }
    needs.when(i.has("sp::ordered_metadata"), MmaSparseOrdered);
    needs.when(i.has("sp"), MmaSparse);
    needs.when(i.has("bf16") || i.has("tf32"), MmaBf16);
    needs.when(i.has("b1") && i.has("and"), MmaBinaryAnd);
    match shape {
        "m16n8k16" | "m16n8k32" | "m16n8k64" | "m16n8k128" | "m16n8k256" => needs.add(MmaAmpere),
        "m16n8k8" | "m8n8k16" | "m8n8k32" | "m8n8k128" => needs.add(MmaTuring),
        _ => {}
    }
}
