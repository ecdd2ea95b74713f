//! A contest before it is on a GPU: a problem, and who solves it.

use super::Contest;
use super::posing::pose;
use super::ready::Ready;
use heist::job::{JobError, output_of};
use heist_gpu::Gpu;
use heist_kernels::catalogue::{self, Parameter, Settings};
use heist_kernels::{Job, KernelError, Step, Target};
use heist_launch::{Arg, Buffer, ElementType, Launch};
use heist_sched::Schedule;
use heist_tune::Candidate as Tuned;

/// One of our kernels in a contest: its settings besides the problem.
#[derive(Clone, Debug)]
pub struct Ours {
    /// What it is called.
    pub name: String,
    /// Settings on top of the problem's.
    pub told: Vec<(&'static str, String)>,
    /// Its schedule; its own unless given.
    pub schedule: Option<Schedule>,
    /// What the tuner found for the problem, which says both.
    pub tuned: Option<Tuned>,
}

impl Ours {
    /// The kernel that suits best.
    pub(super) fn best() -> Ours {
        Ours {
            name: "best".into(),
            told: Vec::new(),
            schedule: None,
            tuned: None,
        }
    }

    /// The attention that suits best, its weights in two terms.
    pub(super) fn split_weights() -> Ours {
        Ours {
            name: "split weights".into(),
            told: vec![("weights", "split".into())],
            schedule: None,
            tuned: None,
        }
    }

    /// The gradients that suit best, the same bits in every run.
    pub(super) fn deterministic() -> Ours {
        Ours {
            name: "deterministic".into(),
            told: vec![("deterministic", "true".into())],
            schedule: None,
            tuned: None,
        }
    }

    /// What the tuner found.
    pub fn tuned(candidate: Tuned) -> Ours {
        Ours {
            name: format!("tuned: {candidate}"),
            told: Vec::new(),
            schedule: None,
            tuned: Some(candidate),
        }
    }

    /// A variant by name.
    pub(super) fn variant(name: &str) -> Ours {
        Ours {
            name: name.to_owned(),
            told: vec![("variant", name.to_owned())],
            schedule: None,
            tuned: None,
        }
    }
}

/// A contest before it is on a GPU.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The kernel family.
    pub family: &'static str,
    /// What it is called in the table.
    pub name: String,
    /// The problem.
    pub told: Settings,
    /// Ours.
    pub ours: Vec<Ours>,
    /// Theirs.
    pub peers: &'static [&'static str],
    /// Calls in a sample's graph: many where a call is short.
    pub calls: u32,
}

impl Spec {
    /// A contest of a family's best kernel over a problem, against all its peers.
    ///
    /// # Errors
    /// When there is no such family, or a word is not of the form name=value.
    pub fn new(family: &str, words: &[String]) -> Result<Spec, KernelError> {
        let entry = catalogue::entry(family)?;
        let name = if words.is_empty() {
            family.to_owned()
        } else {
            format!("{family} {}", words.join(" "))
        };
        Ok(Spec {
            family: entry.name(),
            name,
            told: Settings::from_words(words)?,
            ours: vec![Ours::best()],
            peers: peers_of(entry.name()),
            calls: 1,
        })
    }

    /// Puts it on a GPU.
    ///
    /// # Errors
    /// When a kernel can't be built for the GPU, or does not fit into its memory.
    pub fn contest(&self, gpu: &Gpu, target: Target) -> Result<Contest<'static>, JobError> {
        let entry = catalogue::entry(self.family)?;
        let mut contest: Option<Contest<'static>> = None;
        let mut codes: Vec<Vec<Code>> = Vec::new();
        for ours in &self.ours {
            let mut told = self.told.clone();
            for (name, value) in &ours.told {
                told.set(*name, value.clone());
            }
            let prepared = match &ours.tuned {
                Some(candidate) => entry.tuned(&told, candidate, target)?,
                None => entry.prepare(&told, ours.schedule.as_ref(), target)?,
            };
            let job = prepared.job;
            let name = match ours.name.as_str() {
                "best" => job.name.clone(),
                other => other.to_owned(),
            };
            let code = job.steps.iter().map(Code::of).collect();
            let before = codes.iter().position(|before| *before == code);
            if let (Some(before), Some(contest)) = (before, &mut contest) {
                contest.ours[before].0 += &format!(" = {name}");
                continue;
            }
            codes.push(code);
            let ready = Ready::new(gpu, &job, output_of(self.family))?;
            let contest = match &mut contest {
                Some(contest) => contest,
                None => contest.insert(self.empty(&job, entry.parameters())),
            };
            contest.ours.push((name, Box::new(ready)));
        }
        contest.ok_or_else(|| KernelError::unfit("a contest without a kernel of ours").into())
    }

    pub(super) fn empty(&self, job: &Job, known: &[Parameter]) -> Contest<'static> {
        // Both sides round their results to this type, and weights on the way.
        let tolerance = match output_type(self.family, job) {
            ElementType::Bf16 => 1e-2,
            _ => 2e-3,
        };
        let problem = pose(self.family, &self.told, known, job, self.calls);
        Contest {
            name: self.name.clone(),
            problem: problem.map_err(|why| why.to_string()),
            calls: self.calls,
            flops: job.work.flops,
            bytes: job.work.bytes,
            ours: Vec::new(),
            peers: self.peers.to_vec(),
            tolerance,
        }
    }
}

pub(super) fn peers_of(family: &str) -> &'static [&'static str] {
    match family {
        "gemm" => &["cublas", "triton"],
        "grouped-gemm" => &["torch", "cublas-loop"],
        "experts" => &["torch", "torch-compiled"],
        "attention" | "attention-backward" => &["flash", "cudnn"],
        _ => &[],
    }
}

/// The type of a job's results.
pub(super) fn output_type(family: &str, job: &Job) -> ElementType {
    let data = job.data(output_of(family));
    data.map_or(ElementType::F32, Buffer::ty)
}
/// The identity of a step's code. Several variants may be the same code for some shape: their times
/// would differ only by chance, so they are one contestant, under both names.
#[derive(PartialEq)]
struct Code {
    ptx: String,
    launch: Launch,
    params: Vec<Arg>,
}

impl Code {
    fn of(step: &Step) -> Code {
        Code {
            ptx: step.ptx().replace(&step.entry, "kernel"),
            launch: step.launch,
            params: step.params.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::arch::Gpu as Simulated;

    #[test]
    fn rungs_that_come_to_the_same_are_one_contestant() {
        let spec = super::super::suite::suite("attention").swap_remove(0);
        let entry = catalogue::entry(spec.family).unwrap();
        let Simulated { arch, sms, .. } = Simulated::H200;
        let target = Target { arch, sms };
        let code = |variant: &str| -> Vec<Code> {
            let mut told = spec.told.clone();
            told.set("variant", variant);
            let job = entry.prepare(&told, None, target).unwrap().job;
            job.steps.iter().map(Code::of).collect()
        };
        assert!(spec.name.contains("B1 H8 S512"), "{}", spec.name);
        assert!(code("large") == code("persistent"));
        assert!(code("large") != code("buffered"));
    }
}
