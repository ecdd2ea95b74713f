//! Security advisories of RustSec for what we depend on, without a network.
//!
//! `xtask/advisories.json` keeps those that have the name of a package in our lock files, with the
//! day of the database they are from and all names that were looked up. `deny` holds every locked
//! version against it; a dependency whose name was never looked up is wrong, too. `update` makes
//! the file anew, and needs the database: a network, or a copy of it.

use crate::shell::{self, Failed};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const DATABASE: &str = "https://github.com/RustSec/advisory-db";
/// What we ship and test, and the peers that are only compared with.
const LOCKS: [&str; 2] = ["Cargo.lock", "bench/peers/Cargo.lock"];
/// Older than that, the age is said as something to do.
const OLD: u64 = 90;

/// One advisory, as far as a lock file can be held against it.
struct Advisory {
    id: String,
    package: String,
    title: String,
    patched: Vec<String>,
    unaffected: Vec<String>,
}

/// Holds the locked versions against the file; `ignored` are advisories that deny.toml names.
pub(crate) fn check(ignored: &BTreeSet<&str>) -> Result<String, Failed> {
    let kept = fs::read_to_string(file()).map_err(|error| cannot(&file(), &error))?;
    let kept: Value =
        serde_json::from_str(&kept).map_err(|error| Failed(format!("advisories.json: {error}")))?;
    let wrong = wrong(&kept, &locked()?, ignored)?;
    if !wrong.is_empty() {
        return Err(Failed(wrong.join("\n")));
    }
    let date = kept["date"].as_str().unwrap_or_default();
    let mut said = format!("no advisory of RustSec's database of {date} is about our versions");
    if let Some(days) = age(date, today()).filter(|days| *days > OLD) {
        said += &format!(
            "; that is {days} days old: `cargo xtask advisories` fetches it, where there is a network"
        );
    }
    Ok(said)
}

/// Makes the file anew from the database, or from a copy of its repository.
pub(crate) fn update(source: Option<&str>) -> Result<(), Failed> {
    let copy = shell::root().join("target/advisory-db");
    let _ = fs::remove_dir_all(&copy);
    let source = source.unwrap_or(DATABASE);
    shell::run(
        shell::command("git")
            .args(["clone", "--quiet", "--depth", "1", source])
            .arg(&copy),
    )
    .map_err(|Failed(why)| {
        Failed(format!(
            "{why}\nadvisories.json stays as it is. Without a network, name a copy of the \
             repository: `cargo xtask advisories FOLDER`"
        ))
    })?;
    let names: BTreeSet<String> = locked()?.into_iter().map(|(name, _)| name).collect();
    let mut advisories = Vec::new();
    for name in &names {
        // Most packages have no folder: nothing was ever said of them.
        let Ok(folder) = fs::read_dir(copy.join("crates").join(name)) else {
            continue;
        };
        let mut files: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for path in files {
            let text = fs::read_to_string(&path).map_err(|error| cannot(&path, &error))?;
            let read = read(&text);
            let read = read.map_err(|why| Failed(format!("{}: {why}", path.display())))?;
            advisories.extend(read.map(|one| {
                json!({ "id": one.id, "package": one.package, "title": one.title,
                    "patched": one.patched, "unaffected": one.unaffected })
            }));
        }
    }
    let commit = shell::command("git")
        .current_dir(&copy)
        .args(["log", "-1", "--format=%H %cs"])
        .output()
        .map_err(|error| Failed(format!("git can't be started: {error}")))?;
    let commit = String::from_utf8_lossy(&commit.stdout).into_owned();
    let (commit, date) = commit.trim().split_once(' ').unwrap_or_default();
    let found = advisories.len();
    let new = json!({ "database": DATABASE, "commit": commit, "date": date,
        "looked_up": names, "advisories": advisories });
    let text = serde_json::to_string_pretty(&new).map_err(|error| Failed(error.to_string()))?;
    fs::write(file(), text + "\n").map_err(|error| cannot(&file(), &error))?;
    println!(
        "{found} advisories about {} names, of {date}: advisories.json",
        names.len()
    );
    Ok(())
}

