//! `heist.toml`: the flags that a project always gives, so that nobody types them again.
//!
//! A key is a flag without its dashes. At the top it is for every command that has the flag and takes
//! the value; in a section, for the command of that name, where it must be right. What stands on
//! the command line wins. Values become the defaults of the flags, so a flag that
//! needs or excludes others is not "given" by the file.

use clap::builder::{ArgPredicate, Resettable};
use clap::{Arg, ArgAction, Command, Id};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What the file is called.
const NAME: &str = "heist.toml";

/// What `--config` says, among the words of a command line.
pub(crate) fn named(words: &[OsString]) -> Option<OsString> {
    let mut words = words.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().cloned();
        }
        let joined = word
            .to_str()
            .and_then(|word| word.strip_prefix("--config="));
        if let Some(path) = joined {
            return Some(path.into());
        }
    }
    None
}

/// The file: the one that is named (`none` is none), else that of the nearest folder, `from` or above,
/// that has one.
pub(crate) fn find(named: Option<&OsStr>, from: &Path) -> Option<PathBuf> {
    match named {
        Some(none) if none == "none" => None,
        Some(path) => Some(path.into()),
        None => {
            let files = from.ancestors().map(|folder| folder.join(NAME));
            files.into_iter().find(|file| file.is_file())
        }
    }
}

/// The command with what a file says as its defaults, or what is wrong with the file.
pub(crate) fn configured(command: Command, file: &Path) -> Result<Command, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("can't read {name}, the configuration file: {error}"))?;
    apply(command, &text).map_err(|Wrong { at, why }| {
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        format!("{name}:{line}: {why}")
    })
}

/// What is wrong, and at which byte.
struct Wrong {
    at: usize,
    why: String,
}

fn apply(mut command: Command, text: &str) -> Result<Command, Wrong> {
    let table = DeTable::parse(text).map_err(|error| Wrong {
        at: error.span().map_or(0, |span| span.start),
        why: format!("this is not TOML: {}", error.message()),
    })?;
    // What is for one command comes after what is for all, and wins.
    let mut sections = Vec::new();
    for (key, value) in table.get_ref() {
        let wrong = |why| Wrong {
            at: key.span().start,
            why,
        };
        match value.get_ref() {
            DeValue::Table(section) => sections.push((key, section)),
            _ => command = set_everywhere(command, key.get_ref(), value).map_err(wrong)?,
        }
    }
    for (name, section) in sections {
        let Some(found) = command.find_subcommand(name.get_ref().as_ref() as &str) else {
            let names = command.get_subcommands().filter(|one| !one.is_hide_set());
            let names: Vec<&str> = names.map(Command::get_name).collect();
            return Err(Wrong {
                at: name.span().start,
                why: format!(
                    "there is no command `{}` for a section; there are {}",
                    name.get_ref(),
                    names.join(", ")
                ),
            });
        };
        let mut changed = found.clone();
        for (key, value) in section {
            changed = set(changed, key.get_ref(), value).map_err(|why| Wrong {
                at: key.span().start,
                why,
            })?;
        }
        command = command.mut_subcommand(name.get_ref().as_ref(), |_| changed.clone());
    }
    Ok(command)
}

