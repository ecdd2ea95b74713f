//! `heist explain`: the rule behind a diagnostic.

use crate::answer::{BadQuestion, Output, Verdict};
use clap::Args;
use heist_check::Explanation;
use heist_ptx::rule::{RULES, Rule};
use serde_json::json;

/// Explain the rule behind a diagnostic, with a kernel that breaks it and one that keeps it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist explain L003     a request submitted after a refusal
  heist explain L        the codes of launch control, a line each
  heist explain          all codes")]
pub(crate) struct Explain {
    /// The code, as a diagnostic shows it in brackets, or its letter alone.
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let Some(asked) = self.code else {
            list(RULES.iter(), out);
            return Ok(Verdict::Clean);
        };
        let code = code_in(&asked);
        if let Some(page) = heist_check::explain(&code) {
            show(&page, out);
            return Ok(Verdict::Clean);
        }
        let alike = || {
            RULES
                .iter()
                .filter(|rule| rule.code.0.starts_with(&code[..1]))
        };
        match code.len() {
            1 if alike().next().is_some() => {
                list(alike(), out);
                Ok(Verdict::Clean)
            }
            _ => {
                let near = match code.get(..1) {
                    Some(letter) if alike().next().is_some() => format!(" {letter}"),
                    _ => String::new(),
                };
                Err(BadQuestion::Sentence(format!(
                    "there is no rule `{asked}`; `heist explain{near}` lists those that there are"
                )))
            }
        }
    }
}

/// The code that is meant: `L003` of `l3`, `[L003]` and `error[L003]:`.
fn code_in(asked: &str) -> String {
    let inside = asked.rsplit('[').next().unwrap_or(asked);
    let word: String = inside
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_ascii_uppercase();
    match word.get(1..).map(str::parse::<u32>) {
        Some(Ok(number)) => format!("{}{number:03}", &word[..1]),
        _ => word,
    }
}

fn show(page: &Explanation, out: Output) {
    if out.json {
        out.json(&json!({
            "code": page.rule.code.0,
            "title": page.rule.title,
            "severity": page.rule.severity.to_string(),
            "text": page.text,
            "bad": page.bad,
            "good": page.good,
        }));
    } else {
        print!("{}", page.markdown());
    }
}

fn list(rules: impl Iterator<Item = &'static Rule>, out: Output) {
    if out.json {
        let rule = |rule: &Rule| {
            json!({
                "code": rule.code.0,
                "title": rule.title,
                "severity": rule.severity.to_string(),
            })
        };
        out.json_as(
            "rules",
            &json!({ "rules": rules.map(rule).collect::<Vec<_>>() }),
        );
        return;
    }
    for rule in rules {
        println!("{}  {:<7}  {}", rule.code, rule.severity, rule.title);
    }
}
