//! From text to a policy expression, by recursive descent.

use super::error::PolicyTextError;
use super::expression::PolicyExpr;
use super::named::Entry;
use super::value::{ParameterKind, Value};

/// Parentheses and `!` nest at most this deep, so that no text can exhaust the
/// stack.
const DEEPEST: usize = 64;

/// Reads a text that may name these policies.
pub(super) fn parse(entries: &[Entry], text: &str) -> Result<PolicyExpr, PolicyTextError> {
    let mut parser = Parser {
        entries,
        text,
        chars: text.chars().collect(),
        at: 0,
        depth: 0,
    };
    let expression = parser.either()?;
    parser.skip_spaces();
    match parser.peek() {
        None => Ok(expression),
        Some(')') => Err(parser.wrong(parser.at, "this `)` closes nothing".into())),
        Some(_) => Err(parser.unexpected("`&`, `|` or the end")),
    }
}

struct Parser<'a> {
    entries: &'a [Entry],
    text: &'a str,
    chars: Vec<char>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    /// Takes `wanted` if it comes next; `&&` and `||` are taken as one.
    fn take(&mut self, wanted: char) -> bool {
        self.skip_spaces();
        if self.peek() != Some(wanted) {
            return false;
        }
        self.at += 1;
        if matches!(wanted, '&' | '|') && self.peek() == Some(wanted) {
            self.at += 1;
        }
        true
    }

    fn word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&belongs) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn wrong(&self, position: usize, message: String) -> PolicyTextError {
        PolicyTextError::new(self.text, position, message)
    }

    fn unexpected(&self, wanted: &str) -> PolicyTextError {
        let found = match self.peek() {
            Some(c) => format!("found `{}`", c.escape_debug()),
            None if self.at == 0 => "the text is empty".into(),
            None => "the text ends here".into(),
        };
        self.wrong(self.at, format!("{found}, where {wanted} was expected"))
    }

    fn either(&mut self) -> Result<PolicyExpr, PolicyTextError> {
        let mut left = self.both()?;
        while self.take('|') {
            left = PolicyExpr::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<PolicyExpr, PolicyTextError> {
        let mut left = self.one()?;
        while self.take('&') {
            left = PolicyExpr::And(Box::new(left), Box::new(self.one()?));
        }
        Ok(left)
    }

    fn one(&mut self) -> Result<PolicyExpr, PolicyTextError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.wrong(self.at, format!("nested more than {DEEPEST} deep")));
        }
        let result = self.one_inner();
        self.depth -= 1;
        result
    }

    fn one_inner(&mut self) -> Result<PolicyExpr, PolicyTextError> {
        if self.take('!') {
            return Ok(PolicyExpr::Not(Box::new(self.one()?)));
        }
        let opened = self.at;
        if self.take('(') {
            let inner = self.either()?;
            if !self.take(')') {
                if self.peek().is_none() {
                    let message = "this `(` is not closed".into();
                    return Err(self.wrong(opened, message));
                }
                return Err(self.unexpected("`&`, `|` or `)`"));
            }
            return Ok(inner);
        }
        self.call()
    }

    fn call(&mut self) -> Result<PolicyExpr, PolicyTextError> {
        self.skip_spaces();
        let start = self.at;
        if !self.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
            return Err(self.unexpected("a policy's name, `!` or `(`"));
        }
        let written = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        // Rust's spelling is understood: MaxSteals is not, max_steals is.
        let name = written.to_ascii_lowercase().replace('_', "-");
        let Some(entry) = self
            .entries
            .iter()
            .find(|entry| entry.name == name)
            .copied()
        else {
            return Err(self.wrong(start, unknown(self.entries, &written)));
        };
        let args = self.arguments(&entry)?;
        if (entry.make)(&args).is_none() {
            let form = entry.signature();
            let message = format!("these values do not fit `{form}`: {}", entry.summary);
            return Err(self.wrong(start, message));
        }
        Ok(PolicyExpr::Call {
            name: entry.name.to_string(),
            args,
        })
    }

    fn arguments(&mut self, entry: &Entry) -> Result<Vec<Value>, PolicyTextError> {
        let form = signature(entry);
        if !self.take('(') {
            if entry.parameters.is_empty() {
                return Ok(Vec::new());
            }
            let message = format!("`{}` needs arguments: {form}", entry.name);
            return Err(self.wrong(self.at, message));
        }
        let mut values = Vec::new();
        for (index, parameter) in entry.parameters.iter().enumerate() {
            if index > 0 && !self.take(',') {
                return Err(self.unexpected(&format!("`,` and {} ({form})", parameter.name)));
            }
            values.push(self.value(parameter.kind, &form)?);
        }
        if !self.take(')') {
            if self.peek() == Some(',') {
                let message = format!("too many arguments: {form}");
                return Err(self.wrong(self.at, message));
            }
            return Err(self.unexpected(&format!("`)` ({form})")));
        }
        Ok(values)
    }

    fn value(&mut self, kind: ParameterKind, form: &str) -> Result<Value, PolicyTextError> {
        self.skip_spaces();
        let start = self.at;
        let digits = self.word(|c| c.is_ascii_digit() || matches!(c, '.' | '_'));
        let unit = self.word(char::is_alphabetic);
        let expected = || format!("{} ({form})", kind.expectation());
        if digits.is_empty() {
            self.at = start;
            return Err(self.unexpected(&expected()));
        }
        let plain = digits.replace('_', "");
        let found = format!("{digits}{unit}");
        let wrong = |parser: &Self, why: &str| {
            let message = format!("`{found}` {why}: expected {}", expected());
            Err(parser.wrong(start, message))
        };
        match kind {
            ParameterKind::Count | ParameterKind::Positive if unit.is_empty() => {
                match plain.parse() {
                    Ok(0) if kind == ParameterKind::Positive => wrong(self, "is less than 1"),
                    Ok(n) => Ok(Value::Count(n)),
                    Err(_) if plain.contains('.') => wrong(self, "is not whole"),
                    Err(_) => wrong(self, "is more than 4294967295"),
                }
            }
            ParameterKind::Part if unit.is_empty() => match plain.parse::<f64>() {
                Ok(p) if (0.0..=1.0).contains(&p) => Ok(Value::Part(p)),
                _ => wrong(self, "does not lie between 0 and 1"),
            },
            ParameterKind::Time => {
                let scale = match unit.as_str() {
                    "ns" => 1u64,
                    "us" | "µs" => 1_000,
                    "ms" => 1_000_000,
                    "s" => 1_000_000_000,
                    "" => return wrong(self, "has no unit"),
                    _ => return wrong(self, "has no unit of time"),
                };
                let ns = match plain.parse::<u64>() {
                    Ok(whole) => whole.checked_mul(scale),
                    Err(_) => plain
                        .parse::<f64>()
                        .ok()
                        .map(|value| (value * scale as f64).round())
                        .filter(|ns| *ns < u64::MAX as f64)
                        .map(|ns| ns as u64),
                };
                match ns {
                    Some(ns) => Ok(Value::Time(ns)),
                    None => wrong(self, "is no time that fits"),
                }
            }
            _ => wrong(self, "has a unit, and needs none"),
        }
    }
}

/// `max-steals(n)`, in a message.
fn signature(entry: &Entry) -> String {
    match entry.parameters.is_empty() {
        true => format!("`{}` takes none", entry.name),
        false => format!("`{}`", entry.signature()),
    }
}

fn unknown(entries: &[Entry], written: &str) -> String {
    let spelled: String = written
        .chars()
        .enumerate()
        .flat_map(|(index, c)| {
            let hyphen = (index > 0 && c.is_ascii_uppercase()).then_some('-');
            hyphen.into_iter().chain([c.to_ascii_lowercase()])
        })
        .collect();
    let closest = entries
        .iter()
        .map(|entry| (distance(&spelled, entry.name), entry.name))
        .min();
    match closest {
        Some((far, name)) if far <= (name.len() / 3).max(2) => {
            format!("there is no policy `{written}`; did you mean `{name}`?")
        }
        _ => {
            let known = names(entries);
            format!("there is no policy `{written}`; there are {known}")
        }
    }
}

/// All names, for a message.
pub(super) fn names(entries: &[Entry]) -> String {
    let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
    names.join(", ")
}

/// How many insertions, removals and replacements lead from one to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
