//! What each policy promises, counted on the simulated GPU: block by block, over
//! seeds, sources and chaos.
//!
//! The sentence that `heist policies` prints for a policy is the name of its test.
//! [`model`] says in plain Rust what the tile loop does with any policy's answers.

mod bell;
mod chance;
mod combined;
mod counted;
mod model;
mod placed;
mod run;
mod shared;
mod timed;

/// The tests' own text: what is named here is tested here.
const TESTS: &[&str] = &[
    include_str!("chance.rs"),
    include_str!("counted.rs"),
    include_str!("placed.rs"),
    include_str!("shared.rs"),
    include_str!("timed.rs"),
];

#[test]
fn the_sentence_of_every_policy_is_the_name_of_a_test() {
    for entry in heist_sched::Catalogue::standard().entries() {
        let sentence = format!("{} {}", entry.name, entry.summary);
        let words: Vec<&str> = sentence
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        let test = format!("#[test]\nfn {}()", words.join("_"));
        assert!(
            TESTS.iter().any(|file| file.contains(&test)),
            "no test says `{}`:\n{test}",
            entry.summary
        );
    }
}
