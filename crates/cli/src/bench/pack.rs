//! A pack of evidence as a whole: sealed with the hash of every file, and verified again.

use super::evidence::{hex, instructions};
use heist_ptx::Source;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that says what is in a pack.
const SEAL: &str = "evidence.json";
/// The version of its shape.
const SCHEMA: &str = "heist-evidence-pack/1";
/// All four are required.
const SANITIZERS: [&str; 4] = ["memcheck", "racecheck", "synccheck", "initcheck"];

/// Seals a folder: what was measured where, what the sanitizers said, and the hash of every
/// file that lies in it.
///
/// # Errors
/// When a file can't be read or written.
pub(crate) fn seal(
    folder: &Path,
    machine: &Value,
    sanitizers: &Value,
    command: &[String],
) -> std::io::Result<()> {
    let mut files = serde_json::Map::new();
    for path in inside(folder)? {
        if path != Path::new(SEAL) {
            let hash = hex(&Sha256::digest(fs::read(folder.join(&path))?));
            files.insert(path.display().to_string(), json!(hash));
        }
    }
    let pack = json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "command": command,
        "machine": machine,
        "sanitizers": sanitizers,
        "files": files,
    });
    fs::write(folder.join(SEAL), format!("{pack:#}\n"))
}

/// Every file below a folder, as its path from there, sorted.
fn inside(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at)? {
            let path = entry?.path();
            match path.is_dir() {
                true => open.push(path),
                false => found.extend(path.strip_prefix(folder).map(Path::to_owned)),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The result of verifying a pack.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    /// Items that were checked and are right.
    pub(crate) held: usize,
    /// What is missing or false, each with its file.
    pub(crate) broken: Vec<String>,
    /// Items that could not be checked here, and why.
    pub(crate) skipped: Vec<String>,
}

impl Verified {
    fn hold(&mut self, is: bool, otherwise: impl FnOnce() -> String) -> bool {
        match is {
            true => self.held += 1,
            false => self.broken.push(otherwise()),
        }
        is
    }
}

/// Assembles a module again: whether each kernel spills, or why that is not known.
pub(crate) type Assemble<'a> = &'a dyn Fn(&Source) -> Result<Vec<(String, bool)>, String>;

/// Checks that a pack is consistent, and repeats what can be repeated.
pub(crate) fn verify(folder: &Path, assemble: Option<Assemble<'_>>) -> Verified {
    let mut verified = Verified::default();
    let Some(seal) = read(&folder.join(SEAL), &mut verified) else {
        return verified;
    };
    let schema = seal["schema"].as_str().unwrap_or("none");
    verified.hold(schema == SCHEMA, || {
        format!("{SEAL}: schema {schema}, and {SCHEMA} is known")
    });
    for field in ["device", "driver", "sms"] {
        verified.hold(!seal["machine"][field].is_null(), || {
            format!("{SEAL}: machine.{field} is missing")
        });
    }
    hashes(folder, &seal, &mut verified);
    sanitizers(folder, &seal, &mut verified);
    let contests: Vec<PathBuf> = inside(folder)
        .unwrap_or_default()
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name == SEAL) && path != Path::new(SEAL))
        .collect();
    verified.hold(!contests.is_empty(), || {
        format!("{SEAL}: no contest lies beside it")
    });
    if assemble.is_none() {
        verified
            .skipped
            .push("assembling again: there is no ptxas here".to_owned());
    }
    for path in contests {
        contest(folder, &path, assemble, &mut verified);
    }
    verified
}

fn read(path: &Path, verified: &mut Verified) -> Option<Value> {
    let name = path.display();
    let text = fs::read_to_string(path);
    let read = text
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    match read {
        Ok(value) => {
            verified.held += 1;
            Some(value)
        }
        Err(why) => {
            verified.broken.push(format!("{name}: {why}"));
            None
        }
    }
}

