//! The timeline of blocks that have run already, from their jobs.
//!
//! It is the one that the run in order has: a block starts as soon as an SM has
//! room, and SMs that have room at once take their blocks in the order of their numbers.
//!
//! Most kernels ask the same of the SM in every block. SMs that have got
//! the same jobs at the same times are in the same state, so they are modelled as one group until
//! their next blocks differ.

use super::site::{LAUNCH, Piece, Site, Work};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// When a block was launched, and on which SM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launched {
    pub(crate) number: u32,
    pub(crate) sm: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The jobs of all blocks, deduplicated.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    kinds: Vec<Arc<[Piece]>>,
    /// The kind of each block.
    of: Vec<u32>,
    /// Kinds by where their pieces lie, and what keeps anything else from lying there.
    by_place: FxHashMap<usize, (u32, Arc<[Piece]>)>,
    by_content: FxHashMap<Vec<u64>, u32>,
}

/// Kinds beyond which jobs are taken to differ where they lie at different places:
/// no two SMs will get the same any more.
const MANY: usize = 1024;

impl Jobs {
    /// Room for the jobs of so many blocks.
    pub(crate) fn new(blocks: u32) -> Jobs {
        Jobs {
            of: vec![0; blocks as usize],
            ..Jobs::default()
        }
    }

    /// Blocks with their jobs.
    pub(crate) fn extend(&mut self, jobs: Vec<(u32, Arc<[Piece]>)>) {
        for (number, job) in jobs {
            let kind = self.kind(job);
            if let Some(of) = self.of.get_mut(number as usize) {
                *of = kind;
            }
        }
    }

    fn kind(&mut self, job: Arc<[Piece]>) -> u32 {
        let place = job.as_ptr() as usize;
        if let Some((kind, _)) = self.by_place.get(&place) {
            return *kind;
        }
        let new = self.kinds.len() as u32;
        let kind = if self.kinds.len() < MANY {
            let bits = |piece: &Piece| {
                let [a, b, c, d] = piece.load;
                [piece.cycles, a, b, c, d].map(f64::to_bits)
            };
            let content = job.iter().flat_map(bits).collect();
            *self.by_content.entry(content).or_insert(new)
        } else {
            new
        };
        if kind == new {
            self.kinds.push(Arc::clone(&job));
        }
        self.by_place.insert(place, (kind, job));
        kind
    }
}

/// SMs in the same state.
#[derive(Default)]
struct Group {
    /// Their numbers, in order.
    members: Vec<u32>,
    /// What is on each of them. Its jobs are numbers of stays.
    site: Site,
    stays: Vec<Stay>,
    /// Stays that are new at the present time.
    new: Vec<usize>,
}

/// A block on each SM of a group, all of one kind.
#[derive(Default)]
struct Stay {
    kind: u32,
    /// Whether they have yet to start.
    starting: bool,
    /// One for each member; none for a stay that is over.
    blocks: Vec<u32>,
}

/// No block, where all have been launched.
const NOBODY: u32 = u32::MAX;

impl Group {
    /// Makes room for one block more on each SM.
    fn launch(&mut self, time: u64, starting: &Arc<[Piece]>) {
        let free = self.stays.iter().position(|stay| stay.blocks.is_empty());
        let who = free.unwrap_or_else(|| {
            self.stays.push(Stay::default());
            self.stays.len() - 1
        });
        self.stays[who].starting = true;
        self.stays[who].blocks.resize(self.members.len(), NOBODY);
        let starting = Work::without_memory(Arc::clone(starting));
        self.site.start(who, time, starting);
        self.new.push(who);
    }

    /// The kinds of what is new on one of its members.
    fn kinds(&self, place: usize, jobs: &Jobs) -> impl Iterator<Item = Option<u32>> {
        self.new.iter().map(move |&who| {
            let block = self.stays[who].blocks[place];
            jobs.of.get(block as usize).copied()
        })
    }

    /// The part of it whose members are at these places.
    fn part(&self, places: &[usize]) -> Group {
        let pick = |of: &[u32]| places.iter().map(|&at| of[at]).collect();
        let stays = self.stays.iter().map(|stay| match stay.blocks.len() {
            0 => Stay::default(),
            _ => Stay {
                blocks: pick(&stay.blocks),
                ..*stay
            },
        });
        Group {
            members: pick(&self.members),
            site: self.site.clone(),
            stays: stays.collect(),
            new: self.new.clone(),
        }
    }

