use heist_builder::{Bool, Val, Var};
use heist_sched::{Policy, PolicyCx, TileId};

/// Steals as long as tiles take less than `limit` nanoseconds.
pub struct Impatient { pub limit: u64 }

impl Policy for Impatient {
    type State<'k> = Var<'k, u64>; // when the last tile began
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u64> {
        cx.var(cx.nanoseconds())
    }
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, began: &Var<'k, u64>) -> Bool<'k> {
        let took: Val<'k, u64> = cx.nanoseconds() - began.get();
        took.lt(self.limit)
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, began: &Var<'k, u64>, _: TileId<'k>) -> Bool<'k> {
        began.set(cx.nanoseconds());
        cx.yes()
    }
}
heist_sched::policy_operators!(Impatient); // &, | and !
