//! What the checker knows of values without running anything: remainders of addresses,
//! where pointers point, and whether the lanes of a warp agree.

use heist_check::check;
use heist_check::log::{TextKind, recognise};
use heist_ptx::{Diagnostic, Severity, Source, parse, rule};

/// What is found in a kernel with this body. `%t` is a number that nobody knows.
fn found(body: &str) -> Vec<Diagnostic> {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {{\n\
         .shared .align 16 .b8 s[256]; .local .align 16 .b8 l[512];\n\
         .reg .b32 %t, %a, %b, %c, %d, %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;\n\
         mov.u32 %t, %tid.x; ld.param.u64 %rd0, [p]; ld.global.u64 %rd8, [%rd0];\n\
         {body}\nret; }}\n"
    );
    check(&parse(&Source::new("values.ptx", text)).unwrap_or_else(|_| panic!("{body}")))
}

#[test]
fn remainders_of_addresses_are_followed() {
    const READ: &str = "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%a];";
    for (body, remainder) in [
        ("mov.u32 %a, s;", None),
        ("mov.u32 %a, s+4;", Some((4, 16))),
        ("mov.u32 %a, %t;", None),
        ("mov.u32 %b, s; add.u32 %a, %b, 8;", Some((8, 16))),
        ("mov.u32 %b, s; add.u32 %a, 8, %b;", Some((8, 16))),
        ("mov.u32 %b, s; add.u32 %a, %b, 32;", None),
        ("mov.u32 %b, s; sub.u32 %a, %b, 4;", Some((12, 16))),
        ("mov.u32 %b, s; add.u32 %a, %b, %t;", None),
        ("shl.b32 %b, %t, 4; add.u32 %a, %b, 4;", Some((4, 16))),
        ("shl.b32 %b, %t, 2; add.u32 %a, %b, 2;", Some((2, 4))),
        ("shl.b32 %b, %t, %t; add.u32 %a, %b, 4;", None),
        ("shl.b32 %b, %t, 3; or.b32 %a, %b, 4;", Some((4, 8))),
        ("shl.b32 %b, %t, 3; or.b32 %a, 4, %b;", Some((4, 8))),
        ("or.b32 %a, %t, 1;", Some((1, 2))),
        ("mul.lo.u32 %b, %t, 16; add.u32 %a, %b, 4;", Some((4, 16))),
        ("mul.lo.u32 %b, %t, 12; add.u32 %a, %b, 2;", Some((2, 4))),
        ("mul.hi.u32 %b, %t, 16; add.u32 %a, %b, 4;", None),
        ("mad.lo.u32 %a, %t, 8, 2;", Some((2, 8))),
        ("mad.hi.u32 %a, %t, 8, 2;", None),
        (
            "and.b32 %b, %t, 0xfffffff0; add.u32 %a, %b, 8;",
            Some((8, 16)),
        ),
        (
            "and.b32 %b, 0xfffffff0, %t; add.u32 %a, %b, 8;",
            Some((8, 16)),
        ),
        (
            "mov.u32 %b, s+6; and.b32 %a, %b, 0xfffffffc;",
            Some((4, 16)),
        ),
        (
            "mov.u32 %b, s+4; mov.u32 %c, s+12; setp.eq.u32 %p1, %t, 0; selp.b32 %a, %b, %c, %p1;",
            Some((4, 8)),
        ),
        (
            "mov.u32 %b, s+4; mov.u32 %c, s; setp.eq.u32 %p1, %t, 0; selp.b32 %a, %b, %c, %p1;",
            None,
        ),
        // The value is written behind where it is read.
        (
            "bra M;\nL: mov.u32 %a, %b; bra N;\nM: mov.u32 %b, s+4; bra L;\nN:",
            Some((4, 16)),
        ),
        // Each round of a loop adds to it.
        (
            "mov.u32 %a, s+2;\nL: add.u32 %a, %a, 4; setp.lt.u32 %p1, %a, %t; @%p1 bra L;",
            Some((2, 4)),
        ),
    ] {
        let notes: Vec<String> = found(&format!("{body}\n{READ}"))
            .into_iter()
            .filter(|found| found.code == rule::MISALIGNED)
            .flat_map(|found| found.notes)
            .collect();
        let expected = remainder
            .map(|(off, modulus)| format!("it is always {off} more than a multiple of {modulus}"));
        assert_eq!(notes, Vec::from_iter(expected), "{body}");
    }
}

