//! Cluster launch control: request, wait, test, and only then decode; after a refusal, no further
//! request.

use crate::Context;
use crate::flow::{Op, Register};
use heist_ptx::isa::Control;
use heist_ptx::{AddressBase, Constant, Diagnostic, FunctionKind, Operand, Severity, rule};
use std::collections::HashSet;

/// The instructions of the protocol, by number.
struct Protocol {
    submits: Vec<usize>,
    tests: Vec<usize>,
    decodes: Vec<usize>,
}

/// L002, L003, L004, L007, L010, L011 and L015.
pub(super) fn requests(cx: &Context<'_, '_>, out: &mut Vec<Diagnostic>) {
    const QUERY: &str = "clusterlaunchcontrol.query_cancel";
    let protocol = Protocol {
        submits: cx.all(|op| op.is("clusterlaunchcontrol.try_cancel")),
        tests: cx.all(|op| op.is(QUERY) && op.has("is_canceled")),
        decodes: cx.all(|op| op.is(QUERY) && !op.has("is_canceled")),
    };
    // A function that is called may have its wait, its fence and its elected thread in its caller.
    if protocol.submits.is_empty() || cx.function().kind != FunctionKind::Entry {
        return;
    }
    out.extend(early_query(cx, &protocol));
    out.extend(decode_of_a_refusal(cx, &protocol));
    out.extend(submit_after_refusal(cx, &protocol));
    out.extend(missing_fence(cx, &protocol));
    out.extend(rank_as_offset(cx, &protocol));
    for &submit in &protocol.submits {
        out.extend(not_elected(cx, submit));
        out.extend(plain_in_cluster(cx, submit));
    }
}

/// A wait on an mbarrier, or a call: the callee may wait.
fn is_wait(op: &Op<'_>) -> bool {
    op.is("mbarrier.try_wait") || op.is("mbarrier.test_wait") || op.control() == Control::Call
}

fn early_query(cx: &Context<'_, '_>, protocol: &Protocol) -> Option<Diagnostic> {
    let unwaited = |submit: usize, query: usize| {
        let stop = |at: usize| is_wait(&cx.flow.ops[at]);
        cx.flow.graph.reaches(submit, query, stop)
    };
    let mut queries = protocol.tests.iter().chain(&protocol.decodes);
    let (query, submit) = queries.find_map(|&query| {
        let submit = protocol
            .submits
            .iter()
            .find(|&&submit| unwaited(submit, query))?;
        Some((query, *submit))
    })?;
    Some(
        Diagnostic::error(
            rule::CLC_EARLY_READ,
            cx.flow.ops[query].span(),
            "this can run before the response has arrived",
        )
        .other(
            cx.flow.ops[submit].span(),
            "requested here, with no wait on an mbarrier in between",
        )
        .help(
            "wait for the request's mbarrier (`mbarrier.try_wait.parity` in a loop) before the \
             response is loaded",
        ),
    )
}

/// The registers that hold a test's answer, their writers, and whether they mean "granted" rather
/// than "refused": the test's own predicate, its negation, and nvcc's form of a `bool` (1 or 0 by
/// `selp`, compared with 0 again).
fn answers(cx: &Context<'_, '_>, test: usize) -> Vec<(Register, usize, bool)> {
    let Some(&answer) = cx.flow.ops[test].roles.writes.first() else {
        return Vec::new();
    };
    let mut answers = vec![(answer, test, true)];
    let mut next = 0;
    while let Some(&(register, by, granted)) = answers.get(next) {
        next += 1;
        for (at, op) in cx.flow.reachable_ops() {
            let known = answers.iter().any(|&(_, known, _)| known == at);
            if known || !op.roles.reads.contains(&register) {
                continue;
            }
            let number = |place: usize| match op.instruction.operands.get(place) {
                Some(Operand::Constant(Constant::Int(int))) => Some(int.bits()),
                _ => None,
            };
            let same = match (number(1), number(2)) {
                _ if op.is("not.pred") => false,
                (Some(1), Some(0)) if op.is("selp") => true,
                (Some(0), Some(1)) if op.is("selp") => false,
                (None, Some(0)) if op.is("setp.ne") => true,
                (None, Some(0)) if op.is("setp.eq") => false,
                _ => continue,
            };
            if let [copy] = op.roles.writes[..]
                && cx.flow.definitions(register, at).contains(&by)
            {
                answers.push((copy, at, granted == same));
            }
        }
    }
    answers
}

