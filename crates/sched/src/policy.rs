//! What a policy is, and how policies combine.
//!
//! A policy decides **when** a block asks for more work, never which work it
//! gets. Its callbacks run once, while the kernel is built, and emit device
//! code into the tile loop; one thread of the cluster's first block runs that
//! code. What the loop does with the answers:
//!
//! * There is one opportunity to ask per tile. With early submission it comes
//!   before the tile's work, which the request then overlaps; with late
//!   submission it comes after it.
//! * With several requests in flight there are opportunities before a tile as long as fewer are;
//!   the first decline is the last of them.
//! * A decline skips that opportunity. A block that has finished its tile without a pending request
//!   gets one last call; if the policy declines that too, the block retires.
//! * A granted tile is always run, also when
//!   [`keep_going_after_success`](Policy::keep_going_after_success) says no:
//!   then the block retires after it.
//! * A refused request means "leave".

use crate::context::PolicyCx;
use crate::program::{PolicyWords, Program};
use heist_builder::{Bool, Val};

/// A tile that was granted, as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct TileId<'k> {
    /// Its place in the order in which tiles are handed out.
    pub index: Val<'k, u32>,
    /// Its position along x; in a cluster, that of the first block's tile.
    pub x: Val<'k, u32>,
    /// Along y.
    pub y: Val<'k, u32>,
    /// Along z.
    pub z: Val<'k, u32>,
}

/// When a block asks for more work.
///
/// ```
/// use heist_builder::{Bool, Var};
/// use heist_sched::{Policy, PolicyCx, TileId};
///
/// /// Steals until `limit` tiles were stolen.
/// pub struct AtMost { pub limit: u32 }
///
/// impl Policy for AtMost {
///     type State<'k> = Var<'k, u32>;
///     fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> { cx.var(0) }
///     fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, stolen: &Var<'k, u32>) -> Bool<'k> {
///         stolen.get().lt(self.limit)
///     }
///     fn keep_going_after_success<'k>(
///         &self, _: &PolicyCx<'k>, stolen: &Var<'k, u32>, _: TileId<'k>,
///     ) -> Bool<'k> {
///         stolen.set(stolen.get() + 1);
///         stolen.get().lt(self.limit)
///     }
/// }
/// ```
pub trait Policy {
    /// What it remembers between calls: usually [`Var`](heist_builder::Var)s.
    type State<'k>: 'k;

    /// Once, at the start of the kernel.
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Self::State<'k>;

    /// Before a request: submit one now?
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) -> Bool<'k>;

    /// After a grant: ask again later? The granted tile is run either way.
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        state: &Self::State<'k>,
        stolen: TileId<'k>,
    ) -> Bool<'k>;

    /// Once, when the block is about to leave: gives back what it holds of the words that blocks
    /// share. Does nothing by default.
    fn leave<'k>(&self, _cx: &PolicyCx<'k>, _state: &Self::State<'k>) {}

    /// How many words of memory its blocks share ([`PolicyCx::word`]).
    fn shared_words(&self) -> u32 {
        0
    }

    /// What it is called in tables and records; the shipped policies return the text that makes
    /// them. By default the type's name.
    fn name(&self) -> String {
        let name = std::any::type_name::<Self>();
        let name = name.split('<').next().unwrap_or(name);
        name.rsplit("::").next().unwrap_or(name).to_string()
    }

    /// The answer it gives every time, if it is always the same. Then the
    /// callbacks are left out of the kernel.
    fn constant(&self) -> Option<bool> {
        None
    }

    /// Whether it may ever decline a last call, or stop after a success.
    ///
    /// The ticket source launches a block for every tile when a policy may, and
    /// only as many as fit on the GPU when it does not. A policy that answers `false` here and
    /// retires a block anyway is overruled; no tile is lost.
    fn may_retire(&self) -> bool {
        self.constant() != Some(true)
    }

    /// Whether it can be asked for another request before the last one is answered. Where several
    /// requests may be in flight ([`Tiled::in_flight`](crate::Tiled::in_flight)), a policy that says no is
    /// asked when the last answer is there: one that counts what it was granted would ask for too
    /// much.
    fn asks_ahead(&self) -> bool {
        self.constant() == Some(true)
    }

    /// The policy as a program, which can be loaded into a kernel that runs. A policy
    /// that emits code of its own has none.
    fn program(&self) -> Option<Program> {
        None
    }

    /// The initial words of a launch, for a loaded policy.
    #[doc(hidden)]
    fn loaded(&self) -> Option<&PolicyWords> {
        None
    }

    /// Before a tile's work, for a loaded policy: checks whether it is still the current one.
    #[doc(hidden)]
    fn look_ahead<'k>(&self, _cx: &PolicyCx<'k>, _state: &Self::State<'k>) {}

    /// Before a decision, for a loaded policy: switches to the current one.
    #[doc(hidden)]
    fn take_up<'k>(&self, _cx: &PolicyCx<'k>, _state: &Self::State<'k>) {}

    /// For a loaded policy: whether it is still the current one and always asks. Then nothing
    /// needs to be interpreted.
    #[doc(hidden)]
    fn is_plain<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) -> Option<Bool<'k>> {
        let _ = (cx, state);
        None
    }
}