#[test]
fn pointers_into_local_memory_are_followed() {
    let fragment = "wmma.load.a.sync.aligned.row.m16n16k16.f16 \
                    {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd3], 16;";
    use Severity::{Error, Warning};
    for (body, severity) in [
        ("mov.u64 %rd1, l; cvta.local.u64 %rd3, %rd1;", Some(Error)),
        (
            "mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1; add.u64 %rd3, %rd2, %rd8;",
            Some(Error),
        ),
        (
            "mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1; add.u64 %rd3, %rd8, %rd2;",
            Some(Error),
        ),
        (
            "mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1; add.u64 %rd3, %rd2, 32;",
            Some(Error),
        ),
        ("mov.u64 %rd1, s; cvta.shared.u64 %rd3, %rd1;", None),
        ("mov.u64 %rd3, %rd8;", None),
        (
            "mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1; mov.u64 %rd4, s; cvta.shared.u64 %rd5, %rd4;\n\
             setp.eq.u32 %p1, %t, 0; selp.b64 %rd3, %rd2, %rd5, %p1;",
            Some(Warning),
        ),
        (
            "mov.u64 %rd1, l; cvta.local.u64 %rd2, %rd1; cvta.const.u64 %rd5, %rd8;\n\
             setp.eq.u32 %p1, %t, 0; selp.b64 %rd3, %rd2, %rd5, %p1;",
            Some(Warning),
        ),
    ] {
        let found = found(&format!("{body}\n{fragment}"));
        let told = found.iter().find(|found| found.code == rule::TENSOR_LOCAL);
        assert_eq!(told.map(|found| found.severity), severity, "{body}");
    }
}

#[test]
fn lanes_that_part_are_known() {
    for (body, part) in [
        ("setp.eq.u32 %p1, %t, 0;", true),
        ("mov.u32 %a, %ctaid.x; setp.eq.u32 %p1, %a, 0;", false),
        ("mov.u32 %a, %laneid; setp.eq.u32 %p1, %a, 0;", true),
        ("mov.u32 %a, %lanemask_lt; setp.eq.u32 %p1, %a, 0;", true),
        ("mov.u32 %a, %warpid; setp.eq.u32 %p1, %a, 0;", false),
        ("shr.u32 %a, %t, 5; setp.eq.u32 %p1, %a, 0;", false),
        ("shr.u32 %a, %t, 4; setp.eq.u32 %p1, %a, 0;", true),
        ("and.b32 %a, %t, 31; setp.eq.u32 %p1, %a, 0;", true),
        ("and.b32 %a, %t, 48; setp.eq.u32 %p1, %a, 0;", true),
        ("and.b32 %a, %t, 32; setp.eq.u32 %p1, %a, 0;", false),
        ("div.u32 %a, %t, 32; setp.eq.u32 %p1, %a, 0;", false),
        ("div.u32 %a, %t, 64; setp.eq.u32 %p1, %a, 0;", false),
        ("div.u32 %a, %t, 48; setp.eq.u32 %p1, %a, 0;", true),
        ("setp.lt.u32 %p1, %t, 32;", false),
        ("setp.ge.u32 %p1, %t, 64;", false),
        ("setp.lt.u32 %p1, %t, 33;", true),
        ("setp.gt.u32 %p1, %t, 32;", true),
        ("setp.le.u32 %p1, %t, 32;", true),
        ("setp.ne.u32 %p1, %t, 32;", true),
        (
            "shfl.sync.idx.b32 %a, %t, 0, 31, -1; setp.eq.u32 %p1, %a, 0;",
            false,
        ),
        (
            "shfl.sync.down.b32 %a, %t, 1, 31, -1; setp.eq.u32 %p1, %a, 0;",
            true,
        ),
        (
            "setp.eq.u32 %p2, %t, 0; vote.sync.any.pred %p1, %p2, -1;",
            false,
        ),
        ("elect.sync %a|%p1, -1;", true),
        ("ld.shared.u32 %a, [s]; setp.eq.u32 %p1, %a, 0;", false),
    ] {
        let found = found(&format!("{body}\n@%p1 bar.sync 0;"));
        let told = found
            .iter()
            .any(|found| found.code == rule::DIVERGENT_BARRIER);
        assert_eq!(told, part, "{body}");
    }
}