    /// Takes what is new, which is of these kinds, as come; whether any of it has not
    /// come at all.
    fn settle(&mut self, kinds: &[Option<u32>]) -> bool {
        let mut fewer = false;
        for (who, kind) in self.new.drain(..).zip(kinds) {
            match kind {
                Some(kind) => self.stays[who].kind = *kind,
                None => {
                    self.site.withdraw(|other| other == who);
                    self.stays[who].blocks.clear();
                    fewer = true;
                }
            }
        }
        fewer
    }
}

struct Replay<'j> {
    jobs: &'j Jobs,
    starting: Arc<[Piece]>,
    /// The next block to launch.
    next: u32,
    launched: Vec<Launched>,
    groups: Vec<Group>,
    /// When something happens on which group.
    due: BinaryHeap<Reverse<(u64, usize)>>,
}

/// The launches of all blocks on `places` SMs that hold `slots` blocks each, by number.
/// None if `is_late` says that it has taken too long.
pub(crate) fn replay(
    jobs: &Jobs,
    places: u32,
    slots: u32,
    is_late: impl Fn() -> bool,
) -> Option<Vec<Launched>> {
    let mut replay = Replay {
        jobs,
        starting: [Piece::idle(LAUNCH)].into(),
        next: 0,
        launched: vec![Launched::default(); jobs.of.len()],
        groups: Vec::new(),
        due: BinaryHeap::new(),
    };
    let mut all = Group {
        members: (0..places).collect(),
        ..Group::default()
    };
    for slot in 0..slots {
        all.launch(u64::from(slot), &replay.starting);
    }
    replay.groups.push(all);
    // A slot of every SM, then the next slot.
    for slot in 0..slots as usize {
        for place in 0..places as usize {
            replay.give(0, slot, place, slot as u64);
        }
    }
    let time = replay.groups[0].site.plan();
    replay.part(0, time);
    // The groups that are due at once, and their members.
    let (mut due, mut order) = (Vec::new(), Vec::new());
    let mut passes = 0u32;
    while let Some(&Reverse((time, _))) = replay.due.peek() {
        passes += 1;
        if passes.is_multiple_of(256) && is_late() {
            return None;
        }
        replay.pass(time, &mut due, &mut order);
    }
    Some(replay.launched)
}

