//! Groups of bulk stores, which are a thread's own.
//!
//! A commit closes a group for each thread that runs it, also where that thread has
//! started nothing, and a wait is for the groups of the threads that run it: a store of
//! one lane is not waited for by another.

use crate::lanes::{LANES, Mask, each};

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

    /// Some lanes close a group each.
    pub(crate) fn commit(&mut self, lanes: Mask) {
        for store in &mut self.stores {
            if lanes >> store.lane & 1 != 0 && store.group.is_none() {
                store.group = Some(self.closed[usize::from(store.lane)]);
            }
        }
        for lane in each(lanes) {
            self.closed[lane] = self.closed[lane].wrapping_add(1);
        }
    }

    /// Some lanes wait until `left` groups of each are open at most; gives the flights
    /// that are over then.
    pub(crate) fn wait(&mut self, lanes: Mask, left: u32) -> Vec<u64> {
        let mut over = Vec::new();
        let closed = &self.closed;
        self.stores.retain(|store| {
            let waits = lanes >> store.lane & 1 != 0
                && store.group.is_some_and(|group| {
                    closed[usize::from(store.lane)].wrapping_sub(group) > left
                });
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
    fn a_lane_waits_for_its_own_groups() {
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
}
