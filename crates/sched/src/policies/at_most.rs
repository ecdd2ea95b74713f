use crate::program::{Num, PortablePolicy, Slot, Writer};
use crate::text::{Named, Parameter, Value};

/// At most `blocks` blocks of the launch steal at a time; the others run their own
/// tile and retire. A block that leaves frees its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMost {
    /// How many.
    pub blocks: u32,
}

/// The shared word: places that are taken.
const TAKEN: u32 = 0;

impl PortablePolicy for AtMost {
    /// Whether this block has one of the places.
    type State<'w> = Slot<'w, bool>;
    fn init<'w>(&self, w: &'w Writer) -> Slot<'w, bool> {
        w.var("has_place", false)
    }
    fn should_try_steal<'w>(&self, w: &'w Writer, place: &Slot<'w, bool>) -> Num<'w, bool> {
        let has = place.get();
        let wants = !has;
        let before = w.word_add(TAKEN, 1u64, wants);
        let free = before.lt(u64::from(self.blocks));
        // Undo the addition: there was no free place.
        w.word_add(TAKEN, u64::MAX, wants & !free);
        let has = has | free;
        place.set(has);
        has
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        _: &Slot<'w, bool>,
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.yes()
    }
    fn leave<'w>(&self, w: &'w Writer, place: &Slot<'w, bool>) {
        w.word_add(TAKEN, u64::MAX, place.get());
    }
    fn words(&self) -> u32 {
        1
    }
    fn label(&self) -> String {
        format!("{}({})", Self::NAME, self.blocks)
    }
}

impl Named for AtMost {
    const NAME: &'static str = "at-most";
    const PARAMETERS: &'static [Parameter] = &[Parameter::count("n")];
    const SUMMARY: &'static str = "at most n blocks of the launch ask at a time";
    const EXAMPLE: &'static str = "at-most(64)";
    fn from_values(values: &[Value]) -> Option<AtMost> {
        let [Value::Count(blocks)] = *values else {
            return None;
        };
        Some(AtMost { blocks })
    }
}
