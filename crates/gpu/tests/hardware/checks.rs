//! The checks: each takes an open GPU and says what it found.
//!
//! They also run against the stand-in for a driver in `tests/driver`, so what is
//! checked of this crate's own bookkeeping is checked without a GPU too.

mod assembler;
mod faults;
mod launches;
mod memory;
mod relaunches;
mod tensor_maps;
mod timing;

use assembler::{clamped_version, jit_error, newer_ptx, other_chip};
use faults::{
    fault_in_run, fault_is_attributed, fault_of_two_streams, many_suspects, misaligned, timeout,
    untracked_fault,
};
use heist_gpu::{Gpu, GpuError, JitOptions, Kernel, PtxText};
use launches::{
    add_one, borrowed, cache, clusters, discovery, large_shared, missing_kernel, occupancy,
    required_cluster, run_with_arguments, variables_of_a_run, wrong_arguments, wrong_launch,
};
use memory::{memory, memory_in_order, out_of_memory};
use relaunches::relaunches;
use std::time::Instant;
use tensor_maps::{tensor_map, wrong_tensor_map};
use timing::{events, given_back, graph, measure, share_of_a_sample, waiting, warm_up};

const KERNELS: &str = include_str!("kernels.ptx");

/// What a check found: a remark, or what is wrong.
type Found = Result<String, String>;
type Check = (&'static str, fn(&Gpu) -> Found);

/// Checks that leave the context as it was.
const PEACEFUL: &[Check] = &[
    ("devices are discovered", discovery),
    ("a kernel runs and its buffers come back", add_one),
    ("a launch into a stream that is only a handle", borrowed),
    (
        "launches that come again are graphs of their streams",
        relaunches,
    ),
    ("the cache knows text and options", cache),
    ("the same run through arguments as data", run_with_arguments),
    (
        "a run has the variables that the text says",
        variables_of_a_run,
    ),
    ("arguments that do not fit are refused", wrong_arguments),
    ("a kernel that is not there is refused", missing_kernel),
    ("a launch over the limits is refused", wrong_launch),
    ("clusters by launch attribute", clusters),
    ("clusters by the kernel's own word", required_cluster),
    ("more than 48 KiB of shared memory", large_shared),
    ("attributes and occupancy", occupancy),
    ("a tensor map and a bulk tensor copy", tensor_map),
    (
        "a tensor map that breaks a rule is refused",
        wrong_tensor_map,
    ),
    ("memory is filled, and says how much there is", memory),
    (
        "memory is written by a stream, copied, and free again",
        memory_in_order,
    ),
    ("streams, events and graphs are given back", given_back),
    ("events measure", events),
    ("a stream waits for an event of another", waiting),
    ("warming up is not measuring", warm_up),
    ("a sample of several is one's share", share_of_a_sample),
    ("a graph is captured and replayed", graph),
    ("arms are measured in turns", measure),
    ("the assembler's log is in the error", jit_error),
    ("PTX newer than the driver is explained", newer_ptx),
    (
        "a version that nothing needs is lowered on request",
        clamped_version,
    ),
    ("PTX for another chip is explained", other_chip),
    ("out of memory is explained", out_of_memory),
];

/// Checks that cost the context.
const FATAL: &[Check] = &[
    (
        "a fault is laid at the launch that caused it",
        fault_is_attributed,
    ),
    (
        "a fault in a run names the command to run next",
        fault_in_run,
    ),
    ("a misaligned access is named", misaligned),
    (
        "a fault is laid at its launch while other streams work",
        fault_of_two_streams,
    ),
    (
        "a fault on an untracked stream lists the suspects",
        untracked_fault,
    ),
    ("... and the last of many", many_suspects),
];

/// Runs one of the checks that cost the context, and nothing else.
#[allow(dead_code)] // The test against the stand-in always runs all.
pub(crate) fn run_fatal(index: usize) -> Result<u32, GpuError> {
    let gpu = Gpu::open(0)?;
    let Some((name, check)) = FATAL.get(index) else {
        println!("there are fatal checks 0 to {}", FATAL.len() - 1);
        return Ok(1);
    };
    match check(&gpu) {
        Ok(remark) => {
            println!("ok      {name}{}", indent(&remark));
            Ok(0)
        }
        Err(wrong) => {
            println!("FAILED  {name}{}", indent(&wrong));
            Ok(1)
        }
    }
}

/// Runs every check, tells about each, and counts those that failed; an error
/// when there is no GPU to check.
pub(crate) fn run_all() -> Result<u32, GpuError> {
    let mut gpu = Gpu::open(0)?;
    let mut failed = 0;
    let mut run = |gpu: &Gpu, (name, check): &Check| {
        let start = Instant::now();
        let found = check(gpu);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        match found {
            Ok(remark) => println!("ok      {name} ({ms:.1} ms){}", indent(&remark)),
            Err(wrong) => {
                failed += 1;
                println!("FAILED  {name}{}", indent(&wrong));
            }
        }
    };
    for check in PEACEFUL {
        run(&gpu, check);
    }
    for (index, check) in FATAL.iter().enumerate() {
        run(&gpu, check);
        match gpu.reopen() {
            Ok(fresh) => gpu = fresh,
            Err(error) => {
                println!(
                    "FAILED  the GPU is opened again after a fault{}",
                    indent(&say(error))
                );
                println!(
                    "        not run: what comes after; `hardware N` runs fatal check N alone, and {index} was the last"
                );
                return Ok(failed + 1);
            }
        }
        run(
            &gpu,
            &("... and the GPU is opened again and works", add_one),
        );
    }
    // Last, because a kernel that is still running can't be taken back.
    run(&gpu, &("a kernel that does not end is given up", timeout));
    println!("{failed} failed");
    Ok(failed)
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("\n        {line}"))
        .collect()
}

fn text() -> PtxText {
    PtxText::new("kernels.ptx", KERNELS)
}

fn kernel(gpu: &Gpu, name: &str) -> Result<Kernel, String> {
    gpu.load(&text(), &JitOptions::default())
        .and_then(|program| program.kernel(name))
        .map_err(say)
}

#[allow(clippy::needless_pass_by_value)] // For `map_err`.
fn say(error: GpuError) -> String {
    error.to_string()
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}"))
    }
}

/// The message of an error that had to come, with all of these parts in it.
fn refused<T>(result: Result<T, GpuError>, parts: &[&str]) -> Found {
    let Err(error) = result else {
        return Err("it was accepted".to_owned());
    };
    let text = error.to_string();
    match parts.iter().find(|part| !text.contains(**part)) {
        None => Ok(text),
        Some(part) => Err(format!("the message lacks `{part}`:\n{text}")),
    }
}