#[test]
fn logs_are_recognised_by_one_line() {
    for (text, kind) in [
        ("=========\n", None),
        ("COMPUTE-SANITIZER is a tool", None),
        ("========= COMPUTE-SANITIZER\n", Some(TextKind::Sanitizer)),
        ("ptxas info    : 0 bytes gmem", Some(TextKind::Assembler)),
        ("ptxas warning : something", Some(TextKind::Assembler)),
        ("ptxas error   : something", Some(TextKind::Assembler)),
        ("ptxas fatal   : something", Some(TextKind::Assembler)),
        (
            "ptxas application ptx input, line 3; error",
            Some(TextKind::Assembler),
        ),
        (
            "    8 bytes stack frame, 0 bytes of something",
            Some(TextKind::Assembler),
        ),
        ("    0 bytes spill stores", Some(TextKind::Assembler)),
        (
            "warning: cannot perform wmma load or store on local memory",
            Some(TextKind::Assembler),
        ),
        ("the object was serialized", None),
    ] {
        assert_eq!(recognise(text), kind, "{text}");
    }
}

/// The codes and remedies that are found in a module of this target.
fn told(target: &str, items: &str) -> Vec<(&'static str, String)> {
    let text = format!(".version 8.6\n.target {target}\n.address_size 64\n{items}\n");
    let source = Source::new("module.ptx", text);
    let found = check(&parse(&source).unwrap_or_else(|errors| panic!("{items}: {errors:?}")));
    let told = |one: &Diagnostic| (one.code.0, one.helps.join("; "));
    found.iter().map(told).collect()
}

#[test]
fn a_misaligned_access_is_told_what_to_mend() {
    for (body, remedy) in [
        (
            "mov.u32 %a, s; ld.shared.u32 %r1, [%a+2];",
            Some("the offset 2 "),
        ),
        (
            "mov.u32 %a, s+2; ld.shared.u32 %r1, [%a];",
            Some("align the variable"),
        ),
        (
            "mov.u32 %a, s+2; ld.shared.u32 %r1, [%a+4];",
            Some("align the variable"),
        ),
        ("mov.u32 %a, s; ld.shared.u32 %r1, [%a+4];", None),
        (
            "mov.u32 %a, s+2; atom.shared.add.u32 %r1, [%a], 1;",
            Some("align the variable"),
        ),
        ("mov.u32 %a, s+4; atom.shared.add.u32 %r1, [%a], 1;", None),
        (
            "mov.u32 %a, s+4; atom.shared.exch.b64 %rd1, [%a], %rd8;",
            Some("align the variable"),
        ),
    ] {
        let helps: Vec<String> = found(body)
            .iter()
            .filter(|one| one.code == rule::MISALIGNED)
            .map(|one| one.helps.join("; "))
            .collect();
        assert_eq!(
            helps.len(),
            usize::from(remedy.is_some()),
            "{body}: {helps:?}"
        );
        let begins = remedy.is_none_or(|remedy| helps[0].starts_with(remedy));
        assert!(begins, "{body}: {helps:?}");
    }
}