/// What becomes of a test's answer.
struct Refusal {
    /// Where control goes when the request was refused.
    ways: Vec<usize>,
    /// Where it goes when it was granted, and from which branch.
    granted: Vec<(usize, usize)>,
    /// The branches on the answer.
    branches: Vec<usize>,
    /// The branches on a value that depends on the answer.
    passed_on: Vec<usize>,
}

impl Refusal {
    /// Whether `to` is reachable after the refusal. A second branch on the same answer takes only
    /// the refused side.
    fn reaches(&self, cx: &Context<'_, '_>, to: usize, stops: impl Fn(usize) -> bool) -> bool {
        let known = |at: usize| self.branches.contains(&at) || self.passed_on.contains(&at);
        let stops = |at: usize| known(at) || stops(at);
        self.ways
            .iter()
            .any(|&way| way == to || (!stops(way) && cx.flow.graph.reaches(way, to, &stops)))
    }
}

/// Where control goes when a test finds that the request was refused.
fn refusal(cx: &Context<'_, '_>, test: usize) -> Refusal {
    let answers = answers(cx, test);
    let mut refusal = Refusal {
        ways: Vec::new(),
        granted: Vec::new(),
        branches: Vec::new(),
        passed_on: Vec::new(),
    };
    for (at, op) in cx.flow.reachable_ops() {
        let Some(guard) = op.instruction.guard.as_ref().filter(|_| op.is("bra")) else {
            continue;
        };
        // The register may have been given another meaning since.
        let Some(&(.., granted_if)) = answers.iter().find(|&&(register, by, _)| {
            op.roles.guard == Some(register) && cx.flow.definitions(register, at).contains(&by)
        }) else {
            continue;
        };
        refusal.branches.push(at);
        let jumps_when_granted = granted_if != guard.negated;
        let block = cx.flow.graph.block_of(at);
        let behind = cx.flow.graph.range(block).end;
        for &way in cx.flow.graph.successors(block) {
            let start = cx.flow.graph.range(way).start;
            match (start == behind) == jumps_when_granted {
                true => refusal.ways.push(start),
                false => refusal.granted.push((at, start)),
            }
        }
    }
    refusal.passed_on = passed_on(cx, test, &answers, &refusal);
    refusal
}