fn file() -> PathBuf {
    shell::root().join("xtask/advisories.json")
}

fn cannot(path: &Path, error: &std::io::Error) -> Failed {
    Failed(format!("{}: {error}", path.display()))
}

/// Names and versions of all that the lock files take from others.
fn locked() -> Result<BTreeSet<(String, String)>, Failed> {
    let mut all = BTreeSet::new();
    for lock in LOCKS {
        let path = shell::root().join(lock);
        let text = fs::read_to_string(&path).map_err(|error| cannot(&path, &error))?;
        all.extend(of_others(&text));
    }
    Ok(all)
}

fn of_others(lock: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let value = |package: &str, key: &str| {
        let mut lines = package.lines().filter_map(|line| line.split_once(" = "));
        let found = lines.find(|(name, _)| *name == key);
        found.map(|(_, value)| value.trim_matches('"').to_owned())
    };
    lock.split("[[package]]").filter_map(move |package| {
        value(package, "source")?;
        Some((value(package, "name")?, value(package, "version")?))
    })
}

/// What the file has against these versions.
fn wrong(
    kept: &Value,
    locked: &BTreeSet<(String, String)>,
    ignored: &BTreeSet<&str>,
) -> Result<Vec<String>, Failed> {
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let looked_up = texts(&kept["looked_up"]);
    let mut wrong: Vec<String> = (locked.iter())
        .filter(|(name, _)| !looked_up.contains(name))
        .map(|(name, _)| {
            format!("{name}: advisories were never looked up; `cargo xtask advisories` does it")
        })
        .collect();
    for advisory in kept["advisories"].as_array().into_iter().flatten() {
        let text = |key: &str| advisory[key].as_str().unwrap_or_default();
        let safe = [texts(&advisory["patched"]), texts(&advisory["unaffected"])].concat();
        for (name, version) in locked.iter().filter(|(name, _)| name == text("package")) {
            let safe = safe.iter().map(|range| matches(range, version));
            let is_safe = safe.collect::<Result<Vec<bool>, String>>();
            let is_safe = is_safe.map_err(|why| Failed(format!("{}: {why}", text("id"))))?;
            if !is_safe.contains(&true) && !ignored.contains(text("id")) {
                wrong.push(format!(
                    "{name} {version}: {}, {}; mended in: {}",
                    text("id"),
                    text("title"),
                    texts(&advisory["patched"]).join(" or ")
                ));
            }
        }
    }
    Ok(wrong)
}

/// An advisory as the database writes it: TOML between fences, then a page whose heading is the
/// title. `None` is one that was withdrawn.
fn read(text: &str) -> Result<Option<Advisory>, String> {
    let (head, page) = text
        .split_once("```toml\n")
        .and_then(|(_, rest)| rest.split_once("\n```"))
        .ok_or("no TOML between fences")?;
    // A value goes on to the next key or table.
    let value = |key: &str| {
        let at = head
            .match_indices(&format!("{key} = "))
            .find(|(at, _)| *at == 0 || head[..*at].ends_with('\n'))?;
        Some(&head[at.0 + key.len() + 3..])
    };
    let strings = |key: &str| -> Vec<String> {
        let list = value(key).and_then(|rest| rest.split_once(']'));
        let list = list.map_or("", |(list, _)| list);
        let strings = list.split('"').skip(1).step_by(2);
        strings.map(str::to_owned).collect()
    };
    let string = |key: &str| {
        let found = value(key).and_then(|rest| rest.split('"').nth(1));
        found.map(str::to_owned).ok_or(format!("no {key}"))
    };
    if value("withdrawn").is_some() {
        return Ok(None);
    }
    value("patched").ok_or("no patched versions, not even none")?;
    let title = page.lines().find_map(|line| line.strip_prefix("# "));
    Ok(Some(Advisory {
        id: string("id")?,
        package: string("package")?,
        title: title.ok_or("no heading")?.to_owned(),
        patched: strings("patched"),
        unaffected: strings("unaffected"),
    }))
}

