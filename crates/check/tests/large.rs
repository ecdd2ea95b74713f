//! Kernels that no person writes and a generator does: looking at them takes time in
//! proportion to their length. Were it to the square of it, these tests would not end.

use heist_ptx::{Source, parse};
use std::fmt::Write as _;

/// A kernel with this body.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {{\n\
         .reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .pred %p<3>;\n\
         ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0;\n\
         {body}\nst.global.u32 [%rd1], %r2; ret; }}\n"
    )
}

fn codes(text: &str) -> Vec<String> {
    let module = parse(&Source::new("large.ptx", text)).expect("it parses");
    let wrong = heist_ptx::validate::validate(&module, None);
    assert!(wrong.is_empty(), "{}", wrong[0]);
    heist_check::check(&module)
        .iter()
        .map(|found| found.code.to_string())
        .collect()
}

#[test]
fn many_branches_share_a_table_of_many_targets() {
    let count = 20_000;
    let targets: Vec<String> = (0..count).map(|at| format!("A{at}")).collect();
    let mut body = format!("T: .branchtargets {};\nbra A0;\n", targets.join(", "));
    for at in 0..count {
        writeln!(body, "A{at}: brx.idx %r1, T;").expect("a string");
    }
    body += "bar.sync 0;";
    assert_eq!(codes(&kernel(&body)), ["X019"]);
}

#[test]
fn one_predicate_is_set_and_branched_by_many_times() {
    let mut body = String::new();
    for at in 0..20_000 {
        writeln!(
            body,
            "setp.eq.u32 %p1, %r1, {at}; @%p1 bra A{at}; add.u32 %r2, %r2, 1; A{at}:"
        )
        .expect("a string");
    }
    body += "bar.sync 0;";
    assert_eq!(codes(&kernel(&body)), Vec::<String>::new());
}

#[test]
fn values_go_against_the_order_of_the_text() {
    let count = 20_000;
    let mut body = format!(".reg .b32 %q<{}>;\nL:\n", count + 1);
    for at in 0..count {
        writeln!(body, "mov.b32 %q{at}, %q{};", at + 1).expect("a string");
    }
    writeln!(
        body,
        "mov.u32 %q{count}, %tid.x; setp.eq.u32 %p1, %q0, 3; @%p1 bra L;"
    )
    .expect("a string");
    assert_eq!(codes(&kernel(&body)), Vec::<String>::new());
}

#[test]
fn early_exits_before_many_barriers() {
    let mut body = String::new();
    for at in 0..20_000 {
        writeln!(
            body,
            "setp.eq.u32 %p1, %r1, {at}; @%p1 bra END; bar.sync 0;"
        )
        .expect("a string");
    }
    body += "END:";
    assert_eq!(codes(&kernel(&body)).len(), 20_000);
}

#[test]
fn families_of_many_registers_take_no_room() {
    let body = ".reg .b32 %big<4294967295>; .reg .v4 .f32 %v<4000000000>;\n\
                add.u32 %r2, %big4294967294, 1;";
    assert_eq!(codes(&kernel(body)), ["M013"]);
}

/// A cluster of more blocks than can be counted is a number like any other.
#[test]
fn a_cluster_has_more_blocks_than_can_be_counted() {
    let found = codes(
        ".version 8.6\n.target sm_100a\n.address_size 64\n\
         .visible .entry k() .reqnctapercluster 4294967295, 4294967295, 4294967295 {\n\
         .shared .align 16 .b8 slot[16]; .shared .align 8 .b64 bar;\n\
         clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [slot], [bar];\n\
         ret; }\n",
    );
    assert!(found.contains(&"L015".to_owned()), "{found:?}");
}

/// Every branch leads to the end of a long ladder, and back up it: paths in the dominator tree are
/// as long as the kernel.
#[test]
fn dominators_of_ladders() {
    let count = 40_000;
    let mut body = String::new();
    for at in 0..count {
        writeln!(body, "A{at}: setp.eq.u32 %p1, %r1, {at}; @%p1 bra B{at};").expect("a string");
    }
    for at in 0..count {
        let up = count - 1 - at;
        writeln!(body, "B{at}: setp.eq.u32 %p1, %r1, {at}; @%p1 bra A{up};").expect("a string");
    }
    assert_eq!(codes(&kernel(&body)), Vec::<String>::new());
}

#[test]
fn a_module_has_many_functions_and_many_variables() {
    let mut text = ".version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    for at in 0..40_000 {
        writeln!(text, ".global .u32 g{at}; .func f{at}() {{ ret; }}").expect("a string");
    }
    assert_eq!(codes(&text), Vec::<String>::new());
}

/// A guard that nothing has set is called by its name.
#[test]
fn a_guard_has_a_name() {
    let text = kernel("@%p2 add.u32 %r2, %r2, 1;");
    let module = parse(&Source::new("guard.ptx", text)).expect("it parses");
    let told = heist_check::check(&module).remove(0).message;
    assert!(told.contains("`%p2`"), "{told}");
}
