//! `heist emit`: the PTX of a kernel.

use super::schedule::ScheduleFlags;
use crate::answer::{BadQuestion, Output, Verdict, question};
use crate::file;
use clap::Args;
use heist_kernels::catalogue::{self, Settings};
use heist_kernels::{Step, Target};
use heist_launch::{Arg, ElementType, NamedBuffer, Role, Scalar};
use heist_ptx::Variable;
use heist_ptx::arch::{Arch, Gpu};
use serde_json::json;
use std::path::PathBuf;

/// Write the PTX of a kernel, for any architecture that it runs on.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist emit gemm --arch sm_90a > gemm.ptx
  heist emit attention mask=causal dim=128 --arch sm_80 --out .
  heist emit gemm --policy 'max-steals(4)' --source ticket --submit late
  heist emit gemm m=8192 n=8192 k=8192 --pausing
  heist emit gemm m=300 n=200 k=104 --json         with the launch, every argument and every buffer")]
pub(crate) struct Emit {
    /// The kernel: see `heist kernels`.
    kernel: String,
    /// Its settings, such as m=512.
    #[arg(value_name = "NAME=VALUE")]
    told: Vec<String>,
    /// For which architecture.
    #[arg(long, default_value = "sm_90a")]
    arch: String,
    #[command(flatten)]
    schedule: ScheduleFlags,
    /// A folder for the files, one for each launch, made where there is none; standard output
    /// unless given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Emit {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let entry = catalogue::entry(&self.kernel).map_err(question)?;
        let told = Settings::from_words(&self.told).map_err(question)?;
        let arch = Arch::parse(&self.arch).ok_or_else(|| {
            let known: Vec<String> = Arch::ALL.iter().map(ToString::to_string).collect();
            question(format!(
                "{} is no architecture; there are {}",
                self.arch,
                known.join(", ")
            ))
        })?;
        let sms = Gpu::ALL
            .iter()
            .find(|gpu| arch.runs_on(gpu.arch))
            .map_or(Gpu::H200.sms, |gpu| gpu.sms);
        let schedule = self.schedule.schedule(arch)?;
        let prepared = entry
            .prepare(&told, schedule.as_ref(), Target { arch, sms })
            .map_err(question)?;
        let launches = prepared.job.steps.len();
        if launches > 1 && self.out.is_none() && !out.json {
            return Err(question(format!(
                "{} is {launches} launches, and a file of PTX is one module: say --out DIR, or --json",
                prepared.job.name
            )));
        }
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder)
                .map_err(|error| question(format!("can't make {}: {error}", folder.display())))?;
            let path = |step: &Step| folder.join(format!("{}.ptx", step.entry));
            for step in &prepared.job.steps {
                file::writable(&path(step))?;
            }
            for step in &prepared.job.steps {
                file::write(&path(step), step.ptx())?;
                if !out.json {
                    println!("{}", path(step).display());
                }
            }
        }
        if out.json {
            let steps: Vec<_> = prepared.job.steps.iter().map(as_json).collect();
            let buffers: Vec<_> = prepared.job.buffers.iter().map(buffer_json).collect();
            out.json(&json!({ "name": prepared.job.name, "buffers": buffers, "steps": steps }));
        } else if self.out.is_none() {
            for step in &prepared.job.steps {
                print!(
                    "// {}\n// launch: {}\n{}",
                    prepared.job.name,
                    step.launch,
                    step.ptx()
                );
            }
        }
        Ok(Verdict::Clean)
    }
}

fn as_json(step: &Step) -> serde_json::Value {
    json!({
        "entry": step.entry,
        "grid": step.launch.grid,
        "block": step.launch.block,
        "cluster": step.launch.cluster,
        "dynamic_shared": step.launch.dynamic_shared,
        "arguments": arguments(step),
        "ptx": step.ptx(),
    })
}

