//! Runs the cases of attention on the GPU and compares each with softmax in f64.
//!
//! ```text
//! cargo run --release -p heist-kernels --example attention_check [-- --small|--large]
//! ```
//!
//! With `--small` every ninth of the small cases: few enough for the tools of
//! compute-sanitizer. With `--large` only sizes that the simulator is too slow for.

use heist_build::Arch;
use heist_gpu::{Gpu, PtxText, RunOptions};
use heist_kernels::attention::{Case, Topic, bound, cases, job, randomise, verify};
use heist_kernels::{Job, Target};

type Failure = Box<dyn std::error::Error>;

/// Runs every step of a job; its buffers then hold the results.
fn run(gpu: &Gpu, job: &mut Job) -> Result<(), Failure> {
    for index in 0..job.steps.len() {
        let arguments = job.arguments(index)?;
        let step = &job.steps[index];
        let text = PtxText::new(step.entry.clone(), step.ptx());
        let options = RunOptions::default();
        let done = gpu.run(&text, &step.entry, &step.launch, &arguments, &options)?;
        job.absorb(&done.outcome);
    }
    Ok(())
}

/// The relative norms of the differences; an error where a case is wrong.
fn check(gpu: &Gpu, case: &Case, target: Target) -> Result<f64, Failure> {
    let Case {
        problem,
        config,
        schedule,
    } = case;
    let mut job = job(problem, config, schedule, target)?;
    randomise(&mut job, problem, 7);
    run(gpu, &mut job)?;
    let verdict = verify(&job, problem)?;
    let bound = bound(problem.dtype);
    for (what, difference) in [("results", verdict.out), ("log-sum-exps", verdict.lse)] {
        if !difference.within(bound) {
            return Err(format!("{what}: {difference}, more than {bound}").into());
        }
    }
    Ok(verdict.out.norm.max(verdict.lse.norm) / bound)
}

fn main() -> Result<(), Failure> {
    let told = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (small, large) = (told("--small"), told("--large"));
    let gpu = Gpu::open(0)?;
    let info = gpu.info();
    let capability = format!("sm_{}{}", info.capability.major, info.capability.minor);
    let arch = Arch::parse(&capability).ok_or(format!("{capability} is not known"))?;
    let target = Target {
        arch,
        sms: info.sms,
    };
    println!("{}, {arch}, {} multiprocessors", info.name, info.sms);
    let mut wrong = 0;
    let mut topics = Vec::new();
    if !large {
        topics.extend(Topic::SMALL);
    }
    if !small {
        topics.push(Topic::Large);
    }
    for topic in topics {
        let all = cases(topic, target);
        let some: Vec<&Case> = all.iter().step_by(if small { 9 } else { 1 }).collect();
        let mut worst = 0.0f64;
        for case in &some {
            match check(&gpu, case, target) {
                Ok(part) => worst = worst.max(part),
                Err(error) => {
                    wrong += 1;
                    let Case {
                        problem,
                        config,
                        schedule,
                    } = case;
                    println!("WRONG: {problem}, {config}, {schedule}: {error}");
                }
            }
        }
        println!(
            "{topic:?}: {} cases, the worst at {:.0}% of its bound",
            some.len(),
            worst * 100.0
        );
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} cases are wrong").into()),
    }
}
