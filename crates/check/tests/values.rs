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