/// A buffer that the launches share.
fn buffer_json(buffer: &NamedBuffer) -> serde_json::Value {
    json!({
        "name": buffer.name,
        "role": buffer.role.as_str(),
        "type": buffer.data.ty().to_string(),
        "elements": buffer.data.len(),
        "bytes": buffer.data.bytes().len(),
    })
}

/// Every argument in the order in which a driver-API program passes them.
fn arguments(step: &Step) -> Vec<serde_json::Value> {
    let params: Vec<&Variable> = step
        .module
        .entries()
        .filter(|entry| *entry.name == step.entry)
        .flat_map(|entry| &entry.params)
        .collect();
    let described = step.params.iter().enumerate().map(|(index, arg)| {
        let param = params.get(index);
        let number = param.and_then(|param| number(arg, param));
        let mut described = argument(number.as_ref().unwrap_or(arg));
        described["index"] = json!(index);
        described["name"] = json!(param.map(|param| param.name.as_str()));
        described
    });
    described.collect()
}

/// Bytes that are a number, by the type of their parameter.
fn number(arg: &Arg, param: &Variable) -> Option<Arg> {
    let Arg::Bytes(bytes) = arg else { return None };
    let ty: ElementType = param.ty.to_string().parse().ok()?;
    let fits = param.dims.is_empty() && ty.bytes() == bytes.len();
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    fits.then(|| Arg::Scalar(Scalar::new(ty, u64::from_le_bytes(wide))))
}

fn argument(arg: &Arg) -> serde_json::Value {
    let (meaning, bytes) = match arg {
        Arg::Scalar(_) => ("a number by value", None),
        Arg::Bytes(bytes) => ("bytes by value", Some(bytes.len())),
        Arg::Buffer { role: Role::In, .. } => (
            "the address of memory that holds these bytes, the same in every launch",
            Some(8),
        ),
        Arg::Buffer { .. } => (
            "the address of memory of the launch's own that holds these bytes before the first launch; \
             every launch leaves them so, and launches that may overlap need memory of their own",
            Some(8),
        ),
        Arg::Pointer { .. } => ("the address of a buffer", Some(8)),
        Arg::TensorMap(_) => (
            "a tensor map by value, as cuTensorMapEncodeTiled makes it",
            Some(128),
        ),
        Arg::Struct(_) => ("a struct by value, laid out as C does", None),
        Arg::Function(_) => ("the address of a function of the module", Some(8)),
    };
    let mut described = match arg {
        Arg::Scalar(scalar) => json!({
            "kind": "scalar",
            "type": scalar.ty.to_string(),
            "bytes": scalar.ty.bytes(),
            "value": scalar.ty.spell(scalar.bits),
            "bits": scalar.bits,
        }),
        Arg::Bytes(bytes) => json!({ "kind": "bytes", "value": bytes }),
        Arg::Buffer { role, data } => json!({
            "kind": if *role == Role::In { "constant" } else { "counters" },
            "type": data.ty().to_string(),
            "contents": data.bytes(),
        }),
        Arg::Pointer { buffer, offset } => json!({
            "kind": "pointer",
            "buffer": buffer.to_string(),
            "offset": offset,
        }),
        Arg::TensorMap(map) => json!({
            "kind": "tensor_map",
            "buffer": map.buffer.to_string(),
            "offset": map.offset,
            "type": map.element.as_str(),
            "dims": map.dims,
            "strides": map.strides,
            "box": map.box_dims,
            "element_strides": map.element_strides,
            "interleave": map.interleave.as_str(),
            "swizzle": map.swizzle.as_str(),
            "l2": map.l2.as_str(),
            "fill": map.fill.as_str(),
        }),
        Arg::Struct(fields) => {
            let fields: Vec<_> = fields.iter().map(argument).collect();
            json!({ "kind": "struct", "fields": fields })
        }
        Arg::Function(name) => json!({ "kind": "function", "function": name }),
    };
    described["meaning"] = json!(meaning);
    if let Some(bytes) = bytes {
        described["bytes"] = json!(bytes);
    }
    described
}