/// Sets a flag of all commands, or of every one that has it and takes the value.
fn set_everywhere(
    mut command: Command,
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Command, String> {
    if flag(&command, key).is_some() {
        return set(command, key, value);
    }
    let with = command
        .get_subcommands()
        .filter(|one| flag(one, key).is_some());
    let names: Vec<String> = with.map(|one| one.get_name().to_owned()).collect();
    let mut refused = None;
    let mut taken = false;
    for name in names {
        command = command.mut_subcommand(name, |one| match set(one.clone(), key, value) {
            Ok(changed) => {
                taken = true;
                changed
            }
            Err(why) => {
                refused.get_or_insert(why);
                one
            }
        });
    }
    match (taken, refused) {
        (true, _) => Ok(command),
        (false, Some(why)) => Err(why),
        (false, None) => {
            let all = command.get_subcommands().chain([&command]);
            let mut keys: Vec<&str> = all.flat_map(keys).collect();
            keys.sort_unstable();
            keys.dedup();
            Err(format!(
                "no command has a flag `--{key}` that a file can set; there are {}",
                keys.join(", ")
            ))
        }
    }
}

/// Sets a flag of one command.
fn set(command: Command, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Command, String> {
    let Some(arg) = flag(&command, key) else {
        let name = command.get_name();
        return Err(format!(
            "`heist {name}` has no flag `--{key}` that a file can set; it has {}",
            keys(&command).join(", ")
        ));
    };
    let id = arg.get_id().clone();
    let instead = excluding(&command, &id);
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        let DeValue::Boolean(on) = value.get_ref() else {
            return Err(format!("`{key}` is true or false"));
        };
        let default = if *on { "true" } else { "false" };
        return Ok(command.mut_arg(id, |arg| {
            arg.action(ArgAction::Set)
                .value_parser(clap::value_parser!(bool))
                .hide_possible_values(true)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .default_value_ifs(instead)
                .default_value(default)
        }));
    }
    let words = words(value.get_ref()).ok_or_else(|| {
        format!("`{key}` is a text in quotes, a number, true or false, or a list of these")
    })?;
    if words.len() != 1 && !matches!(arg.get_action(), ArgAction::Append) {
        return Err(format!("`{key}` takes one value, not {}", words.len()));
    }
    probe(&command, arg, key, &words)?;
    // The names of defaults live as long as the program, which reads one file.
    let words: Vec<&'static str> = words.into_iter().map(|word| &*word.leak()).collect();
    Ok(command.mut_arg(id, |arg| {
        arg.default_value_ifs(instead).default_values(words)
    }))
}

/// Fails as the flag does for a value that it does not take.
fn probe(command: &Command, arg: &Arg, key: &str, words: &[String]) -> Result<(), String> {
    let alone = arg
        .clone()
        .requires(Resettable::Reset)
        .conflicts_with(Resettable::Reset)
        .group(Resettable::Reset);
    let probe = Command::new("heist").no_binary_name(true).arg(alone);
    let given = words.iter().map(|word| format!("--{key}={word}"));
    let Err(error) = probe.try_get_matches_from(given) else {
        return Ok(());
    };
    let told = error.to_string();
    let first = told.lines().next().unwrap_or_default();
    let possible = arg.get_possible_values();
    let remedy = match possible.is_empty() {
        true => format!("see `heist {} --help`", command.get_name()),
        false => {
            let names: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
            format!("it is one of {}", names.join(", "))
        }
    };
    Err(format!("{}; {remedy}", first.trim_start_matches("error: ")))
}

/// A flag that a file can set. It can't set what makes one launch or excludes other flags (they are for one
/// command line), nor the shape of the answer, which is for who reads it.
fn flag<'c>(command: &'c Command, key: &str) -> Option<&'c Arg> {
    let arg = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(key))?;
    let launch = |id: &Id| id == "LaunchFlags";
    let of_launch = command
        .get_groups()
        .any(|group| launch(group.get_id()) && group.get_args().any(|id| id == arg.get_id()));
    let takes = matches!(
        arg.get_action(),
        ArgAction::Set | ArgAction::SetTrue | ArgAction::Append
    );
    let may = takes
        && !["json", "config"].contains(&key)
        && !arg.is_required_set()
        && !of_launch
        && (arg.is_global_set() || command.get_arg_conflicts_with(arg).is_empty());
    may.then_some(arg)
}

fn keys(command: &Command) -> Vec<&str> {
    let longs = command.get_arguments().filter_map(Arg::get_long);
    longs.filter(|key| flag(command, key).is_some()).collect()
}

type Condition = (Id, ArgPredicate, Option<&'static str>);

/// The flags that exclude this one: when one of them is given, the file's value does not hold.
fn excluding(command: &Command, id: &Id) -> Vec<Condition> {
    let excludes = |other: &&Arg| {
        let mut excluded = command.get_arg_conflicts_with(other).into_iter();
        !other.is_global_set() && excluded.any(|arg| arg.get_id() == id)
    };
    let others = command.get_arguments().filter(excludes);
    others
        .map(|other| (other.get_id().clone(), ArgPredicate::IsPresent, None))
        .collect()
}

/// A value as the words of a flag.
fn words(value: &DeValue<'_>) -> Option<Vec<String>> {
    let word = match value {
        DeValue::String(text) => text.clone().into_owned(),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.to_string(),
            Err(_) => number.as_str().to_owned(),
        },
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Array(list) => {
            let each = list.iter().map(|one| match one.get_ref() {
                DeValue::Array(_) => None,
                one => words(one),
            });
            let all = each.collect::<Option<Vec<_>>>()?;
            return Some(all.concat());
        }
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
    };
    Some(vec![word])
}