/// The branches after a refusal whose condition depends on the answer: on a word that the granted
/// side sets, or that the refused side sets to a constant, also through shared memory. Their
/// direction is not known here; typically such a word tells other threads to leave. A count of
/// refusals is not such a word.
fn passed_on(
    cx: &Context<'_, '_>,
    test: usize,
    answers: &[(Register, usize, bool)],
    refusal: &Refusal,
) -> Vec<usize> {
    let flow = &cx.flow;
    let granted: Vec<usize> = refusal.granted.iter().map(|&(_, start)| start).collect();
    let after = |starts: &[usize]| flow.graph.reached(starts, |by| by == test);
    let (granted, refused) = (after(&granted), after(&refusal.ways));
    let decided = |at: usize| {
        let op = &flow.ops[at];
        let constant = matches!(op.instruction.operands.get(1), Some(Operand::Constant(_)));
        match (granted[at], refused[at]) {
            (true, false) => true,
            (false, true) => op.is("mov") && constant,
            _ => answers.iter().any(|&(register, by, _)| {
                by == at
                    || (op.roles.guard == Some(register)
                        && flow.definitions(register, at).contains(&by))
            }),
        }
    };
    let elsewhere = |op: &Op<'_>| {
        ["global", "param", "const", "local"]
            .iter()
            .any(|s| op.has(s))
    };
    let stores = flow.reachable_ops();
    let stores = stores.filter(|(_, op)| op.is("st") && !elsewhere(op));
    let stores: Vec<usize> = stores.map(|(at, _)| at).collect();
    // Where no answer comes from: a branch that depends on these alone need not follow them again.
    let mut without = HashSet::new();
    let mut comes_from_it = |branch: usize| {
        let mut seen = HashSet::from([branch]);
        let mut open = vec![branch];
        let mut loads = false;
        while let Some(at) = open.pop() {
            let op = &flow.ops[at];
            if at != branch && decided(at) {
                return true;
            }
            let reads = op.roles.reads.iter().chain(&op.roles.guard);
            let mut from: Vec<usize> = reads
                .flat_map(|&register| flow.definitions(register, at))
                .collect();
            if op.is("ld") && !elsewhere(op) && !std::mem::replace(&mut loads, true) {
                from.extend(&stores);
            }
            let new = from.into_iter().filter(|from| !without.contains(from));
            open.extend(new.filter(|&from| seen.insert(from)));
        }
        without.extend(seen.into_iter().filter(|&at| at != branch));
        false
    };
    let branches = flow.reachable_ops().filter(|(at, op)| {
        let open = op.is("bra") && op.roles.guard.is_some();
        open && !refusal.branches.contains(at) && refused[*at]
    });
    let found = branches.filter(|&(at, _)| comes_from_it(at));
    found.map(|(at, _)| at).collect()
}

fn decode_of_a_refusal(cx: &Context<'_, '_>, protocol: &Protocol) -> Option<Diagnostic> {
    let &decode = protocol.decodes.iter().find(|&&decode| {
        let tests = &tests_of(cx, protocol, decode);
        let guard = cx.flow.ops[decode].roles.guard;
        let guarded = guard.is_some_and(|guard| {
            tests
                .iter()
                .any(|&test| cx.flow.ops[test].roles.writes.contains(&guard))
        });
        !guarded && (tests.is_empty() || used_after_refusal(cx, tests, decode))
    })?;
    Some(
        Diagnostic::error(
            rule::CLC_DECODE_REFUSED,
            cx.flow.ops[decode].span(),
            "the block id may be decoded from a refused request",
        )
        .note(
            "what a refused response decodes to is undefined: a wild coordinate, then an illegal \
             address",
        )
        .help(
            "branch on `clusterlaunchcontrol.query_cancel.is_canceled` first, and decode only \
             where it was true",
        ),
    )
}

/// The tests of the response that a decode takes apart. Where several requests are in
/// flight, or a loop is unrolled, each response has tests of its own: those of the same
/// load, or else of a load from the same place. Without one, any test may be meant.
fn tests_of(cx: &Context<'_, '_>, protocol: &Protocol, decode: usize) -> Vec<usize> {
    let loads = slot_reads(cx, decode);
    let of = |same: &dyn Fn(usize, usize) -> bool| -> Vec<usize> {
        let tests = protocol.tests.iter().copied();
        let own = tests.filter(|&test| {
            let tested = slot_reads(cx, test);
            loads
                .iter()
                .any(|&load| tested.iter().any(|&other| same(load, other)))
        });
        own.collect()
    };
    let own = of(&|load, other| load == other);
    if !own.is_empty() {
        return own;
    }
    let near = of(&|load, other| same_place(cx, load, other));
    if near.is_empty() {
        protocol.tests.clone()
    } else {
        near
    }
}

/// Whether two loads are from the same place: the same address, made of the same values.
fn same_place(cx: &Context<'_, '_>, one: usize, other: usize) -> bool {
    let address = |at: usize| match cx.flow.ops[at].instruction.operands.get(1) {
        Some(Operand::Address(address)) => Some(address),
        _ => None,
    };
    let made_of = |at: usize| -> Vec<Vec<usize>> {
        let reads = cx.flow.ops[at].roles.reads.iter();
        reads.map(|&read| cx.flow.definitions(read, at)).collect()
    };
    match (address(one), address(other)) {
        (Some(a), Some(b)) => a == b && made_of(one) == made_of(other),
        _ => false,
    }
}

