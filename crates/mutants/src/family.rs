//! Our own kernels as files to mutate: a problem of the catalogue, or a synthetic workload under a
//! schedule, with its launches and its random data.

use heist_filetests::{Action, Case, Findings, OnGpu, Run, TestFile};
use heist_kernels::synthetic::{Parameters, Synthetic, Workload, build};
use heist_kernels::{Job, Step, Target, Work, catalogue};
use heist_ptx::Source;
use heist_ptx::arch::Gpu;
use heist_sched::Schedule;
use heist_sim::{Device, Options, Program};
use std::fmt::Display;

/// The launches of a kernel in words: its name, its settings, where it runs (`on=sim:h200`), for how
/// many multiprocessors it is made (`sms=2`: the device then has no more, so that a block has several tiles of
/// a small problem, also where it is launch control that hands them out), and last its schedule
/// (`schedule=ticket late max-steals(2)`), if not its own.
pub(crate) fn files(words: &str) -> Result<Vec<TestFile>, String> {
    let (before, schedule) = match words.split_once("schedule=") {
        Some((before, schedule)) => (before, Some(schedule.parse::<Schedule>().map_err(told)?)),
        None => (words, None),
    };
    let mut settings: Vec<&str> = before.split_whitespace().collect();
    let mut take = |name: &str| {
        let at = settings.iter().position(|word| word.starts_with(name))?;
        Some(&settings.remove(at)[name.len()..])
    };
    let on = take("on=").unwrap_or("sim:h200");
    let on = take("sms=").map_or_else(|| on.to_owned(), |sms| format!("{on}/{sms}"));
    let device = device_named(&on)?;
    if settings.is_empty() {
        return Err("a kernel has a name".to_owned());
    }
    let name = settings.remove(0);
    let target = Target {
        arch: device.gpu().arch,
        sms: device.gpu().sms,
    };
    let mut job = match name.parse::<Workload>() {
        Ok(workload) => {
            let schedule =
                schedule.ok_or("a workload needs a schedule, such as schedule=ticket")?;
            scheduled(workload, &schedule, target)?
        }
        Err(_) => {
            let settings = catalogue::Settings::from_words(&settings).map_err(told)?;
            let entry = catalogue::entry(name).map_err(told)?;
            let prepared = entry.prepare(&settings, schedule.as_ref(), target);
            prepared.map_err(told)?.job
        }
    };
    let mut files = Vec::new();
    for index in 0..job.steps.len() {
        let arguments = job.arguments(index).map_err(told)?;
        let step = &job.steps[index];
        let run = Run {
            entry: Some(step.entry.clone()),
            launch: step.launch,
            arguments,
            expects: Vec::new(),
            opaque: Vec::new(),
            device: Some(on.clone()),
            seed: None,
            explore: None,
            chaos: false,
            cooperative: false,
            gpu: OnGpu::IfClean,
        };
        let label = format!("{words}, {}", step.entry);
        files.push(file(label, step.ptx(), run.clone()));
        // The next launch takes what this one has made.
        let program = Program::new((*step.module).clone());
        let program = program.map_err(|_| format!("{words} has no valid PTX"))?;
        let options = Options::default();
        let ran = program.run(&device, &step.entry, &step.launch, &run.arguments, &options);
        let ran = ran.map_err(|_| format!("{words} does not run on {device}"))?;
        job.absorb(&ran.outcome);
    }
    Ok(files)
}

/// A simulated device by its name, `sim:b200`, or one with fewer multiprocessors, `sim:b200/2`.
pub(crate) fn device_named(name: &str) -> Result<Device, String> {
    let Some((name, sms)) = name.split_once('/') else {
        return Device::named(name).map_err(told);
    };
    let device = Device::named(name).map_err(told)?;
    let sms = sms
        .parse::<u32>()
        .ok()
        .filter(|sms| (1..=device.gpu().sms).contains(sms));
    let sms = sms.ok_or_else(|| format!("{name} has 1 to {} multiprocessors", device.gpu().sms))?;
    Ok(Device::of(Gpu {
        sms,
        ..*device.gpu()
    }))
}

/// Few and small tiles: enough for blocks to take more than one, and to find none left.
fn scheduled(workload: Workload, schedule: &Schedule, target: Target) -> Result<Job, String> {
    let size = Parameters {
        tiles: 24,
        mean: 3,
        ..Parameters::default()
    };
    let synthetic = Synthetic::new(workload, size);
    let kernel = build(&synthetic, schedule, target.arch).map_err(told)?;
    let plan = kernel.plan(8).map_err(told)?;
    let step = Step::tiled(&kernel, &plan, synthetic.arguments());
    Ok(Job::new(workload.as_str(), Work::default()).step(step))
}

fn file(name: String, text: String, run: Run) -> TestFile {
    let case = Case {
        name: name.clone(),
        line: 0,
        action: Action::Run(Box::new(run)),
        findings: Findings::Clean,
        allows: Vec::new(),
    };
    TestFile {
        source: Source::new(name, text),
        cases: vec![case],
        marks: Vec::new(),
    }
}

fn told(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Original;
    use crate::mutation;

    #[test]
    fn a_kernel_of_ours_is_clean_and_has_places_to_break() {
        let files = files("gemm m=16 n=16 k=32 config=32x32x32/16x16/3 on=sim:a100").unwrap();
        assert_eq!(Original::of(&files[0]).len(), 1);
        assert!(mutation::all(files[0].source.text()).len() > 20);
    }

    #[test]
    fn a_device_may_have_fewer_multiprocessors() {
        assert_eq!(device_named("sim:b200/2").unwrap().gpu().sms, 2);
        assert_eq!(device_named("sim:b200").unwrap().gpu().sms, 148);
    }

    #[test]
    fn what_is_no_kernel_says_why() {
        assert!(files("gemn").unwrap_err().contains("there is no kernel"));
        assert!(files("gemm on=sim:x1").is_err() && files("gemm sms=some").is_err());
        assert!(device_named("sim:h200/0").is_err() && device_named("sim:h200/133").is_err());
        assert!(files("uniform schedule=of-its-own").is_err());
    }
}
