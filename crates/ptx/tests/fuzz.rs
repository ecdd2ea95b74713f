//! Nothing that can be typed makes the parser panic, loop or blow the stack;
//! and what it accepts, it prints and reads back as the same module.
//!
//! Inputs are made by cutting, repeating, swapping and breaking pieces of real
//! PTX, and by throwing tokens together. `cargo xtask fuzz 10000000` runs as
//! many as wanted; the test runs a short version. A failing input is printed
//! with its seed, and `HEIST_FUZZ_SEED` repeats it.

use fastrand::Rng;
use heist_ptx::{Source, parse, print, validate::validate};
use std::fs;

/// Texts that inputs are cut from: rich in syntax, short.
const SEEDS: &[&str] = &[
    include_str!("seeds/directives.ptx"),
    include_str!("seeds/operands.ptx"),
    include_str!("seeds/debug.ptx"),
];

/// Words that a lexer or a parser may trip over.
const TOKENS: &[&str] = &[
    ".version",
    ".target",
    ".address_size",
    ".entry",
    ".func",
    ".visible",
    ".extern",
    ".weak",
    ".reg",
    ".param",
    ".shared",
    ".global",
    ".const",
    ".local",
    ".align",
    ".ptr",
    ".b8",
    ".b32",
    ".u64",
    ".f32",
    ".pred",
    ".v4",
    ".section",
    ".file",
    ".loc",
    ".pragma",
    ".alias",
    ".attribute",
    ".branchtargets",
    ".callprototype",
    ".maxntid",
    "function_name",
    "inlined_at",
    "generic",
    "WARP_SZ",
    "_",
    "%r1",
    "%tid",
    ".x",
    "$L",
    "sm_90",
    "add.s32",
    "call",
    "bra",
    "ld.global.v4.f32",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "<<",
    ">>",
    "<=",
    "==",
    "!=",
    "&&",
    "||",
    "!",
    "~",
    "?",
    ":",
    "::",
    ";",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "&",
    "|",
    "@",
    "=",
    "//",
    "/*",
    "*/",
    "\"",
    "\\",
    "\n",
    "\r\n",
    "\0",
    "é",
    "0",
    "1",
    "07",
    "08",
    "0x",
    "0xFF",
    "0b2",
    "0f3F800000",
    "0f3F8",
    "0d3FF0000000000000",
    "1.5",
    "1e9",
    "1e+999",
    "1.",
    "8.0",
    "99999999999999999999",
    "4294967296",
    "18446744073709551615U",
    ".shared::cluster",
    ".",
    "..",
];

#[test]
fn mutated_inputs_are_survived() {
    let inputs: u64 = variable("HEIST_FUZZ_INPUTS", 100_000);
    let first: u64 = variable("HEIST_FUZZ_SEED", 1);
    let threads = if inputs == 1 { 1 } else { 2 };
    let accepted: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    (first + worker..first + inputs)
                        .step_by(threads as usize)
                        .filter(|&seed| survives(seed))
                        .count() as u64
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("no input panics"))
            .sum()
    });
    println!("{inputs} inputs survived, {accepted} of them accepted");
    // Else the mutations are so wild that the printer is never tried.
    assert!(
        inputs < 1000 || accepted > inputs / 50,
        "only {accepted} accepted"
    );
}

/// Puts one input through; says whether it was accepted.
fn survives(seed: u64) -> bool {
    let text = input(seed);
    let result = std::panic::catch_unwind(|| check(&text));
    match result {
        Ok(accepted) => accepted,
        Err(_) => {
            let _ = fs::write(
                std::env::temp_dir().join(format!("heist-fuzz-{seed}.ptx")),
                &text,
            );
            panic!("HEIST_FUZZ_SEED={seed} HEIST_FUZZ_INPUTS=1 repeats this:\n{text}");
        }
    }
}

fn check(text: &str) -> bool {
    let source = Source::new("fuzz", text);
    match parse(&source) {
        Ok(module) => {
            // Broken or not, the structural rules have an answer to it.
            validate(&module, Some(&source));
            let printed = print(&module);
            match parse(&Source::new("print", printed.as_str())) {
                Ok(again) => assert!(module == again, "reads back as something else:\n{printed}"),
                Err(errors) => panic!("the print is refused: {}\n{printed}", errors[0]),
            }
            true
        }
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            for error in &errors {
                let _ = source.position(error.span);
            }
            false
        }
    }
}

fn input(seed: u64) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut bytes = SEEDS[rng.usize(..SEEDS.len())].as_bytes().to_vec();
    if rng.u8(..8) == 0 {
        let words = rng.usize(..200);
        bytes = b".version 8.0 .target sm_90 .func f() {".to_vec();
        for _ in 0..words {
            bytes.push(b' ');
            bytes.extend(TOKENS[rng.usize(..TOKENS.len())].bytes());
        }
    }
    for _ in 0..rng.usize(1..4) {
        mutate(&mut rng, &mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.usize(..=bytes.len());
    let piece = at..(at + rng.usize(..40)).min(bytes.len());
    match rng.u8(..10) {
        // Most changes touch one token, so that much of the input stays PTX.
        0..=3 => {
            let token = TOKENS[rng.usize(..TOKENS.len())];
            let gap = [b" ".as_slice(), token.as_bytes(), b" "].concat();
            bytes.splice(at..at, gap);
        }
        4 => {
            bytes.drain(piece);
        }
        5 => {
            let copy = bytes[piece].to_vec();
            let to = rng.usize(..=bytes.len());
            bytes.splice(to..to, copy);
        }
        6 if !bytes.is_empty() => {
            let at = at.min(bytes.len() - 1);
            bytes[at] = rng.u8(..);
        }
        7 => {
            let deep = rng.usize(..600);
            let open = [&b"{"[..], b"(", b"[", b"-", b"{.reg .b32 a;", b"1+", b"?"][rng.usize(..7)];
            bytes.splice(at..at, open.repeat(deep));
        }
        8 => bytes.truncate(at),
        _ => {
            // Swap two lines: often still PTX, in an order nobody wrote.
            let text = String::from_utf8_lossy(bytes).into_owned();
            let mut lines: Vec<&str> = text.lines().collect();
            if lines.len() > 1 {
                let (a, b) = (rng.usize(..lines.len()), rng.usize(..lines.len()));
                lines.swap(a, b);
                *bytes = lines.join("\n").into_bytes();
            }
        }
    }
}

fn variable(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
