//! Mutated test files through `heist check` with their launches, a process each: the
//! status is 0, 1 or 2, and time and memory are kept.

use crate::shell::{self, Failed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time limit given to a check, in seconds.
const TIMEOUT: u64 = 2;
/// Processors that a check may use: blocks run on as many threads.
const PROCESSORS: usize = 2;
/// Seconds of a processor that it may take in all: a second more, on all of those threads. Processor
/// time, because on a busy machine a process may wait.
const PROCESSOR: u64 = PROCESSORS as u64 * (TIMEOUT + 1);
/// A check that does not even use a processor hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Kilobytes of address space: the memory budget of a launch, and as much again.
const ADDRESS_SPACE: u64 = 8 << 20;
/// Files longer than this take longer to read than to check.
const LONGEST: usize = 12_000;

/// How many inputs, the first seed, and the command if it is not to be built.
pub(crate) fn run(inputs: u64, seed: u64, built: Option<&str>) -> Result<(), Failed> {
    let heist = match built {
        Some(path) => PathBuf::from(path),
        None => {
            shell::cargo(&["build", "-p", "heist-cli"])?;
            shell::root().join("target/debug/heist")
        }
    };
    let originals = originals()?;
    let folder = shell::root().join("target/fuzz-check");
    fs::create_dir_all(&folder)
        .map_err(|error| Failed(format!("{}: {error}", folder.display())))?;
    let next = AtomicU64::new(0);
    let counts: [AtomicU64; 3] = Default::default();
    let failures = Mutex::new(Vec::new());
    let processors = allowed_processors()?;
    let workers = processors.len();
    thread::scope(|scope| {
        for worker in 0..workers {
            let (next, counts, failures) = (&next, &counts, &failures);
            let (heist, originals, folder) = (&heist, &originals, &folder);
            let own = processors.iter().cycle().skip(worker).take(PROCESSORS);
            let own: Vec<String> = own.map(u32::to_string).collect();
            let own = own.join(",");
            scope.spawn(move || {
                let file = folder.join(format!("{worker}.ptx"));
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= inputs {
                        return;
                    }
                    let mut dice = Dice::new(seed.wrapping_add(number));
                    let text = mutant(&mut dice, originals);
                    let answer = match fs::write(&file, &text) {
                        Ok(()) => check(heist, &file, &own),
                        Err(error) => Err(format!("{}: {error}", file.display())),
                    };
                    match answer {
                        Ok(status) => {
                            counts[usize::from(status)].fetch_add(1, Ordering::Relaxed);
                        }
                        Err(why) => {
                            let kept = folder.join(format!("seed-{}.ptx", seed + number));
                            let told = format!("{}: {why}", kept.display());
                            eprintln!("{told}");
                            // The worker's file is overwritten by the next input.
                            let _ = fs::write(&kept, &text);
                            if let Ok(mut failures) = failures.lock() {
                                failures.push(told);
                            }
                        }
                    }
                }
            });
        }
    });
    let [clean, found, refused] = counts.map(AtomicU64::into_inner);
    let failed = failures.into_inner().map_or(1, |failures| failures.len());
    println!(
        "{inputs} inputs: {clean} clean, {found} with findings, {refused} refused, {failed} failed"
    );
    if failed == 0 {
        Ok(())
    } else {
        Err(Failed(format!(
            "{failed} inputs broke the check; they are in {}",
            folder.display()
        )))
    }
}

/// The numbers of the processors that this process may use.
fn allowed_processors() -> Result<Vec<u32>, Failed> {
    let file = "/proc/self/status";
    let status = fs::read_to_string(file).map_err(|error| Failed(format!("{file}: {error}")))?;
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(numbers)
        .ok_or_else(|| Failed(format!("{file} does not say which processors are allowed")))
}

/// The numbers of a list such as `0-3,8`.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    (!numbers.is_empty()).then_some(numbers)
}

/// Checks one file on the processors of a list: its status, or what is wrong with how it ended.
fn check(heist: &Path, file: &Path, processors: &str) -> Result<u8, String> {
    let started = Instant::now();
    let mut child = Command::new("sh")
        .args([
            "-c",
            "ulimit -v $1; ulimit -t $2; shift 2; exec taskset -c \"$@\"",
            "sh",
        ])
        .args([ADDRESS_SPACE, PROCESSOR].map(|limit| limit.to_string()))
        .arg(processors)
        .arg(heist)
        .arg("check")
        .arg(file)
        .arg("--launches")
        .arg(file)
        .args(["--timeout", &TIMEOUT.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("can't be started: {error}"))?;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("still there after {} s", PATIENCE.as_secs()));
            }
            Ok(None) => thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(error.to_string()),
        }
    };
    match status.code() {
        Some(code @ 0..=2) => Ok(code as u8),
        _ => Err(status.to_string()),
    }
}

