//! A recorded launch, run again on a simulated GPU, and its memory compared with what the GPU left.

use super::determined::{Determined, is_near};
use super::launch::{RunFlags, open};
use crate::answer::{BadQuestion, not_run, question};
use heist_launch::{Arg, Arguments, Placed};
use heist_ptx::{Diagnostic, Span, rule};
use heist_record::{Kind, MAGIC, Memory, Param, Record};
use heist_run::{DeviceName, Program, Schedules, Settings};
use heist_sim::Addresses;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Whether a file begins as a record does. One that can't be read is told by who reads it as text.
pub(super) fn is_record(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    // A pipe would lose what is read here.
    path.is_file()
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut start).is_ok())
        && start == *MAGIC
}

/// Reads a record; nothing where the file begins as something else.
pub(super) fn read(path: &Path) -> Result<Option<Record>, BadQuestion> {
    if !is_record(path) {
        return Ok(None);
    }
    let wrong = |error: &dyn Display| question(format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(|error| wrong(&error))?;
    let record = Record::from_bytes(&bytes).map_err(|error| wrong(&error))?;
    Ok(Some(record))
}

/// What a replay gave.
pub(super) struct Replay {
    pub(super) found: Vec<Diagnostic>,
    pub(super) remarks: Vec<String>,
}

/// Runs a recorded launch again.
pub(super) fn run(
    record: &Record,
    program: &Program,
    how: &RunFlags,
) -> Result<Replay, BadQuestion> {
    let device = how
        .device
        .unwrap_or_else(|| of_capability(record.capability, program));
    if let DeviceName::Gpu(_) = device {
        return Err(question(
            "a record is replayed on a simulated GPU, whose memory can have the recorded addresses: \
             leave --device out, or say one such as sim:h200",
        ));
    }
    let settings = how.settings(Settings {
        schedules: Schedules::WhileCheap,
        cooperative: record.cooperative,
        ..Settings::default()
    });
    let program = program.at(&addresses(record, program)?);
    let placed = Places::of(record, &program)?;
    let execution = open(device)?
        .inspect(
            &program,
            &record.kernel,
            &record.launch,
            &placed.arguments(record)?,
            &settings,
        )
        .map_err(not_run)?;
    let mut remarks = vec![format!(
        "launch {} of {}, recorded on {}, replayed on {device}",
        record.number,
        record.program.join(" "),
        record.gpu,
    )];
    remarks.extend(
        record
            .left_out
            .iter()
            .map(|what| format!("not recorded: {what}")),
    );
    let mut found = execution.findings.clone();
    if found.iter().any(|one| one.code == rule::INDIRECT_TARGET) {
        return Err(question(format!(
            "the kernel `{}` calls a function by an address in memory. The recorded address is one of the \
             GPU's machine code, and no variable of the module says which function is there, so the launch \
             can't be replayed: run the program with `heist cuda`, or record a kernel that calls by name",
            record.kernel
        )));
    }
    // What a texture or a surface is stays with the driver: the record has its handle alone.
    if found
        .iter()
        .any(|one| one.code == rule::GLOBAL_OUT_OF_BOUNDS && one.message.contains(" as an image"))
    {
        return Err(question(format!(
            "the kernel `{}` reads a texture or a surface, which records do not keep, so the launch can't \
             be replayed: run the program with `heist cuda`",
            record.kernel
        )));
    }
    if record.status != 0 {
        remarks.push(format!(
            "on the GPU the launch ended with status {} of the driver, so there is no memory to compare with",
            record.status
        ));
    } else if execution.has_errors() {
        remarks.push("memory was not compared: the replay has found an error".to_owned());
    } else {
        let differences = placed.differences(&execution.placed);
        let bytes: usize = record.memory.iter().map(|one| one.before.len()).sum();
        match judged(&differences, record) {
            None => remarks.push(format!(
                "all {bytes} bytes of memory are as the GPU left them"
            )),
            Some(Judged::Allowed(why)) => remarks.push(why),
            Some(Judged::Wrong(one)) => found.push(one),
        }
    }
    Ok(Replay { found, remarks })
}

/// The simulated GPU of a compute capability, or else one that the program's target fits.
fn of_capability(capability: u32, program: &Program) -> DeviceName {
    let own = [format!("sm_{capability}a"), format!("sm_{capability}")];
    let known = own
        .iter()
        .find(|name| heist_ptx::arch::Arch::parse(name).is_some());
    let target = &program.module().target.arch;
    DeviceName::for_target(known.map_or(target.as_str(), String::as_str))
}

/// Where the GPU had variables and functions. What virtual functions and tables of functions are
/// called by is an address in the GPU's machine code, of which a record knows nothing but what the
/// module's variables hold: where one starts with a function, its recorded bytes have that address.
fn addresses(record: &Record, program: &Program) -> Result<Addresses, BadQuestion> {
    let simulated = program.simulated().map_err(not_run)?;
    let mut found = Addresses::default();
    let names: HashMap<u64, &str> = simulated.functions().map(|(name, at)| (at, name)).collect();
    let mut pairs: BTreeSet<(&str, u64)> = BTreeSet::new();
    for memory in &record.memory {
        let Kind::Variable(name) = &memory.kind else {
            continue;
        };
        let Some(variable) = simulated.variables().find(|one| one.name == *name) else {
            continue;
        };
        if !variable.constant {
            found.variables.insert(name.clone(), memory.at);
        }
        let words = |bytes| <[u8]>::chunks_exact(bytes, 8);
        for (here, there) in words(variable.init).zip(words(&memory.before)) {
            if let Some(&function) = names.get(&word(here)) {
                pairs.insert((function, word(there)));
            }
        }
    }
    // A variable that the program has changed since may name another function than it did.
    let once = |&&(name, at): &&(&str, u64)| {
        let same = |other: &&(&str, u64)| other.0 == name || other.1 == at;
        at != 0 && pairs.iter().filter(same).count() == 1
    };
    let sure = pairs.iter().filter(once);
    found.functions = sure.map(|&(name, at)| (name.to_owned(), at)).collect();
    Ok(found)
}

fn word(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The recorded memory, each with its address and name here.
struct Places<'r>(Vec<Place<'r>>);

struct Place<'r> {
    memory: &'r Memory,
    /// Its address on the simulated GPU.
    at: u64,
    name: String,
}

