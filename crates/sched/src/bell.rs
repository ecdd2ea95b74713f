//! A launch's bell: who wants the GPU for a moment rings it.

use heist_builder::{Bool, Val};

/// Where the bell is, in bytes from the start of the control words. Whoever wants
/// the GPU for a moment writes the 32-bit [`Bell::word`] there, and zero when done: the
/// host, a write in a stream's order, or another kernel.
pub const BELL_BYTES: u64 = 3 * 8;

/// Where the number of blocks is in the bell's word.
const COUNT_AT: u32 = 16;

/// Says in the bell's word that the visitor is one launch.
const ONCE: u32 = 2;
/// Says that the visitor was launched together with the ring.
const LAUNCHED: u32 = 4;
/// Where the number of such a ring is, up to the number of blocks.
const RING_AT: u32 = 3;

/// What a bell says. Policies that listen, and tiles that can be left half done, answer it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bell {
    /// Nobody asks.
    #[default]
    Silent,
    /// Every block is to leave, for as long as it is rung.
    All,
    /// So many blocks are to be away at a time; the others stay. A block that comes back,
    /// because nobody took its place, makes room for another that leaves. Launches that
    /// do not [pause](crate::Schedule::pausing) take it for all.
    For(u32),
    /// The same for a visitor of one launch, which has so many blocks. A block that comes back after somebody was
    /// in its place makes no room for another: the visitor's block has been there, and the bell is still rung only for
    /// those of other multiprocessors.
    Once(u32),
}

impl Bell {
    /// What is written at [`BELL_BYTES`].
    ///
    /// ```
    /// use heist_sched::Bell;
    /// assert_eq!((Bell::Silent.word(), Bell::For(0).word()), (0, 0));
    /// assert_ne!(Bell::For(4).word(), Bell::All.word());
    /// assert_eq!(Bell::For(1 << 16).word(), Bell::All.word());
    /// assert_ne!(Bell::Once(4).word(), Bell::For(4).word());
    /// ```
    pub fn word(self) -> u32 {
        match self {
            Bell::Silent | Bell::For(0) | Bell::Once(0) => 0,
            Bell::For(blocks) if blocks < 1 << COUNT_AT => blocks << COUNT_AT | 1,
            Bell::Once(blocks) if blocks < 1 << COUNT_AT => blocks << COUNT_AT | ONCE | 1,
            Bell::All | Bell::For(_) | Bell::Once(_) => 1,
        }
    }

    /// The same for the so-many-th time that a bell is rung: a bell for one launch is told from the one before it, where
    /// it was silent for too short a time in between to be heard.
    ///
    /// ```
    /// use heist_sched::Bell;
    /// assert_ne!(Bell::Once(4).ring(1), Bell::Once(4).ring(2));
    /// assert_eq!(Bell::Once(4).ring(0), Bell::Once(4).word());
    /// assert_eq!(Bell::For(4).ring(2), Bell::For(4).word());
    /// ```
    pub fn ring(self, number: u32) -> u32 {
        let word = self.word();
        match word & ONCE {
            0 => word,
            _ => word | (number << RING_AT) & ((1 << COUNT_AT) - 1),
        }
    }

    /// The same for a visitor that is launched together with the ring, by one graph. Tiles are then left at the first look that
    /// hears it: the visitor has come before a block could have left.
    ///
    /// ```
    /// use heist_sched::Bell;
    /// assert_ne!(Bell::Once(4).ring_launched(1), Bell::Once(4).ring(1));
    /// assert_ne!(Bell::Once(4).ring_launched(1), Bell::Once(4).ring_launched(2));
    /// assert_eq!(Bell::Silent.ring_launched(1), 0);
    /// ```
    pub fn ring_launched(self, number: u32) -> u32 {
        match self.ring(number) {
            0 => 0,
            word => word | LAUNCHED,
        }
    }

    /// Whether a bell that says `word` wants one more block to leave, where so many are `away`.
    pub(crate) fn wants<'k>(word: Val<'k, u32>, away: Val<'k, i32>) -> Bool<'k> {
        let most = (word >> COUNT_AT).cast::<i32>();
        word.ne(0) & (most.eq(0) | away.lt(most))
    }

    /// Whether the visitor of a bell that says `word` was launched together with the ring.
    pub(crate) fn is_launched<'k>(word: Val<'k, u32>) -> Bool<'k> {
        (word & LAUNCHED).ne(0)
    }

    /// Whether a bell that says `word` is rung for a visitor of one launch.
    pub(crate) fn is_once<'k>(word: Val<'k, u32>) -> Bool<'k> {
        (word & ONCE).ne(0)
    }
}
