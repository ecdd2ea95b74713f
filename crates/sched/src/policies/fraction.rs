use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Parameter, Value};
use heist_builder::Bool;

/// The first `part` of the blocks that run at a time steal; the others run their
/// own tile and retire.
///
/// Blocks are counted in the order of their launch. With launch control, and with
/// tickets, the later blocks of a grid start where others have retired: they do
/// not steal either, so `1 - part` of the GPU changes hands after every tile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction {
    /// From 0 (none) to 1 (all).
    pub part: f64,
}

impl Fraction {
    fn belongs<'k>(&self, cx: &PolicyCx<'k>) -> Bool<'k> {
        if let Some(answer) = self.constant() {
            return cx.c(answer);
        }
        // A fraction of 2^32, so that no rounding depends on the grid.
        let scaled = (self.part * 4_294_967_296.0) as u32;
        let at_a_time = cx.resident().min(cx.workers());
        cx.worker().lt(at_a_time.mul_high(scaled))
    }
}

impl Policy for Fraction {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        self.belongs(cx)
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        self.belongs(cx)
    }
    fn name(&self) -> String {
        format!("{}({})", Self::NAME, self.part)
    }
    fn constant(&self) -> Option<bool> {
        if self.part >= 1.0 {
            Some(true)
        } else if self.part > 0.0 {
            None
        } else {
            Some(false)
        }
    }
}

impl Named for Fraction {
    const NAME: &'static str = "fraction";
    const PARAMETERS: &'static [Parameter] = &[Parameter::part("part")];
    const SUMMARY: &'static str =
        "this part of the blocks that run at a time ask; the others run one tile";
    const EXAMPLE: &'static str = "fraction(0.25)";
    fn from_values(values: &[Value]) -> Option<Fraction> {
        let [Value::Part(part)] = *values else {
            return None;
        };
        Some(Fraction { part })
    }
}

/// [`Fraction`] of one half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstHalf;

const HALF: Fraction = Fraction { part: 0.5 };

impl Policy for FirstHalf {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        HALF.belongs(cx)
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        HALF.belongs(cx)
    }
    fn name(&self) -> String {
        Self::NAME.into()
    }
}

impl Named for FirstHalf {
    const NAME: &'static str = "first-half";
    const SUMMARY: &'static str =
        "half of the blocks that run at a time ask; the others run one tile";
    const EXAMPLE: &'static str = "first-half";
    fn from_values(values: &[Value]) -> Option<FirstHalf> {
        values.is_empty().then_some(FirstHalf)
    }
}