/// Holds where both hold. Both are evaluated, always.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct And<A, B>(pub A, pub B);

/// Holds where one of them holds. Both are evaluated, always.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Or<A, B>(pub A, pub B);

/// Answers the opposite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inverse<A>(pub A);

impl<A: Policy, B> And<A, B> {
    /// The second policy's words follow the first's.
    fn second<'k>(&self, cx: &PolicyCx<'k>) -> PolicyCx<'k> {
        cx.behind(self.0.shared_words())
    }
}

impl<A: Policy, B: Policy> Policy for And<A, B> {
    type State<'k> = (A::State<'k>, B::State<'k>);

    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Self::State<'k> {
        (self.0.init(cx), self.1.init(&self.second(cx)))
    }

    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) -> Bool<'k> {
        let first = self.0.should_try_steal(cx, &state.0);
        let second = self.1.should_try_steal(&self.second(cx), &state.1);
        first & second
    }

    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        state: &Self::State<'k>,
        stolen: TileId<'k>,
    ) -> Bool<'k> {
        let first = self.0.keep_going_after_success(cx, &state.0, stolen);
        let cx = self.second(cx);
        let second = self.1.keep_going_after_success(&cx, &state.1, stolen);
        first & second
    }

    fn leave<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) {
        self.0.leave(cx, &state.0);
        self.1.leave(&self.second(cx), &state.1);
    }

    fn shared_words(&self) -> u32 {
        self.0.shared_words() + self.1.shared_words()
    }

    fn name(&self) -> String {
        format!("({} & {})", self.0.name(), self.1.name())
    }

    fn constant(&self) -> Option<bool> {
        match (self.0.constant(), self.1.constant()) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    fn may_retire(&self) -> bool {
        // Two policies that each decline once in a while can decline in turns.
        match (self.0.constant(), self.1.constant()) {
            (Some(true), _) => self.1.may_retire(),
            (_, Some(true)) => self.0.may_retire(),
            _ => true,
        }
    }

    fn asks_ahead(&self) -> bool {
        self.0.asks_ahead() && self.1.asks_ahead()
    }

    fn program(&self) -> Option<Program> {
        Some(self.0.program()?.and(&self.1.program()?))
    }
}

impl<A: Policy, B> Or<A, B> {
    /// The second policy's words follow the first's.
    fn second<'k>(&self, cx: &PolicyCx<'k>) -> PolicyCx<'k> {
        cx.behind(self.0.shared_words())
    }
}