/// Whether the decoded id, or the decode itself, is reachable after a refusal. Compilers hoist the
/// decode above the test, which is harmless as long as the result of a refusal is not used.
fn used_after_refusal(cx: &Context<'_, '_>, tests: &[usize], decode: usize) -> bool {
    let before_a_test = tests
        .iter()
        .any(|&test| cx.flow.graph.dominates(decode, test));
    let ids = &cx.flow.ops[decode].roles.writes;
    let uses = cx.all(|op| op.roles.reads.iter().any(|read| ids.contains(read)));
    let points: &[usize] = if before_a_test { &uses } else { &[decode] };
    let untested = !before_a_test
        && !tests
            .iter()
            .any(|&test| cx.flow.graph.dominates(test, decode));
    let stops = |at: usize| at == decode || tests.contains(&at);
    let refused = |&test: &usize| {
        let refusal = refusal(cx, test);
        points.iter().any(|&to| refusal.reaches(cx, to, stops))
    };
    untested || (before_a_test && accessed_with(cx, tests, decode)) || tests.iter().any(refused)
}

/// Whether a memory access depends on the decoded id before any test. Arithmetic
/// on a wild coordinate does no harm; an access with it does.
fn accessed_with(cx: &Context<'_, '_>, tests: &[usize], decode: usize) -> bool {
    let stops = |at: usize| tests.contains(&at);
    let mut seen = HashSet::from([decode]);
    let mut open = vec![decode];
    while let Some(from) = open.pop() {
        for (at, op) in cx.flow.reachable_ops() {
            let depends = || {
                op.roles.reads.iter().any(|read| {
                    cx.flow.ops[from].roles.writes.contains(read)
                        && cx.flow.definitions(*read, at).contains(&from)
                })
            };
            if seen.contains(&at) || !depends() || !cx.flow.graph.reaches(decode, at, stops) {
                continue;
            }
            if matches!(op.instruction.opcode.base(), "ld" | "st" | "atom" | "red") {
                return true;
            }
            seen.insert(at);
            open.push(at);
        }
    }
    false
}

fn submit_after_refusal(cx: &Context<'_, '_>, protocol: &Protocol) -> Option<Diagnostic> {
    let (submit, test) = protocol.tests.iter().find_map(|&test| {
        let refusal = refusal(cx, test);
        let after = |submit: usize| refusal.reaches(cx, submit, |_| false);
        let submit = protocol.submits.iter().find(|&&submit| after(submit))?;
        Some((*submit, test))
    })?;
    Some(
        Diagnostic::error(
            rule::CLC_AFTER_REFUSAL,
            cx.flow.ops[submit].span(),
            "a request can be submitted after a refusal was observed",
        )
        .other(cx.flow.ops[test].span(), "the refusal is observed here")
        .help(
            "leave the loop for good when a request is refused: blocks that were not stolen are \
             launched by the hardware",
        ),
    )
}

