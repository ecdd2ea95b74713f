//! What is read of text that few files have: expressions, and mistakes beside each other.

use heist_ptx::{Source, parse};

fn module(text: &str) -> String {
    format!(".version 8.0\n.target sm_90\n.address_size 64\n{text}\n")
}

/// The bytes of an array with so many elements of one byte.
fn length(expression: &str) -> Option<u64> {
    let text = module(&format!(".global .b8 a[({expression})];"));
    let module = parse(&Source::new("text", text)).ok()?;
    module.variables().next()?.size()
}

#[test]
fn expressions_are_worked_out() {
    for (expression, value) in [
        ("1+2*3", 7),
        ("(1+2)*3", 9),
        ("10-2-3", 5),
        ("40/4/2", 5),
        ("-7%4", 1),
        ("1<<4", 16),
        ("256>>4", 16),
        ("6&3", 2),
        ("6|3", 7),
        ("6^3", 5),
        ("5+!0", 6),
        ("5+!7", 5),
        ("~0+9", 8),
        ("+8", 8),
        ("WARP_SZ", 32),
        ("4+(1<2)", 5),
        ("4+(2<2)", 4),
        ("4+(2<=2)", 5),
        ("4+(3<=2)", 4),
        ("4+(2>1)", 5),
        ("4+(2>2)", 4),
        ("4+(2>=2)", 5),
        ("4+(1>=2)", 4),
        ("4+(2==2)", 5),
        ("4+(2!=2)", 4),
        ("4+(2&&0)", 4),
        ("4+(2&&1)", 5),
        ("4+(0||1)", 5),
        ("4+(0||0)", 4),
        ("1?3:4", 3),
        ("0?3:4", 4),
        ("0x10", 16),
        ("010", 8),
        ("0b101", 5),
        ("7U", 7),
    ] {
        assert_eq!(length(expression), Some(value), "{expression}");
    }
    assert_eq!(length("1/0"), None);
    assert_eq!(length("1%0"), None);
}

#[test]
fn an_expression_has_at_most_64_operators() {
    let sum = |operators: usize| format!("1{}", "+1".repeat(operators));
    assert_eq!(length(&sum(64)), Some(65));
    assert_eq!(length(&sum(65)), None);
}

#[test]
fn every_mistake_of_a_line_is_told() {
    let body = |body: &str| module(&format!(".func f() {{ {body} }}"));
    let mistakes = |text: &str| {
        let source = Source::new("text", body(text));
        parse(&source).map_or_else(|errors| errors.len(), |_| 0)
    };
    assert_eq!(mistakes("mov.b32 a, b; mov.b32 c, d;"), 0);
    assert_eq!(mistakes("mov.b32 a b; mov.b32 c, d;"), 1);
    assert_eq!(mistakes("mov.b32 a b; mov.b32 c d;"), 2);
    assert_eq!(mistakes("mov.b32 a b; { mov.b32 c d; } mov.b32 e f;"), 3);
    assert_eq!(mistakes("mov.b32 a b\nmov.b32 c d;"), 2);
}

#[test]
fn a_slip_in_a_directive_is_told_with_what_was_meant() {
    for (slip, meant) in [
        (".globl", ".global"),
        (".goblal", ".global"),
        (".visble", ".visible"),
        (".pragm", ".pragma"),
        (".entri", ".entry"),
    ] {
        let source = Source::new("text", module(&format!("{slip} .b32 a;")));
        let errors = parse(&source).expect_err(slip);
        let helps = &errors[0].helps;
        assert_eq!(helps[..], [format!("did you mean `{meant}`?")], "{slip}");
    }
}
