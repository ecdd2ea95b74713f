//! Prints that once read back as something else, kept from doing so again.

use heist_ptx::{Source, parse, print};

fn survives(text: &str) {
    let module = parse(&Source::new("text", text)).expect("accepted");
    let printed = print(&module);
    let again = parse(&Source::new("print", printed.as_str())).expect("its print is accepted");
    assert!(module == again, "{printed}");
}

#[test]
fn a_comment_between_the_header_and_the_first_item_stays_there() {
    survives(".version 8.0 .target sm_90 ; // comment\n");
    survives(".version 8.0 .target sm_90 // comment\n.func f();");
    survives(".version 8.0 // one\n.target sm_90 // two\n.address_size 64 // three\n.func f();");
}

#[test]
fn an_expression_that_begins_with_a_name_keeps_its_parentheses() {
    let body =
        |operand: &str| format!(".version 8.0 .target sm_90 .func f() {{ mov.b32 a, {operand}; }}");
    for operand in [
        "(a == b)",
        "(a|5)",
        "(a ? 1 : 2)",
        "a+1",
        "(generic)",
        "!(p)",
        "(a*2)+1",
        "- -5",
    ] {
        survives(&body(operand));
    }
}

#[test]
fn selectors_of_video_instructions_are_kept() {
    let text = ".version 8.0 .target sm_90 .func f() { vadd4.u32.u32.u32 a.b3210, b.b7654, c.b10, d; vadd2.u32.u32.u32 a.h10, b.h32, c, d; }";
    survives(text);
    let printed = print(&parse(&Source::new("text", text)).expect("accepted"));
    assert!(
        printed.contains("a.b3210, b.b7654") && printed.contains("b.h32"),
        "{printed}"
    );
}

#[test]
fn plus_zero_in_an_address_is_kept() {
    let text = ".version 8.0 .target sm_90 .func f() { ld.b32 a, [b+0]; ld.b32 a, [b]; }";
    let printed = print(&parse(&Source::new("text", text)).expect("accepted"));
    assert!(
        printed.contains("[b+0]") && printed.contains("[b]"),
        "{printed}"
    );
}

#[test]
fn a_comment_inside_an_opcode_stands_before_the_instruction() {
    let text =
        ".version 8.0 .target sm_90 .func f() { st // where\n .global /* what */ .b32 [a], b; }";
    survives(text);
    let printed = print(&parse(&Source::new("text", text)).expect("accepted"));
    assert!(
        printed.contains("// where\n    // what\n    st.global.b32 [a], b;"),
        "{printed}"
    );
}

/// Beside blanks and parentheses, what is printed is what was read; floats are their bits.
#[test]
fn what_is_rare_is_printed_as_it_is_written() {
    let bits = ".global .f32 a[2] = {0d3FF8000000000000, 0dBFD0000000000000};";
    for (line, expected) in [
        (".global .attribute(.managed) .b32 a;", None),
        (".global .attribute(.unified(0x1, 0x2)) .b32 a;", None),
        (".global .b32 a[2] = {(1+2)*3, 1<<4};", None),
        (".global .f32 a[2] = {1.5, -0.25};", Some(bits)),
        (".func f() { ; .loc 1 2 3; ret; }", Some(".loc 1 2 3")),
        (
            ".func f() { .loc 1 2 3, function_name x, inlined_at 1 2 3; ret; }",
            Some(".loc 1 2 3, function_name x, inlined_at 1 2 3"),
        ),
        (
            ".func f() { .loc 1 2 3, function_name x+4, inlined_at 1 2 3; ret; }",
            Some(".loc 1 2 3, function_name x+4, inlined_at 1 2 3"),
        ),
    ] {
        let text = format!(".version 8.0\n.target sm_90\n.address_size 64\n{line}\n");
        survives(&text);
        let printed = print(&parse(&Source::new("text", text)).expect("accepted"));
        let plain = |text: &str| text.replace([' ', '(', ')'], "");
        let expected = plain(expected.unwrap_or(line));
        assert!(plain(&printed).contains(&expected), "{printed}");
    }
}
