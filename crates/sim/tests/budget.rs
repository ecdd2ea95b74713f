//! A launch that asks for too much is refused before it takes it.

use heist_launch::{Arg, Arguments, Dim3, Launch};
use heist_ptx::{Code, rule};
use heist_sim::{Budget, Device, Options, Program};

/// The codes of what a launch finds, or is refused for.
fn codes(text: &str, launch: &Launch, budget: Budget) -> Vec<Code> {
    let source = heist_ptx::Source::new("budget.ptx", text);
    let module = heist_ptx::parse(&source).unwrap();
    let device = Device::named("sim:h200").unwrap();
    let options = Options {
        budget,
        ..Options::default()
    };
    let program = match Program::new(module) {
        Ok(program) => program,
        Err(errors) => return errors.iter().map(|error| error.code).collect(),
    };
    let none = Arguments::default();
    let found = match program.run(&device, "k", launch, &none, &options) {
        Ok(report) => report.diagnostics,
        Err(errors) => errors,
    };
    found.iter().map(|error| error.code).collect()
}

fn module(variables: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n{variables}\n.visible .entry k() {{\n{body}\nret;\n}}\n"
    )
}

fn refused(variables: &str, body: &str) -> Vec<Code> {
    codes(
        &module(variables, body),
        &Launch::new(1, 1),
        Budget::default(),
    )
}

#[test]
fn a_block_of_too_many_threads_is_refused() {
    for block in [Dim3::new(u32::MAX, 1, 1), Dim3::new(1025, u32::MAX, 9)] {
        let launch = Launch {
            block,
            ..Launch::new(1, 1)
        };
        let found = codes(&module("", ""), &launch, Budget::default());
        assert!(!found.is_empty());
        assert!(
            found.iter().all(|&code| code == rule::BLOCK_SIZE),
            "{found:?}"
        );
    }
}

#[test]
fn variables_count_in_the_budget_before_they_are_allocated() {
    for variable in [
        ".global .b8 s[1000000000000];",
        ".global .b64 s[1000000000000000000];",
        ".const .b8 s[1000000000000];",
        ".global .align 1073741824 .b8 a[3000000000]; .global .b8 s[3000000000];",
    ] {
        let found = refused(variable, "");
        assert_eq!(found, [rule::MEMORY_BUDGET], "{variable}");
    }
}

#[test]
fn sizes_of_a_function_do_not_wrap() {
    assert_eq!(
        refused("", ".shared .b64 s[2305843009213693951];"),
        [rule::STATIC_SHARED]
    );
    assert_eq!(
        refused("", ".local .b8 a[3000000000]; .local .b8 b[3000000000];"),
        [rule::LOCAL_LIMIT]
    );
}

#[test]
fn the_timeline_of_many_blocks_counts() {
    let budget = Budget {
        memory: 1 << 20,
        ..Budget::default()
    };
    let found = codes(&module("", ""), &Launch::new(1 << 20, 32), budget);
    assert_eq!(found, [rule::MEMORY_BUDGET]);
}

#[test]
fn stacks_that_grow_count() {
    let text = "
        .version 8.0
        .target sm_90
        .address_size 64
        .func deep(.reg .b32 n) {
            .local .align 4 .b8 box[4096];
            .reg .b32 %r<40>;
            .reg .pred %p;
            setp.eq.u32 %p, n, 0;
            @%p ret;
            sub.u32 %r1, n, 1;
            call deep, (%r1);
            ret;
        }
        .visible .entry k() {
            .reg .b32 n;
            mov.u32 n, 100;
            call deep, (n);
            ret;
        }";
    let budget = Budget {
        memory: 8 << 20,
        ..Budget::default()
    };
    let few = Launch::new(1, 1);
    assert_eq!(codes(text, &few, Budget::default()), []);
    let found = codes(text, &few, budget);
    assert_eq!(found, [rule::MEMORY_BUDGET]);
}

