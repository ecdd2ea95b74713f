//! Words that the verifier takes, and words that nobody asked it about: whatever they
//! say, every tile runs exactly once and the kernel ends.

use super::run::{Setting, Swapper, policy, run_changed, settings, words};
use heist_sched::{CONTROL_WORDS, Catalogue, Misbehaviour, PolicyWords, Submit, TileSource};
use proptest::prelude::*;

/// Where the first slot lies: behind the current word and the users of eight slots.
const SLOT: usize = CONTROL_WORDS + 9;

fn small(source: TileSource, submit: Submit, seed: u64) -> Setting {
    Setting {
        source,
        submit,
        tiles: 300,
        sleep: 300,
        seed,
        chaos: seed % 2 == 1,
        full: false,
    }
}

fn no_host() -> Swapper {
    Swapper::new(Vec::new(), 1)
}

/// Starts a kernel with these words in its memory, unseen by the verifier.
fn start_with(words: &[u64], setting: Setting) -> Option<Misbehaviour> {
    let left = run_changed(
        &policy("max-steals(2)"),
        setting,
        &mut no_host(),
        |control| {
            control[SLOT..][..words.len()].copy_from_slice(words);
        },
    );
    left.report.ejected.map(|ejected| ejected.why)
}

/// The checksum of words, as the encoding has it.
fn with_checksum(mut words: Vec<u64>) -> Vec<u64> {
    let mut sum = 0u64;
    for (at, word) in words.iter().enumerate() {
        if at != 1 {
            sum = (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            sum ^= sum >> 29;
        }
    }
    words[1] = sum;
    words
}

#[test]
fn words_that_were_changed_are_not_followed_and_leave_a_record() {
    for setting in settings(0, 300, 300) {
        let mut changed = words("max-steals(2)").0;
        changed[3] ^= 1 << 40;
        assert_eq!(start_with(&changed, setting), Some(Misbehaviour::Changed));
    }
}

#[test]
fn a_step_that_is_none_ejects_the_policy() {
    let mut strange = words("max-steals(2)").0;
    strange[2] = 0xff;
    let ejected = start_with(
        &with_checksum(strange),
        small(TileSource::Ticket, Submit::Early, 0),
    );
    assert_eq!(ejected, Some(Misbehaviour::UnknownStep));
}

#[test]
fn a_policy_that_divides_by_zero_goes_on_as_greedy() {
    // r0 = const 0; r1 = div r0 r0; answer of whether r1 is less than r1.
    let (constant, div, less, answer) = (0x00, 0x11, 0x19, 0x04);
    let steps = [
        constant | 1 << 24,
        div | 1 << 8 | 1 << 24,
        less | 2 << 8 | 1 << 12 | 1 << 16,
        answer | 2 << 12,
    ];
    let mut all = vec![4 << 8 | 8 << 16 | 8 << 24 | 1 << 40, 0];
    all.extend(steps.iter().chain(&steps));
    let all = with_checksum(all);
    assert_eq!(PolicyWords(all.clone()).verify(), Ok(()));
    let setting = small(TileSource::Clc, Submit::Late, 1);
    assert_eq!(start_with(&all, setting), Some(Misbehaviour::DividedByZero));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Bits of a shipped policy are flipped. Whether the verifier takes the words or not,
    /// a kernel that finds them in its memory runs every tile once, and ends.
    #[test]
    fn flipped_bits_are_refused_or_safe(
        which in 0usize..14,
        flips in prop::collection::vec((0usize..40, 0u32..64), 1..4),
        mended in prop::bool::weighted(0.8),
        seed in 0u64..1000,
    ) {
        let entries = Catalogue::standard();
        let entries = entries.entries();
        let mut changed = words(entries[which % entries.len()].example).0;
        let len = changed.len();
        for (word, bit) in flips {
            changed[word % len] ^= 1 << bit;
        }
        if mended {
            changed = with_checksum(changed);
        }
        let source = if seed % 3 == 0 { TileSource::Clc } else { TileSource::Ticket };
        let submit = if seed % 2 == 0 { Submit::Early } else { Submit::Late };
        start_with(&changed, small(source, submit, seed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Words that never were a policy.
    #[test]
    fn random_words_are_safe(
        steps in prop::collection::vec((0u64..40, any::<u64>()), 0..64),
        ends in any::<u32>(),
        seed in 0u64..1000,
    ) {
        let mut all = vec![u64::from(ends) & 0x00ff_ffff | 1 << 40, 0];
        all[0] |= (steps.len() as u64) << 24;
        all.extend(steps.iter().map(|(op, rest)| op | rest & !0xff));
        start_with(&with_checksum(all), small(TileSource::Ticket, Submit::Early, seed));
    }

    /// The verifier answers to anything, and never takes what it should not: what it takes
    /// has an answer in both sections that answer.
    #[test]
    fn the_verifier_answers_to_anything(words in prop::collection::vec(any::<u64>(), 0..80)) {
        prop_assert!(PolicyWords(words.clone()).verify().is_err());
        if words.len() >= 2 {
            let mut words = words;
            words[0] = words[0] & 0x0f0f_0f0f | 1 << 40;
            let _ = PolicyWords(with_checksum(words)).verify();
        }
    }
}
