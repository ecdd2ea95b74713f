//! The page behind a code.

use heist_ptx::rule::{self, Rule};
use std::fmt::Write;

struct Page {
    code: &'static str,
    text: Option<&'static str>,
    bad: Option<&'static str>,
    good: Option<&'static str>,
}

const PAGES: &[Page] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// The page of one rule.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// The rule itself.
    pub rule: &'static Rule,
    /// What it means, why it is undefined or slow, and where the spec says so.
    pub text: Option<&'static str>,
    /// A kernel that breaks it.
    pub bad: Option<&'static str>,
    /// The corrected kernel.
    pub good: Option<&'static str>,
}

/// The page of a code, in either case of its letter.
///
/// ```
/// let page = heist_check::explain("r001").unwrap();
/// assert_eq!(page.rule.code.0, "R001");
/// assert!(heist_check::explain("Z999").is_none());
/// ```
pub fn explain(code: &str) -> Option<Explanation> {
    let rule = rule::find(code)?;
    let page = PAGES.iter().find(|page| page.code == rule.code.0);
    Some(Explanation {
        rule,
        text: page.and_then(|page| page.text),
        bad: page.and_then(|page| page.bad),
        good: page.and_then(|page| page.good),
    })
}

impl Explanation {
    /// The page as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!(
            "# {}: {}\n\nSeverity: {}.\n",
            self.rule.code, self.rule.title, self.rule.severity
        );
        if let Some(text) = self.text {
            let _ = write!(out, "\n{}\n", text.trim());
        }
        for (title, kernel) in [("Breaks it", self.bad), ("Keeps it", self.good)] {
            if let Some(kernel) = kernel {
                let _ = write!(out, "\n## {title}\n\n```ptx\n{}\n```\n", kernel.trim());
            }
        }
        out
    }
}
