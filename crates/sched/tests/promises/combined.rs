//! What `&`, `|` and `!` make of policies, and what the loop makes of any of them.

use super::model;
use super::run::{Setting, in_turn, run_policy, settings};
use heist_sched::{AnyPolicy, Catalogue, Policy, Submit, TicketGrid, TileSource};

/// Runs it and compares every decision of every block with the model.
fn follows_the_model(text: &str, setting: Setting) {
    let catalogue = Catalogue::standard();
    let expression = catalogue
        .parse(text)
        .unwrap_or_else(|error| panic!("{error}"));
    let policy: AnyPolicy = catalogue.make(&expression).expect("it was just read");
    // A loaded policy is asked, whatever it answers.
    let constant = policy.constant().filter(|_| !setting.loaded);
    let seen = run_policy(policy, setting);
    model::check(&expression, constant, setting, &seen);
}

#[test]
fn every_decision_of_a_policy_alone_follows_from_its_page() {
    for (turn, text) in [
        "greedy",
        "never",
        "max-steals(1)",
        "max-steals(3)",
        "every(2)",
        "every(3)",
        "fair-share",
        "first-half",
        "fraction(0.3)",
        "sm-limit(30)",
    ]
    .into_iter()
    .enumerate()
    {
        for setting in in_turn(turn, 7) {
            follows_the_model(text, setting);
        }
    }
}

#[test]
fn both_sides_of_and_and_or_are_evaluated_always() {
    for (turn, text) in [
        "max-steals(3) & every(2)",
        "every(2) & max-steals(3)",
        "every(2) & every(3)",
        "every(2) | every(3)",
        "max-steals(1) | every(3)",
        "every(3) | max-steals(2)",
        "fair-share & every(2)",
        "first-half | max-steals(1)",
        "sm-limit(20) & max-steals(2)",
        "greedy & every(3)",
        "never | max-steals(2)",
    ]
    .into_iter()
    .enumerate()
    {
        for setting in in_turn(turn, 11) {
            follows_the_model(text, setting);
        }
    }
}

#[test]
fn not_answers_the_opposite() {
    for (turn, text) in [
        "!first-half",
        "!sm-limit(40)",
        "!every(2)",
        "!max-steals(2)",
        "!never",
        "!greedy",
        "!(every(2) & max-steals(3))",
        "!first-half | max-steals(1)",
    ]
    .into_iter()
    .enumerate()
    {
        for setting in in_turn(turn, 13) {
            follows_the_model(text, setting);
        }
    }
}

#[test]
fn a_resident_grid_hears_the_policy_until_tiles_would_be_lost() {
    for text in [
        "max-steals(2)",
        "every(3)",
        "first-half",
        "!every(2) & fair-share",
    ] {
        for submit in [Submit::Early, Submit::Late] {
            let setting = Setting::new(TileSource::Ticket, 5).submit(submit);
            follows_the_model(text, setting.grid(TicketGrid::Resident));
            follows_the_model(text, setting.grid(TicketGrid::Full));
        }
    }
}

/// Any combination, drawn from numbers.
#[test]
fn random_combinations_follow_the_model() {
    let leaves = [
        "max-steals(1)",
        "max-steals(4)",
        "every(2)",
        "every(3)",
        "fair-share",
        "first-half",
        "sm-limit(25)",
        "greedy",
        "never",
    ];
    let cases: Vec<u64> = (0..40).collect();
    heist_oracle::parallel(&cases, |&seed| {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut roll = |sides: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) as usize % sides
        };
        let mut text = leaves[roll(leaves.len())].to_owned();
        for _ in 0..=roll(3) {
            let leaf = leaves[roll(leaves.len())];
            let not = ["", "!"][roll(2)];
            text = match roll(4) {
                0 => format!("({text}) & {not}{leaf}"),
                1 => format!("({text}) | {not}{leaf}"),
                2 => format!("{not}{leaf} & !({text})"),
                _ => format!("{not}{leaf} | ({text})"),
            };
        }
        let all = settings(seed..seed + 1);
        follows_the_model(&text, all[roll(all.len())].tiles(300));
    });
}
