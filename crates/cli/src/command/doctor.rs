//! `heist doctor`: what this machine has.

use super::tools;
use crate::answer::{BadQuestion, Output, Verdict};
use clap::Args;
use heist_gpu::DeviceInfo;
use heist_run::DeviceName;
use serde_json::json;
use std::path::PathBuf;

/// Say what this machine has: driver, GPUs and what they support, and the programs and
/// packages that Heist can make use of; what each would give, and how to get it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist doctor            for people
  heist doctor --json     for a bug report or a script")]
pub(crate) struct Doctor {}

impl Doctor {
    /// `config` is the configuration file that holds here.
    pub(crate) fn run(self, config: Option<PathBuf>, out: Output) -> Result<Verdict, BadQuestion> {
        let gpus = heist_gpu::devices();
        let tools = tools::look();
        let config = config.map(|file| file.display().to_string());
        if out.json {
            let (devices, problem) = match &gpus {
                Ok(devices) => (devices.iter().map(device_json).collect(), None),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            out.json(&json!({
                "heist": env!("CARGO_PKG_VERSION"),
                "gpus": devices,
                "gpu_problem": problem,
                "commit": env!("HEIST_BUILT_FROM"),
                "config": config,
                "tools": tools,
                "simulated": DeviceName::simulated().map(|d| d.to_string()).collect::<Vec<_>>(),
            }));
            return Ok(Verdict::Clean);
        }
        println!("heist {}", env!("CARGO_PKG_VERSION"));
        match config {
            Some(file) => println!("{:<17}  {file}", "config"),
            None => println!(
                "{:<17}  none: no heist.toml here or in a folder above",
                "config"
            ),
        }
        match &gpus {
            Ok(devices) => devices.iter().for_each(tell),
            Err(error) => {
                println!("{:<17}  none: {error}", "gpu");
            }
        }
        for tool in &tools {
            match &tool.found {
                Some(found) => println!("{:<17}  {found}", tool.name),
                None => println!(
                    "{:<17}  none\n  would give: {}\n  help: {}",
                    tool.name, tool.gives, tool.help
                ),
            }
        }
        let names: Vec<_> = DeviceName::simulated().map(|d| d.to_string()).collect();
        println!("{:<17}  {}", "always", names.join(" "));
        Ok(Verdict::Clean)
    }
}

fn tell(info: &DeviceInfo) {
    let yes = |has: bool, what: &str| format!("{} {what}", if has { "has" } else { "no" });
    println!(
        "gpu:{:<13}  {}, {}, {} SMs at {} MHz, {:.1} GiB, L2 {} MiB",
        info.ordinal,
        info.name,
        info.capability,
        info.sms,
        info.clock_khz / 1000,
        info.memory as f64 / f64::from(1 << 30),
        info.l2 >> 20
    );
    println!(
        "                   driver CUDA {}, assembles PTX up to {}",
        info.driver,
        info.driver.ptx_isa()
    );
    println!(
        "                   {}, {}, {}; {} KiB of shared memory a block",
        yes(info.clusters, "clusters"),
        yes(info.tensor_maps, "tensor maps"),
        yes(info.cluster_launch_control(), "cluster launch control"),
        info.limits.shared_per_block >> 10
    );
    if !info.cluster_launch_control() {
        println!("                   work is stolen in software here: the source `ticket`");
    }
}

fn device_json(info: &DeviceInfo) -> serde_json::Value {
    json!({
        "ordinal": info.ordinal,
        "name": info.name,
        "arch": info.capability.to_string(),
        "sms": info.sms,
        "memory": info.memory,
        "l2": info.l2,
        "clock_khz": info.clock_khz,
        "shared_per_block": info.limits.shared_per_block,
        "clusters": info.clusters,
        "tensor_maps": info.tensor_maps,
        "cluster_launch_control": info.cluster_launch_control(),
        "driver": info.driver.to_string(),
        "ptx_isa": info.driver.ptx_isa().to_string(),
    })
}