impl<A: Policy, B: Policy> Policy for Or<A, B> {
    type State<'k> = (A::State<'k>, B::State<'k>);

    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Self::State<'k> {
        (self.0.init(cx), self.1.init(&self.second(cx)))
    }

    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) -> Bool<'k> {
        let first = self.0.should_try_steal(cx, &state.0);
        let second = self.1.should_try_steal(&self.second(cx), &state.1);
        first | second
    }

    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        state: &Self::State<'k>,
        stolen: TileId<'k>,
    ) -> Bool<'k> {
        let first = self.0.keep_going_after_success(cx, &state.0, stolen);
        let cx = self.second(cx);
        let second = self.1.keep_going_after_success(&cx, &state.1, stolen);
        first | second
    }

    fn leave<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) {
        self.0.leave(cx, &state.0);
        self.1.leave(&self.second(cx), &state.1);
    }

    fn shared_words(&self) -> u32 {
        self.0.shared_words() + self.1.shared_words()
    }

    fn name(&self) -> String {
        format!("({} | {})", self.0.name(), self.1.name())
    }

    fn constant(&self) -> Option<bool> {
        match (self.0.constant(), self.1.constant()) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        }
    }

    fn may_retire(&self) -> bool {
        self.0.may_retire() && self.1.may_retire()
    }

    fn asks_ahead(&self) -> bool {
        self.0.asks_ahead() && self.1.asks_ahead()
    }

    fn program(&self) -> Option<Program> {
        Some(self.0.program()?.or(&self.1.program()?))
    }
}

impl<A: Policy> Policy for Inverse<A> {
    type State<'k> = A::State<'k>;

    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Self::State<'k> {
        self.0.init(cx)
    }

    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) -> Bool<'k> {
        !self.0.should_try_steal(cx, state)
    }

    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        state: &Self::State<'k>,
        stolen: TileId<'k>,
    ) -> Bool<'k> {
        !self.0.keep_going_after_success(cx, state, stolen)
    }

    fn leave<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) {
        self.0.leave(cx, state);
    }

    fn shared_words(&self) -> u32 {
        self.0.shared_words()
    }

    fn name(&self) -> String {
        format!("!{}", self.0.name())
    }

    fn constant(&self) -> Option<bool> {
        self.0.constant().map(|answer| !answer)
    }

    fn asks_ahead(&self) -> bool {
        self.0.asks_ahead()
    }

    fn program(&self) -> Option<Program> {
        Some(self.0.program()?.inverse())
    }
}

/// Gives a policy the operators `&`, `|` and `!`.
///
/// ```
/// # use heist_builder::Bool;
/// # use heist_sched::{Greedy, Policy, PolicyCx, TileId, policy_operators};
/// struct Mine;
/// # impl Policy for Mine {
/// #     type State<'k> = ();
/// #     fn init<'k>(&self, _: &PolicyCx<'k>) {}
/// #     fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, _: &()) -> Bool<'k> { cx.yes() }
/// #     fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, _: &(), _: TileId<'k>) -> Bool<'k> { cx.yes() }
/// # }
/// policy_operators!(Mine);
/// let _combined = !Mine & Greedy;
/// ```
#[macro_export]
macro_rules! policy_operators {
    ($($name:ident $(<$($param:ident),+>)?),+ $(,)?) => {$(
        impl<$($($param,)+)? Right: $crate::Policy> ::std::ops::BitAnd<Right> for $name $(<$($param),+>)? {
            type Output = $crate::And<Self, Right>;
            fn bitand(self, right: Right) -> Self::Output {
                $crate::And(self, right)
            }
        }
        impl<$($($param,)+)? Right: $crate::Policy> ::std::ops::BitOr<Right> for $name $(<$($param),+>)? {
            type Output = $crate::Or<Self, Right>;
            fn bitor(self, right: Right) -> Self::Output {
                $crate::Or(self, right)
            }
        }
        impl $(<$($param),+>)? ::std::ops::Not for $name $(<$($param),+>)? {
            type Output = $crate::Inverse<Self>;
            fn not(self) -> Self::Output {
                $crate::Inverse(self)
            }
        }
    )+};
}

policy_operators!(And<A, B>, Or<A, B>, Inverse<A>);
