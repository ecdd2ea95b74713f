//! What a clock knows of agents outside its own cluster.
//!
//! A list that is sorted by agent, shared between clocks until one of them learns more. Every
//! acquire joins two of them: one pass over both, and most of the time nothing is new.

use super::clock::{Agent, Known};
use std::ops::Range;
use std::sync::Arc;

/// What is known of other agents, none of them twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Far(Option<Arc<Vec<(Agent, Known)>>>);

impl Far {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What is known of an agent.
    pub(super) fn of(&self, agent: Agent) -> Known {
        let list = self.list();
        let at = list.binary_search_by_key(&agent, |(agent, _)| *agent);
        at.map_or_else(|_| Known::default(), |at| list[at].1)
    }

    fn list(&self) -> &[(Agent, Known)] {
        self.0.as_ref().map_or(&[], |list| list)
    }

    /// Those before some agents, those of them, and those behind.
    fn around(&self, agents: Range<Agent>) -> [&[(Agent, Known)]; 3] {
        let (before, rest) = self.list().split_at(reach(self.list(), agents.start));
        let (within, behind) = rest.split_at(reach(rest, agents.end));
        [before, within, behind]
    }

    /// Those of some agents.
    pub(super) fn within(&self, agents: Range<Agent>) -> &[(Agent, Known)] {
        self.around(agents)[1]
    }

    /// Learns one fact.
    pub(super) fn learn(&mut self, agent: Agent, known: Known) {
        self.merge(&[(agent, known)]);
    }

    /// Learns what another knows, but of some agents nothing.
    pub(super) fn join(&mut self, other: &Far, but: Range<Agent>) {
        let Some(theirs) = &other.0 else { return };
        let [before, left_out, behind] = other.around(but);
        match &self.0 {
            None if left_out.is_empty() => self.0 = Some(Arc::clone(theirs)),
            Some(mine) if Arc::ptr_eq(mine, theirs) => {}
            _ if left_out.is_empty() => self.merge(theirs),
            _ => {
                self.merge(before);
                self.merge(behind);
            }
        }
    }

    /// Learns facts in the order of their agents.
    fn merge(&mut self, theirs: &[(Agent, Known)]) {
        if self.knows_all(theirs) {
            return;
        }
        let mine = self.list();
        let mut all = Vec::with_capacity(mine.len() + theirs.len());
        let mut rest = mine;
        for &(agent, known) in theirs {
            let before = reach(rest, agent);
            all.extend_from_slice(&rest[..before]);
            rest = &rest[before..];
            let mut both = known;
            if let [(same, mine), later @ ..] = rest
                && *same == agent
            {
                both = *mine;
                both.join(known);
                rest = later;
            }
            all.push((agent, both));
        }
        all.extend_from_slice(rest);
        self.0 = Some(Arc::new(all));
    }

    /// Whether facts in the order of their agents add nothing.
    fn knows_all(&self, theirs: &[(Agent, Known)]) -> bool {
        let mut rest = self.list();
        theirs.iter().all(|&(agent, known)| {
            let before = reach(rest, agent);
            rest = &rest[before..];
            rest.first().is_some_and(|&(same, mine)| {
                let mut both = mine;
                both.join(known);
                same == agent && both == mine
            })
        })
    }
}

/// How many stand before an agent. Two lists that are joined name almost the same agents, so it
/// is mostly none or few.
fn reach(list: &[(Agent, Known)], agent: Agent) -> usize {
    const FEW: usize = 4;
    let before = |(each, _): &(Agent, Known)| *each < agent;
    let (first, rest) = list.split_at(FEW.min(list.len()));
    match first.iter().position(|one| !before(one)) {
        Some(at) => at,
        None => first.len() + rest.partition_point(before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(facts: &[(Agent, u32)]) -> Far {
        let mut far = Far::default();
        for &(agent, clock) in facts {
            far.learn(agent, Known::all(clock));
        }
        far
    }

    fn tops(far: &Far) -> Vec<(Agent, u32)> {
        let each = far.list().iter();
        each.map(|(agent, known)| (*agent, known.top)).collect()
    }

    #[test]
    fn facts_stand_in_order_and_the_later_clock_holds() {
        let mut mine = far(&[(9, 1), (3, 5), (7, 2), (3, 4)]);
        assert_eq!(tops(&mine), [(3, 5), (7, 2), (9, 1)]);
        mine.join(&far(&[(1, 1), (7, 6), (9, 1), (12, 3)]), 0..0);
        assert_eq!(tops(&mine), [(1, 1), (3, 5), (7, 6), (9, 1), (12, 3)]);
        assert_eq!(mine.of(7).top, 6);
        assert_eq!(mine.of(8), Known::default());
    }

    /// Few stand between two agents, or many.
    #[test]
    fn lists_of_any_distance_are_joined() {
        let many: Vec<(Agent, u32)> = (0..40).map(|agent| (agent, 1 + agent % 3)).collect();
        for distance in 1..12 {
            let some: Vec<(Agent, u32)> = many.iter().copied().step_by(distance).collect();
            let mut all = far(&many);
            all.join(&far(&some), 0..0);
            assert_eq!(tops(&all), many);
            let mut fewer = far(&some);
            fewer.join(&far(&many), 0..0);
            assert_eq!(tops(&fewer), many);
            assert_eq!(fewer.within(7..31).len(), 24);
        }
    }

    #[test]
    fn what_adds_nothing_leaves_the_list_shared() {
        let all = far(&[(1, 4), (5, 4), (6, 1)]);
        let mut mine = all.clone();
        mine.join(&far(&[(5, 3), (6, 1)]), 0..0);
        let (Some(mine), Some(all)) = (&mine.0, &all.0) else {
            panic!("both know something");
        };
        assert!(Arc::ptr_eq(mine, all));
    }

    #[test]
    fn nothing_is_learnt_of_those_left_out() {
        let theirs = far(&[(1, 1), (4, 2), (5, 3), (8, 4)]);
        let mut mine = Far::default();
        mine.join(&theirs, 4..6);
        assert_eq!(tops(&mine), [(1, 1), (8, 4)]);
        assert_eq!(theirs.within(4..6).len(), 2);
    }

    /// A fact about some lanes is no less news than one about all.
    #[test]
    fn what_more_lanes_did_is_news() {
        let some = |lanes| Known {
            base: 1,
            top: 3,
            lanes,
        };
        let mut mine = Far::default();
        mine.learn(2, some(1));
        mine.learn(2, some(2));
        assert_eq!(mine.of(2), some(3));
    }
}