impl Replay<'_> {
    /// Everything that happens at a time.
    fn pass(
        &mut self,
        time: u64,
        due: &mut Vec<(usize, Option<u64>)>,
        order: &mut Vec<(u32, usize, usize)>,
    ) {
        due.clear();
        while let Some(&Reverse((when, at))) = self.due.peek()
            && when == time
        {
            self.due.pop();
            let next = self.step(at, time);
            due.push((at, next));
        }
        // Who gets which block: SM after SM, whatever group it is in.
        order.clear();
        for &(at, _) in due.iter() {
            let group = &self.groups[at];
            if !group.new.is_empty() {
                let members = group.members.iter().enumerate();
                order.extend(members.map(|(place, &member)| (member, at, place)));
            }
        }
        order.sort_unstable();
        for &(_, at, place) in order.iter() {
            for new in 0..self.groups[at].new.len() {
                self.give(at, new, place, time);
            }
        }
        for &(at, next) in due.iter() {
            self.part(at, next);
        }
    }

    /// What happens at a time on the SMs of a group, but for which blocks they get; when
    /// something happens there next.
    fn step(&mut self, at: usize, time: u64) -> Option<u64> {
        let group = &mut self.groups[at];
        loop {
            if let Some(who) = group.site.step(time) {
                let stay = &mut group.stays[who];
                if std::mem::take(&mut stay.starting) {
                    let job = Arc::clone(&self.jobs.kinds[stay.kind as usize]);
                    group.site.start(who, time, Work::without_memory(job));
                } else {
                    for number in stay.blocks.drain(..) {
                        self.launched[number as usize].end = time;
                    }
                    if (self.next as usize) < self.launched.len() {
                        group.launch(time, &self.starting);
                    }
                }
            }
            let next = group.site.plan();
            if next != Some(time) {
                return next;
            }
        }
    }

    /// Gives the place of a new stay on one member the next block.
    fn give(&mut self, at: usize, new: usize, place: usize, time: u64) {
        let group = &mut self.groups[at];
        if let Some(launched) = self.launched.get_mut(self.next as usize) {
            *launched = Launched {
                number: self.next,
                sm: group.members[place],
                start: time + LAUNCH,
                end: time + LAUNCH,
            };
            group.stays[group.new[new]].blocks[place] = self.next;
            self.next += 1;
        }
    }

    /// Takes a group apart where its members have got blocks of different kinds, and
    /// puts the parts in line for when something happens on them, which is at `next` if all
    /// that is new has really come.
    fn part(&mut self, at: usize, next: Option<u64>) {
        let group = &self.groups[at];
        let first: Vec<Option<u32>> = group.kinds(0, self.jobs).collect();
        let same = |place: usize| group.kinds(place, self.jobs).eq(first.iter().copied());
        if (1..group.members.len()).all(same) {
            return self.wait(at, &first, next);
        }
        let mut parts: Vec<(Vec<Option<u32>>, Vec<usize>)> = Vec::new();
        let mut known: FxHashMap<Vec<Option<u32>>, usize> = FxHashMap::default();
        for place in 0..group.members.len() {
            match known.entry(group.kinds(place, self.jobs).collect()) {
                Entry::Occupied(known) => parts[*known.get()].1.push(place),
                Entry::Vacant(free) => {
                    parts.push((free.key().clone(), vec![place]));
                    free.insert(parts.len() - 1);
                }
            }
        }
        let whole = std::mem::take(&mut self.groups[at]);
        let mut room = Some(at);
        for (kinds, places) in parts {
            let at = room.take().unwrap_or(self.groups.len());
            if at == self.groups.len() {
                self.groups.push(Group::default());
            }
            self.groups[at] = whole.part(&places);
            self.wait(at, &kinds, next);
        }
    }

    /// Puts a group in line whose members all have got blocks of these kinds.
    fn wait(&mut self, at: usize, kinds: &[Option<u32>], next: Option<u64>) {
        let group = &mut self.groups[at];
        let fewer = group.settle(kinds);
        let next = if fewer { group.site.plan() } else { next };
        if let Some(time) = next {
            self.due.push(Reverse((time, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dram::Dram;
    use super::super::site::{Ended, Sites};
    use super::*;
    use crate::rng::Rng;

    /// One SM after the other, as the run in order does it.
    fn plain(jobs: &[Arc<[Piece]>], places: u32, slots: u32) -> Vec<Launched> {
        let mut sites = Sites::new(places, Dram::of(&heist_ptx::arch::Gpu::H200));
        let mut left = jobs.iter().enumerate();
        let mut launched: Vec<(Launched, Option<Arc<[Piece]>>)> = Vec::new();
        let mut launch = |sm, time, sites: &mut Sites, launched: &mut Vec<_>| {
            if let Some((number, job)) = left.next() {
                let starting = Work::without_memory([Piece::idle(LAUNCH)].into());
                sites.start(sm, number, time, starting);
                let start = time + LAUNCH;
                let one = Launched {
                    number: number as u32,
                    sm,
                    start,
                    end: start,
                };
                launched.push((one, Some(Arc::clone(job))));
            }
        };
        for slot in 0..slots {
            for site in 0..places {
                launch(site, u64::from(slot), &mut sites, &mut launched);
            }
        }
        while let Some(Ended { time, site, who }) = sites.next() {
            match launched[who].1.take() {
                Some(job) => sites.start(site, who, time, Work::without_memory(job)),
                None => {
                    launched[who].0.end = time;
                    launch(site, time, &mut sites, &mut launched);
                }
            }
        }
        launched.into_iter().map(|(one, _)| one).collect()
    }

    #[test]
    fn groups_give_what_single_sms_give() {
        let mut rng = Rng::new(11);
        for round in 0..300 {
            let mut below = |most: u64| rng.below(most) as u32;
            let kinds: Vec<Arc<[Piece]>> = (0..1 + below(4))
                .map(|_| {
                    (0..below(6))
                        .map(|_| Piece {
                            cycles: f64::from(1 + below(400)),
                            load: [0; 4].map(|_| f64::from(below(30)) / 20.0),
                        })
                        .collect()
                })
                .collect();
            // Mostly of one kind; the others come now and then.
            let rare = 1 + u64::from(below(40));
            let blocks = below(400);
            let jobs: Vec<Arc<[Piece]>> = (0..blocks)
                .map(|_| match below(rare) {
                    0 => Arc::clone(&kinds[below(kinds.len() as u64) as usize]),
                    // Equal, and somewhere else.
                    1 => kinds[0].to_vec().into(),
                    _ => Arc::clone(&kinds[0]),
                })
                .collect();
            let (places, slots) = (1 + below(12), 1 + below(5));
            let mut told = Jobs::new(blocks);
            told.extend(
                jobs.iter()
                    .cloned()
                    .enumerate()
                    .map(|(at, job)| (at as u32, job))
                    .collect(),
            );
            assert!(told.kinds.len() <= kinds.len());
            assert_eq!(
                replay(&told, places, slots, || false).unwrap(),
                plain(&jobs, places, slots),
                "round {round}: {blocks} blocks on {places} SMs"
            );
        }
    }
}
