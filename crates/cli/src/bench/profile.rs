//! What Nsight Compute counts while a kernel runs, for the evidence.

use heist_kernels::catalogue::{Entry, Settings};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// What is counted, and what it is called in a pack: how busy tensor cores, multiprocessors and memory are, accesses to
/// shared memory that had to wait for a bank, and what warps wait for, in warps an issued instruction.
const METRICS: [(&str, &str); 8] = [
    (
        "tensor_cores_percent",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    (
        "multiprocessors_percent",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "memory_percent",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (
        "bank_conflicts",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    ),
    (
        "stalled_on_memory",
        "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    ),
    (
        "stalled_on_shared_memory",
        "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    ),
    (
        "stalled_at_barriers",
        "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    ),
    (
        "stalled_on_tensor_cores",
        "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",
    ),
];

/// Runs a problem of a kernel under `ncu`, in this same program: each kernel with its counts, or why there are none.
pub(crate) fn profile(entry: &dyn Entry, told: &Settings) -> Value {
    let said = entry.parameters().iter();
    let said = said.filter_map(|one| Some(format!("{}={}", one.name, told.get(one.name)?)));
    let words: Vec<String> = said.collect();
    let names: Vec<&str> = METRICS.iter().map(|(_, metric)| *metric).collect();
    let ran = std::env::current_exe().and_then(|program| {
        Command::new("ncu")
            .args(["--csv", "--target-processes", "application-only"])
            .args(["--metrics", &names.join(",")])
            .arg(program)
            .args(["run", entry.name()])
            .args(&words)
            .args(["--device", "gpu", "--no-verify"])
            .stderr(Stdio::null())
            .output()
    });
    match ran {
        Err(error) => json!({ "not_profiled": format!("ncu can't be started: {error}") }),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let kernels = read(&text);
            // It tells in its log what it is not allowed to do.
            let refused = text.lines().find(|line| line.starts_with("==ERROR=="));
            match (kernels.is_empty(), refused) {
                (false, _) => json!({ "kernels": kernels }),
                (true, Some(line)) => json!({ "not_profiled": line }),
                (true, None) => {
                    json!({ "not_profiled": format!("ncu counted nothing, and ended with {}", output.status) })
                }
            }
        }
    }
}

/// The counts in a table of `ncu --csv`, kernel by kernel as they were launched. What it could not count is left out.
fn read(text: &str) -> Vec<Value> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"ID\""));
    let heads = lines.next().map(cells).unwrap_or_default();
    let place = |name: &str| heads.iter().position(|head| head == name);
    let places = ["ID", "Kernel Name", "Metric Name", "Metric Value"].map(place);
    let [Some(id), Some(kernel), Some(metric), Some(value)] = places else {
        return Vec::new();
    };
    let mut launches: Vec<(String, Value)> = Vec::new();
    for row in lines.map(cells) {
        let of = |at: usize| row.get(at).map_or("", String::as_str);
        let Some((name, _)) = METRICS.iter().find(|(_, one)| *one == of(metric)) else {
            continue;
        };
        let Ok(number) = of(value).replace(',', "").parse::<f64>() else {
            continue;
        };
        if launches.last().is_none_or(|(last, _)| last != of(id)) {
            launches.push((of(id).to_owned(), json!({ "entry": of(kernel) })));
        }
        if let Some((_, counts)) = launches.last_mut() {
            counts[*name] = json!(number);
        }
    }
    launches.into_iter().map(|(_, counts)| counts).collect()
}

/// The cells of a line of quoted cells.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_matches('"');
    inner.split("\",\"").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_each_launch_are_read() {
        let text = "\
==PROF== Connected to process 7
\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"
\"0\",\"7\",\"gemm\",\"(384, 1, 1)\",\"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum\",\"\",\"1,024\"
\"0\",\"7\",\"gemm\",\"(384, 1, 1)\",\"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active\",\"%\",\"81.5\"
\"1\",\"7\",\"gemm\",\"(384, 1, 1)\",\"sm__throughput.avg.pct_of_peak_sustained_elapsed\",\"%\",\"n/a\"
\"1\",\"7\",\"gemm\",\"(384, 1, 1)\",\"dram__throughput.avg.pct_of_peak_sustained_elapsed\",\"%\",\"9\"
";
        let expected = [
            json!({ "entry": "gemm", "bank_conflicts": 1024.0, "tensor_cores_percent": 81.5 }),
            json!({ "entry": "gemm", "memory_percent": 9.0 }),
        ];
        assert_eq!(read(text), expected);
        assert_eq!(read("==ERROR== ERR_NVGPUCTRPERM\n"), Vec::<Value>::new());
    }
}
