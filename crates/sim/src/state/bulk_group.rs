//! Groups of bulk stores, which are a thread's own.
//!
//! A commit closes a group for each thread that runs it, also where that thread has
//! started nothing, and a wait is for the groups of the threads that run it: a store of
//! one lane is not waited for by another.
//!
//! A wait with `.read` is for the sources to be free. What was written is known to
//! nobody before a wait without: for the race detector a lane's stores are an agent of
//! their own, whose clock is the number of the group.

use crate::lanes::{LANES, Mask, each};
use crate::race::clock::{Agent, Clock, Known};

/// A store that has not been waited for.
#[derive(Clone, Copy, Debug)]
struct Store {
    lane: u8,
    /// The number of its group among those of the lane; none before a commit.
    group: Option<u32>,
    flight: u64,
}

/// The bulk stores of a warp.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    stores: Vec<Store>,
    /// How many groups each lane has closed.
    closed: [u32; LANES],
    /// The lanes that have stored, and what the race detector calls their stores.
    agents: Vec<(u8, Agent)>,
}

impl Groups {
    /// A lane starts a store.
    pub(crate) fn start(&mut self, lane: usize, flight: u64) {
        self.stores.push(Store {
            lane: lane as u8,
            group: None,
            flight,
        });
    }

    /// What the race detector calls what a lane stores now; `new` makes a name.
    pub(crate) fn stamp(&mut self, lane: usize, new: impl FnOnce() -> Agent) -> (Agent, u32) {
        let agent = self.agent(lane).unwrap_or_else(|| {
            let agent = new();
            self.agents.push((lane as u8, agent));
            agent
        });
        (agent, self.closed[lane] + 1)
    }

    pub(crate) fn agent(&self, lane: usize) -> Option<Agent> {
        let mut agents = self.agents.iter();
        let found = agents.find(|(whose, _)| usize::from(*whose) == lane);
        found.map(|&(_, agent)| agent)
    }

    /// What a lane learns by waiting until `left` groups of it are open at most, if it
    /// has stored at all. `blank` makes a clock that knows nothing.
    pub(crate) fn written(
        &self,
        lane: usize,
        left: u32,
        blank: impl FnOnce() -> Clock,
    ) -> Option<Clock> {
        let agent = self.agent(lane)?;
        let mut clock = blank();
        clock.learn(
            agent,
            Known::all(self.closed[lane].saturating_sub(left) + 1),
        );
        Some(clock)
    }

    /// Some lanes close a group each.
    pub(crate) fn commit(&mut self, lanes: Mask) {
        for store in &mut self.stores {
            if lanes >> store.lane & 1 != 0 && store.group.is_none() {
                store.group = Some(self.closed[usize::from(store.lane)]);
            }
        }
        for lane in each(lanes) {
            self.closed[lane] += 1;
        }
    }

    /// Some lanes wait until `left` groups of each are open at most; gives the flights
    /// that are over then.
    pub(crate) fn wait(&mut self, lanes: Mask, left: u32) -> Vec<u64> {
        let mut over = Vec::new();
        let closed = &self.closed;
        self.stores.retain(|store| {
            let waits = lanes >> store.lane & 1 != 0
                && store
                    .group
                    .is_some_and(|group| closed[usize::from(store.lane)] - group > left);
            if waits {
                over.push(store.flight);
            }
            !waits
        });
        over
    }

    /// A store that no group covers, and one that nobody has waited for.
    pub(crate) fn left_over(&self) -> (Option<u64>, Option<u64>) {
        let find = |grouped: bool| {
            let found = self
                .stores
                .iter()
                .find(|store| store.group.is_some() == grouped);
            found.map(|store| store.flight)
        };
        (find(false), find(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    pub(crate) fn a_lane_waits_for_its_own_groups() {
        let mut groups = Groups::default();
        groups.start(0, 10);
        groups.start(3, 11);
        groups.commit(0b1);
        assert_eq!(groups.wait(0b1000, 0), [], "lane 3 has closed no group");
        assert_eq!(groups.left_over(), (Some(11), Some(10)));
        assert_eq!(groups.wait(0b1, 0), [10]);
        groups.commit(0b1001);
        assert_eq!(groups.wait(0b1001, 1), [], "one group of each may be open");
        groups.commit(0b1001);
        assert_eq!(groups.wait(0b1001, 1), [11]);
        assert_eq!(groups.left_over(), (None, None));
    }
    #[test]
    pub(crate) fn what_a_lane_stores_is_known_when_its_group_is_over() {
        let mut groups = Groups::default();
        let (agent, first) = groups.stamp(2, || 77);
        groups.commit(0b100);
        let (again, second) = groups.stamp(2, || 78);
        groups.commit(0b100);
        assert_eq!((agent, again), (77, 77), "a lane has one name");
        let knows = |left, clock| {
            let known = groups.written(2, left, || Clock::new(0, 1));
            known.is_some_and(|known| known.of(agent).covers(clock, 2))
        };
        assert!(knows(1, first) && !knows(1, second));
        assert!(knows(0, first) && knows(0, second));
        let other = groups.written(3, 0, || Clock::new(0, 1));
        assert!(other.is_none(), "lane 3 has stored nothing");
    }
}
