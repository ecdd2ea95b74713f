//! `heist share`: what kernels do to each other on one GPU.

use crate::answer::{BadQuestion, Output, Verdict, question};
use clap::Args;
use heist::job::{self, OnGpu};
use heist::share::{self, Company, Holder, Tenant, holder_ptx};
use heist_gpu::Gpu;
use heist_kernels::Target;
use heist_kernels::catalogue::{self, Prepared, Settings};
use heist_run::{Device, DeviceName};
use heist_view::table;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that measures PyTorch beside the same kernels.
const PEER: &str = include_str!("../../../../bench/kernels/share.py");

/// Measure a kernel as one of two tenants of a GPU: an interactive kernel beside it, and
/// multiprocessors that others hold.
#[derive(Args)]
#[command(after_help = "\
The batch runs back to back on a stream of low priority. A row is a schedule of it: `own`, the
kernel's default, or source, moment, policy and order; `+N` behind it leaves N multiprocessors
free. A policy with `until-asked` is asked, by its bell, whenever the interactive kernel comes.

Examples:
  heist share gemm m=8192 n=8192 k=8192
  heist share gemm m=4096 n=4096 k=4096 --row own --row 'ticket late grouped(16) +4'
  heist share attention batch=1 heads=16 queries=16384 dim=128 dtype=bf16 mask=full
  heist share gemm m=8192 n=8192 k=8192 --interactive m=512,n=512,k=512 --held 0,16,32

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
    /// Products that come now and then on a stream of high priority.
    #[arg(long, value_name = "m=M,n=N,k=K", default_values = ["m=256,n=256,k=256", "m=2048,n=2048,k=2048"])]
    interactive: Vec<String>,
    /// How many multiprocessors others hold.
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "0,1,8,20,44,66"
    )]
    held: Vec<u32>,
    /// Launches of an interactive kernel for each figure.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// The GPU.
    #[arg(long, default_value = "gpu")]
    device: DeviceName,
    /// The Python that has PyTorch, for the peer's row.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Only ours.
    #[arg(long)]
    no_peers: bool,
}

/// What was measured of one schedule.
struct Row {
    name: String,
    alone: f64,
    beside: Vec<share::Beside>,
    held: Vec<f64>,
}

impl Share {
    fn tenants(&self) -> Result<Vec<Tenant>, BadQuestion> {
        let entry = catalogue::entry(&self.kernel).map_err(question)?;
        let told = Settings::from_words(&self.told).map_err(question)?;
        let default = [
            "own",
            "own +4",
            "static",
            "direct",
            "ticket late until-asked",
        ];
        let rows = match self.row.is_empty() {
            true => default.map(str::to_owned).to_vec(),
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
            let schedule = match text.trim() {
                "own" => None,
                text => Some(text.parse().map_err(question)?),
            };
            Ok(Tenant {
                name: row.clone(),
                kernel: entry.name(),
                told: told.clone(),
                schedule,
                spare,
            })
        };
        rows.iter().map(tenant).collect()
    }

