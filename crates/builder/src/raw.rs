//! Raw PTX, for instructions that the builder does not have yet.
//!
//! It is `unsafe`: nothing here is checked, neither types nor order nor
//! targets. Each use is named and counted in the kernel's
//! [`Report`](crate::Report).
#![allow(unsafe_code)]

use crate::emit::{Opnd, RawUse};
use crate::kernel::{Kernel, number};
use crate::pointer::{Ptr, Space};
use crate::scalar::{Scalar, Storable};
use crate::value::{Val, Var};
use std::panic::Location;

/// An operand of a raw instruction.
#[derive(Clone, Debug)]
pub struct RawOperand<'k> {
    operand: Opnd,
    k: std::marker::PhantomData<Kernel<'k>>,
}

impl<'k> RawOperand<'k> {
    fn new(operand: Opnd) -> RawOperand<'k> {
        RawOperand {
            operand,
            k: std::marker::PhantomData,
        }
    }

    /// A whole number.
    pub fn immediate(value: i64) -> RawOperand<'k> {
        RawOperand::new(number(value))
    }

    /// `{a, b, ...}`.
    pub fn vector(lanes: impl IntoIterator<Item = RawOperand<'k>>) -> RawOperand<'k> {
        let lanes = lanes.into_iter().map(|lane| lane.operand).collect();
        RawOperand::new(Opnd::Vector(lanes))
    }
}

impl<'k, T: Scalar> From<Val<'k, T>> for RawOperand<'k> {
    #[track_caller]
    fn from(value: Val<'k, T>) -> RawOperand<'k> {
        RawOperand::new(value.operand())
    }
}

/// A variable is what a raw instruction writes.
impl<'k, T: Scalar> From<Var<'k, T>> for RawOperand<'k> {
    fn from(variable: Var<'k, T>) -> RawOperand<'k> {
        RawOperand::new(variable.reg.into())
    }
}

impl<'k, S: Space, T: Storable> From<Ptr<'k, S, T>> for RawOperand<'k> {
    fn from(at: Ptr<'k, S, T>) -> RawOperand<'k> {
        RawOperand::new(at.operand())
    }
}

impl<'k> Kernel<'k> {
    /// Writes one instruction as it stands. `name` says in the report what it
    /// is for.
    ///
    /// # Safety
    /// The caller vouches for the instruction: that the target and PTX version
    /// have it, that its operands have the types it wants, and that it keeps
    /// the promises of the values around it.
    #[track_caller]
    pub unsafe fn raw(
        &self,
        name: &str,
        opcode: &str,
        operands: impl IntoIterator<Item = RawOperand<'k>>,
    ) {
        let place = self.rec.blame(Location::caller());
        self.rec.raw.borrow_mut().push(RawUse {
            name: name.to_string(),
            opcode: opcode.to_string(),
            at: place.to_string(),
        });
        let operands = operands.into_iter().map(|raw| raw.operand).collect();
        self.rec.raw_op(opcode, operands, place);
    }
}
