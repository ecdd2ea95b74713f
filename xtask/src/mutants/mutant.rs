//! One mutant as cargo-mutants lists it, with its places as offsets into the file.

use crate::shell::Failed;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// A small mistake: this text in place of what stands at this range.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// File, line, and what is replaced by what.
    pub(super) name: String,
    /// Relative to the root of the workspace.
    pub(super) file: String,
    /// The function around it, with its attributes; constants have none.
    pub(super) function: Option<Range<usize>>,
    /// What is replaced.
    pub(super) range: Range<usize>,
    /// What stands there instead.
    pub(super) replacement: String,
}

impl Mutant {
    /// The name without line and column: it survives changes elsewhere in the file.
    pub(super) fn change(name: &str) -> String {
        let parts: Vec<&str> = name.splitn(4, ':').collect();
        let is_number = |part: &str| part.parse::<usize>().is_ok();
        match parts[..] {
            [file, line, column, change] if is_number(line) && is_number(column) => {
                format!("{file}:{change}")
            }
            _ => name.to_owned(),
        }
    }
}

/// Reads what `cargo mutants --list --json` prints.
pub(super) fn read(listed: &[u8], root: &Path) -> Result<Vec<Mutant>, Failed> {
    let wrong = |what: String| Failed(format!("cargo-mutants' list can't be read: {what}"));
    let listed: Vec<Value> =
        serde_json::from_slice(listed).map_err(|error| wrong(error.to_string()))?;
    let mut files: HashMap<String, String> = HashMap::new();
    let mut mutants = Vec::new();
    for value in &listed {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let (Some(name), Some(file), Some(replacement)) =
            (text("name"), text("file"), text("replacement"))
        else {
            return Err(wrong(value.to_string()));
        };
        if !files.contains_key(&file) {
            let path = root.join(&file);
            let source = fs::read_to_string(&path)
                .map_err(|error| Failed(format!("{}: {error}", path.display())))?;
            files.insert(file.clone(), source);
        }
        let source = &files[&file];
        let function = &value["function"]["span"];
        let range = range(source, &value["span"]).ok_or_else(|| wrong(value.to_string()))?;
        mutants.push(Mutant {
            name,
            function: self::range(source, function),
            range,
            replacement,
            file,
        });
    }
    Ok(mutants)
}

/// Lines and columns (in characters, both from 1) as offsets.
fn range(source: &str, span: &Value) -> Option<Range<usize>> {
    let offset = |place: &Value| {
        let line = usize::try_from(place["line"].as_u64()?).ok()?;
        let column = usize::try_from(place["column"].as_u64()?).ok()?;
        let start: usize = source
            .split_inclusive('\n')
            .take(line.checked_sub(1)?)
            .map(str::len)
            .sum();
        let width = source[start..].chars().take(column.checked_sub(1)?);
        Some(start + width.map(char::len_utf8).sum::<usize>())
    };
    Some(offset(&span["start"])?..offset(&span["end"])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_characters() {
        let source = "// é\nlet é = a < b;\n";
        let span = serde_json::json!({
            "start": { "line": 2, "column": 11 },
            "end": { "line": 2, "column": 12 },
        });
        assert_eq!(&source[range(source, &span).unwrap()], "<");
        assert_eq!(range(source, &Value::Null), None);
    }

    #[test]
    fn a_change_is_named_without_its_line() {
        let name = "crates/sim/src/a.rs:5:7: replace < with == in b::c";
        let change = "crates/sim/src/a.rs: replace < with == in b::c";
        assert_eq!(Mutant::change(name), change);
        assert_eq!(Mutant::change(change), change);
    }
}
