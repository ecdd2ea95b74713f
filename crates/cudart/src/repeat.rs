//! Launches that repeat an earlier one.
//!
//! Programs that measure time launch one kernel hundreds of times over the same memory. A launch
//! on the simulator depends on the kernel, its shape, its arguments and all memory, and on nothing
//! else: where all of these are as they were before, so is what the launch leaves. Then it is taken
//! from the earlier one. Memory is compared byte for byte, with which of its bytes were written.

use crate::operation::Wish;
use heist_launch::Placed;
use heist_sim::Touched;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many launches are remembered, and how many bytes of memory all of them may hold.
const LAUNCHES: usize = 32;
const BYTES: usize = 1 << 30;

/// What a launch gave.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) placed: Vec<Placed>,
    pub(crate) printed: String,
    pub(crate) ns: f64,
    /// What it has touched, where that was asked for.
    pub(crate) touched: Option<Arc<[Touched]>>,
}

struct Remembered {
    wish: Wish,
    before: Vec<Placed>,
    given: Given,
}

/// The last launches, the oldest first.
#[derive(Default)]
pub(crate) struct Repeats {
    known: VecDeque<Remembered>,
}

impl Repeats {
    /// What an earlier launch gave that was the same, over the same memory.
    pub(crate) fn find(&mut self, wish: &Wish, before: &[Placed]) -> Option<Given> {
        let same = |one: &Remembered| {
            one.wish == *wish
                && one.before.len() == before.len()
                && one.before.iter().zip(before).all(same_memory)
        };
        let at = self.known.iter().position(same)?;
        // The oldest is forgotten first, and this one has just been of use.
        let one = self.known.remove(at)?;
        let given = one.given.clone();
        self.known.push_back(one);
        Some(given)
    }

    /// Remembers what a launch gave.
    pub(crate) fn remember(&mut self, wish: &Wish, before: Vec<Placed>, given: Given) {
        self.known.push_back(Remembered {
            wish: wish.clone(),
            before,
            given,
        });
        while self.known.len() > LAUNCHES || (self.bytes() > BYTES && !self.known.is_empty()) {
            self.known.pop_front();
        }
    }

    /// The bytes that are held, each once.
    fn bytes(&self) -> usize {
        let mut held: Vec<(*const Vec<u8>, usize)> = self
            .known
            .iter()
            .flat_map(|one| one.before.iter().chain(&one.given.placed))
            .map(|memory| (Arc::as_ptr(&memory.bytes), memory.bytes.len()))
            .collect();
        held.sort_unstable();
        held.dedup();
        held.iter().map(|(_, len)| len).sum()
    }
}

fn same_memory((a, b): (&Placed, &Placed)) -> bool {
    a.at == b.at
        && a.name == b.name
        && a.written == b.written
        && (Arc::ptr_eq(&a.bytes, &b.bytes) || a.bytes == b.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::Dim3;

    fn wish(number: u8) -> Wish {
        Wish {
            function: 1,
            grid: Dim3::new(2, 1, 1),
            block: Dim3::new(32, 1, 1),
            cluster: None,
            shared: 0,
            cooperative: false,
            early: false,
            arguments: vec![vec![number]],
        }
    }

    fn given(placed: Vec<Placed>) -> Given {
        Given {
            placed,
            printed: String::new(),
            ns: 1.0,
            touched: None,
        }
    }

    #[test]
    fn a_launch_is_known_by_everything_that_it_depends_on() {
        let memory = |byte: u8| vec![Placed::filled("a", 64, vec![byte; 8])];
        let mut repeats = Repeats::default();
        repeats.remember(&wish(1), memory(3), given(memory(4)));
        let found = repeats.find(&wish(1), &memory(3)).expect("the same again");
        assert_eq!(found.placed[0].bytes[0], 4);
        assert!(repeats.find(&wish(2), &memory(3)).is_none());
        assert!(repeats.find(&wish(1), &memory(5)).is_none());
        assert!(repeats.find(&wish(1), &[]).is_none());
        // The same bytes, of which nobody has written some.
        let mut fresh = Placed::fresh("a", 64, 8);
        Arc::make_mut(&mut fresh.bytes).fill(3);
        assert!(repeats.find(&wish(1), &[fresh]).is_none());
        let other = Wish {
            grid: Dim3::new(3, 1, 1),
            ..wish(1)
        };
        assert!(repeats.find(&other, &memory(3)).is_none());
    }

    #[test]
    fn the_launches_of_least_use_are_forgotten() {
        let mut repeats = Repeats::default();
        let memory = || vec![Placed::filled("a", 64, vec![0; 8])];
        for number in 0..LAUNCHES as u8 {
            repeats.remember(&wish(number), memory(), given(memory()));
        }
        assert!(repeats.find(&wish(0), &memory()).is_some());
        repeats.remember(&wish(200), memory(), given(memory()));
        assert!(repeats.find(&wish(0), &memory()).is_some());
        assert!(repeats.find(&wish(1), &memory()).is_none());
    }
}
