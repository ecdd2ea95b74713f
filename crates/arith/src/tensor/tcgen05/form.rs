//! The instruction descriptor: the types, the shape and the signs of a product.

use super::format::{Format, Scale};
use crate::tensor::Accumulator;
use std::fmt;

/// The `.kind` of a `tcgen05.mma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum MmaKind {
    F16,
    Tf32,
    F8f6f4,
    I8,
    Mxf8f6f4,
    Mxf4,
    /// With scale factors for 16 elements (`.block16`, `.scale_vec::4X`) or 32.
    Mxf4nvf4 {
        sixteen: bool,
    },
}

impl MmaKind {
    /// Whether factors are scaled by blocks.
    pub const fn is_scaled(self) -> bool {
        matches!(
            self,
            MmaKind::Mxf8f6f4 | MmaKind::Mxf4 | MmaKind::Mxf4nvf4 { .. }
        )
    }

    /// Elements along k that share a scale factor.
    pub const fn block(self) -> usize {
        match self {
            MmaKind::Mxf4nvf4 { sixteen: true } => 16,
            _ => 32,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            MmaKind::F16 => "f16",
            MmaKind::Tf32 => "tf32",
            MmaKind::F8f6f4 => "f8f6f4",
            MmaKind::I8 => "i8",
            MmaKind::Mxf8f6f4 => "mxf8f6f4",
            MmaKind::Mxf4 => "mxf4",
            MmaKind::Mxf4nvf4 { .. } => "mxf4nvf4",
        }
    }
}

/// What an instruction descriptor says of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// The kind of the instruction.
    pub kind: MmaKind,
    /// Rows, of both blocks of a pair together.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Depth.
    pub k: usize,
    /// The type of the elements of A.
    pub a: Format,
    /// The type of the elements of B.
    pub b: Format,
    /// The type of the elements of D.
    pub d: Accumulator,
    /// Whether A is negated.
    pub negate_a: bool,
    /// Whether B is negated.
    pub negate_b: bool,
    /// Whether A is contiguous along M.
    pub transpose_a: bool,
    /// Whether B is contiguous along N.
    pub transpose_b: bool,
    /// Whether integers clamp.
    pub saturate: bool,
    /// The type of the scale factors.
    pub scale: Scale,
    /// The first byte of a row's scale factors for A, and for B.
    pub scale_ids: [u32; 2],
    /// Whether half of the elements of A are not stored.
    pub sparse: bool,
    /// Which column has the metadata of A, where the kind lets one choose.
    pub selector: usize,
}

/// Why an instruction descriptor is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// How an instruction uses its descriptor, apart from its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Usage {
    /// `.cta_group::2`.
    pub pair: bool,
    /// `.ws`.
    pub ws: bool,
    /// `.sp`.
    pub sparse: bool,
    /// Whether the target has products of mxf4 that are 96 deep.
    pub deep: bool,
}

/// Some bits of a word.
const fn field(bits: u32, low: u32, width: u32) -> u32 {
    bits >> low & (u32::MAX >> (32 - width))
}