fn missing_fence(cx: &Context<'_, '_>, protocol: &Protocol) -> Option<Diagnostic> {
    let fences = |at: usize| {
        let op = &cx.flow.ops[at];
        let opcode = &op.instruction.opcode;
        let asynchronous = || opcode.modifiers().any(|m| m.starts_with("async"));
        opcode.starts_with("fence.proxy") && asynchronous() || op.control() == Control::Call
    };
    let (submit, read) = protocol.tests.iter().find_map(|&test| {
        let refusal = refusal(cx, test);
        let graph = &cx.flow.graph;
        // After the branch on the answer, or before it; the refused side makes no more requests.
        let unfenced = |read: usize, submit: usize| {
            let untold = |at: usize| fences(at) || refusal.branches.contains(&at);
            let before = |branch: usize| graph.reaches(read, branch, fences);
            let mut granted = refusal.granted.iter();
            graph.reaches(read, submit, untold)
                || granted.any(|&(branch, way)| {
                    before(branch)
                        && (way == submit || !fences(way) && graph.reaches(way, submit, fences))
                })
                || refusal.branches.iter().any(|&branch| before(branch))
                    && refusal.reaches(cx, submit, fences)
        };
        slot_reads(cx, test).into_iter().find_map(|read| {
            let mut submits = protocol.submits.iter();
            let other = |submit: usize| {
                let slots = (
                    fixed_place(&cx.flow.ops[read], 1),
                    fixed_place(&cx.flow.ops[submit], 0),
                );
                matches!(slots, (Some(one), Some(other)) if one != other)
            };
            let submit = submits.find(|&&submit| !other(submit) && unfenced(read, submit))?;
            Some((*submit, read))
        })
    })?;
    Some(
        Diagnostic::error(
            rule::CLC_PROXY_FENCE,
            cx.flow.ops[submit].span(),
            "the next response may overwrite the slot before the last one was read from it",
        )
        .other(
            cx.flow.ops[read].span(),
            "the last response is read here, through the generic proxy",
        )
        .help(
            "put `fence.proxy.async.shared::cta;` behind the read of the response, in the reading \
             thread, before the next request",
        ),
    )
}

/// The loads that a test's response comes from, through the `mov`s that put its
/// parts together (nvcc makes the 128 bits out of two halves, and those out of
/// four words); the test itself where they can't be found.
fn slot_reads(cx: &Context<'_, '_>, test: usize) -> Vec<usize> {
    let mut seen = HashSet::from([test]);
    let (mut open, mut loads) = (vec![test], Vec::new());
    while let Some(at) = open.pop() {
        for &read in &cx.flow.ops[at].roles.reads {
            for from in cx.flow.definitions(read, at) {
                if !seen.insert(from) {
                    continue;
                }
                if cx.flow.ops[from].is("ld") {
                    loads.push(from);
                } else if cx.flow.ops[from].is("mov") {
                    open.push(from);
                }
            }
        }
    }
    if loads.is_empty() { vec![test] } else { loads }
}

