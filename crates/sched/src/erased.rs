//! Type-erased policies: from text, or from a list.

use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::program::{PolicyWords, Program};
use heist_builder::Bool;
use std::fmt;
use std::sync::Arc;

/// Any policy. Copying it is cheap.
///
/// ```
/// use heist_sched::{AnyPolicy, Greedy, MaxSteals, Policy};
/// let listed = [AnyPolicy::new(Greedy), AnyPolicy::new(MaxSteals { limit: 3 })];
/// assert_eq!(listed[1].name(), "max-steals(3)");
/// let typed: AnyPolicy = "max-steals(8) & first-half".parse().unwrap();
/// assert_eq!(typed.name(), "max-steals(8) & first-half");
/// ```
#[derive(Clone)]
pub struct AnyPolicy {
    policy: Arc<dyn Erased + Send + Sync>,
    name: String,
}

/// A policy's callbacks with the state inside, type-erased.
pub(crate) trait Running<'k> {
    fn should_try_steal(&self, cx: &PolicyCx<'k>) -> Bool<'k>;
    fn keep_going_after_success(&self, cx: &PolicyCx<'k>, stolen: TileId<'k>) -> Bool<'k>;
    fn leave(&self, cx: &PolicyCx<'k>);
    fn look_ahead(&self, cx: &PolicyCx<'k>);
    fn take_up(&self, cx: &PolicyCx<'k>);
    fn is_plain(&self, cx: &PolicyCx<'k>) -> Option<Bool<'k>>;
}

trait Erased {
    fn start<'k>(self: Arc<Self>, cx: &PolicyCx<'k>) -> Box<dyn Running<'k> + 'k>;
    fn constant(&self) -> Option<bool>;
    fn may_retire(&self) -> bool;
    fn asks_ahead(&self) -> bool;
    fn shared_words(&self) -> u32;
    fn program(&self) -> Option<Program>;
    fn loaded(&self) -> Option<&PolicyWords>;
}

struct Started<'k, P: Policy> {
    policy: Arc<P>,
    state: P::State<'k>,
}

impl<'k, P: Policy> Running<'k> for Started<'k, P> {
    fn should_try_steal(&self, cx: &PolicyCx<'k>) -> Bool<'k> {
        self.policy.should_try_steal(cx, &self.state)
    }
    fn keep_going_after_success(&self, cx: &PolicyCx<'k>, stolen: TileId<'k>) -> Bool<'k> {
        self.policy
            .keep_going_after_success(cx, &self.state, stolen)
    }
    fn leave(&self, cx: &PolicyCx<'k>) {
        self.policy.leave(cx, &self.state);
    }
    fn look_ahead(&self, cx: &PolicyCx<'k>) {
        self.policy.look_ahead(cx, &self.state);
    }
    fn take_up(&self, cx: &PolicyCx<'k>) {
        self.policy.take_up(cx, &self.state);
    }
    fn is_plain(&self, cx: &PolicyCx<'k>) -> Option<Bool<'k>> {
        self.policy.is_plain(cx, &self.state)
    }
}

impl<P: Policy + 'static> Erased for P {
    fn start<'k>(self: Arc<Self>, cx: &PolicyCx<'k>) -> Box<dyn Running<'k> + 'k> {
        let state = self.init(cx);
        Box::new(Started {
            policy: self,
            state,
        })
    }
    fn constant(&self) -> Option<bool> {
        Policy::constant(self)
    }
    fn may_retire(&self) -> bool {
        Policy::may_retire(self)
    }
    fn asks_ahead(&self) -> bool {
        Policy::asks_ahead(self)
    }
    fn shared_words(&self) -> u32 {
        Policy::shared_words(self)
    }
    fn program(&self) -> Option<Program> {
        Policy::program(self)
    }
    fn loaded(&self) -> Option<&PolicyWords> {
        Policy::loaded(self)
    }
}

impl AnyPolicy {
    /// Forgets the type of a policy.
    pub fn new(policy: impl Policy + Send + Sync + 'static) -> AnyPolicy {
        let name = policy.name();
        AnyPolicy {
            policy: Arc::new(policy),
            name,
        }
    }

    /// The same policy under another name.
    #[must_use]
    pub fn called(mut self, name: impl Into<String>) -> AnyPolicy {
        self.name = name.into();
        self
    }

    pub(crate) fn start<'k>(&self, cx: &PolicyCx<'k>) -> Box<dyn Running<'k> + 'k> {
        self.policy.clone().start(cx)
    }
}

impl Policy for AnyPolicy {
    type State<'k> = Held<'k>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Held<'k> {
        Held(self.start(cx))
    }
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Held<'k>) -> Bool<'k> {
        state.0.should_try_steal(cx)
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        state: &Held<'k>,
        stolen: TileId<'k>,
    ) -> Bool<'k> {
        state.0.keep_going_after_success(cx, stolen)
    }
    fn leave<'k>(&self, cx: &PolicyCx<'k>, state: &Held<'k>) {
        state.0.leave(cx);
    }
    fn shared_words(&self) -> u32 {
        self.policy.shared_words()
    }
    fn name(&self) -> String {
        self.name.clone()
    }
    fn constant(&self) -> Option<bool> {
        self.policy.constant()
    }
    fn may_retire(&self) -> bool {
        self.policy.may_retire()
    }
    fn asks_ahead(&self) -> bool {
        self.policy.asks_ahead()
    }
    fn program(&self) -> Option<Program> {
        self.policy.program()
    }
    fn loaded(&self) -> Option<&PolicyWords> {
        self.policy.loaded()
    }
    fn look_ahead<'k>(&self, cx: &PolicyCx<'k>, state: &Held<'k>) {
        state.0.look_ahead(cx);
    }
    fn take_up<'k>(&self, cx: &PolicyCx<'k>, state: &Held<'k>) {
        state.0.take_up(cx);
    }
    fn is_plain<'k>(&self, cx: &PolicyCx<'k>, state: &Held<'k>) -> Option<Bool<'k>> {
        state.0.is_plain(cx)
    }
}

/// The state of a policy whose type is not known.
pub struct Held<'k>(Box<dyn Running<'k> + 'k>);

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held(..)")
    }
}

impl fmt::Debug for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyPolicy({})", self.name)
    }
}

impl fmt::Display for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

crate::policy_operators!(AnyPolicy);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::MaxSteals;

    #[test]
    fn a_policy_is_shown_by_its_name() {
        let policy = AnyPolicy::new(MaxSteals { limit: 3 });
        assert_eq!(format!("{policy:?}"), "AnyPolicy(max-steals(3))");
        assert_eq!(policy.to_string(), "max-steals(3)");
    }
}