impl Form {
    /// Reads an instruction descriptor.
    pub fn decode(kind: MmaKind, bits: u32, usage: Usage) -> Result<Form, Wrong> {
        let wrong = |text: String| Err(Wrong(text));
        let scaled = kind.is_scaled();
        let packed = matches!(kind, MmaKind::Mxf4 | MmaKind::Mxf4nvf4 { .. });
        check_reserved(scaled, packed, bits)?;
        if (field(bits, 2, 1) == 1) != usage.sparse {
            return wrong(
                "the sparsity bit of the instruction descriptor does not agree with `.sp`"
                    .to_owned(),
            );
        }
        let (b_code, b_width) = if packed { (10, 2) } else { (10, 3) };
        let a = factor(kind, field(bits, 7, 3), "A")?;
        let b = factor(kind, field(bits, b_code, b_width), "B")?;
        let d = if scaled {
            Accumulator::F32
        } else {
            sum(kind, field(bits, 4, 2))?
        };
        if kind == MmaKind::F16 && d == Accumulator::F16 && (a, b) != (Format::F16, Format::F16) {
            return wrong("a sum in f16 is of factors in f16".to_owned());
        }
        let [negate_a, negate_b, transpose_a, transpose_b] =
            [13, 14, 15, 16].map(|at| field(bits, at, 1) == 1);
        if kind == MmaKind::I8 && (negate_a || negate_b) {
            return wrong("integers are not negated".to_owned());
        }
        if kind != MmaKind::I8 && !scaled && field(bits, 3, 1) == 1 {
            return wrong("only integers saturate".to_owned());
        }
        if transpose_a && !a.transposes() || transpose_b && !b.transposes() {
            return wrong("elements of 4 and 6 bits are K-major".to_owned());
        }
        let n = 8 * field(bits, 17, 6) as usize;
        let m = if scaled {
            128 * field(bits, 27, 2) as usize
        } else {
            16 * field(bits, 24, 5) as usize
        };
        let deep = packed && field(bits, 31, 1) == 1;
        if deep && !usage.deep {
            return wrong(
                "products of mxf4 that are 96 deep are for sm_103a alone, and are not simulated"
                    .to_owned(),
            );
        }
        let dense = dense_depth(kind, deep);
        let form = Form {
            kind,
            m,
            n,
            k: if usage.sparse { 2 * dense } else { dense },
            a,
            b,
            d,
            negate_a,
            negate_b,
            transpose_a,
            transpose_b,
            saturate: field(bits, 3, 1) == 1,
            scale: if field(bits, 23, 1) == 1 {
                Scale::Ue8m0
            } else {
                Scale::Ue4m3
            },
            scale_ids: if scaled {
                [field(bits, 29, 2), field(bits, 4, 2)]
            } else {
                [0; 2]
            },
            sparse: usage.sparse,
            selector: field(bits, 0, 2) as usize,
        };
        form.check_shape(usage)?;
        if form.selector != 0 && !(form.sparse && kind.selects_metadata()) {
            return wrong(format!(
                "the sparsity selector is {}, and only sparse products of kind::f16 and kind::tf32 have one",
                form.selector
            ));
        }
        if scaled {
            form.check_scales()?;
        }
        Ok(form)
    }

    /// Whether there is a product of this shape.
    fn check_shape(&self, usage: Usage) -> Result<(), Wrong> {
        let Form { kind, m, n, .. } = *self;
        let pair = usage.pair;
        let rows: &[usize] = match (kind.is_scaled(), usage.ws, pair) {
            (_, true, _) => &[32, 64, 128],
            (false, false, false) => &[64, 128],
            (true, false, false) => &[128],
            (_, false, true) if usage.sparse && kind.is_scaled() => &[256],
            (_, false, true) => &[128, 256],
        };
        let mut step = match (kind, pair) {
            (MmaKind::I8, true) => 32,
            (MmaKind::I8, false) if n > 32 => 16,
            (_, true) => 16,
            (_, false) => 8,
        };
        if self.transpose_b && self.b.per_chunk() == 16 {
            step = step.max(if pair { 32 } else { 16 });
        }
        let columns = if usage.ws {
            [64, 128, 256].contains(&n)
        } else {
            (step..=256).contains(&n) && n.is_multiple_of(step)
        };
        if rows.contains(&m) && columns {
            return Ok(());
        }
        Err(Wrong(format!(
            "there is no product of kind::{} with M = {m} and N = {n}{}",
            kind.name(),
            match (usage.ws, pair) {
                (true, _) => " and .ws",
                (_, true) => " for a pair of blocks",
                _ => " for one block",
            }
        )))
    }