/// The test files that have launches and are short.
fn originals() -> Result<Vec<String>, Failed> {
    fn walk(folder: &Path, out: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|ext| ext == "ptx") {
                out.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    for folder in ["rules", "cases", "tests/ptx"] {
        walk(&shell::root().join(folder), &mut paths);
    }
    paths.sort();
    let texts = paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    let texts: Vec<String> = texts
        .filter(|text| text.len() <= LONGEST && text.contains("// heist: run"))
        .collect();
    if texts.is_empty() {
        return Err(Failed("there are no test files to mutate".to_owned()));
    }
    Ok(texts)
}

/// Numbers that are at the edge of something.
const EDGES: [&str; 18] = [
    "0",
    "1",
    "-1",
    "3",
    "31",
    "32",
    "33",
    "255",
    "256",
    "1024",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "1000000000000",
];

/// Words that mean something in many places.
const WORDS: [&str; 24] = [
    ".u64", ".b128", ".v4", ".pred", ".shared", ".local", ".param", ".const", ".global",
    ".cluster", ".cta", ".relaxed", ".acquire", ".sync", ".aligned", "%r1", "%tid.x", "{", "}",
    ";", "[", "]", "bra", "_",
];

/// A test file with one to four changes.
fn mutant(dice: &mut Dice, originals: &[String]) -> Vec<u8> {
    let mut text = originals[dice.below(originals.len())].clone().into_bytes();
    for _ in 0..=dice.below(4) {
        change(dice, &mut text, originals);
    }
    text
}

fn change(dice: &mut Dice, text: &mut Vec<u8>, originals: &[String]) {
    let lines = || -> Vec<Vec<u8>> {
        text.split(|&byte| byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    match dice.below(9) {
        // A byte is another one.
        0 if !text.is_empty() => {
            let at = dice.below(text.len());
            text[at] = dice.below(256) as u8;
        }
        // A line goes, comes twice, or changes places with another.
        1..=3 => {
            let mut lines = lines();
            let (one, other) = (dice.below(lines.len()), dice.below(lines.len()));
            match dice.below(3) {
                0 => drop(lines.remove(one)),
                1 => lines.insert(other, lines[one].clone()),
                _ => lines.swap(one, other),
            }
            *text = lines.join(&b'\n');
        }
        // A number is one at an edge.
        4 | 5 => {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_%$.".contains(&byte);
            replace(dice, text, |byte| byte.is_ascii_digit(), is_word, &EDGES);
        }
        // A word is another one.
        6 => {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_%$.:".contains(&byte);
            replace(dice, text, is_word, |_| false, &WORDS);
        }
        // A line of another file comes in.
        7 => {
            let mut lines = lines();
            let other = &originals[dice.below(originals.len())];
            let others: Vec<&str> = other.lines().collect();
            let line = others[dice.below(others.len())];
            lines.insert(dice.below(lines.len()), line.as_bytes().to_vec());
            *text = lines.join(&b'\n');
        }
        // The end is missing.
        _ => text.truncate(dice.below(text.len() + 1)),
    }
}

/// Replaces a run of bytes that are `inside`, and that no byte before joins to a longer word.
fn replace(
    dice: &mut Dice,
    text: &mut Vec<u8>,
    inside: impl Fn(u8) -> bool,
    joined: impl Fn(u8) -> bool,
    with: &[&str],
) {
    let starts: Vec<usize> = (0..text.len())
        .filter(|&at| inside(text[at]))
        .filter(|&at| at == 0 || !(inside(text[at - 1]) || joined(text[at - 1])))
        .collect();
    if starts.is_empty() {
        return;
    }
    let start = starts[dice.below(starts.len())];
    let len = text[start..]
        .iter()
        .take_while(|&&byte| inside(byte))
        .count();
    let word = with[dice.below(with.len())];
    text.splice(start..start + len, word.bytes());
}

/// A random generator (splitmix64), the same for the same seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % end.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_mutant_and_seeds_give_many() {
        let originals = vec![".reg .u32 a;\nadd.u32 a, a, 7;\nret;\n".to_owned()];
        let of = |seed| mutant(&mut Dice::new(seed), &originals);
        assert_eq!(of(7), of(7));
        let mut all: Vec<_> = (0..200).map(of).collect();
        all.sort();
        all.dedup();
        assert!(all.len() > 50, "{}", all.len());
    }

    #[test]
    fn processors_are_listed_in_stretches() {
        assert_eq!(numbers("\t0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("5"), Some(vec![5]));
        assert_eq!(numbers(""), None);
    }

    #[test]
    fn a_number_in_a_name_stays() {
        let mut text = b"add %r12, 12;".to_vec();
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_%$.".contains(&byte);
        replace(
            &mut Dice::new(1),
            &mut text,
            |b| b.is_ascii_digit(),
            is_word,
            &["X"],
        );
        assert_eq!(text, b"add %r12, X;");
    }
}
