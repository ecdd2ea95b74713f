//! Diagnostics as SARIF 2.1.0, which code-review tools show beside the code.

use heist_ptx::{Diagnostic, Severity, Source, Span, rule};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One run over several files.
pub fn report(found: &[(&Source, &[Diagnostic])]) -> Value {
    let codes: BTreeSet<&str> = found
        .iter()
        .flat_map(|(_, diagnostics)| diagnostics.iter().map(|diagnostic| diagnostic.code.0))
        .collect();
    let rules: Vec<Value> = codes
        .iter()
        .map(|code| {
            let title = rule::find(code).map_or("", |rule| rule.title);
            json!({
                "id": code,
                "shortDescription": { "text": title },
                "help": { "text": format!("heist explain {code}") },
            })
        })
        .collect();
    let results: Vec<Value> = found
        .iter()
        .flat_map(|(source, diagnostics)| {
            diagnostics
                .iter()
                .map(|diagnostic| result(diagnostic, source))
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "heist",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "results": results,
        }],
    })
}

fn result(diagnostic: &Diagnostic, source: &Source) -> Value {
    let mut text = diagnostic.message.clone();
    for line in diagnostic.facts().iter().chain(&diagnostic.helps) {
        text.push('\n');
        text.push_str(line);
    }
    let related: Vec<Value> = diagnostic
        .others
        .iter()
        .map(|other| {
            let mut place = location(other.span, source);
            place["message"] = json!({ "text": other.text });
            place
        })
        .collect();
    json!({
        "ruleId": diagnostic.code.0,
        "level": match diagnostic.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        },
        "message": { "text": text },
        "locations": [location(diagnostic.span, source)],
        "relatedLocations": related,
    })
}

fn location(span: Span, source: &Source) -> Value {
    let start = source.position(span);
    json!({ "physicalLocation": {
        "artifactLocation": { "uri": source.name() },
        "region": { "startLine": start.line, "startColumn": start.column },
    }})
}