#[test]
fn a_kernel_without_its_dynamic_shared_memory_ends_at_once() {
    // It waits for a barrier that it could not initialise.
    let text = module(
        ".extern .shared .align 16 .b8 dynamic[];",
        ".reg .b32 %r<2>; .reg .pred %p;
         mov.u32 %r1, dynamic;
         mbarrier.init.shared.b64 [%r1], 1;
         AGAIN: mbarrier.try_wait.parity.shared.b64 %p, [%r1], 0;
         @!%p bra AGAIN;",
    );
    let found = codes(&text, &Launch::new(4, 32), Budget::default());
    assert!(found.contains(&rule::DYNAMIC_SHARED_MISSING), "{found:?}");
    assert!(!found.contains(&rule::TIME_BUDGET), "{found:?}");
}

/// Calls through one prototype share the functions that it may mean: a list for each call would
/// take room and time by the square.
#[test]
fn many_indirect_calls_of_many_functions() {
    let names = 0..8_000;
    let functions: String = names
        .clone()
        .map(|at| format!(".func f{at}() {{ ret; }}\n"))
        .collect();
    let calls: String = names
        .map(|at| format!("mov.u64 d, f{at}; call d, (), P;\n"))
        .collect();
    let body = format!(".reg .u64 d;\nP: .callprototype _ ();\n{calls}");
    assert_eq!(refused(&functions, &body), []);
}

/// The limit of time holds where a lone warp never waits for anybody, and every instruction takes
/// longer than the one before: each copy is compared with all that are in flight.
#[test]
fn copies_without_end_are_stopped() {
    let variables = ".global .align 16 .b8 there[16];";
    let body = ".reg .u32 a; .reg .u64 d; .shared .align 16 .b8 s[16];
        mov.u32 a, s; mov.u64 d, there;
        L: cp.async.bulk.global.shared::cta.bulk_group [d], [a], 16; bra L;";
    let budget = Budget {
        wall_ms: 300,
        ..Budget::default()
    };
    let launch = Launch::new(1, 32);
    let found = codes(&module(variables, body), &launch, budget);
    assert!(found.contains(&rule::TIME_BUDGET), "{found:?}");
}

#[test]
fn what_is_under_way_does_not_outlast_the_time() {
    // Few instructions and many copies: the clock is looked at between their ends, too.
    const COPIES: usize = 192;
    let mut copies = String::new();
    for turn in 0..COPIES / 32 {
        let at = turn * 512;
        copies += &format!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+{at}], [d+{at}], 16, [b];\n"
        );
    }
    let bytes = COPIES * 16;
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out) {{\n\
         .reg .u32 t, s, b, v; .reg .u64 d, o; .reg .pred p; .shared .align 16 .b8 boxes[{bytes}]; .shared .b64 bar;\n\
         ld.param.u64 d, [in]; ld.param.u64 o, [out]; mov.u32 t, %tid.x; mov.u32 s, boxes; mov.u32 b, bar;\n\
         mad.wide.u32 d, t, 16, d; mad.lo.u32 s, t, 16, s; mad.wide.u32 o, t, 4, o; setp.eq.u32 p, t, 0;\n\
         @p mbarrier.init.shared.b64 [b], 1; @p fence.mbarrier_init.release.cluster;\n\
         @p mbarrier.arrive.expect_tx.shared.b64 _, [b], {bytes}; bar.sync 0;\n{copies}\
         WAIT: mbarrier.try_wait.parity.shared.b64 p, [b], 0; @!p bra WAIT;\n\
         ld.shared.u32 v, [s]; st.global.u32 [o], v; ret; }}\n"
    );
    let source = heist_ptx::Source::new("copies.ptx", text);
    let program = Program::new(heist_ptx::parse(&source).unwrap()).unwrap();
    let device = Device::named("sim:h200").unwrap();
    let copied = |wall_ms| {
        let options = Options {
            budget: Budget {
                wall_ms,
                ..Budget::default()
            },
            ..Options::default()
        };
        let arguments = Arguments::new([Arg::input(&[1u32; 4 * COPIES]), Arg::in_out(&[0u32; 32])]);
        let report = program
            .run(&device, "k", &Launch::new(1, 32), &arguments, &options)
            .unwrap();
        let found: Vec<Code> = report.diagnostics.iter().map(|one| one.code).collect();
        let out = report.outcome.output(1).unwrap().to_vec::<u32>().unwrap();
        (found, out.iter().sum::<u32>())
    };
    assert_eq!(copied(Budget::default().wall_ms), (vec![], 32));
    assert_eq!(copied(0), (vec![rule::TIME_BUDGET], 0));
}
