use crate::program::{Num, PortablePolicy, Writer};
use crate::text::{Named, Value};

/// Keeps its blocks until somebody asks for the GPU; then each leaves after its tile.
///
/// Somebody asks by writing the launch's bell ([`BELL_BYTES`](crate::BELL_BYTES)).
/// While it is set, every block runs one tile and retires, so a kernel of higher priority starts as
/// tiles end, and the rest of the grid runs after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntilAsked;

impl PortablePolicy for UntilAsked {
    type State<'w> = ();
    fn init(&self, _: &Writer) {}
    fn should_try_steal<'w>(&self, w: &'w Writer, (): &()) -> Num<'w, bool> {
        !w.is_asked_to_yield()
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        (): &(),
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        // The next opportunity looks at the bell again.
        w.yes()
    }
    fn ahead(&self) -> bool {
        // What is in flight when the bell is rung would have to be run.
        false
    }
    fn label(&self) -> String {
        Self::NAME.into()
    }
}

impl Named for UntilAsked {
    const NAME: &'static str = "until-asked";
    const SUMMARY: &'static str =
        "keeps its blocks until the launch's bell is rung, then each leaves after its tile";
    const EXAMPLE: &'static str = "until-asked";
    fn from_values(values: &[Value]) -> Option<UntilAsked> {
        values.is_empty().then_some(UntilAsked)
    }
}
