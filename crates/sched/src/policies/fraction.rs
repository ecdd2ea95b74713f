use crate::program::{Num, PortablePolicy, Writer};
use crate::text::{Named, Parameter, Value};

/// The first `part` of the blocks that run at a time steal; the others run their
/// own tile and retire.
///
/// Blocks are counted in the order of their launch. With launch control, and with
/// tickets, the later blocks of a grid start where others have retired: they do
/// not steal either, so on `1 - part` of the GPU a new block starts after every tile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction {
    /// From 0 (none) to 1 (all).
    pub part: f64,
}

impl Fraction {
    fn belongs<'w>(&self, w: &'w Writer) -> Num<'w, bool> {
        if self.part >= 1.0 {
            return w.yes();
        }
        if self.part <= 0.0 {
            return w.no();
        }
        // A fraction of 2^32, so that no rounding depends on the grid.
        let scaled = (self.part * 4_294_967_296.0) as u32;
        let at_a_time = w.resident().min(w.workers());
        w.worker().lt(at_a_time.mul_high(scaled))
    }
}

impl PortablePolicy for Fraction {
    type State<'w> = ();
    fn init(&self, _: &Writer) {}
    fn should_try_steal<'w>(&self, w: &'w Writer, (): &()) -> Num<'w, bool> {
        self.belongs(w)
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        (): &(),
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        self.belongs(w)
    }
    fn label(&self) -> String {
        format!("{}({})", Self::NAME, self.part)
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

impl PortablePolicy for FirstHalf {
    type State<'w> = ();
    fn init(&self, _: &Writer) {}
    fn should_try_steal<'w>(&self, w: &'w Writer, (): &()) -> Num<'w, bool> {
        HALF.belongs(w)
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        (): &(),
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        HALF.belongs(w)
    }
    fn label(&self) -> String {
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
