//! `heist share`: what kernels do to each other on one GPU.

mod drawing;
mod figures;
mod measured;
mod modelled;
mod peer;

use crate::answer::{BadQuestion, Output, Verdict, question};
use clap::Args;
use heist::share::Tenant;
use heist_kernels::Target;
use heist_kernels::catalogue::{self, Settings};
use heist_run::DeviceName;
use heist_sched::{AnyOrder, Greedy, Schedule, TileSource};
use std::path::PathBuf;

/// Measure a kernel as one of two tenants of a GPU: an interactive kernel beside it, and
/// multiprocessors that others hold.
#[derive(Args)]
#[command(after_help = "\
The batch runs back to back on a stream of low priority. A row is a schedule of it: `own`, the \
kernel's default, or source, moment, policy and order (the kernel's own unless said); `+N` behind \
it leaves N multiprocessors free, and settings in it, such as config=wgmma:128x256x64/4, are that row's. A policy with `until-asked` is asked, by its bell, whenever the interactive kernel comes; \
`pausing` before it leaves tiles half done then, where the kernel can (attention and GEMM on Hopper).

A simulated GPU takes kernels that stand in for them: as many tiles under the same schedule, as
many blocks on a multiprocessor, and tiles that only take their time. --trace draws both tenants,
on either.

Examples:
  heist share gemm m=8192 n=8192 k=8192
  heist share gemm m=4096 n=4096 k=4096 --row own --row 'ticket late grouped(16) +4'
  heist share attention batch=1 heads=16 queries=16384 dim=128 dtype=bf16 mask=full
  heist share gemm m=8192 n=8192 k=8192 --interactive m=512,n=512,k=512 --held 0,16,32
  heist share gemm --interactive 'm=2048,n=2048,k=2048,config=wgmma:128x128x64/6 direct'
  heist share gemm m=4096 n=4096 k=4096 --device sim:b200 --trace share.html

Exit status: 0 all schedules give the same result, 1 one does not, 2 it could not be measured.")]
pub(crate) struct Share {
    /// The kernel that runs as the batch.
    #[arg(default_value = "gemm")]
    kernel: String,
    /// Its settings, such as m=8192.
    #[arg(value_name = "NAME=VALUE")]
    told: Vec<String>,
    /// A schedule of the batch; several may be given.
    #[arg(long, value_name = "SCHEDULE")]
    row: Vec<String>,
    /// Products that come now and then on a stream of high priority; a schedule may follow.
    #[arg(long, value_name = "m=M,n=N,k=K [SCHEDULE]", default_values = ["m=256,n=256,k=256", "m=2048,n=2048,k=2048"])]
    interactive: Vec<String>,
    /// How many multiprocessors others hold [default: of 0,1,8,20,44,66 those that the GPU has].
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    held: Vec<u32>,
    /// Launches of an interactive kernel for each figure [default: 400; simulated, 24].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    samples: Option<u32>,
    /// The GPU: gpu, or sim:h200, sim:b200, ...
    #[arg(long, default_value = "gpu")]
    device: DeviceName,
    /// Where to draw both tenants under every schedule (.html, or .json for Perfetto).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The Python that has PyTorch, for the peer's row.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Only ours.
    #[arg(long)]
    no_peers: bool,
}

