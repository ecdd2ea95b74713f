//! `heist policies`: what there is to schedule with.

use crate::answer::{BadQuestion, Output, Verdict};
use clap::Args;
use heist_sched::Catalogue;
use heist_sched::Policy;
use serde_json::json;

/// List the policies, sources and tile orders, or explain a policy's text.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist policies                                 what there is
  heist policies 'max-steals(8) & first-half'    how a text is read")]
pub(crate) struct Policies {
    /// A policy to read and write back in its canonical form.
    policy: Option<String>,
}

const SOURCES: [(&str, &str); 4] = [
    (
        "clc",
        "the hardware hands over blocks that it has not launched (sm_100 and later)",
    ),
    ("ticket", "a counter in memory (sm_80 and later)"),
    ("static", "dealt out in advance; the policy is not asked"),
    ("direct", "one block a tile; the policy is not asked"),
];

const ORDERS: [(&str, &str); 5] = [
    ("linear", "x fastest, then y, then z"),
    ("reversed", "from the last tile to the first"),
    (
        "grouped(ROWS)",
        "bands of rows, column by column, so that tiles share L2",
    ),
    ("hilbert", "along a Hilbert curve"),
    (
        "longest-first",
        "the costliest tile first, where costs are known",
    ),
];

impl Policies {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let catalogue = Catalogue::standard();
        if let Some(text) = self.policy {
            let policy = catalogue
                .policy(&text)
                .map_err(|error| BadQuestion::Sentence(error.to_string()))?;
            if out.json {
                out.json_as(
                    "policy",
                    &json!({
                        "policy": policy.name(),
                        "constant": policy.constant(),
                        "may_retire": policy.may_retire(),
                    }),
                );
                return Ok(Verdict::Clean);
            }
            println!("{policy}");
            match policy.constant() {
                Some(true) => println!("  always asks, and costs nothing"),
                Some(false) => println!("  never asks"),
                None if policy.may_retire() => {
                    println!(
                        "  may retire a block early: the ticket source launches a block for every tile"
                    );
                }
                None => {
                    println!("  never retires a block: the ticket source launches as many as fit")
                }
            }
            return Ok(Verdict::Clean);
        }
        if out.json {
            let policies: Vec<_> = catalogue
                .entries()
                .iter()
                .map(|entry| {
                    let parameters: Vec<_> = entry.parameters.iter().map(|p| p.name).collect();
                    json!({ "name": entry.name, "parameters": parameters,
                        "example": entry.example, "summary": entry.summary })
                })
                .collect();
            let named = |list: &[(&str, &str)]| -> Vec<_> {
                list.iter()
                    .map(|(name, summary)| json!({ "name": name, "summary": summary }))
                    .collect()
            };
            out.json(&json!({ "policies": policies, "sources": named(&SOURCES),
                "orders": named(&ORDERS) }));
            return Ok(Verdict::Clean);
        }
        println!(
            "Policies decide when a block asks for more work. Combine them with & | ! and ( ).\n"
        );
        for entry in catalogue.entries() {
            println!("  {:<22} {}", entry.example, entry.summary);
        }
        for (head, list) in [("Sources", &SOURCES[..]), ("Orders", &ORDERS[..])] {
            println!("\n{head}");
            for (name, summary) in list {
                println!("  {name:<22} {summary}");
            }
        }
        println!(
            "\nTry: heist run power-law --policy 'max-steals(8) | fair-share' --device sim:b200"
        );
        Ok(Verdict::Clean)
    }
}
