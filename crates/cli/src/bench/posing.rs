//! A problem as the peers take it.

use super::peers::{Problem, Tensor};
use super::spec::output_type;
use heist_kernels::catalogue::{Parameter, Settings};
use heist_kernels::{Job, KernelError};
use heist_launch::Buffer;
use serde_json::json;

/// What the peers of attention can't do, of what a problem asks for.
fn beyond_the_peers(told: &Settings, known: &[Parameter]) -> Option<String> {
    let word = |name| told.word(known, name);
    if !matches!(word("mask"), "full" | "causal") || word("layout") != "heads" {
        return Some("the peers take full and causal masks and layout=heads".into());
    }
    let changed = known.iter().find(|parameter| {
        const OURS: [&str; 7] = [
            "cache",
            "softcap",
            "alibi",
            "sinks",
            "prefix",
            "documents",
            "lengths",
        ];
        OURS.contains(&parameter.name) && word(parameter.name) != parameter.default
    });
    if let Some(changed) = changed {
        return Some(format!("the peers are run without `{}`", changed.name));
    }
    let (queries, keys) = (word("queries"), word("keys"));
    let square = matches!(keys, "" | "0") || keys == queries;
    (word("mask") == "causal" && !square).then(|| {
        "the peers' causal mask begins at the first key, ours ends at the last: they agree where \
         queries and keys are as many"
            .into()
    })
}