/// Whether a version is in a range such as `>= 0.4.0`, `^1.2`, or `>= 1.0, < 1.3`.
fn matches(range: &str, version: &str) -> Result<bool, String> {
    let version = Version::read(version)?;
    for part in range.split(',').map(str::trim) {
        let digits = part
            .find(|c: char| c.is_ascii_digit())
            .ok_or(format!("`{range}` is no range of versions"))?;
        let bound = Version::read(&part[digits..])?;
        let order = version.cmp(&bound);
        let holds = match part[..digits].trim() {
            ">=" => order.is_ge(),
            ">" => order.is_gt(),
            "<=" => order.is_le(),
            "<" => order.is_lt(),
            "=" => order.is_eq(),
            "^" | "" => order.is_ge() && version < bound.next_incompatible(),
            "~" => {
                let [major, minor, _] = bound.numbers;
                let next = Version {
                    numbers: [major, minor + 1, 0],
                    before: Vec::new(),
                };
                order.is_ge() && version < next
            }
            other => return Err(format!("`{other}` in `{range}` is no comparison")),
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

#[derive(PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    /// What a version is before, as `alpha`, `1` of `1.0.0-alpha.1`.
    before: Vec<String>,
}

impl Version {
    fn read(text: &str) -> Result<Version, String> {
        let wrong = || format!("`{text}` is no version");
        let plain = text.split('+').next().unwrap_or(text);
        let (numbers, before) = plain.split_once('-').unwrap_or((plain, ""));
        let mut read = [0; 3];
        for (place, number) in numbers.split('.').enumerate() {
            *read.get_mut(place).ok_or_else(wrong)? = number.parse().map_err(|_| wrong())?;
        }
        let before = before.split('.').filter(|word| !word.is_empty());
        Ok(Version {
            numbers: read,
            before: before.map(str::to_owned).collect(),
        })
    }

    /// The first that is not compatible: the leftmost number that is not zero counts up.
    fn next_incompatible(&self) -> Version {
        let numbers = match self.numbers {
            [0, 0, patch] => [0, 0, patch + 1],
            [0, minor, _] => [0, minor + 1, 0],
            [major, _, _] => [major + 1, 0, 0],
        };
        Version {
            numbers,
            before: Vec::new(),
        }
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        let word = |a: &String, b: &String| match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        let before = || {
            // A release comes behind all that was before it.
            let release = self.before.is_empty().cmp(&other.before.is_empty());
            let mut words = self.before.iter().zip(&other.before);
            let differs = words.find_map(|(a, b)| Some(word(a, b)).filter(|order| order.is_ne()));
            let words = differs.unwrap_or(self.before.len().cmp(&other.before.len()));
            release.then(words)
        };
        self.numbers.cmp(&other.numbers).then_with(before)
    }
}

fn today() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 86400)
}