/// The variable that an operand is an address in, and the bytes from its start, where no register counts.
fn fixed_place<'a>(op: &'a Op<'_>, operand: usize) -> Option<(&'a str, i64)> {
    match op.instruction.operands.get(operand)? {
        Operand::Address(address) => match &address.base {
            AddressBase::Name(name) if op.roles.register_named(name).is_none() => {
                Some((name, address.offset))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The axis of a coordinate that a decode writes to a register.
fn decoded_axis(op: &Op<'_>, register: Register) -> Option<usize> {
    let axes = ["x", "y", "z"];
    let opcode = &op.instruction.opcode;
    let named = |axis: &&str| opcode.has(&format!("get_first_ctaid::{axis}"));
    axes.iter()
        .position(named)
        .or_else(|| op.roles.writes.iter().position(|&write| write == register))
}

/// The linear rank added to a decoded coordinate: right only where all blocks of
/// a cluster lie along that axis.
fn rank_as_offset(cx: &Context<'_, '_>, protocol: &Protocol) -> Option<Diagnostic> {
    let is_rank = |at: usize| {
        let operands = &cx.flow.ops[at].instruction.operands;
        matches!(operands.get(1), Some(Operand::Name(name)) if name == "%cluster_ctarank")
    };
    let comes_from = |at: usize, wanted: &dyn Fn(usize) -> bool| {
        let mut reads = cx.flow.ops[at].roles.reads.iter();
        reads.any(|&read| cx.flow.definitions(read, at).into_iter().any(wanted))
    };
    let dims = cx
        .directive("reqnctapercluster")
        .filter(|dims| !dims.is_empty());
    // The rank is the offset along an axis where the cluster has no other.
    let lies_along = |axis: usize| {
        dims.map(|dims| {
            let mut others = dims.iter().enumerate().filter(|&(at, _)| at != axis);
            others.all(|(_, &blocks)| blocks == 1)
        })
    };
    let axis_of = |at: usize| {
        let reads = cx.flow.ops[at].roles.reads.iter();
        reads.copied().find_map(|read| {
            let writers = cx.flow.definitions(read, at).into_iter();
            let decode = writers
                .into_iter()
                .find(|by| protocol.decodes.contains(by))?;
            decoded_axis(&cx.flow.ops[decode], read)
        })
    };
    let (sum, axis, known) = cx.all(|op| op.is("add")).into_iter().find_map(|at| {
        let axis = axis_of(at).filter(|_| comes_from(at, &is_rank))?;
        let known = lies_along(axis);
        (known != Some(true)).then_some((at, axis, known))
    })?;
    let letter = ["x", "y", "z"][axis.min(2)];
    let (severity, message) = match known {
        Some(_) => (
            Severity::Error,
            format!(
                "the block's linear rank is added to {letter}, and the cluster does not lie along {letter} alone"
            ),
        ),
        None => (
            Severity::Warning,
            format!(
                "the block's linear rank is added to {letter}, which is wrong for a cluster that does not lie along {letter} alone"
            ),
        ),
    };
    let mut diagnostic = Diagnostic::error(rule::CLC_OFFSET, cx.flow.ops[sum].span(), message);
    diagnostic.severity = severity;
    Some(
        diagnostic
            .note("the id is that of the cluster's block (0,0,0); each block is off from it in every dimension")
            .help("add `%cluster_ctaid.x` to x, `%cluster_ctaid.y` to y and `%cluster_ctaid.z` to z"),
    )
}

/// A request that every thread of a warp submits: N submitters, N requests.
fn not_elected(cx: &Context<'_, '_>, submit: usize) -> Option<Diagnostic> {
    let op = &cx.flow.ops[submit];
    let laned = |at: usize| cx.uniformity.guard_is_laned(cx.flow, at);
    let home = cx.flow.graph.block_of(submit);
    let under_a_branch = cx.flow.reachable_ops().any(|(at, branch)| {
        let block = cx.flow.graph.block_of(at);
        branch.is("bra")
            && laned(at)
            && cx
                .flow
                .graph
                .between(block, cx.flow.graph.join_of(block))
                .contains(&home)
    });
    if laned(submit) || under_a_branch {
        return None;
    }
    Some(
        Diagnostic::warning(
            rule::CLC_NOT_ELECTED,
            op.span(),
            "every thread that comes here submits a request",
        )
        .note("N submitters cancel N clusters, and need N slots and matching byte counts")
        .help("let one thread submit: `elect.sync`, or `%tid.x == 0`"),
    )
}

/// Whether something is sent to a peer after the request: it may be the answer.
fn hands_on(cx: &Context<'_, '_>, submit: usize) -> bool {
    let sends = cx.all(|op| {
        let opcode = &op.instruction.opcode;
        matches!(opcode.base(), "st" | "red" | "atom" | "cp")
            && opcode.modifiers().any(|m| m == "shared::cluster")
            && !opcode.modifiers().any(|m| m == "global")
    });
    let after = |&send: &usize| cx.flow.graph.reaches(submit, send, |_| false);
    sends.iter().any(after)
}

fn plain_in_cluster(cx: &Context<'_, '_>, submit: usize) -> Option<Diagnostic> {
    let op = &cx.flow.ops[submit];
    let blocks: u64 = cx.directive("reqnctapercluster").map_or(1, |dims| {
        dims.iter().fold(1, |all, &dim| all.saturating_mul(dim))
    });
    if blocks < 2 || op.has("multicast::cluster::all") || hands_on(cx, submit) {
        return None;
    }
    Some(
        Diagnostic::warning(
            rule::CLC_PLAIN_IN_CLUSTER,
            op.span(),
            format!("the response goes to this block alone, in a cluster of {blocks}"),
        )
        .note(
            "the other blocks would read a slot that nothing wrote: a wild coordinate, then an \
             illegal address",
        )
        .help(
            "use `.multicast::cluster::all` (a target such as sm_100a), with every block's \
             mbarrier armed, or hand the response on through distributed shared memory",
        ),
    )
}
