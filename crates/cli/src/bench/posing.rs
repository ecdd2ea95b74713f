//! A problem as the peers take it.

use super::peers::{Problem, Tensor};
use super::spec::output_type;
use heist_kernels::catalogue::{Parameter, Settings};
use heist_kernels::{Job, KernelError};
use heist_launch::Buffer;
use serde_json::{Value, json};

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
    let posed = Posed { told, known, job };
    let (inputs, options) = match family {
        "gemm" => posed.gemm(),
        "attention" => posed.attention(false),
        "attention-backward" => posed.attention(true),
        "grouped-gemm" => posed.grouped(),
        "experts" => posed.experts(),
        other => Err(KernelError::unfit(format!("{other} has no peers to race"))),
    }?;
    Ok(Problem {
        family,
        inputs,
        options,
        output: output_type(family, job),
        calls,
    })
}

/// A problem's settings, and the data of its job.
struct Posed<'p> {
    told: &'p Settings,
    known: &'p [Parameter],
    job: &'p Job,
}

/// What a problem reads, and the options that a peer needs besides.
type Input = Result<(Vec<Tensor>, Value), KernelError>;

impl Posed<'_> {
    fn number(&self, name: &str) -> Result<usize, KernelError> {
        self.told.read(self.known, name)
    }

    fn word(&self, name: &str) -> Result<String, KernelError> {
        self.told.read(self.known, name)
    }

    fn tensor(&self, name: &'static str, shape: Vec<usize>) -> Result<Tensor, KernelError> {
        let data = self.job.data(name).cloned();
        let data =
            data.ok_or_else(|| KernelError::unfit(format!("the job has no buffer {name}")))?;
        Ok(Tensor { name, shape, data })
    }

    fn length(&self, name: &str) -> usize {
        self.job.data(name).map_or(0, Buffer::len)
    }

    /// The scale factors, where there are some.
    fn factors(&self) -> Result<Vec<Tensor>, KernelError> {
        let named = ["scale_a", "scale_b"].into_iter();
        let there = named.filter(|name| self.job.data(name).is_some());
        there
            .map(|name| self.tensor(name, vec![self.length(name)]))
            .collect()
    }

    fn gemm(&self) -> Input {
        let (m, n, k) = (self.number("m")?, self.number("n")?, self.number("k")?);
        let layout = self.word("layout")?;
        let stored = |transposed, rows, columns| match transposed {
            true => vec![columns, rows],
            false => vec![rows, columns],
        };
        let a = self.tensor("a", stored(layout.starts_with('t'), m, k))?;
        let b = self.tensor("b", stored(layout.ends_with('t'), k, n))?;
        let mut inputs = vec![a, b];
        inputs.extend(self.factors()?);
        let (scales, sums) = (self.word("scales")?, self.word("sums")?);
        let options = json!({ "layout": layout, "scales": scales, "sums": sums });
        Ok((inputs, options))
    }

    fn attention(&self, backward: bool) -> Input {
        let number = |name| self.number(name);
        let or = |value: usize, other| if value == 0 { other } else { value };
        let (batch, heads, dim) = (number("batch")?, number("heads")?, number("dim")?);
        let kv_heads = or(number("kv-heads")?, heads);
        let queries = number("queries")?;
        let keys = or(number("keys")?, queries);
        if let Some(why) = beyond_the_peers(self.told, self.known) {
            return Err(KernelError::unfit(why));
        }
        let value_dim = match backward {
            true => dim,
            false => or(number("value-dim")?, dim),
        };
        let mut inputs = vec![
            self.tensor("q", vec![batch, heads, queries, dim])?,
            self.tensor("k", vec![batch, kv_heads, keys, dim])?,
            self.tensor("v", vec![batch, kv_heads, keys, value_dim])?,
        ];
        if backward {
            for name in ["out", "d_out"] {
                inputs.push(self.tensor(name, vec![batch, heads, queries, dim])?);
            }
            inputs.push(self.tensor("lse", vec![batch, heads, queries])?);
        }
        let causal = self.word("mask")? == "causal";
        Ok((inputs, json!({ "causal": causal })))
    }

    fn grouped(&self) -> Input {
        if self.told.get("groups").is_some() {
            return Err(KernelError::unfit(
                "the peers take groups of the same n and k: rows=40,7 and no groups=",
            ));
        }
        let (n, k, layout) = (self.number("n")?, self.number("k")?, self.word("layout")?);
        let room = match self.word("room")?.as_str() {
            "" => 0,
            _ => self.number("room")?,
        };
        // Where each group's rows end, or how many it uses.
        let told = self.job.data("shapes").and_then(Buffer::to_vec::<u32>);
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
            self.tensor("a", vec![total, k])?,
            self.tensor("b", b)?,
            self.tensor("d", vec![total, n])?,
            Tensor {
                name: "rows",
                shape: vec![rows.len()],
                data: Buffer::from_slice(&rows),
            },
        ];
        inputs.extend(self.factors()?);
        let (scales, sums) = (self.word("scales")?, self.word("sums")?);
        let options = json!({ "layout": layout, "room": room, "scales": scales, "sums": sums });
        Ok((inputs, options))
    }

    fn experts(&self) -> Input {
        let number = |name| self.number(name);
        let (hidden, inner, per) = (number("hidden")?, number("inner")?, number("per")?);
        let experts = self.length("shapes");
        let inputs = vec![
            self.tensor("x", vec![self.length("x") / hidden.max(1), hidden])?,
            self.tensor("up", vec![experts, 2 * inner, hidden])?,
            self.tensor("down", vec![experts, hidden, inner])?,
            self.tensor("weights", vec![self.length("weights")])?,
            self.tensor("order", vec![self.length("order")])?,
            self.tensor("shapes", vec![experts])?,
        ];
        Ok((inputs, json!({ "per": per })))
    }
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