/// Every file exists with its hash, and none was added.
fn hashes(folder: &Path, seal: &Value, verified: &mut Verified) {
    let Some(files) = seal["files"].as_object() else {
        verified.broken.push(format!("{SEAL}: files is missing"));
        return;
    };
    for (name, hash) in files {
        match fs::read(folder.join(name)) {
            Ok(bytes) => {
                let found = hex(&Sha256::digest(bytes));
                verified.hold(hash.as_str() == Some(&found), || {
                    format!("{name}: its hash is {found}, and {SEAL} says {hash}")
                });
            }
            Err(error) => verified.broken.push(format!("{name}: {error}")),
        }
    }
    for path in inside(folder).unwrap_or_default() {
        let name = path.display().to_string();
        if name != SEAL {
            verified.hold(files.contains_key(&name), || {
                format!("{name}: {SEAL} does not know it")
            });
        }
    }
}

/// Each family has the verdicts of all four, and their logs say the same.
fn sanitizers(folder: &Path, seal: &Value, verified: &mut Verified) {
    let families = seal["sanitizers"]
        .as_object()
        .filter(|families| !families.is_empty());
    let Some(families) = families else {
        verified
            .broken
            .push(format!("{SEAL}: no sanitizer's verdict"));
        return;
    };
    for (family, verdicts) in families {
        for tool in SANITIZERS {
            let status = verdicts[tool].as_i64();
            verified.hold(status == Some(0), || {
                let said = status.map_or("none".to_owned(), |status| status.to_string());
                format!("{SEAL}: {family}: {tool} ended with status {said}")
            });
            let log = format!("{family}.{tool}.log");
            let text = fs::read_to_string(folder.join(&log)).unwrap_or_default();
            let clean = ["ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards"];
            verified.hold(clean.iter().any(|line| text.contains(line)), || {
                format!("{log}: it does not say that nothing was found")
            });
        }
    }
}

fn contest(folder: &Path, path: &Path, assemble: Option<Assemble<'_>>, verified: &mut Verified) {
    let name = path.display();
    let Some(pack) = read(&folder.join(path), verified) else {
        return;
    };
    let contest = &pack["contest"];
    verified.hold(contest["wrong"].is_null(), || {
        format!("{name}: a result was wrong: {}", contest["wrong"])
    });
    let arms = contest["arms"].as_array().cloned().unwrap_or_default();
    verified.hold(!arms.is_empty(), || format!("{name}: nothing was measured"));
    for arm in &arms {
        let samples = arm["samples_ns"].as_array().map_or(0, Vec::len);
        verified.hold(samples > 0 && arm["ns"].is_array(), || {
            format!("{name}: {} has no times", arm["name"])
        });
        median(arm, &format!("{name}: {}", arm["name"]), verified);
    }
    let kernels = pack["kernels"].as_array().cloned().unwrap_or_default();
    verified.hold(!kernels.is_empty(), || format!("{name}: it has no kernel"));
    for kernel in &kernels {
        let file = kernel["ptx"].as_str().unwrap_or("none");
        let place = path.with_file_name(file);
        self::kernel(folder, &place, kernel, assemble, verified);
    }
    profile(&pack["profile"], &name.to_string(), verified);
}

/// Shares of a peak are between nothing and all of it. Nobody can count again here what was counted there.
fn profile(profile: &Value, name: &str, verified: &mut Verified) {
    let Some(kernels) = profile["kernels"].as_array() else {
        let why = profile["not_profiled"].as_str();
        let why = why.unwrap_or("the pack was made without ncu");
        verified.skipped.push(format!("{name}: no profile: {why}"));
        return;
    };
    verified.hold(!kernels.is_empty(), || format!("{name}: an empty profile"));
    for kernel in kernels {
        let shares = kernel.as_object().into_iter().flatten();
        for (metric, share) in shares.filter(|(metric, _)| metric.ends_with("_percent")) {
            let possible = share
                .as_f64()
                .is_some_and(|share| (0.0..=100.5).contains(&share));
            verified.hold(possible, || {
                format!("{name}: {metric} of {} is {share}", kernel["entry"])
            });
        }
    }
}