/// How many days lie between a date and `today`, in days since 1970.
fn age(date: &str, today: u64) -> Option<u64> {
    let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    // Years that begin in March have the leap day at their end.
    let (year, month) = match month {
        3.. => (year, month - 3),
        _ => (year.checked_sub(1)?, month + 9),
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    today.checked_sub(days.checked_sub(719_469)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n\
        [[package]]\nname = \"half\"\nversion = \"2.7.1\"\nsource = \"registry+x\"\n";

    #[test]
    fn ranges_are_those_of_cargo() {
        for (range, version, wanted) in [
            (">= 0.29.0", "0.30.1", true),
            (">= 0.29.0", "0.28.9", false),
            ("< 0.24.0", "0.23.9", true),
            (">= 1.0, < 1.3", "1.2.9", true),
            (">= 1.0, < 1.3", "1.3.0", false),
            ("^0.4.2", "0.4.9", true),
            ("^0.4.2", "0.5.0", false),
            ("^0.0.3", "0.0.4", false),
            ("1.2", "1.9.0", true),
            ("1.2", "2.0.0", false),
            ("~1.2.3", "1.2.9", true),
            ("~1.2.3", "1.3.0", false),
            ("= 1.2.3", "1.2.3+spec-1.1.0", true),
            ("> 1.0.0-alpha.9", "1.0.0-alpha.10", true),
            (">= 1.0.0", "1.0.0-rc.1", false),
            ("<= 1.0.0-rc", "1.0.0-rc.1", false),
            ("< 1.0.0-rc", "1.0.0-7", true),
        ] {
            assert_eq!(matches(range, version), Ok(wanted), "{version} {range}");
        }
        assert!(matches("*", "1.0.0").is_err());
        assert!(matches(">= 1", "1.0.0.0").is_err());
        assert!(matches("!= 1", "1.0.0").is_err());
    }

    #[test]
    fn an_advisory_is_read_as_the_database_writes_it() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-2026-0001\"\npackage = \"half\"\n\n[versions]\n\
            patched = [\n  \"^1.9\",\n  \">= 2.0\",\n]\nunaffected = [\"< 1.0\"]\n```\n\n# Reads past the end\n";
        let Ok(Some(read_one)) = read(text) else {
            panic!("not read");
        };
        assert_eq!(
            (read_one.id.as_str(), read_one.package.as_str()),
            ("RUSTSEC-2026-0001", "half")
        );
        assert_eq!(read_one.title, "Reads past the end");
        assert_eq!(read_one.patched, ["^1.9", ">= 2.0"]);
        assert_eq!(read_one.unaffected, ["< 1.0"]);
        let withdrawn = text.replace("[versions]", "withdrawn = \"2026-02-01\"\n[versions]");
        assert!(matches!(read(&withdrawn), Ok(None)));
        assert!(read(&text.replace("patched", "mended")).is_err());
    }

    #[test]
    fn a_version_that_is_affected_or_never_looked_up_is_wrong() {
        let locked: BTreeSet<_> = of_others(LOCK).collect();
        assert_eq!(
            locked,
            BTreeSet::from([("half".to_owned(), "2.7.1".to_owned())])
        );
        let with = |patched: &str, looked_up: &str| {
            json!({ "looked_up": [looked_up], "advisories": [{ "id": "RUSTSEC-1", "package": "half",
                "title": "bad", "patched": [patched], "unaffected": ["< 2.0"] }] })
        };
        let said = |kept: &Value, ignored: &[&str]| {
            let said = wrong(kept, &locked, &ignored.iter().copied().collect());
            said.unwrap_or_else(|Failed(why)| vec![why])
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(said(&with(">= 2.7", "half"), &[]), none);
        let affected = "half 2.7.1: RUSTSEC-1, bad; mended in: >= 2.8";
        assert_eq!(said(&with(">= 2.8", "half"), &[]), [affected]);
        assert_eq!(said(&with(">= 2.8", "half"), &["RUSTSEC-1"]), none);
        let never = "half: advisories were never looked up; `cargo xtask advisories` does it";
        assert_eq!(said(&with(">= 2.7", "other"), &[]), [never]);
        assert_eq!(
            said(&with("soon", "half"), &[]),
            ["RUSTSEC-1: `soon` is no range of versions"]
        );
    }

    #[test]
    fn ages_count_days() {
        assert_eq!(age("1970-01-01", 0), Some(0));
        assert_eq!(age("2024-02-29", 19783), Some(1)); // 2024-03-01
        assert_eq!(age("2026-08-21", 20774), Some(88)); // 2026-11-17
        assert_eq!(age("tomorrow", 1), None);
    }
}