impl<'r> Places<'r> {
    fn of(record: &'r Record, program: &Program) -> Result<Places<'r>, BadQuestion> {
        let simulated = program.simulated().map_err(not_run)?;
        let place = |memory: &'r Memory| {
            let (at, name) = match &memory.kind {
                Kind::Allocation => {
                    let name =
                        format!("{} bytes recorded at {:#x}", memory.before.len(), memory.at);
                    (memory.at, name)
                }
                // The simulated GPU has its own addresses for constants.
                Kind::Variable(name) => {
                    let variable = simulated.variables().find(|one| one.name == *name)?;
                    (variable.at, format!("variable {name}"))
                }
            };
            Some(Place { memory, at, name })
        };
        Ok(Places(record.memory.iter().filter_map(place).collect()))
    }

    /// The place of a recorded address.
    fn find(&self, address: u64) -> Option<&Place<'r>> {
        let inside = |one: &&Place<'_>| {
            address.wrapping_sub(one.memory.at) < one.memory.before.len().max(1) as u64
        };
        self.0.iter().find(inside)
    }

    fn arguments(&self, record: &Record) -> Result<Arguments, BadQuestion> {
        let placed = self
            .0
            .iter()
            .map(|one| Placed::filled(one.name.clone(), one.at, one.memory.before.clone()));
        let mut params = Vec::new();
        for (at, param) in record.params.iter().enumerate() {
            let wrong = |what: String| {
                question(format!(
                    "the record's parameter {at} can't be had here: {what}"
                ))
            };
            params.push(match param {
                Param::Bytes(bytes) => Arg::Bytes(self.here(bytes)),
                Param::Map(map) => {
                    let place = self.find(map.base).ok_or_else(|| {
                        wrong(format!(
                            "a tensor map over memory at {:#x}, which was not recorded",
                            map.base
                        ))
                    })?;
                    Arg::TensorMap(map.over(&place.name, place.memory.at).map_err(wrong)?)
                }
            });
        }
        Ok(Arguments {
            placed: placed.collect(),
            ..Arguments::new(params)
        })
    }

    /// A parameter with the addresses of constants as they are here; everything else keeps its own.
    fn here(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for word in bytes.chunks_exact_mut(8) {
            let address = self::word(word);
            if let Some(place) = self.find(address)
                && place.at != place.memory.at
            {
                let moved = place.at + (address - place.memory.at);
                word.copy_from_slice(&moved.to_le_bytes());
            }
        }
        bytes
    }

    /// Where the replay left other bytes than the GPU.
    fn differences(&self, left: &[Placed]) -> Vec<Difference> {
        let differing = |place: &Place<'_>| {
            let here = left.iter().find(|one| one.at == place.at)?;
            Difference::of(
                &place.name,
                place.memory.at,
                place.memory.left()?,
                &here.bytes,
            )
        };
        self.0.iter().filter_map(differing).collect()
    }
}