    fn interactives(&self) -> Result<Vec<Tenant>, BadQuestion> {
        let tenant = |text: &String| {
            Ok(Tenant {
                name: text.clone(),
                kernel: "gemm",
                told: Settings::from_words(text.split(',')).map_err(question)?,
                schedule: None,
                spare: 0,
            })
        };
        self.interactive.iter().map(tenant).collect()
    }

    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        const REAL: &str =
            "`heist share` needs a real GPU: a simulated one runs one kernel at a time";
        let (tenants, interactives) = (self.tenants()?, self.interactives()?);
        if matches!(self.device, DeviceName::Sim(_)) {
            return Err(question(REAL));
        }
        let device = Device::open(self.device)
            .map_err(|error| question(format!("{error}\n  help: {REAL}")))?;
        let Device::Gpu(gpu) = &device else {
            return Err(question(REAL));
        };
        let target = job::target(&device).map_err(question)?;
        if let Some(most) = self.held.iter().find(|sms| **sms >= target.sms) {
            return Err(question(format!(
                "{most} multiprocessors can't be held: the GPU has {}, and one must be left",
                target.sms
            )));
        }
        let batches = share::move_in(gpu, target, &tenants).map_err(question)?;
        let different = differing(gpu, &tenants, &batches)?;
        if let Some(row) = different {
            eprintln!(
                "heist: WRONG: the result under `{row}` differs from the one under `{}`",
                tenants[0].name
            );
            return Ok(Verdict::Found);
        }
        let small = share::move_in(gpu, target, &interactives).map_err(question)?;
        let small: Vec<&OnGpu> = small.iter().map(|(_, on)| on).collect();
        let idle = share::alone(gpu, &small, 50, 1).map_err(question)?;
        let rows = self.measure(gpu, target, &tenants, &batches, &small)?;
        let peer = match self.no_peers {
            true => None,
            false => Some(self.peer(target)?),
        };
        if out.json {
            out.json(&self.as_json(&rows, &idle, peer.as_ref()));
        } else {
            self.print(&rows, &idle, peer.as_ref(), target);
        }
        Ok(Verdict::Clean)
    }

    fn measure(
        &self,
        gpu: &Gpu,
        target: Target,
        tenants: &[Tenant],
        batches: &[(Prepared, OnGpu)],
        small: &[&OnGpu],
    ) -> Result<Vec<Row>, BadQuestion> {
        let all: Vec<&OnGpu> = batches.iter().map(|(_, on)| on).collect();
        let alone = share::alone(gpu, &all, 30, 4).map_err(question)?;
        let company = Company {
            samples: self.samples as usize,
            ..Company::default()
        };
        let mut rows = Vec::new();
        for ((tenant, batch), us) in tenants.iter().zip(&all).zip(&alone) {
            let ring = tenant.name.contains("until-asked");
            let beside = small.iter().map(|interactive| {
                share::beside(gpu, (batch, *us), interactive, company, ring).map_err(question)
            });
            rows.push(Row {
                name: tenant.name.clone(),
                alone: *us,
                beside: beside.collect::<Result<_, _>>()?,
                held: Vec::new(),
            });
        }
        let holder = Holder::new(gpu, target.arch).map_err(question)?;
        for sms in &self.held {
            let times = holder.time(*sms, &all, 15).map_err(question)?;
            for (row, time) in rows.iter_mut().zip(times) {
                row.held.push(time);
            }
        }
        Ok(rows)
    }

    /// The peer's figures, or why there are none.
    fn peer(&self, target: Target) -> Result<Value, BadQuestion> {
        let folder = std::env::temp_dir().join(format!("heist-share-{}", std::process::id()));
        let answer = self.ask_peer(&folder, target);
        // Litter in a temporary folder.
        let _ = std::fs::remove_dir_all(&folder);
        answer
    }

    fn ask_peer(&self, folder: &Path, target: Target) -> Result<Value, BadQuestion> {
        let absent = |why: &str| Ok(json!({ "absent": why }));
        let ptx = holder_ptx(target.arch).map_err(|error| question(error.problem))?;
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(folder.join("hold.ptx"), ptx))
            .and_then(|()| std::fs::write(folder.join("share.py"), PEER));
        if let Err(error) = written {
            return absent(&format!("no room for its script: {error}"));
        }
        let case = json!({
            "kernel": self.kernel, "told": self.told, "interactive": self.interactive,
            "held": self.held, "samples": self.samples,
        });
        let ran = Command::new(&self.python)
            .arg(folder.join("share.py"))
            .arg(folder.join("hold.ptx"))
            .arg(case.to_string())
            .output();
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => return absent(&format!("{}: {error}", self.python.display())),
        };
        let said = String::from_utf8_lossy(&ran.stdout);
        match said.lines().last().map(serde_json::from_str::<Value>) {
            Some(Ok(figures)) if ran.status.success() => Ok(figures),
            _ => {
                let why = String::from_utf8_lossy(&ran.stderr);
                absent(why.lines().last().unwrap_or("it said nothing"))
            }
        }
    }

    fn print(&self, rows: &[Row], idle: &[f64], peer: Option<&Value>, target: Target) {
        let us = |value: f64| format!("{value:.1}");
        let absent = peer.and_then(|peer| peer["absent"].as_str());
        let peer = peer.filter(|_| absent.is_none());
        let theirs = |key: &str, at: usize| -> String {
            let value = peer.map(|peer| &peer[key][at]);
            value.and_then(Value::as_f64).map_or("-".into(), us)
        };
        println!(
            "{} {} as the batch, in microseconds",
            self.kernel,
            self.told.join(" ")
        );
        let mut heads = vec!["batch under".to_owned(), "alone".to_owned()];
        for (name, alone) in self.interactive.iter().zip(idle) {
            heads.push(format!("{name} ({alone:.0} alone) p50"));
            heads.extend(["p99".to_owned(), "batch".to_owned()]);
        }
        let mut lines: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                let seen = row.beside.iter();
                let seen = seen.flat_map(|b| [b.interactive.p50, b.interactive.p99, b.batch]);
                let figures = std::iter::once(row.alone).chain(seen).map(us);
                std::iter::once(row.name.clone()).chain(figures).collect()
            })
            .collect();
        if let Some(peer) = peer {
            let name = peer["name"].as_str().unwrap_or("PyTorch").to_owned();
            let alone = peer["alone"].as_f64().map_or("-".into(), us);
            let seen = (0..self.interactive.len() * 3).map(|at| theirs("beside", at));
            lines.push([name, alone].into_iter().chain(seen).collect());
        }
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        print!("{}", table::columns(&heads, &lines));
        println!("\none launch while multiprocessors are held, in microseconds");
        let heads: Vec<String> = std::iter::once("batch under".to_owned())
            .chain(self.held.iter().map(u32::to_string))
            .collect();
        let mut lines: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                let times = row.held.iter().copied().map(us);
                std::iter::once(row.name.clone()).chain(times).collect()
            })
            .collect();
        if let Some(peer) = peer {
            let name = peer["name"].as_str().unwrap_or("PyTorch").to_owned();
            let times = (0..self.held.len()).map(|at| theirs("held", at));
            lines.push(std::iter::once(name).chain(times).collect());
        }
        let best = rows.iter().filter_map(|row| row.held.first().copied());
        let best = best.fold(f64::INFINITY, f64::min);
        let ideal = self.held.iter().map(|sms| {
            let all = f64::from(target.sms);
            us(best * all / (all - f64::from(*sms)))
        });
        if self.held.first() == Some(&0) {
            lines.push(std::iter::once("ideal".to_owned()).chain(ideal).collect());
        }
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        print!("{}", table::columns(&heads, &lines));
        if let Some(why) = absent {
            println!("peer: not measured: {why}");
        }
    }

    fn as_json(&self, rows: &[Row], idle: &[f64], peer: Option<&Value>) -> Value {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                let beside: Vec<Value> = row
                    .beside
                    .iter()
                    .map(|b| {
                        json!({ "p50_us": b.interactive.p50, "p99_us": b.interactive.p99,
                            "batch_us": b.batch })
                    })
                    .collect();
                json!({ "schedule": row.name, "alone_us": row.alone, "beside": beside,
                    "held_us": row.held })
            })
            .collect();
        json!({ "kernel": self.kernel, "told": self.told, "interactive": self.interactive,
            "interactive_alone_us": idle, "held": self.held, "rows": rows, "peer": peer })
    }
}

/// The first schedule whose result is not bit for bit that of the first, over outputs
/// that were poisoned before.
fn differing(
    gpu: &Gpu,
    tenants: &[Tenant],
    batches: &[(Prepared, OnGpu)],
) -> Result<Option<String>, BadQuestion> {
    let stream = gpu.stream().map_err(question)?;
    let mut first: Option<Vec<Vec<u8>>> = None;
    for (tenant, (prepared, on)) in tenants.iter().zip(batches) {
        let outputs = || {
            let buffers = prepared.job.buffers.iter();
            let buffers = buffers.filter(|buffer| buffer.role.is_read_back());
            buffers.filter_map(|buffer| on.memory(&buffer.name))
        };
        for memory in outputs() {
            memory.fill(0xff, &stream).map_err(question)?;
        }
        on.launch(&stream).map_err(question)?;
        stream.synchronize().map_err(question)?;
        let mut results = Vec::new();
        for memory in outputs() {
            let mut bytes = vec![0; memory.len()];
            memory.read(0, &mut bytes).map_err(question)?;
            results.push(bytes);
        }
        match &first {
            None => first = Some(results),
            Some(first) if *first != results => return Ok(Some(tenant.name.clone())),
            Some(_) => {}
        }
    }
    Ok(None)
}
