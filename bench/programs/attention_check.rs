//! Runs the cases of attention on the GPU and compares each with softmax in f64.
//!
//! ```text
//! cargo run --release -p heist-bench --bin attention_check [-- --small|--large|--warpgroups|--latent] [--processes N] [--only TEXT]
//! ```
//!
//! With `--small` every ninth of the small cases: few enough for the tools of
//! compute-sanitizer. With `--large` only sizes that the simulator is too slow
//! for: there some rows of every head are compared, and every element is looked
//! at for what no result can be. With `--warpgroups` all small cases of the kernel on
//! warpgroups, which a sanitizer takes a minute for, with `--latent` those of keys and values that are one row. With `--processes` that many processes share
//! the cases, for the driver assembles one kernel at a time in each. With `--only TEXT` those whose names contain it.

use heist_builder::Arch;
use heist_gpu::{Gpu, PtxText, RunOptions};
use heist_kernels::attention::{Case, Sample, Topic, bound, cases, randomise, verify};
use heist_kernels::{Job, Target};
use std::process::{Command, Stdio};

type Failure = Box<dyn std::error::Error>;

/// What was asked.
struct Asked {
    topics: Vec<Topic>,
    /// Every so many of the cases of a topic.
    every: usize,
    processes: usize,
    /// Which of the processes this is.
    part: usize,
    /// What the names of cases contain.
    only: String,
}

fn asked() -> Result<Asked, Failure> {
    let mut asked = Asked {
        topics: [&Topic::SMALL[..], &[Topic::Large]].concat(),
        every: 1,
        processes: 1,
        part: 0,
        only: String::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--only" {
            asked.only = words.next().unwrap_or_default();
            continue;
        }
        let mut number = || -> Result<usize, Failure> {
            let text = words.next().unwrap_or_default();
            let number = text.parse();
            Ok(number.map_err(|_| format!("{word}: `{text}` is not a number"))?)
        };
        match word.as_str() {
            "--small" => (asked.topics, asked.every) = (Topic::SMALL.into(), 9),
            "--warpgroups" => {
                asked.topics = vec![Topic::Warpgroups, Topic::Clusters, Topic::WideHeads];
            }
            "--latent" => asked.topics = vec![Topic::Latent],
            "--large" => asked.topics = vec![Topic::Large],
            "--processes" => asked.processes = number()?.max(1),
            "--part" => asked.part = number()?,
            other => return Err(format!("`{other}` is not known").into()),
        }
    }
    Ok(asked)
}

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

/// How much of its bound the results of a case need, and what was compared; an
/// error where the case is wrong.
fn check(gpu: &Gpu, case: &Case, target: Target) -> Result<(f64, String), Failure> {
    let problem = &case.problem;
    let mut job = case.job(target)?;
    randomise(&mut job, problem, 7);
    run(gpu, &mut job)?;
    let verdict = verify(&job, problem, Sample::suited(problem))?;
    verdict.judge(problem)?;
    let [compared, all] = verdict.rows;
    let told = format!(
        "{compared} of {all} rows, relative norm {:.2e} (of a row {:.2e}, of log-sum-exps {:.1e}); all elements in range",
        verdict.out.norm, verdict.row.norm, verdict.lse.norm
    );
    Ok((verdict.out.norm / bound(problem), told))
}

/// Has processes do the parts, and says what they said.
fn share_out(processes: usize) -> Result<(), Failure> {
    let program = std::env::current_exe()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let children: Result<Vec<_>, _> = (0..processes)
        .map(|part| {
            let mut command = Command::new(&program);
            command
                .args(&words)
                .args(["--part", &(part + 1).to_string()]);
            command.stdout(Stdio::piped()).spawn()
        })
        .collect();
    let mut failed = 0;
    for child in children? {
        let done = child.wait_with_output()?;
        print!("{}", String::from_utf8_lossy(&done.stdout));
        failed += usize::from(!done.status.success());
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {processes} processes failed").into()),
    }
}

fn main() -> Result<(), Failure> {
    let asked = asked()?;
    if asked.processes > 1 && asked.part == 0 {
        return share_out(asked.processes);
    }
    let gpu = Gpu::open(0)?;
    let info = gpu.info();
    let capability = format!("sm_{}{}", info.capability.major, info.capability.minor);
    // With the instructions that this architecture alone has, where it has some.
    let arch = Arch::parse(&format!("{capability}a")).or_else(|| Arch::parse(&capability));
    let arch = arch.ok_or(format!("{capability} is not known"))?;
    let target = Target {
        arch,
        sms: info.sms,
    };
    println!("{}, {arch}, {} multiprocessors", info.name, info.sms);
    let mut wrong = 0;
    for topic in asked.topics {
        let all = cases(topic, target);
        let mine: Vec<&Case> = all
            .iter()
            .filter(|case| case.to_string().contains(&asked.only))
            .step_by(asked.every)
            .skip(asked.part.saturating_sub(1))
            .step_by(asked.processes)
            .collect();
        let mut worst = 0.0f64;
        for case in &mine {
            match check(&gpu, case, target) {
                Ok((part, told)) => {
                    worst = worst.max(part);
                    if matches!(
                        topic,
                        Topic::Large
                            | Topic::Warpgroups
                            | Topic::Clusters
                            | Topic::WideHeads
                            | Topic::Latent
                    ) {
                        println!("right: {case}: {told}");
                    }
                }
                Err(error) => {
                    wrong += 1;
                    println!("WRONG: {case}: {error}");
                }
            }
        }
        println!(
            "{topic:?}: {} cases, the worst at {:.0}% of its bound",
            mine.len(),
            worst * 100.0
        );
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} cases are wrong").into()),
    }
}
