use crate::program::{Num, PortablePolicy, Writer};
use crate::text::{Named, Parameter, Value};
use std::num::NonZeroU32;

/// Requests cost a token. The whole launch has one bucket of `burst` tokens, which
/// fills at `rate` tokens a millisecond.
///
/// One word holds the time at which the bucket will be full again (the generic cell
/// rate algorithm): taking a token moves it by one token's interval, and a request may move it at
/// most a whole bucket ahead of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBucket {
    /// Tokens a millisecond; a token takes whole nanoseconds to come.
    pub rate: NonZeroU32,
    /// The most tokens the bucket holds, and what it starts with.
    pub burst: NonZeroU32,
}

impl SharedBucket {
    /// Nanoseconds in which a token comes.
    fn interval(&self) -> u64 {
        (1_000_000 / u64::from(self.rate.get())).max(1)
    }
}

/// The shared word: when the bucket is full again.
const FULL_AT: u32 = 0;

impl PortablePolicy for SharedBucket {
    type State<'w> = ();
    fn init(&self, _: &Writer) {}
    fn should_try_steal<'w>(&self, w: &'w Writer, (): &()) -> Num<'w, bool> {
        let now = w.nanoseconds();
        let ahead = self.interval() * u64::from(self.burst.get() - 1);
        w.word_max(FULL_AT, now, true);
        let before = w.word_add(FULL_AT, self.interval(), true);
        let enough = before.le(now + ahead);
        // Undo it. A request in between may be declined as well.
        w.word_add(FULL_AT, self.interval().wrapping_neg(), !enough);
        enough
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        (): &(),
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.yes()
    }
    fn words(&self) -> u32 {
        1
    }
    fn label(&self) -> String {
        format!("{}({}, {})", Self::NAME, self.rate, self.burst)
    }
}

impl Named for SharedBucket {
    const NAME: &'static str = "shared-bucket";
    const PARAMETERS: &'static [Parameter] =
        &[Parameter::positive("rate"), Parameter::positive("burst")];
    const SUMMARY: &'static str =
        "a request costs a token; the launch gets rate tokens a millisecond and holds up to burst";
    const EXAMPLE: &'static str = "shared-bucket(5000, 200)";
    fn from_values(values: &[Value]) -> Option<SharedBucket> {
        let [Value::Count(rate), Value::Count(burst)] = *values else {
            return None;
        };
        Some(SharedBucket {
            rate: NonZeroU32::new(rate)?,
            burst: NonZeroU32::new(burst)?,
        })
    }
}