/// What differences mean.
enum Judged {
    /// PTX leaves them open: why.
    Allowed(String),
    Wrong(Diagnostic),
}

/// Judges by what the kernel's instructions leave open.
fn judged(differences: &[Difference], record: &Record) -> Option<Judged> {
    let (first, others) = differences.split_first()?;
    let told = |why: &str, word: &str| {
        let all: Vec<&str> = differences.iter().map(|one| one.told.as_str()).collect();
        Judged::Allowed(format!(
            "not all is as the GPU left it, {why} `{word}`: {}",
            all.join("; ")
        ))
    };
    let near = differences.iter().all(|one| one.near);
    Some(match Determined::by(&record.ptx) {
        Determined::Freely(word) => told("which is free with", &word),
        Determined::Nearly(word) if near => told("up to rounding, which is free with", &word),
        _ => {
            let text = format!(
                "the replay of `{}` left other bytes than {} did: {}",
                record.kernel, record.gpu, first.told
            );
            let mut one = Diagnostic::error(rule::REPLAY_DIFFERS, Span::NONE, text);
            one.notes
                .extend(others.iter().map(|other| other.told.clone()));
            one.helps.push(
                "see whether the record leaves out memory that the kernel reads, and try other orders \
                 of threads with --explore 100: a race gives other bytes each time"
                    .to_owned(),
            );
            Judged::Wrong(one)
        }
    })
}

/// How the bytes of a stretch differ.
struct Difference {
    told: String,
    /// Whether all of them differ as numbers do that are rounded otherwise.
    near: bool,
}

impl Difference {
    /// Nothing where they do not.
    fn of(name: &str, at: u64, there: &[u8], here: &[u8]) -> Option<Difference> {
        const WORD: usize = 4;
        let words = there.chunks(WORD).zip(here.chunks(WORD));
        let differing = words.enumerate().filter(|(_, (there, here))| there != here);
        let differing: Vec<_> = differing.collect();
        let &(index, (gpu, replay)) = differing.first()?;
        let value = |word: &[u8]| Some(u32::from_le_bytes(word.try_into().ok()?));
        let spelled = |word: &[u8]| match value(word) {
            Some(bits) => format!("{bits:#010x} (as f32 {:e})", f32::from_bits(bits)),
            None => format!("{word:02x?}"),
        };
        let near = |gpu: &[u8], replay: &[u8]| {
            let both = value(gpu).zip(value(replay));
            both.is_some_and(|(a, b)| is_near(a, b))
        };
        Some(Difference {
            told: format!(
                "{} of {} words of {name}, the first at {:#x}: {} on the GPU, {} here",
                differing.len(),
                there.len().div_ceil(WORD),
                at + (index * WORD) as u64,
                spelled(gpu),
                spelled(replay),
            ),
            near: differing.iter().all(|(_, (gpu, replay))| near(gpu, replay)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_in_words() {
        let difference = |there: &[u8], here: &[u8]| Difference::of("x", 0x1000, there, here);
        assert!(difference(&[1, 2, 3], &[1, 2, 3]).is_none());
        let found = difference(&[0; 10], &[0, 0, 0, 0, 0, 0, 128, 63, 1, 0]).expect("they differ");
        let told = &found.told;
        for part in [
            "2 of 3 words of x",
            "0x1004",
            "0x00000000",
            "0x3f800000 (as f32 1e0)",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!found.near);
        let found = difference(&[0; 5], &[0, 0, 0, 0, 9]).expect("they differ");
        assert!(found.told.contains("[09] here") && !found.near);
        let near = difference(&1f32.to_le_bytes(), &1.0000001f32.to_le_bytes());
        assert!(near.is_some_and(|found| found.near));
    }
}
