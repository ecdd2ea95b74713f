//! Bulk-store groups (`cp.async.bulk.commit_group`), which belong to one thread.
//!
//! A commit closes a group for each thread that runs it, also where that thread has
//! started nothing, and a wait is for the groups of the threads that run it: a store of
//! one lane is not waited for by another.
//!
//! A wait with `.read` only frees the sources. The writes are visible only after a wait without
//! `.read`: for the race detector a lane's stores are an agent of their own, whose clock is the
//! number of the group.

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
    /// The lanes that have stored, and the agents of their stores' writes and reads.
    agents: Vec<(u8, [Agent; 2])>,
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

    /// The agents and clocks of the write and the read of a lane's next store; `new` makes an
    /// agent.
    pub(crate) fn stamps(
        &mut self,
        lane: usize,
        mut new: impl FnMut() -> Agent,
    ) -> [(Agent, u32); 2] {
        let agents = self.agents(lane).unwrap_or_else(|| {
            let agents = [new(), new()];
            self.agents.push((lane as u8, agents));
            agents
        });
        agents.map(|agent| (agent, self.closed[lane] + 1))
    }

    fn agents(&self, lane: usize) -> Option<[Agent; 2]> {
        let mut agents = self.agents.iter();
        let found = agents.find(|(whose, _)| usize::from(*whose) == lane);
        found.map(|&(_, agents)| agents)
    }

    /// The clocks that a lane acquires by waiting until at most `left` of its groups are open: the
    /// ends of the reads, and, unless `sources_only`, of the writes.
    pub(crate) fn over(&self, lane: usize, left: u32, sources_only: bool) -> Option<Clock> {
        let [written, read] = self.agents(lane)?;
        let mut clock = Clock::default();
        let known = Known::all(self.closed[lane].saturating_sub(left) + 1);
        clock.learn(read, known);
        if !sources_only {
            clock.learn(written, known);
        }
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

    /// A store without a commit, and one without a wait.
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
        let mut names = 77..;
        let [(agent, first), (source, _)] = groups.stamps(2, || names.next().unwrap());
        groups.commit(0b100);
        let [(again, second), _] = groups.stamps(2, || names.next().unwrap());
        groups.commit(0b100);
        assert_eq!((agent, again), (77, 77), "a lane has one name");
        let knows = |agent, left, clock, sources_only| {
            let known = groups.over(2, left, sources_only);
            known.is_some_and(|known| known.of(agent).covers(clock, 2))
        };
        assert!(knows(agent, 1, first, false) && !knows(agent, 1, second, false));
        assert!(knows(agent, 0, first, false) && knows(agent, 0, second, false));
        assert!(knows(source, 0, second, true) && !knows(agent, 0, second, true));
        let other = groups.over(3, 0, false);
        assert!(other.is_none(), "lane 3 has stored nothing");
    }
}
