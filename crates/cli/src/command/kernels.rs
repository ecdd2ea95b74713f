//! `heist kernels`: what there is, with its parameters.

use crate::answer::{BadQuestion, Output, Verdict};
use clap::Args;
use heist_kernels::catalogue::{self, Entry};
use serde_json::json;

/// List the kernels with their variants and parameters.
#[derive(Args)]
#[command(after_help = "\
Examples:
  heist kernels                            all of them
  heist kernels gemm                       one, with its parameters
  heist run gemm m=300 n=200 k=100         run it
  heist emit gemm --arch sm_90a            its PTX")]
pub(crate) struct Kernels {
    /// Only this one.
    kernel: Option<String>,
}

impl Kernels {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        let entries: Vec<&dyn Entry> = match &self.kernel {
            Some(name) => vec![
                catalogue::entry(name).map_err(|error| BadQuestion::Sentence(error.to_string()))?,
            ],
            None => catalogue::entries().to_vec(),
        };
        if out.json {
            let kernels: Vec<_> = entries.iter().map(|entry| as_json(*entry)).collect();
            out.json(&json!({ "kernels": kernels }));
            return Ok(Verdict::Clean);
        }
        for (index, entry) in entries.iter().enumerate() {
            if index > 0 {
                println!();
            }
            tell(*entry);
        }
        Ok(Verdict::Clean)
    }
}

fn tell(entry: &dyn Entry) {
    println!("{}: {}", entry.name(), entry.about());
    let variants = entry.variants().into_iter();
    section(
        "variants",
        variants
            .map(|(name, about)| (name.to_owned(), about))
            .collect(),
    );
    let parameters = entry.parameters().iter().map(|parameter| {
        let default = match parameter.default {
            "" => String::new(),
            default => format!("={default}"),
        };
        (format!("{}{default}", parameter.name), parameter.about)
    });
    section("parameters", parameters.collect());
}

/// Names and what they are, in two columns.
fn section(title: &str, lines: Vec<(String, &'static str)>) {
    let wide = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    println!("  {title}");
    for (name, about) in lines {
        println!("    {name:wide$}  {about}");
    }
}

fn as_json(entry: &dyn Entry) -> serde_json::Value {
    json!({
        "name": entry.name(),
        "about": entry.about(),
        "variants": entry.variants().into_iter()
            .map(|(name, about)| json!({ "name": name, "about": about })).collect::<Vec<_>>(),
        "parameters": entry.parameters().iter().map(|parameter| json!({
            "name": parameter.name, "default": parameter.default, "about": parameter.about,
        })).collect::<Vec<_>>(),
    })
}
