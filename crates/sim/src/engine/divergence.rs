//! Divergence and reconvergence of a warp's lanes.
//!
//! A divergent branch splits a [`Fragment`]; a [`Join`] records the lanes expected at the
//! reconvergence point, where fragments wait and merge. Forward progress does not depend on it: a
//! fragment that waits at a join while its siblings spin, or wait for it elsewhere, continues
//! alone.

use crate::code::{NOWHERE, Wait};
use crate::lanes::Mask;
use crate::state::warp::{Fragment, Join, State, Warp};
use std::collections::VecDeque;

impl Warp {
    /// The next fragment that can run.
    pub(crate) fn pick(&mut self) -> Option<Fragment> {
        loop {
            match self.fragments.iter().position(|f| f.state == State::Ready) {
                // Most warps have one fragment.
                Some(0) => return self.fragments.pop_front(),
                Some(at) => return self.fragments.remove(at),
                None => {}
            }
            let moved = self.gather() || (self.is_alone() && self.let_go());
            if !moved {
                return None;
            }
        }
    }

    /// Whether no fragment waits for anything outside the warp: then nobody but
    /// the warp itself can end a wait at a join.
    pub(crate) fn is_alone(&self) -> bool {
        self.fragments.iter().all(|fragment| {
            matches!(
                fragment.state,
                State::Joining(_) | State::Waiting(Wait::Gather { .. } | Wait::WarpBarrier { .. })
            )
        })
    }