impl Share {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        match self.device {
            DeviceName::Sim(gpu) => self.modelled(gpu, out),
            DeviceName::Gpu(_) => self.measured(out),
        }
    }

    fn tenants(&self, target: Target) -> Result<Vec<Tenant>, BadQuestion> {
        let entry = catalogue::entry(&self.kernel).map_err(question)?;
        let told = Settings::from_words(&self.told).map_err(question)?;
        // Tickets, or launch control where the GPU has it.
        let source = TileSource::auto(target.arch, &Greedy, true).source;
        let rows = match self.row.is_empty() {
            true => vec![
                "own".to_owned(),
                "own +4".to_owned(),
                "static".to_owned(),
                "direct".to_owned(),
                format!("{source} late until-asked"),
            ],
            false => self.row.clone(),
        };
        let tenant = |row: &String| {
            let (text, spare) = match row.split_once('+') {
                Some((text, spare)) => (text, spare.trim().parse()),
                None => (row.as_str(), Ok(0)),
            };
            let spare = spare.map_err(|_| {
                question(format!(
                    "`{row}`: behind `+` stands how many multiprocessors are left free"
                ))
            })?;
            if spare >= target.sms {
                return Err(question(format!(
                    "`{row}`: {spare} multiprocessors can't be left free: the GPU has {}, and one must work",
                    target.sms
                )));
            }
            let (text, own_told) = with_settings(text, &told)?;
            let schedule = match text.as_str() {
                "own" => None,
                text => {
                    let own = entry.schedule(&own_told, target.leaving(spare));
                    Some(possible(ordered(text, own.map_err(question)?)?, target)?)
                }
            };
            Ok(Tenant {
                name: row.clone(),
                kernel: entry.name(),
                told: own_told,
                schedule,
                spare,
            })
        };
        rows.iter().map(tenant).collect()
    }

    fn interactives(&self, target: Target) -> Result<Vec<Tenant>, BadQuestion> {
        let entry = catalogue::entry("gemm").map_err(question)?;
        let tenant = |text: &String| {
            let (words, schedule) = match text.trim().split_once(char::is_whitespace) {
                Some((words, schedule)) => (words, Some(schedule.trim())),
                None => (text.trim(), None),
            };
            let told = Settings::from_words(words.split(',')).map_err(question)?;
            let own = entry.schedule(&told, target).map_err(question)?;
            Ok(Tenant {
                name: text.clone(),
                kernel: entry.name(),
                schedule: schedule
                    .map(|text| possible(ordered(text, own)?, target))
                    .transpose()?,
                told,
                spare: 0,
            })
        };
        self.interactive.iter().map(tenant).collect()
    }

    /// How many multiprocessors are held in each column of the second table.
    fn held(&self, target: Target) -> Vec<u32> {
        match self.held.is_empty() {
            true => [0, 1, 8, 20, 44, 66]
                .into_iter()
                .filter(|sms| *sms < target.sms)
                .collect(),
            false => self.held.clone(),
        }
    }

    /// Fails where more are to be held than there are.
    fn holds(&self, target: Target) -> Result<(), BadQuestion> {
        match self.held.iter().find(|sms| **sms >= target.sms) {
            None => Ok(()),
            Some(most) => Err(question(format!(
                "{most} multiprocessors can't be held: the GPU has {}, and one must be left",
                target.sms
            ))),
        }
    }
}

/// The schedule that a row says, and the kernel's settings with those of the row's own, which have the form `name=value`.
fn with_settings(row: &str, told: &Settings) -> Result<(String, Settings), BadQuestion> {
    let (own, schedule): (Vec<&str>, Vec<&str>) =
        row.split_whitespace().partition(|word| word.contains('='));
    // No name twice, and every value is there.
    Settings::from_words(&own).map_err(question)?;
    let mut all = told.clone();
    for (name, value) in own.iter().filter_map(|word| word.split_once('=')) {
        all.set(name, value);
    }
    Ok((schedule.join(" "), all))
}

/// A schedule from its text. Its order is the kernel's own unless the text says another: the
/// order decides what is in L2, and rows are compared for who waits for whom.
fn ordered(text: &str, own: Option<Schedule>) -> Result<Schedule, BadQuestion> {
    super::schedule::rows_there(text)?;
    let mut schedule: Schedule = text.parse().map_err(question)?;
    let last = text.split_whitespace().next_back().unwrap_or_default();
    if let (Some(own), Err(_)) = (own, last.parse::<AnyOrder>()) {
        schedule.order = own.order;
    }
    Ok(schedule)
}

/// A schedule, where the GPU has its source; else what to take in its place.
fn possible(schedule: Schedule, target: Target) -> Result<Schedule, BadQuestion> {
    let source = schedule.source;
    source
        .check(target.arch, schedule.cluster)
        .map_err(question)?;
    if schedule.pausing {
        super::schedule::pausable(target.arch)?;
    }
    Ok(schedule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_order_of_the_kernel_unless_it_says_another() {
        let own: Schedule = "ticket late greedy grouped(16)".parse().unwrap();
        for (text, whole) in [
            ("static", "static grouped(16)"),
            ("ticket late never", "ticket late never grouped(16)"),
            ("ticket late hilbert", "ticket late greedy hilbert"),
            ("static linear", "static"),
        ] {
            let schedule = ordered(text, Some(own.clone())).unwrap_or_else(|_| panic!("{text}"));
            assert_eq!(schedule.to_string(), whole);
        }
        let told = Settings::from_words(["m=512", "config=one"]).unwrap();
        let (schedule, told) = with_settings("ticket  late config=two k=64", &told)
            .unwrap_or_else(|_| panic!("a row"));
        let words = ["m", "config", "k"].map(|name| told.get(name));
        assert_eq!(schedule, "ticket late");
        assert_eq!(words, [Some("512"), Some("two"), Some("64")]);
        let alone = ordered("static", None).unwrap_or_else(|_| panic!("static"));
        assert_eq!(alone.to_string(), "static");
    }
}
