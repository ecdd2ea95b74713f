//! Policies as text: what is read, what is written back, and what is told
//! about text that is neither.

use heist_sched::text::{Catalogue, ParameterKind, Value};
use heist_sched::{
    AnyPolicy, AtMost, Every, FairShare, FirstHalf, Fraction, Greedy, MaxSteals, Never, Policy,
    PolicyExpr, Probability, SharedBucket, SmLimit, TimeBudget, TokenBucket,
};
use proptest::prelude::*;
use std::num::NonZeroU32;

fn call() -> impl Strategy<Value = PolicyExpr> {
    let entries = Catalogue::standard().entries().to_vec();
    (0..entries.len(), any::<[u32; 2]>(), 0.0..=1.0f64).prop_map(move |(at, counts, part)| {
        let entry = &entries[at];
        let args = entry.parameters.iter().enumerate();
        let args = args.map(|(index, parameter)| match parameter.kind {
            ParameterKind::Count => Value::Count(counts[index]),
            ParameterKind::Positive => Value::Count(counts[index].max(1)),
            ParameterKind::Part => Value::Part(part),
            ParameterKind::Time => Value::Time(counts[0].into()),
        });
        PolicyExpr::Call {
            name: entry.name.into(),
            args: args.collect(),
        }
    })
}

fn expression() -> impl Strategy<Value = PolicyExpr> {
    call().prop_recursive(6, 40, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|a| PolicyExpr::Not(Box::new(a))),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| PolicyExpr::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner).prop_map(|(a, b)| PolicyExpr::Or(Box::new(a), Box::new(b))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(expression in expression()) {
        let text = expression.to_string();
        prop_assert_eq!(Catalogue::standard().parse(&text), Ok(expression));
        let policy: AnyPolicy = text.parse().expect("it was just read");
        prop_assert_eq!(policy.name(), text);
    }

    #[test]
    fn no_text_is_too_strange(text in "[a-z0-9 ()&|!,.µ-]{0,40}|\\PC{0,30}") {
        if let Err(error) = Catalogue::standard().parse(&text) {
            prop_assert!(error.position <= text.chars().count());
            prop_assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn constants_of_combinations_are_those_of_logic(expression in expression()) {
        // The shipped constants alone decide; everything else is unknown.
        fn value(expression: &PolicyExpr) -> Option<bool> {
            match expression {
                PolicyExpr::Call { .. } => Catalogue::standard().make(expression).ok()?.constant(),
                PolicyExpr::Not(a) => value(a).map(|a| !a),
                PolicyExpr::And(a, b) => match (value(a), value(b)) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                },
                PolicyExpr::Or(a, b) => match (value(a), value(b)) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                },
            }
        }
        let policy = Catalogue::standard().make(&expression).expect("it is in the catalogue");
        prop_assert_eq!(policy.constant(), value(&expression));
        if policy.constant() == Some(true) {
            prop_assert!(!policy.may_retire());
        }
        if policy.constant() == Some(false) {
            prop_assert!(policy.may_retire());
        }
    }
}

#[test]
fn shipped_policies_are_named_by_the_text_that_makes_them() {
    let policies = [
        AnyPolicy::new(Greedy),
        AnyPolicy::new(Never),
        AnyPolicy::new(MaxSteals { limit: 8 }),
        AnyPolicy::new(Every {
            n: NonZeroU32::MIN.saturating_add(1),
        }),
        AnyPolicy::new(TimeBudget {
            nanoseconds: 20_000,
        }),
        AnyPolicy::new(FirstHalf),
        AnyPolicy::new(Fraction { part: 0.25 }),
        AnyPolicy::new(FairShare),
        AnyPolicy::new(TokenBucket { rate: 9, burst: 2 }),
        AnyPolicy::new(Probability { p: 0.5 }),
        AnyPolicy::new(SmLimit { sms: 100 }),
        AnyPolicy::new(heist_sched::AtMost { blocks: 3 }),
        AnyPolicy::new(heist_sched::UntilAsked),
        AnyPolicy::new(!MaxSteals { limit: 8 } & FirstHalf | Greedy),
    ];
    for policy in policies {
        let again: AnyPolicy = policy.name().parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again.constant(), policy.constant(), "{policy}");
        assert_eq!(again.may_retire(), policy.may_retire(), "{policy}");
    }
    for entry in Catalogue::standard().entries() {
        let made: AnyPolicy = entry.example.parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(made.name(), entry.example);
    }
}