/// A conversion that names another space than the pointer's does not hide whose memory it is.
#[test]
fn a_pointer_stays_in_the_memory_of_its_variable() {
    let load = |converted: &str| {
        let body = format!(
            "{converted} wmma.load.a.sync.aligned.row.m16n16k16.f16 \
             {{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}}, [%rd2], %r8;"
        );
        let found = found(&format!("mov.u32 %r8, 16; {body}"));
        found.iter().any(|one| one.code.0 == "T001")
    };
    assert!(load("cvta.local.u64 %rd2, l;"));
    assert!(load("cvta.local.u64 %rd1, l; cvta.shared.u64 %rd2, %rd1;"));
    assert!(!load("cvta.shared.u64 %rd2, s;"));
}

#[test]
fn only_a_copy_of_an_accumulator_is_free_while_a_wgmma_runs() {
    for (use_, wrong) in [
        ("mov.f32 e, c0;", false),
        ("neg.f32 e, c0;", true),
        ("mov.b64 w, {c0, c1};", true),
        ("add.f32 e, e, c0;", true),
        ("neg.f32 e, other;", false),
    ] {
        let found = told(
            "sm_90a",
            &format!(
                ".visible .entry k(.param .u64 p) {{ .reg .f32 c<4>, e, other; .reg .b64 d, w, q;\n\
                 ld.param.u64 q, [p]; mov.b64 d, 0; mov.f32 e, 0f00000000; mov.f32 other, e;\n\
                 wgmma.fence.sync.aligned;\n\
                 wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{c0, c1, c2, c3}}, d, d, 0, 1, 1, 0, 0;\n\
                 wgmma.commit_group.sync.aligned;\n{use_}\n\
                 wgmma.wait_group.sync.aligned 0;\n\
                 st.global.f32 [q], c0; st.global.f32 [q], e; ret; }}"
            ),
        );
        assert_eq!(
            found.iter().any(|&(code, _)| code == "T003"),
            wrong,
            "{use_}: {found:?}"
        );
    }
}

/// What a kernel that calls a function leaves open, that function may close; and a function's
/// caller may free what it allocates.
#[test]
fn tensor_memory_is_followed_in_kernels_without_calls_alone() {
    let allocate = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;\n\
                    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;";
    let slot = ".shared .align 4 .b32 slot;";
    let other = ".func other() { ret; }";
    for (items, leaks) in [
        (
            format!("{slot} .visible .entry k() {{ {allocate} ret; }}"),
            true,
        ),
        (
            format!("{slot} {other} .visible .entry k() {{ {allocate} call other; ret; }}"),
            false,
        ),
        (
            format!("{slot} .visible .func f() {{ {allocate} ret; }}"),
            false,
        ),
    ] {
        let found = told("sm_100a", &items);
        assert_eq!(
            found.iter().any(|&(code, _)| code == "T105"),
            leaks,
            "{items}: {found:?}"
        );
    }
}

#[test]
fn a_kernel_of_more_than_a_few_instructions_is_not_cut_to_its_trap() {
    for (before, cut) in [(0, true), (15, true), (16, false)] {
        let body = "add.u32 a, a, 1;\n".repeat(before);
        let text = format!(".visible .entry k() {{ .reg .u32 a; {body} trap; }}");
        let found = told("sm_80", &text);
        assert_eq!(
            found.iter().any(|&(code, _)| code == "T013"),
            cut,
            "{before}: {found:?}"
        );
    }
}

#[test]
fn code_behind_a_trap_and_code_without_an_effect_are_no_mistake() {
    for (body, dead) in [
        ("trap; add.u32 a, a, 1; bar.sync 0; ret;", false),
        ("ret; add.u32 a, a, 1; bar.sync 0; ret;", true),
        ("ret; bar.sync 0; trap; ret;", true),
        ("ret; add.u32 a, a, 1; add.u32 a, a, 1; ret;", false),
    ] {
        let found = told(
            "sm_80",
            &format!(".visible .entry k() {{ .reg .u32 a; mov.u32 a, 0; {body} }}"),
        );
        assert_eq!(
            found.iter().any(|&(code, _)| code == "X019"),
            dead,
            "{body}: {found:?}"
        );
    }
}
