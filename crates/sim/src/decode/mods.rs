//! Decoding shared by all families: the modifiers of an opcode, the number of its operands.

use super::{Decoded, Decoder};
use heist_arith::float::Rounding;
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// The modifiers of an opcode.
pub(crate) struct Mods<'i> {
    pub(crate) all: Vec<&'i str>,
}

impl<'i> Mods<'i> {
    pub(crate) fn of(i: &'i Instruction) -> Mods<'i> {
        Mods {
            all: i.opcode.modifiers().collect(),
        }
    }

    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.all.contains(&modifier)
    }

    /// The types among the modifiers, in order.
    pub(crate) fn types(&self) -> impl DoubleEndedIterator<Item = ScalarType> {
        self.all.iter().filter_map(|text| text.parse().ok())
    }

    /// The last type.
    pub(crate) fn ty(&self) -> Option<ScalarType> {
        self.types().next_back()
    }

    /// The type that arithmetic is in: the first one, since `dp4a` has two and
    /// mixed-precision `fma` ends with the narrow one.
    pub(crate) fn arithmetic_type(&self) -> Option<ScalarType> {
        self.types().next()
    }

    /// How results are rounded, if the opcode says.
    pub(crate) fn rounding(&self) -> Option<Rounding> {
        self.all.iter().find_map(|&text| {
            Some(match text {
                "rn" | "rni" => Rounding::Nearest,
                "rna" => Rounding::NearestAway,
                "rz" | "rzi" => Rounding::Zero,
                "rm" | "rmi" => Rounding::Down,
                "rp" | "rpi" => Rounding::Up,
                _ => return None,
            })
        })
    }

    /// Modifiers that are none of `known`.
    pub(crate) fn other_than(&self, known: &[&str]) -> Option<&'i str> {
        self.all
            .iter()
            .copied()
            .find(|text| !known.contains(text) && text.parse::<ScalarType>().is_err())
    }
}

/// The operands, if there are `count` of them.
pub(crate) fn operands<'i>(
    d: &Decoder<'_>,
    i: &'i Instruction,
    count: usize,
) -> Decoded<&'i [Operand]> {
    if i.operands.len() == count {
        Ok(&i.operands)
    } else {
        Err(d.wrong(
            rule::OPERAND_COUNT,
            format!(
                "`{}` takes {count} operands, and here are {}",
                i.opcode,
                i.operands.len()
            ),
        ))
    }
}

/// Refuses a modifier that the family does not know.
pub(crate) fn only(
    d: &Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    known: &[&str],
) -> Decoded<()> {
    match mods.other_than(known) {
        None => Ok(()),
        Some(other) => Err(d.unsupported(i, &format!("`.{other}` is not known here"))),
    }
}