#[test]
fn a_name_that_is_like_none_gets_the_list_of_all() {
    let error = "fifo"
        .parse::<AnyPolicy>()
        .expect_err("no policy")
        .to_string();
    assert!(error.contains("there is no policy `fifo`; there are "));
    assert!(!error.contains("did you mean"), "{error}");
    for entry in Catalogue::standard().entries() {
        assert!(error.contains(entry.name), "{error}");
    }
}

#[test]
fn errors_say_what_where_and_what_else() {
    let cases = [
        (
            "",
            0,
            "the text is empty, where a policy's name, `!` or `(` was expected",
        ),
        (
            "gredy",
            0,
            "there is no policy `gredy`; did you mean `greedy`?",
        ),
        (
            "MaxSteals(3)",
            0,
            "there is no policy `MaxSteals`; did you mean `max-steals`?",
        ),
        (
            "FairSharing",
            0,
            "there is no policy `FairSharing`; did you mean `fair-share`?",
        ),
        (
            "max-steals",
            10,
            "`max-steals` needs arguments: `max-steals(n)`",
        ),
        (
            "max-steals(",
            11,
            "the text ends here, where a whole number (`max-steals(n)`) was expected",
        ),
        (
            "max-steals(1.5)",
            11,
            "`1.5` is not whole: expected a whole number (`max-steals(n)`)",
        ),
        (
            "every(0)",
            6,
            "`0` is less than 1: expected a whole number from 1 on (`every(n)`)",
        ),
        (
            "max-steals(1, 2)",
            12,
            "too many arguments: `max-steals(n)`",
        ),
        (
            "token-bucket(1)",
            14,
            "found `)`, where `,` and burst (`token-bucket(rate, burst)`) was expected",
        ),
        (
            "time-budget(20)",
            12,
            "`20` has no unit: expected a time such as `20us` (`time-budget(time)`)",
        ),
        (
            "probability(1.5)",
            12,
            "`1.5` does not lie between 0 and 1: expected a number from 0 to 1 (`probability(p)`)",
        ),
        (
            "greedy &",
            8,
            "the text ends here, where a policy's name, `!` or `(` was expected",
        ),
        (
            "greedy never",
            7,
            "found `n`, where `&`, `|` or the end was expected",
        ),
        ("(greedy", 0, "this `(` is not closed"),
        ("greedy)", 6, "this `)` closes nothing"),
        (
            "max-steals(99999999999)",
            11,
            "`99999999999` is more than 4294967295: expected a whole number (`max-steals(n)`)",
        ),
    ];
    for (text, position, message) in cases {
        let error = text.parse::<AnyPolicy>().expect_err(text);
        assert_eq!(
            (error.message.as_str(), error.position),
            (message, position),
            "{text}"
        );
    }
    let deep = format!("{}greedy", "!".repeat(100));
    let error = deep.parse::<AnyPolicy>().expect_err("too deep");
    assert!(error.message.contains("nested"), "{error}");
    let error = "max-steals(8) & first-hal"
        .parse::<AnyPolicy>()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no policy `first-hal`; did you mean `first-half`?\n  \
         max-steals(8) & first-hal\n                  ^"
    );
}

#[test]
fn a_program_adds_its_own_policies() {
    use heist_sched::text::Entry;
    let catalogue = Catalogue::standard().with(Entry {
        name: "shy",
        parameters: &[],
        summary: "a name of my own",
        example: "shy",
        make: |_| Some(AnyPolicy::new(MaxSteals { limit: 1 })),
    });
    let policy = catalogue.policy("shy|never").expect("it is there");
    assert_eq!(policy.name(), "shy | never");
}

