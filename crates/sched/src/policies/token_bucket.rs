use crate::program::{Num, PortablePolicy, Slot, Writer};
use crate::text::{Named, Parameter, Value};

/// Requests cost a token. Each block has a bucket of `burst` tokens that fills
/// at `rate` tokens a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Tokens a millisecond.
    pub rate: u32,
    /// The most tokens the bucket holds, and what it starts with.
    pub burst: u32,
}

/// A token in the unit in which the bucket is counted: one nanosecond at a
/// rate of one token a millisecond.
const TOKEN: u64 = 1_000_000;

impl PortablePolicy for TokenBucket {
    /// What is in the bucket, and when that was.
    type State<'w> = (Slot<'w, u64>, Slot<'w, u64>);
    fn init<'w>(&self, w: &'w Writer) -> Self::State<'w> {
        let level = w.var("bucket", u64::from(self.burst) * TOKEN);
        (level, w.var("filled_at", w.nanoseconds()))
    }
    fn should_try_steal<'w>(&self, w: &'w Writer, state: &Self::State<'w>) -> Num<'w, bool> {
        let (level, filled_at) = state;
        let now = w.nanoseconds();
        // A rate of 2^32 fills the largest bucket in a millisecond: no more
        // than that needs to be counted, and the product stays in range.
        let elapsed = (now - filled_at.get()).min(TOKEN);
        filled_at.set(now);
        let filled = elapsed * u64::from(self.rate) + level.get();
        let filled = filled.min(u64::from(self.burst) * TOKEN);
        let enough = filled.ge(TOKEN);
        level.set(filled - enough.select(TOKEN, 0u64));
        enough
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        _: &Self::State<'w>,
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.yes()
    }
    fn label(&self) -> String {
        format!("{}({}, {})", Self::NAME, self.rate, self.burst)
    }
}

impl Named for TokenBucket {
    const NAME: &'static str = "token-bucket";
    const PARAMETERS: &'static [Parameter] = &[Parameter::count("rate"), Parameter::count("burst")];
    const SUMMARY: &'static str =
        "a request costs a token; a block gets rate tokens a millisecond and holds up to burst";
    const EXAMPLE: &'static str = "token-bucket(500, 4)";
    fn from_values(values: &[Value]) -> Option<TokenBucket> {
        let [Value::Count(rate), Value::Count(burst)] = *values else {
            return None;
        };
        Some(TokenBucket { rate, burst })
    }
}
