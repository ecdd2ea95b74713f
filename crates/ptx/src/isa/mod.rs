//! The table of instructions: one [`Row`] for each opcode of PTX.
//!
//! A row has the facts about an instruction: its operands, which of them it writes, its effects on
//! memory and control flow, the execution unit, and the required target features. The structural
//! rules, the checker, the simulator's decoder and its model of time read it here. What an
//! instruction *computes* is in `heist-arith` and the simulator.
//!
//! An opcode stays a string ([`Opcode`]); a row is found by what stands before its
//! first dot. Where a modifier decides, the row says which one.

mod arithmetic;
mod control;
mod logic;
mod matrix;
mod memory;
mod modifiers;
mod needs;
mod operands;
mod row;
mod special;
mod spelling;
mod sync;
mod tensor;
mod texture;
mod video;
mod warp;

pub use modifiers::{lanes_of, space_of};
pub use needs::features_of;
pub(crate) use needs::needs_of;
pub(crate) use operands::{BadOpcode, Slot};
pub use row::{Control, Family, First, Memory, Row, Tested, Unit, Value};
pub use special::{Special, special_register};
pub(crate) use spelling::misspelt;

use crate::instruction::Opcode;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

impl Opcode {
    /// Its row in the table; none for what PTX does not have.
    ///
    /// ```
    /// use heist_ptx::Opcode;
    /// use heist_ptx::isa::Family;
    /// let row = Opcode::from("ldmatrix.sync.aligned.m8n8.x4.shared.b16").row().unwrap();
    /// assert_eq!(row.family, Family::Matrix);
    /// assert!(Opcode::from("load.global").row().is_none());
    /// ```
    pub fn row(&self) -> Option<&'static Row> {
        find(self.base())
    }
}

/// The rows, by family.
const FAMILIES: &[&[Row]] = &[
    arithmetic::ROWS,
    logic::ROWS,
    memory::ROWS,
    control::ROWS,
    warp::ROWS,
    sync::ROWS,
    tensor::ROWS,
    texture::ROWS,
    video::ROWS,
];

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().copied().flatten()
}

/// The row of the opcode that begins with `base`.
pub fn find(base: &str) -> Option<&'static Row> {
    static INDEX: LazyLock<FxHashMap<&str, &Row>> =
        LazyLock::new(|| rows().map(|row| (row.name, row)).collect());
    INDEX.get(base).copied()
}

/// The opcode that `base` was probably meant to be.
pub(crate) fn similar(base: &str) -> Option<&'static str> {
    let allowed = if base.len() < 4 { 1 } else { 2 };
    rows()
        .filter(|row| row.name.len().abs_diff(base.len()) <= allowed)
        .map(|row| (spelling::distance(base, row.name), row.name))
        .filter(|&(distance, _)| distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{Instruction, Operand};

    #[test]
    fn every_opcode_has_one_row() {
        let mut names: Vec<&str> = rows().map(|row| row.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn slips_are_recognised() {
        assert!(find("mbarrier").is_some() && find("mbarier").is_none());
        assert_eq!(similar("mbarier"), Some("mbarrier"));
        assert_eq!(similar("addd"), Some("add"));
        assert_eq!(similar("frobnicate"), None);
    }

    #[test]
    fn modifiers_decide_what_is_written() {
        let first = |op: &str| {
            let instruction = Instruction::new(op, vec![Operand::name("%r1")]);
            instruction.opcode.row().expect("a row").first(&instruction)
        };
        assert_eq!(first("bar.red.popc.u32"), First::Written);
        assert_eq!(first("bar.sync"), First::Read);
        assert_eq!(first("wmma.store.d.sync"), First::Read);
        assert_eq!(first("wgmma.mma_async.sync"), First::Updated);
        assert_eq!(first("wgmma.wait_group.sync"), First::Read);
        assert_eq!(first("st.global.u32"), First::Read);
        assert_eq!(first("mbarrier.test_wait.b64"), First::Written);
    }
}