    /// Whether the scale factors are ones that the kind has.
    fn check_scales(&self) -> Result<(), Wrong> {
        if self.scale == Scale::Ue4m3 && self.kind != (MmaKind::Mxf4nvf4 { sixteen: true }) {
            return Err(Wrong(
                "scale factors of type ue4m3 are for kind::mxf4nvf4 with blocks of 16".to_owned(),
            ));
        }
        let bytes = self.k.div_ceil(self.block()) as u32;
        let fits = |id: &u32| match bytes {
            1 => true,
            2 => id.is_multiple_of(2),
            _ => *id == 0,
        };
        if self.scale_ids.iter().all(fits) {
            Ok(())
        } else {
            Err(Wrong(format!(
                "scale factor ids {:?} with {bytes} factors a row: they start at a multiple of their number",
                self.scale_ids
            )))
        }
    }
}

/// What is zero in every descriptor of this class. Bit 12 of a packed one is a version of the
/// sparsity in the CuTe DSL's, which says nothing here.
fn check_reserved(scaled: bool, packed: bool, bits: u32) -> Result<(), Wrong> {
    let reserved: u32 = match (scaled, packed) {
        (false, _) => 1 << 6 | 1 << 23 | 1 << 29,
        (true, false) => 0b11 | 1 << 3 | 1 << 6 | 0b111 << 24 | 1 << 31,
        (true, true) => 0b11 | 1 << 3 | 1 << 6 | 0b11 << 15 | 0b111 << 24,
    };
    match bits & reserved {
        0 => Ok(()),
        set => Err(Wrong(format!(
            "bits {set:#x} of the instruction descriptor are reserved and not zero"
        ))),
    }
}

/// How deep a dense product of this kind is: `K` in elements.
fn dense_depth(kind: MmaKind, deep: bool) -> usize {
    match kind {
        MmaKind::F16 => 16,
        MmaKind::Tf32 => 8,
        MmaKind::F8f6f4 | MmaKind::I8 | MmaKind::Mxf8f6f4 => 32,
        MmaKind::Mxf4 | MmaKind::Mxf4nvf4 { .. } if deep => 96,
        MmaKind::Mxf4 | MmaKind::Mxf4nvf4 { .. } => 64,
    }
}

/// The type of a factor.
fn factor(kind: MmaKind, code: u32, which: &str) -> Result<Format, Wrong> {
    Ok(match (kind, code) {
        (MmaKind::F16, 0) => Format::F16,
        (MmaKind::F16, 1) => Format::Bf16,
        (MmaKind::Tf32, 2) => Format::Tf32,
        (MmaKind::F8f6f4 | MmaKind::Mxf8f6f4, 0) => Format::E4m3,
        (MmaKind::F8f6f4 | MmaKind::Mxf8f6f4, 1) => Format::E5m2,
        (MmaKind::F8f6f4 | MmaKind::Mxf8f6f4, 3) => Format::E2m3,
        (MmaKind::F8f6f4 | MmaKind::Mxf8f6f4, 4) => Format::E3m2,
        (MmaKind::F8f6f4 | MmaKind::Mxf8f6f4, 5) => Format::E2m1,
        (MmaKind::I8, 0) => Format::U8,
        (MmaKind::I8, 1) => Format::S8,
        (MmaKind::Mxf4 | MmaKind::Mxf4nvf4 { .. }, 1) => Format::PackedE2m1,
        _ => {
            return Err(Wrong(format!(
                "the type {code} of {which} is not one of kind::{}",
                kind.name()
            )));
        }
    })
}

/// The type of the sum.
fn sum(kind: MmaKind, code: u32) -> Result<Accumulator, Wrong> {
    Ok(match (kind, code) {
        (MmaKind::F16 | MmaKind::F8f6f4, 0) => Accumulator::F16,
        (MmaKind::F16 | MmaKind::F8f6f4 | MmaKind::Tf32, 1) => Accumulator::F32,
        (MmaKind::I8, 2) => Accumulator::S32,
        _ => {
            return Err(Wrong(format!(
                "the type {code} of D is not one of kind::{}",
                kind.name()
            )));
        }
    })
}
