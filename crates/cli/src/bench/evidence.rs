//! The pack of evidence behind a figure: what ran, what the assembler made of it,
//! what the sanitizers said, on which device.

use super::{Contest, Outcome};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes a contest's evidence into a folder of its own.
///
/// # Errors
/// When a file can't be written.
pub fn write(
    folder: &Path,
    contest: &Contest<'_>,
    outcome: &Outcome,
    machine: &Value,
    profile: &Value,
) -> std::io::Result<PathBuf> {
    let folder = folder.join(slug(&contest.name));
    std::fs::create_dir_all(&folder)?;
    let mut kernels = Vec::new();
    for (arm, (name, candidate)) in contest.ours.iter().enumerate() {
        for (step, (text, info)) in candidate.kernels().into_iter().enumerate() {
            let file = format!("{arm}-{step}-{}.ptx", slug(&text.name));
            std::fs::write(folder.join(&file), &text.text)?;
            kernels.push(json!({
                "arm": name,
                "ptx": file,
                "sha256": hex(&Sha256::digest(text.text.as_bytes())),
                "entry": info.name,
                "registers": info.registers,
                "local_bytes": info.local,
                "static_shared": info.static_shared,
                "instructions": instructions(&text.text),
                "machine_code": machine_code(&folder.join(&file)),
            }));
        }
    }
    let pack = json!({
        "contest": outcome.to_json(),
        "kernels": kernels,
        "machine": machine,
        "profile": profile,
    });
    let text = serde_json::to_string_pretty(&pack).unwrap_or_default();
    std::fs::write(folder.join("evidence.json"), text)?;
    Ok(folder)
}

/// Runs the four sanitizers over a small problem of a kernel, in this same program,
/// and keeps their logs. `Null` where there is no sanitizer.
///
/// # Errors
/// When a log can't be written.
pub fn sanitize(folder: &Path, family: &str, words: &[&str]) -> std::io::Result<Value> {
    let program = std::env::current_exe()?;
    let mut verdicts = serde_json::Map::new();
    for tool in ["memcheck", "racecheck", "synccheck", "initcheck"] {
        let log = folder.join(format!("{family}.{tool}.log"));
        let ran = Command::new("compute-sanitizer")
            .args(["--tool", tool, "--error-exitcode", "9", "--log-file"])
            .arg(&log)
            .arg(&program)
            .args(["run", family])
            .args(words)
            .args(["--device", "gpu"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match ran {
            Ok(status) => verdicts.insert(tool.into(), json!(status.code())),
            Err(_) => return Ok(Value::Null),
        };
    }
    Ok(Value::Object(verdicts))
}

/// The device, its driver, clocks and power, as far as the machine tells.
pub fn machine(gpu: &heist_gpu::Gpu, peers: Option<&Value>) -> Value {
    let info = gpu.info();
    let fields = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu";
    let smi = Command::new("nvidia-smi")
        .arg(format!("--query-gpu={fields}"))
        .args(["--format=csv,noheader"])
        .output()
        .ok()
        .filter(|answer| answer.status.success())
        .map(|answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned());
    json!({
        "device": info.name,
        "sms": info.sms,
        "driver": info.driver.to_string(),
        "nvidia-smi": smi.map(|line| json!({ "fields": fields, "values": line })),
        "peers": peers,
    })
}

/// Counts of the instructions that matter, where ptxas and nvdisasm are on the path.
fn machine_code(ptx: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(ptx).ok()?;
    let target = heist_gpu::PtxText::new("", text).target()?.to_owned();
    let cubin = ptx.with_extension("cubin");
    let assembled = Command::new("ptxas")
        .arg(format!("-arch={target}"))
        .arg("-o")
        .arg(&cubin)
        .arg(ptx)
        .output()
        .ok()?;
    let listing = assembled
        .status
        .success()
        .then(|| Command::new("nvdisasm").arg("-c").arg(&cubin).output().ok())
        .flatten();
    // Machine code can be made again from the PTX.
    let _ = std::fs::remove_file(&cubin);
    let listing = String::from_utf8_lossy(&listing?.stdout).into_owned();
    let count = |name: &str| {
        let is = |line: &&str| line.trim_start().starts_with("/*") && line.contains(name);
        listing.lines().filter(is).count()
    };
    let names = ["HMMA", "HGMMA", "LDSM", "LDGSTS", "BAR.SYNC", "STL", "LDL"];
    Some(
        names
            .iter()
            .map(|name| ((*name).to_owned(), json!(count(name))))
            .collect(),
    )
}

/// How often each instruction is in a kernel's PTX: what tensor cores and copies it uses can be
/// seen, and counted again.
pub(crate) fn instructions(text: &str) -> Value {
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for line in text.lines() {
        let line = line.trim();
        // A guard comes before the opcode.
        let word = match line.strip_prefix('@') {
            Some(guarded) => guarded.split_whitespace().nth(1),
            None => line.split_whitespace().next(),
        };
        let opcode = word
            .and_then(|word| word.split(['.', ';']).next())
            .unwrap_or_default();
        let is_one = line.ends_with(';') && opcode.starts_with(|c: char| c.is_ascii_lowercase());
        if is_one {
            *counts.entry(opcode.to_owned()).or_default() += 1;
        }
    }
    json!(counts)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn slug(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_folders() {
        assert_eq!(slug("gemm bf16 nt 4096"), "gemm-bf16-nt-4096");
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
