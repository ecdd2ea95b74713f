//! Programs and packages of others that Heist can make use of, and what each would give.

use super::assembler;
use serde::Serialize;
use std::process::{Command, Stdio};

/// One of them.
#[derive(Serialize)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// Where or which, if it is there.
    pub(super) found: Option<String>,
    /// What it gives.
    pub(super) gives: &'static str,
    /// How to get it.
    pub(super) help: &'static str,
}

/// What there is of all of them.
pub(super) fn look() -> Vec<Tool> {
    let ptxas = assembler::find().map(|(path, version)| format!("{version} ({})", path.display()));
    let python = version("python3", "Python");
    let [torch, triton] = packages();
    vec![
        Tool {
            name: "ptxas",
            found: ptxas,
            gives: "`heist check --ptxas`: registers, spills, what the assembler refuses",
            help: "`pip install nvidia-cuda-nvcc` in a virtual environment `.venv`, or set HEIST_PTXAS",
        },
        Tool {
            name: "python3",
            found: python,
            gives: "the Python package, and the peers of `heist bench` and `heist share`",
            help: "install Python 3.10 or later",
        },
        Tool {
            name: "torch",
            found: torch,
            gives: "`heist.torch`: our kernels in PyTorch; PyTorch as a peer in `heist bench`",
            help: "`pip install torch`",
        },
        Tool {
            name: "triton",
            found: triton,
            gives: "Triton's kernels as peers, and their PTX for `heist check`",
            help: "`pip install triton`, which comes with PyTorch for CUDA",
        },
        Tool {
            name: "compute-sanitizer",
            found: version("compute-sanitizer", "Version"),
            gives: "its reports, which `heist check` reads and explains",
            help: "it is in the CUDA toolkit",
        },
        Tool {
            name: "ncu",
            found: version("ncu", "Version"),
            gives: "a profile of a kernel on the GPU, to hold beside the simulator's model",
            help: "it is in the CUDA toolkit (Nsight Compute)",
        },
    ]
}

/// The line of `NAME --version` that has a word in it.
fn version(name: &str, word: &str) -> Option<String> {
    let answer = Command::new(name)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let line = text.lines().find(|line| line.contains(word))?;
    Some(line.trim().to_owned())
}

/// The versions of PyTorch and Triton, without loading them: that takes seconds.
fn packages() -> [Option<String>; 2] {
    const ASK: &str = "\
import importlib.metadata as m
for name in ('torch', 'triton'):
    try: print(m.version(name))
    except m.PackageNotFoundError: print()";
    let answer = Command::new("python3")
        .args(["-c", ASK])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = answer.map_or(String::new(), |answer| {
        String::from_utf8_lossy(&answer.stdout).into_owned()
    });
    let mut lines = text.lines().map(str::trim);
    [(); 2].map(|()| {
        lines
            .next()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
    })
}
