//! Multiplications on the simulated GPU, all checks on, against f64.

#[path = "../common/mod.rs"]
mod common;

mod anew;
mod choice;
mod clusters;
mod leave;
mod mma;
mod parts;
mod spread;
mod thin;
mod warpgroups;
mod words;

use heist_kernels::Job;
use heist_kernels::gemm::{
    Activation, Cluster, Config, Epilogue, FAMILY, Gemm, Input, Layout, Major, Output, Scales,
    Spread, Tiling, job_with, job_with_tiling, prepared, schedule,
};
use heist_launch::{Arg, Buffer, BufferRef, Role};
use heist_run::{Program, Settings};
use heist_sched::{AnyOrder, Grouped, Schedule, Submit, TileSource};

const TINY: &str = "32x32x32/16x16/3";

/// Runs a multiplication and compares.
fn right(problem: Gemm, config: &str, schedule: Option<&Schedule>, device: &str) {
    let (device, target) = common::device(device);
    let config: Config = config.parse().expect("a tile shape");
    let own = heist_kernels::gemm::schedule(target);
    let schedule = schedule.unwrap_or(&own);
    let job = job_with(&problem, config, schedule, target)
        .unwrap_or_else(|error| panic!("{problem} {config} {schedule}: {error}"));
    let mut prepared = prepared(job, problem, 3);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {config} {schedule}: {difference}"
    );
    assert_eq!(
        difference.count,
        (problem.m * problem.n) as usize,
        "every element was looked at"
    );
}

/// Runs a multiplication on warpgroups and compares.
fn right_on_warpgroups(problem: Gemm, schedule: Option<&Schedule>) {
    let (device, target) = common::device("h200");
    let variant = FAMILY.choose(Some("wgmma-128x256"), &problem, target);
    let variant = variant.unwrap_or_else(|error| panic!("{problem}: {error}"));
    let job = variant.job(&problem, schedule, target).expect("a job");
    let mut prepared = prepared(job, problem, 4);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(difference.within(prepared.bound), "{problem}: {difference}");
}

/// Runs a multiplication on warpgroups in tiles of this shape and compares; gives the bytes of the result.
fn right_in_tiles(problem: Gemm, tiling: &str, schedule: Option<&Schedule>, sms: u32) -> Vec<u8> {
    right_on(&common::device("h200").0, problem, tiling, schedule, sms)
}

/// The same on a device that has maybe not so many multiprocessors.
fn right_on(
    device: &heist_run::Device,
    problem: Gemm,
    tiling: &str,
    schedule: Option<&Schedule>,
    sms: u32,
) -> Vec<u8> {
    let (_, mut target) = common::device("h200");
    target.sms = sms;
    let tiling: Tiling = tiling.parse().expect("a tile shape");
    let job = job_with_tiling(&problem, tiling, schedule, target);
    let job = job.unwrap_or_else(|error| panic!("{problem} {tiling}: {error}"));
    let mut prepared = prepared(job, problem, 4);
    common::run(&mut prepared.job, device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {tiling}: {difference}"
    );
    let result = prepared.job.buffers.iter().find(|one| one.name == "d");
    result.expect("a result").data.bytes().to_vec()
}