    /// Whether a fragment can run now.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.fragments.iter().any(|f| f.state == State::Ready)
            || self.gather()
            || (self.is_alone() && self.let_go())
    }

    /// Merges fragments that wait for each other, where all have arrived.
    pub(crate) fn gather(&mut self) -> bool {
        for at in 0..self.fragments.len() {
            let one = &self.fragments[at];
            match one.state {
                State::Waiting(Wait::Gather { members }) => {
                    let there = |other: &Fragment| {
                        matches!(other.state, State::Waiting(Wait::Gather { .. }))
                            && other.same_place(one)
                    };
                    let union = self
                        .fragments
                        .iter()
                        .filter(|f| there(f))
                        .fold(0, |all, f| all | f.mask);
                    if union & members & self.live == members & self.live && union != one.mask {
                        let pc = self.fragments[at].clone();
                        self.merge(|other| {
                            matches!(other.state, State::Waiting(Wait::Gather { .. }))
                                && other.same_place(&pc)
                        });
                        return true;
                    }
                }
                State::Waiting(Wait::WarpBarrier { members }) => {
                    let union = self
                        .fragments
                        .iter()
                        .filter(|f| matches!(f.state, State::Waiting(Wait::WarpBarrier { .. })))
                        .fold(0, |all, f| all | f.mask);
                    if union & members & self.live == members & self.live {
                        self.clock.sync_lanes(members, self.live);
                        for fragment in &mut self.fragments {
                            if matches!(fragment.state, State::Waiting(Wait::WarpBarrier { .. }))
                                && fragment.mask & !members == 0
                            {
                                fragment.state = State::Ready;
                            }
                        }
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Makes one fragment of all that `belong`, ready to run.
    pub(crate) fn merge(&mut self, belong: impl Fn(&Fragment) -> bool) {
        let mut merged: Option<Fragment> = None;
        let mut rest = VecDeque::with_capacity(self.fragments.len());
        for fragment in std::mem::take(&mut self.fragments) {
            if !belong(&fragment) {
                rest.push_back(fragment);
                continue;
            }
            match &mut merged {
                None => merged = Some(fragment),
                Some(one) => {
                    one.mask |= fragment.mask;
                    // The outermost joins are the ones they share.
                    let shared = one
                        .joins
                        .iter()
                        .zip(&fragment.joins)
                        .take_while(|(a, b)| a == b)
                        .count();
                    for join in one
                        .joins
                        .drain(shared..)
                        .chain(fragment.joins[shared..].iter().copied())
                    {
                        if let Some(join) = self.joins.get_mut(join as usize) {
                            join.members &= !one.mask;
                        }
                    }
                }
            }
        }
        self.fragments = rest;
        if let Some(mut one) = merged {
            one.state = State::Ready;
            one.stop = self.stop_of(&one.joins);
            self.fragments.push_front(one);
        }
    }

    /// Lets fragments that wait at joins go on alone.
    pub(crate) fn let_go(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.fragments.len() {
            if let State::Joining(join) = self.fragments[at].state {
                any = true;
                let mask = self.fragments[at].mask;
                if let Some(join) = self.joins.get_mut(join as usize) {
                    join.members &= !mask;
                    join.arrived &= !mask;
                }
                let fragment = &mut self.fragments[at];
                fragment.joins.pop();
                fragment.state = State::Ready;
                let joins = std::mem::take(&mut self.fragments[at].joins);
                self.fragments[at].stop = self.stop_of(&joins);
                self.fragments[at].joins = joins;
            }
        }
        any
    }

    /// Counts an interaction of a fragment that others wait for; after many of
    /// them it is taken to spin, and the others are let go.
    pub(crate) fn count_spin(&mut self, fragment: &mut Fragment) {
        fragment.spins += 1;
        if fragment.spins > 600 {
            fragment.spins = 0;
            self.let_go();
        }
    }

    pub(crate) fn stop_of(&self, joins: &[u32]) -> u32 {
        joins
            .last()
            .and_then(|&join| self.joins.get(join as usize))
            .map_or(NOWHERE, |join| join.pc)
    }

    /// Expects all lanes of a fragment at `pc`, called at depth `depth`.
    pub(crate) fn expect(&mut self, fragment: &mut Fragment, pc: u32, depth: u32) {
        if let Some(&last) = fragment.joins.last()
            && let Some(join) = self.joins.get(last as usize)
            && join.pc == pc
            && join.depth == depth
        {
            return;
        }
        let join = Join {
            pc,
            depth,
            members: fragment.mask,
            arrived: 0,
        };
        let at = match self.joins.iter().position(|join| join.members == 0) {
            Some(free) => {
                self.joins[free] = join;
                free
            }
            None => {
                self.joins.push(join);
                self.joins.len() - 1
            }
        };
        fragment.joins.push(at as u32);
        fragment.stop = pc;
    }

    /// A fragment has come to the pc of its innermost join. Gives it back if it
    /// may go on, with everybody who waited there.
    pub(crate) fn arrive(&mut self, mut fragment: Fragment) -> Option<Fragment> {
        let Some(&at) = fragment.joins.last() else {
            return Some(fragment);
        };
        let Some(join) = self.joins.get_mut(at as usize) else {
            return Some(fragment);
        };
        if join.depth != fragment.frames.len() as u32 {
            return Some(fragment);
        }
        join.arrived |= fragment.mask;
        if join.arrived & join.members != join.members {
            fragment.state = State::Joining(at);
            fragment.spins = 0;
            self.fragments.push_back(fragment);
            return None;
        }
        let mut rest = VecDeque::with_capacity(self.fragments.len());
        for other in std::mem::take(&mut self.fragments) {
            if other.state == State::Joining(at) {
                fragment.mask |= other.mask;
            } else {
                rest.push_back(other);
            }
        }
        self.fragments = rest;
        self.joins[at as usize].members = 0;
        fragment.joins.pop();
        fragment.stop = self.stop_of(&fragment.joins);
        Some(fragment)
    }

    /// Whether a fragment at its `stop` has really come to its innermost join,
    /// and not to the same place of a deeper call.
    pub(crate) fn is_due(&self, fragment: &Fragment) -> bool {
        fragment
            .joins
            .last()
            .and_then(|&join| self.joins.get(join as usize))
            .is_some_and(|join| join.depth == fragment.frames.len() as u32)
    }

    /// Lanes have exited: nobody waits for them any more.
    pub(crate) fn retire(&mut self, lanes: Mask) {
        self.live &= !lanes;
        for at in 0..self.joins.len() {
            let join = &mut self.joins[at];
            if join.members & lanes == 0 {
                continue;
            }
            join.members &= !lanes;
            join.arrived &= !lanes;
            if join.members != 0 && join.arrived & join.members == join.members {
                join.members = 0;
                let id = at as u32;
                for fragment in &mut self.fragments {
                    if fragment.state == State::Joining(id) {
                        fragment.joins.pop();
                    }
                }
                self.merge(|fragment| fragment.state == State::Joining(id));
            }
        }
    }

    /// Wakes every fragment whose wait is `what`; true if there was one.
    pub(crate) fn wake(&mut self, what: impl Fn(Wait) -> bool) -> bool {
        let mut any = false;
        for fragment in &mut self.fragments {
            if let State::Waiting(wait) = fragment.state
                && what(wait)
            {
                fragment.state = State::Ready;
                any = true;
            }
        }
        any
    }

    /// Lets fragments that wait for lanes that will never come run without them;
    /// true if there was one.
    pub(crate) fn force(&mut self) -> bool {
        let mut any = false;
        for fragment in &mut self.fragments {
            if matches!(
                fragment.state,
                State::Waiting(Wait::Gather { .. } | Wait::WarpBarrier { .. })
            ) {
                fragment.state = State::Ready;
                fragment.forced = true;
                any = true;
            }
        }
        any
    }
}
