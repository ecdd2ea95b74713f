//! 8-bit floats in registers: pairs of them become pairs of halves, for tensor cores that multiply
//! halves.

use crate::convert::halves;
use crate::mma::FragmentB;
use crate::scalar::{F16x2, Tiny};
use crate::value::Val;
use half::f16;
use heist_ptx::arch::Feature;

impl<'k> Val<'k, u16> {
    /// Two 8-bit floats as two halves, which have all of their values; the one in the low bits first.
    #[track_caller]
    pub fn unpack_tiny<H: Tiny>(self) -> Val<'k, F16x2> {
        self.k.require(Feature::Fp8Convert);
        let name = format!("cvt.rn.f16x2.{}x2", H::NAME);
        self.k.emit::<F16x2>(name, vec![self.register().into()])
    }
}

impl<'k> Val<'k, u32> {
    /// Four 8-bit floats as two pairs of halves, those in the low bits first.
    #[track_caller]
    pub fn unpack_four<H: Tiny>(self) -> [Val<'k, F16x2>; 2] {
        // The conversion takes either half of a register by itself; a shift before it would be an instruction.
        halves::<u16, _>(self).map(Val::unpack_tiny::<H>)
    }

    /// The same word with its bytes in another order: byte `i` of the result is byte `from[i]`.
    #[track_caller]
    pub fn with_bytes(self, from: [u32; 4]) -> Val<'k, u32> {
        let selector = from
            .iter()
            .rev()
            .fold(0u32, |selector, byte| selector << 4 | (byte & 3));
        let selector = self.k.c(selector);
        self.k.emit::<u32>(
            "prmt.b32",
            vec![
                self.register().into(),
                self.register().into(),
                selector.operand(),
            ],
        )
    }
}

impl<'k> FragmentB<'k, f16> {
    /// From what a lane holds of it: the pairs at depths `2 * (lane % 4)` and `2 * (lane % 4) + 8` of
    /// column `lane / 4`.
    pub fn from_pairs(regs: [Val<'k, F16x2>; 2]) -> FragmentB<'k, f16> {
        FragmentB { regs }
    }
}