/// Expressions need not come from text: what is not in the catalogue, or does not
/// fit, is an error.
#[test]
fn an_unknown_name_makes_no_policy() {
    let call = |name: &str, args: Vec<Value>| PolicyExpr::Call {
        name: name.into(),
        args,
    };
    let error = |expression: PolicyExpr| {
        let made = Catalogue::standard().make(&expression);
        made.expect_err("no such policy").to_string()
    };
    let unknown = error(call("gredy", Vec::new()));
    assert!(
        unknown.starts_with("there is no policy `gredy`; there are greedy, never, max-steals,"),
        "{unknown}"
    );
    let nested = PolicyExpr::Not(Box::new(PolicyExpr::And(
        Box::new(call("greedy", Vec::new())),
        Box::new(call("max-steals", Vec::new())),
    )));
    assert_eq!(error(nested), "`max-steals` does not fit `max-steals(n)`");
    let cases = [
        (
            "every",
            vec![Value::Count(0)],
            "`every(0)` does not fit `every(n)`",
        ),
        (
            "never",
            vec![Value::Count(1)],
            "`never(1)` does not fit `never`",
        ),
        (
            "time-budget",
            vec![Value::Count(5)],
            "`time-budget(5)` does not fit `time-budget(time)`",
        ),
    ];
    for (name, args, message) in cases {
        assert_eq!(error(call(name, args)), message);
    }
}

/// Every shipped policy makes itself from its own example and from nothing else.
#[test]
fn values_of_another_kind_or_number_make_no_policy() {
    let wrong = [
        vec![],
        vec![Value::Count(1)],
        vec![Value::Part(0.5)],
        vec![Value::Time(1)],
        vec![Value::Count(1), Value::Count(1)],
        vec![Value::Time(1), Value::Count(1)],
    ];
    for entry in Catalogue::standard().entries() {
        let fits = |values: &[Value]| {
            values.len() == entry.parameters.len()
                && values
                    .iter()
                    .zip(entry.parameters)
                    .all(|(value, parameter)| {
                        matches!(
                            (value, parameter.kind),
                            (
                                Value::Count(_),
                                ParameterKind::Count | ParameterKind::Positive
                            ) | (Value::Part(_), ParameterKind::Part)
                                | (Value::Time(_), ParameterKind::Time)
                        )
                    })
        };
        for values in &wrong {
            let made = (entry.make)(values).is_some();
            assert_eq!(made, fits(values), "{} of {values:?}", entry.name);
        }
    }
}

#[test]
fn times_are_read_in_parts_of_a_unit_and_written_in_whole_ones() {
    for (text, written) in [
        ("time-budget(1.5us)", "time-budget(1500ns)"),
        ("time-budget(0.25ms)", "time-budget(250us)"),
        ("time-budget(2000ms)", "time-budget(2s)"),
        ("time-budget(0us)", "time-budget(0ns)"),
    ] {
        let policy: AnyPolicy = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(policy.name(), written);
    }
}

/// Each part has words of its own behind those of the other.
#[test]
fn two_policies_have_the_shared_words_of_both() {
    let bucket = SharedBucket {
        rate: NonZeroU32::MIN,
        burst: NonZeroU32::MIN,
    };
    let (one, other) = (AtMost { blocks: 2 }, bucket);
    let both = Policy::shared_words(&one) + Policy::shared_words(&other);
    assert!(both > 1);
    assert_eq!((one & other).shared_words(), both);
    assert_eq!((one | other).shared_words(), both);
}

#[test]
fn two_signs_are_one() {
    let parse = |text: &str| Catalogue::standard().parse(text).expect("a policy");
    for (twice, once) in [
        ("max-steals(2) && first-half", "max-steals(2) & first-half"),
        ("never || !greedy", "never | !greedy"),
    ] {
        assert_eq!(parse(twice), parse(once));
    }
}
