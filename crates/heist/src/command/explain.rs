//! `heist explain`: the rule behind a diagnostic.

use super::{BadQuestion, Output, Verdict};
use clap::Args;
use heist_ptx::rule::{RULES, Rule};
use serde_json::json;

/// Explain the rule behind a diagnostic, with a kernel that breaks it and one that keeps it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist explain L003     a request submitted after a refusal
  heist explain          all codes, a line each")]
pub(crate) struct Explain {
    /// The code, as a diagnostic shows it in brackets.
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        match self.code {
            Some(code) => page(&code, out),
            None => {
                list(out);
                Ok(Verdict::Clean)
            }
        }
    }
}

fn page(code: &str, out: Output) -> Result<Verdict, BadQuestion> {
    let Some(page) = heist_check::explain(code) else {
        return Err(BadQuestion::Sentence(format!(
            "there is no rule {code}; `heist explain` lists them all"
        )));
    };
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
    Ok(Verdict::Clean)
}

fn list(out: Output) {
    if out.json {
        let rule = |rule: &Rule| {
            json!({
                "code": rule.code.0,
                "title": rule.title,
                "severity": rule.severity.to_string(),
            })
        };
        out.json(&RULES.iter().map(rule).collect::<Vec<_>>());
        return;
    }
    for rule in RULES {
        println!("{}  {:<7}  {}", rule.code, rule.severity, rule.title);
    }
}
