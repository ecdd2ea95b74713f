//! What the verifier takes, and each thing that it refuses.

use super::run::{policy, words};
use heist_sched::program::NotPortable;
use heist_sched::*;

#[test]
fn every_shipped_policy_is_taken() {
    for entry in Catalogue::standard().entries() {
        let words = words(entry.example);
        assert_eq!(words.verify(), Ok(()), "{}\n{words}", entry.example);
        assert!(words.0.len() <= 2 + program::MOST_STEPS);
    }
}

#[test]
fn a_listing_names_every_step() {
    let listed = words("max-steals(2) & first-half").to_string();
    for step in [
        "init", "ask", "granted", "= get 0", "set r0 0", "less", "mul-high", "answer",
    ] {
        assert!(listed.contains(step), "{step}:\n{listed}");
    }
}

/// A head over sections of so many steps each.
fn head(lengths: [u64; 4]) -> u64 {
    let mut end = 0;
    let mut head = 1 << 40;
    for (at, length) in lengths.into_iter().enumerate() {
        end += length;
        head |= end << (8 * at);
    }
    head
}

fn sealed(head: u64, steps: &[u64]) -> PolicyWords {
    let mut words = vec![head, 0];
    words.extend(steps);
    let mut sum = 0u64;
    for (at, word) in words.iter().enumerate() {
        if at != 1 {
            sum = (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            sum ^= sum >> 29;
        }
    }
    words[1] = sum;
    PolicyWords(words)
}

const CONST: u64 = 0;
const GET: u64 = 2;
const SET: u64 = 3;
const ANSWER: u64 = 4;
const GRANTED: u64 = 12;
const ADD: u64 = 13;
const SHR: u64 = 23;
const WORD_ADD: u64 = 30;
const U32: u64 = 1 << 24;
const U64: u64 = 2 << 24;
const YES: u64 = CONST | 1 << 32;

/// Whether the verifier refuses a policy with these steps in `ask`, and by which rule.
fn refused(ask: &[u64]) -> (String, String) {
    let mut steps = ask.to_vec();
    steps.extend([YES, ANSWER]);
    let words = sealed(head([0, ask.len() as u64, 2, 0]), &steps);
    let refusal = words.verify().expect_err("it is refused");
    (refusal.code.0.to_owned(), refusal.to_string())
}

#[test]
fn each_rule_is_told_with_its_code_and_its_place() {
    for (ask, code, why) in [
        (
            vec![YES],
            "S006",
            "there is no answer at the end (in `ask`)",
        ),
        (
            vec![YES, ANSWER, YES],
            "S006",
            "a step behind the answer (step 2, in `ask`)",
        ),
        (
            vec![0xee],
            "S002",
            "there is no operation 0xee (step 0, in `ask`)",
        ),
        (
            vec![YES | 3 << 24, ANSWER],
            "S002",
            "there is no fourth type",
        ),
        (
            vec![YES | 1 << 30, ANSWER],
            "S002",
            "bits in fields that it does not use",
        ),
        (
            vec![YES | 1 << 12, ANSWER],
            "S002",
            "bits in fields that it does not use",
        ),
        (
            vec![GRANTED | U32, YES, ANSWER],
            "S002",
            "no tile was granted here",
        ),
        (
            vec![YES, ANSWER | 1 << 32],
            "S002",
            "a number that it does not use",
        ),
        (vec![YES, ANSWER | 1 << 8], "S002", "leaves no value"),
        (
            vec![U32, SHR | U32 | 32 << 32, YES, ANSWER],
            "S002",
            "a shift by 32",
        ),
        (
            vec![YES, ANSWER | 1 << 12],
            "S003",
            "`answer` takes r1, which holds nothing yet",
        ),
        (
            vec![YES | U32, ANSWER],
            "S004",
            "`answer` does not make bool of (u32)",
        ),
        (
            vec![U32, U64 | 1 << 8, ADD | U32 | 1 << 16, YES, ANSWER],
            "S004",
            "of (u32, u64)",
        ),
        (vec![CONST | 2 << 32, ANSWER], "S004", "2 is no truth value"),
        (vec![GET, ANSWER], "S005", "state 0 was not set in `init`"),
        (
            vec![GET | 16 << 32, ANSWER],
            "S005",
            "state 16 is more than there are, 16",
        ),
        (
            vec![YES, SET, YES, ANSWER],
            "S005",
            "state 0 was not set in `init`",
        ),
        (
            vec![U64, YES | 1 << 8, WORD_ADD | U64 | 1 << 16, YES, ANSWER],
            "S005",
            "shared word 0 is more than it has, 0",
        ),
    ] {
        let (found, told) = refused(&ask);
        assert_eq!(found, code, "{told}");
        assert!(told.contains(why), "{told}");
    }
    let init_answers = sealed(head([2, 2, 2, 0]), &[YES, ANSWER, YES, ANSWER, YES, ANSWER]);
    let told = init_answers
        .verify()
        .expect_err("it is refused")
        .to_string();
    assert_eq!(told, "S006: nobody asks here (step 1, in `init`)");
    let mistyped = sealed(
        head([2, 3, 2, 0]),
        &[U32, SET | U32, GET | U64, YES, ANSWER, YES, ANSWER],
    );
    let told = mistyped.verify().expect_err("it is refused").to_string();
    assert_eq!(told, "S004: state 0 is u32, not u64 (step 2, in `ask`)");
}

#[test]
fn a_wrong_head_is_told() {
    let good = words("max-steals(8)");
    let mut cases = vec![(PolicyWords(vec![1]), "1 words are too few")];
    let changed = |at: usize, bit: u32| {
        let mut words = good.clone();
        words.0[at] ^= 1 << bit;
        words
    };
    cases.push((changed(0, 41), "version 3 is not 1"));
    cases.push((changed(0, 31), "do not divide"));
    cases.push((changed(0, 37), "32 shared words are more than 11"));
    cases.push((changed(3, 50), "the checksum is another one"));
    let mut long = good.clone();
    long.0.resize(100, 0);
    cases.push((long, "98 steps are more than 96"));
    for (words, why) in cases {
        let refusal = words.verify().expect_err("it is refused");
        assert_eq!(refusal.code.0, "S001");
        assert!(refusal.why.contains(why), "{refusal}");
    }
}

#[test]
fn a_policy_may_have_as_many_shared_words_as_there_are() {
    let with = |shared: u64| {
        sealed(
            head([0, 2, 2, 0]) | shared << 32,
            &[YES, ANSWER, YES, ANSWER],
        )
    };
    assert_eq!(with(11).verify(), Ok(()));
    assert!(with(12).verify().is_err());
}

/// Asks whether the sum of so many numbers is below seven, each of them still needed when all are there.
#[derive(Debug)]
struct Sums(u32);

impl program::PortablePolicy for Sums {
    type State<'w> = ();
    fn init(&self, _: &program::Writer) {}
    fn should_try_steal<'w>(&self, w: &'w program::Writer, (): &()) -> program::Num<'w, bool> {
        let all: Vec<_> = (0..self.0).map(|at| w.worker() + at).collect();
        let sum = all.into_iter().reduce(|sum, one| sum + one);
        sum.map_or(w.no(), |sum| sum.lt(7))
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w program::Writer,
        (): &(),
        _: program::Num<'w, u32>,
    ) -> program::Num<'w, bool> {
        w.yes()
    }
    fn label(&self) -> String {
        "sums".to_owned()
    }
}

#[test]
fn too_many_values_at_a_time_are_counted() {
    assert!(Loaded::new(&Sums(8)).is_ok());
    let error = Loaded::new(&Sums(18)).expect_err("they do not fit");
    let NotPortable::TooLarge(much) = error else {
        panic!("{error}");
    };
    assert_eq!(
        (much.what, much.needed, much.most),
        ("values at a time", 17, 16)
    );
}

#[test]
fn what_does_not_fit_says_what_of() {
    let long = ["probability(0.5)"; 9].join(" & ");
    let error = Loaded::new(&policy(&long)).expect_err("it is too long");
    assert!(
        matches!(&error, NotPortable::TooLarge(much) if much.what == "steps"),
        "{error}"
    );
    let shared = ["at-most(3)"; 12].join(" & ");
    let error = policy(&shared).program().expect("a program").words();
    assert!(error.is_err());
}