/// A problem as the peers take it, with the data of a job.
pub(super) fn pose(
    family: &'static str,
    told: &Settings,
    known: &[Parameter],
    job: &Job,
    calls: u32,
) -> Result<Problem, KernelError> {
    let number = |name| told.read::<usize>(known, name);
    let word = |name| told.read::<String>(known, name);
    let tensor = |name: &'static str, shape: Vec<usize>| match job.data(name) {
        Some(data) => Ok(Tensor {
            name,
            shape,
            data: data.clone(),
        }),
        None => Err(KernelError::unfit(format!("the job has no buffer {name}"))),
    };
    let factors = |job: &Job| -> Result<Vec<Tensor>, KernelError> {
        let named = ["scale_a", "scale_b"].into_iter();
        named
            .filter_map(|name| job.data(name).map(|data| tensor(name, vec![data.len()])))
            .collect()
    };
    let output = output_type(family, job);
    let (inputs, options) = match family {
        "gemm" => {
            let (m, n, k) = (number("m")?, number("n")?, number("k")?);
            let layout = word("layout")?;
            let stored = |transposed, rows, columns| {
                if transposed {
                    vec![columns, rows]
                } else {
                    vec![rows, columns]
                }
            };
            let a = tensor("a", stored(layout.starts_with('t'), m, k))?;
            let b = tensor("b", stored(layout.ends_with('t'), k, n))?;
            let mut inputs = vec![a, b];
            inputs.extend(factors(job)?);
            let (scales, sums) = (word("scales")?, word("sums")?);
            let options = json!({ "layout": layout, "scales": scales, "sums": sums });
            (inputs, options)
        }
        "attention" | "attention-backward" => {
            let (batch, heads, dim) = (number("batch")?, number("heads")?, number("dim")?);
            let or = |value: usize, other| if value == 0 { other } else { value };
            let kv_heads = or(number("kv-heads")?, heads);
            let queries = number("queries")?;
            let keys = or(number("keys")?, queries);
            let mask = word("mask")?;
            if let Some(why) = beyond_the_peers(told, known) {
                return Err(KernelError::unfit(why));
            }
            let q = tensor("q", vec![batch, heads, queries, dim])?;
            let k = tensor("k", vec![batch, kv_heads, keys, dim])?;
            let narrow = match family {
                "attention" => number("value-dim")?,
                _ => 0,
            };
            let value_dim = if narrow == 0 { dim } else { narrow };
            let v = tensor("v", vec![batch, kv_heads, keys, value_dim])?;
            let mut inputs = vec![q, k, v];
            if family == "attention-backward" {
                for name in ["out", "d_out"] {
                    inputs.push(tensor(name, vec![batch, heads, queries, dim])?);
                }
                inputs.push(tensor("lse", vec![batch, heads, queries])?);
            }
            (inputs, json!({ "causal": mask == "causal" }))
        }
        "grouped-gemm" => {
            if told.get("groups").is_some() {
                return Err(KernelError::unfit(
                    "the peers take groups of the same n and k: rows=40,7 and no groups=",
                ));
            }
            let (n, k, layout) = (number("n")?, number("k")?, word("layout")?);
            let room = match word("room")?.as_str() {
                "" => 0,
                _ => number("room")?,
            };
            // Where each group's rows end, or how many it uses.
            let told = job.data("shapes").and_then(Buffer::to_vec::<u32>);
            let told = told.unwrap_or_default();
            let before = std::iter::once(0).chain(told.iter().copied());
            let rows: Vec<u32> = match room {
                0 => told
                    .iter()
                    .zip(before)
                    .map(|(end, begin)| end - begin)
                    .collect(),
                _ => told.clone(),
            };
            let total = match room {
                0 => rows.iter().map(|&rows| rows as usize).sum(),
                _ => rows.len() * room,
            };
            let b = match layout.as_str() {
                "nn" => vec![rows.len(), k, n],
                _ => vec![rows.len(), n, k],
            };
            let mut inputs = vec![
                tensor("a", vec![total, k])?,
                tensor("b", b)?,
                tensor("d", vec![total, n])?,
                Tensor {
                    name: "rows",
                    shape: vec![rows.len()],
                    data: Buffer::from_slice(&rows),
                },
            ];
            inputs.extend(factors(job)?);
            let (scales, sums) = (word("scales")?, word("sums")?);
            let options = json!({ "layout": layout, "room": room, "scales": scales, "sums": sums });
            (inputs, options)
        }
        "experts" => {
            let (hidden, inner, per) = (number("hidden")?, number("inner")?, number("per")?);
            let length = |name| job.data(name).map_or(0, Buffer::len);
            let experts = length("shapes");
            let inputs = vec![
                tensor("x", vec![length("x") / hidden.max(1), hidden])?,
                tensor("up", vec![experts, 2 * inner, hidden])?,
                tensor("down", vec![experts, hidden, inner])?,
                tensor("weights", vec![length("weights")])?,
                tensor("order", vec![length("order")])?,
                tensor("shapes", vec![experts])?,
            ];
            (inputs, json!({ "per": per }))
        }
        other => {
            return Err(KernelError::unfit(format!("{other} has no peers to race")));
        }
    };
    Ok(Problem {
        family,
        inputs,
        options,
        output,
        calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_kernels::catalogue;

    #[test]
    fn peers_are_compared_only_where_they_compute_the_same() {
        let known = catalogue::entry("attention").unwrap().parameters();
        let why = |words: &[(&str, &str)]| {
            let mut told = Settings::default();
            for (name, value) in words {
                told.set(*name, *value);
            }
            beyond_the_peers(&told, known)
        };
        let long = [("mask", "causal"), ("queries", "64"), ("keys", "64")];
        for alike in [&[][..], &[("mask", "causal")], &[("alibi", "false")], &long] {
            assert_eq!(why(alike), None, "{alike:?}");
        }
        for (words, told) in [
            (&[("mask", "window(9,0)")][..], "full and causal"),
            (&[("layout", "rows")], "layout=heads"),
            (&[("softcap", "30")], "without `softcap`"),
            (&[("sinks", "true")], "without `sinks`"),
            (&[("lengths", "7,9")], "without `lengths`"),
            (
                &[("mask", "causal"), ("queries", "1"), ("keys", "64")],
                "first key",
            ),
        ] {
            let why = why(words).unwrap_or_default();
            assert!(why.contains(told), "{words:?}: {why}");
        }
    }
}