/// The stated median is that of the samples.
fn median(arm: &Value, name: &str, verified: &mut Verified) {
    let samples = arm["samples_ns"].as_array().cloned().unwrap_or_default();
    let mut numbers: Vec<f64> = samples.iter().filter_map(Value::as_f64).collect();
    numbers.sort_by(f64::total_cmp);
    let (Some(said), Some(low), Some(high)) = (
        arm["ns"][1].as_f64(),
        numbers.get(numbers.len().saturating_sub(1) / 2),
        numbers.get(numbers.len() / 2),
    ) else {
        return;
    };
    verified.hold((low - 1.0..=high + 1.0).contains(&said), || {
        format!("{name}: a median of {said} ns, and its samples have {low} to {high}")
    });
}

fn kernel(
    folder: &Path,
    place: &Path,
    told: &Value,
    assemble: Option<Assemble<'_>>,
    verified: &mut Verified,
) {
    let name = place.display().to_string();
    let Ok(text) = fs::read_to_string(folder.join(place)) else {
        verified.broken.push(format!("{name}: it can't be read"));
        return;
    };
    let hash = hex(&Sha256::digest(text.as_bytes()));
    verified.hold(told["sha256"].as_str() == Some(&hash), || {
        format!("{name}: not the kernel that was measured")
    });
    verified.hold(
        told["registers"].as_u64().is_some_and(|count| count > 0),
        || format!("{name}: its registers are missing"),
    );
    let local = told["local_bytes"].as_u64();
    verified.hold(local == Some(0), || {
        format!(
            "{name}: {} bytes of local memory a thread",
            local.map_or("unknown".to_owned(), |bytes| bytes.to_string())
        )
    });
    let counts = instructions(&text);
    verified.hold(told["instructions"] == counts, || {
        format!(
            "{name}: its instructions are {counts}, and {} is told",
            told["instructions"]
        )
    });
    let source = Source::new(&name, text);
    match heist_ptx::parse(&source) {
        Ok(module) => {
            let entry = told["entry"].as_str().unwrap_or_default();
            let has = module.entries().any(|one| one.name.as_str() == entry);
            verified.hold(has, || format!("{name}: it has no kernel `{entry}`"));
        }
        Err(_) => verified.broken.push(format!("{name}: it is no PTX")),
    }
    let Some(assemble) = assemble else { return };
    match assemble(&source) {
        Ok(spills) => {
            for (entry, spills) in spills {
                verified.hold(!spills, || {
                    format!("{name}: assembled again, `{entry}` spills")
                });
            }
        }
        Err(why) => verified.broken.push(format!("{name}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str =
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n";

    /// A small pack that holds.
    fn pack(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("heist-pack-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("gemm-4096")).expect("a folder");
        fs::write(folder.join("gemm-4096/0-0-k.ptx"), PTX).expect("PTX");
        let contest = json!({
            "contest": { "name": "gemm 4096", "wrong": null, "arms": [
                { "name": "ours", "ours": true, "error": null, "ns": [1.0e5, 2.0e5, 3.0e5], "samples_ns": [1.0e5, 2.0e5, 3.0e5] },
            ]},
            "kernels": [{
                "arm": "ours", "ptx": "0-0-k.ptx", "sha256": hex(&Sha256::digest(PTX.as_bytes())),
                "entry": "k", "registers": 32, "local_bytes": 0, "instructions": instructions(PTX),
            }],
            "profile": { "kernels": [{ "entry": "k", "tensor_cores_percent": 81.5, "bank_conflicts": 12.0 }] },
        });
        fs::write(folder.join("gemm-4096/evidence.json"), contest.to_string()).expect("a contest");
        let mut verdicts = serde_json::Map::new();
        for tool in SANITIZERS {
            fs::write(
                folder.join(format!("gemm.{tool}.log")),
                "========= ERROR SUMMARY: 0 errors\n",
            )
            .expect("a log");
            verdicts.insert(tool.to_owned(), json!(0));
        }
        let machine = json!({ "device": "NVIDIA H200", "driver": "13.0", "sms": 132 });
        seal(
            &folder,
            &machine,
            &json!({ "gemm": verdicts }),
            &["heist".to_owned()],
        )
        .expect("sealed");
        folder
    }

    #[test]
    fn a_pack_that_is_whole_holds() {
        let folder = pack("whole");
        let verified = verify(&folder, Some(&|_| Ok(vec![("k".to_owned(), false)])));
        assert!(verified.broken.is_empty(), "{:?}", verified.broken);
        assert!(verified.held > 20);
        let spills = verify(&folder, Some(&|_| Ok(vec![("k".to_owned(), true)])));
        assert!(
            spills.broken.iter().any(|line| line.contains("`k` spills")),
            "{:?}",
            spills.broken
        );
        let _ = fs::remove_dir_all(folder);
    }

    /// Changes a file's text, and seals the pack again if `sealed`.
    fn bent(name: &str, file: &str, from: &str, to: &str, sealed: bool) -> Vec<String> {
        let folder = pack(name);
        let path = folder.join(file);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).expect("written");
        if sealed {
            let seal: Value =
                serde_json::from_str(&fs::read_to_string(folder.join(SEAL)).expect("a seal"))
                    .expect("JSON");
            super::seal(&folder, &seal["machine"], &seal["sanitizers"], &[]).expect("sealed");
        }
        let broken = verify(&folder, None).broken;
        let _ = fs::remove_dir_all(folder);
        broken
    }

    #[test]
    fn each_way_to_tamper_is_named() {
        let contest = "gemm-4096/evidence.json";
        for (name, file, from, to, sealed, says) in [
            (
                "ptx",
                "gemm-4096/0-0-k.ptx",
                "ret;",
                "exit;",
                true,
                "not the kernel that was measured",
            ),
            (
                "hash",
                "gemm-4096/0-0-k.ptx",
                "ret;",
                "exit;",
                false,
                "its hash is",
            ),
            (
                "wrong",
                contest,
                "\"wrong\":null",
                "\"wrong\":\"off\"",
                true,
                "a result was wrong",
            ),
            (
                "median",
                contest,
                "[100000.0,200000.0,300000.0],\"ours\"",
                "[1.0,2.0,3.0],\"ours\"",
                true,
                "a median of 2",
            ),
            (
                "spill",
                contest,
                "\"local_bytes\":0",
                "\"local_bytes\":64",
                true,
                "64 bytes of local memory",
            ),
            (
                "registers",
                contest,
                "\"registers\":32",
                "\"registers\":0",
                true,
                "registers are missing",
            ),
            (
                "entry",
                contest,
                "\"entry\":\"k\"",
                "\"entry\":\"other\"",
                true,
                "no kernel `other`",
            ),
            (
                "count",
                contest,
                "\"ret\":1",
                "\"ret\":2",
                true,
                "its instructions are",
            ),
            (
                "profile",
                contest,
                "\"tensor_cores_percent\":81.5",
                "\"tensor_cores_percent\":181.5",
                true,
                "tensor_cores_percent of \"k\" is 181.5",
            ),
            (
                "log",
                "gemm.racecheck.log",
                "0 errors",
                "3 errors",
                true,
                "gemm.racecheck.log",
            ),
            (
                "verdict",
                SEAL,
                "\"memcheck\": 0",
                "\"memcheck\": 9",
                false,
                "memcheck ended with status 9",
            ),
            (
                "machine",
                SEAL,
                "\"driver\"",
                "\"drivel\"",
                false,
                "machine.driver is missing",
            ),
            (
                "schema",
                SEAL,
                "pack/1",
                "pack/9",
                false,
                "schema heist-evidence-pack/9",
            ),
        ] {
            let broken = bent(name, file, from, to, sealed);
            assert!(
                broken.iter().any(|line| line.contains(says)),
                "{name}: {broken:?}"
            );
        }
        let folder = pack("gone");
        fs::remove_file(folder.join("gemm.initcheck.log")).expect("removed");
        fs::write(folder.join("more.txt"), "unknown").expect("written");
        let broken = verify(&folder, None).broken;
        assert!(
            broken
                .iter()
                .any(|line| line.starts_with("gemm.initcheck.log")),
            "{broken:?}"
        );
        assert!(
            broken.iter().any(|line| line.starts_with("more.txt")),
            "{broken:?}"
        );
        let _ = fs::remove_dir_all(folder);
    }
}
