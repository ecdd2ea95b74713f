//! Address operands, and their value in every lane.

use crate::access::context::Cx;
use crate::code::Slot;
use crate::lanes::LANES;
use crate::state::memory::window::Window;

/// An address before its offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Base {
    /// A 64-bit register or constant.
    Long(Slot),
    /// A 32-bit register or constant.
    Word(Slot),
    /// An offset in the running function's frame.
    Frame(u32),
}

/// An address operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Addr {
    pub(crate) base: Base,
    pub(crate) offset: i64,
    /// The space of the variable that it names, if it names one.
    pub(crate) window: Option<Window>,
}

impl Addr {
    /// The address in every lane.
    #[inline]
    pub(crate) fn eval(&self, cx: &Cx<'_>) -> [u64; LANES] {
        let offset = self.offset as u64;
        match self.base {
            Base::Long(slot) => {
                let base = cx.view::<u64>(slot);
                let mut out = [0; LANES];
                crate::lanes::wide(
                    #[inline(always)]
                    || {
                        for (out, base) in out.iter_mut().zip(base) {
                            *out = base.wrapping_add(offset);
                        }
                    },
                );
                out
            }
            Base::Word(slot) => {
                let base = *cx.row(slot);
                crate::lanes::map1(base, |base| u64::from(base.wrapping_add(offset as u32)))
            }
            Base::Frame(at) => [u64::from(cx.fragment.local + at).wrapping_add(offset); LANES],
        }
    }
}
