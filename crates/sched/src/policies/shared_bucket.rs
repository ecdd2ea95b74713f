use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Parameter, Value};
use heist_builder::Bool;
use std::num::NonZeroU32;

/// Requests cost a token. The whole launch has one bucket of `burst` tokens, which
/// fills at `rate` tokens a millisecond.
///
/// One word holds the time at which the bucket will be full again (the generic cell
/// rate algorithm): a token moves it by the time that one takes to come, and a
/// request may move it no further than a whole bucket ahead of now.
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

impl Policy for SharedBucket {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        let (full_at, now) = (cx.word(0), cx.nanoseconds());
        let ahead = self.interval() * u64::from(self.burst.get() - 1);
        full_at.atomic_max(now);
        let before = full_at.atomic_add(self.interval());
        let enough = before.le(now + ahead);
        cx.kernel().if_(!enough, || {
            // Back with it. Who asks in between may be turned away as well.
            full_at.atomic_add(self.interval().wrapping_neg());
        });
        enough
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        cx.yes()
    }
    fn shared_words(&self) -> u32 {
        1
    }
    fn name(&self) -> String {
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
