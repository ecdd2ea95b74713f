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

/// Line, column and message of every mistake.
fn told(text: &str) -> Vec<(u32, u32, String)> {
    let source = Source::new("text", text);
    let errors = parse(&source).expect_err(text);
    let told = errors.iter().map(|error| {
        let at = source.position(error.span);
        (at.line, at.column, error.message.clone())
    });
    told.collect()
}

#[test]
fn a_string_ends_on_its_line_whatever_is_escaped() {
    let never = "this string never ends".to_owned();
    for text in [
        ".pragma \"a\\\n.globl .b32 a;",
        ".pragma \"a\n.globl .b32 a;",
        ".pragma \"a\\\"\n.globl .b32 a;",
    ] {
        let found = told(&module(text));
        assert_eq!(found[0], (4, 9, never.clone()), "{text}");
        assert!(
            found.iter().any(|&(line, ..)| line == 5),
            "{text}: {found:?}"
        );
    }
    let last = told(module(".pragma \"a\\").trim_end());
    assert_eq!(last[0], (4, 9, never));
    let good = module(".pragma \"a\\\\\";\n.global .b32 a;");
    assert!(parse(&Source::new("text", good)).is_ok());
}

#[test]
fn what_was_found_instead_is_told_by_its_kind() {
    for (text, found) in [
        (".global .b32 = 3;", "found `=`"),
        (".global .b32 7;", "found the number `7`"),
        (".global .b32 \"a\";", "found a string"),
        (".global .b32", "found the end of the file"),
    ] {
        let message = &told(&module(text))[0].2;
        assert!(message.starts_with("expected "), "{text}: {message}");
        assert!(message.ends_with(found), "{text}: {message}");
    }
}

#[test]
fn only_a_line_of_its_own_begins_anew_after_a_mistake() {
    for (body, mistakes) in [
        ("mov.b32 a b .reg .b32 c d;", 1),
        (".reg .b32 a b\n.reg .b32 c d;", 2),
    ] {
        let text = module(&format!(".func f() {{ {body} }}"));
        assert_eq!(told(&text).len(), mistakes, "{body}");
    }
    for (items, mistakes) in [
        (".global .b32 a b .global .b32 c d;", 1),
        (".global .b32 a b\n.global .b32 c d;", 2),
    ] {
        assert_eq!(told(&module(items)).len(), mistakes, "{items}");
    }
}

#[test]
fn a_variable_has_the_size_of_its_vectors() {
    for (declared, size) in [
        (".u32 a", 4),
        (".v2 .u32 a", 8),
        (".v4 .u16 a[3]", 24),
        (".v8 .b32 a[2][2]", 128),
    ] {
        let text = module(&format!(".global {declared};"));
        let module = parse(&Source::new("text", text)).expect(declared);
        let sizes: Vec<_> = module.variables().map(heist_ptx::Variable::size).collect();
        assert_eq!(sizes, [Some(size)], "{declared}");
    }
}

#[test]
fn zero_bytes_end_a_text() {
    for ends in ["\0", "\n\0\0"] {
        let text = module(".global .b8 a[4];") + ends;
        assert!(parse(&Source::new("text", text)).is_ok(), "{ends:?}");
    }
    let text = module("\0.global .b8 a[4];");
    assert!(parse(&Source::new("text", text)).is_err());
}
