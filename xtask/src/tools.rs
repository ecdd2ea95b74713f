//! The virtual environment with NVIDIA's assembler and disassembler.
//!
//! They come from the Python package index, pinned, without the rest of the
//! toolkit, and are asked by tests alone.

use crate::shell::{self, Failed};
use std::fs;
use std::path::{Path, PathBuf};

/// What is installed. A change here makes the environment anew.
const PACKAGES: &[&str] = &["nvidia-cuda-nvcc==13.4.92", "nvidia-cuda-nvdisasm==13.4.92"];

/// Makes `.venv` unless it is there with just these packages.
pub(crate) fn setup() -> Result<(), Failed> {
    let venv = shell::root().join(".venv");
    let stamp = venv.join("heist-packages.txt");
    let wanted = PACKAGES.join("\n");
    if let Some(ptxas) = find(&venv, "ptxas")
        && fs::read_to_string(&stamp).is_ok_and(|made| made == wanted)
    {
        eprintln!("ptxas is there: {}", ptxas.display());
        return Ok(());
    }
    install(&venv)?;
    for tool in ["ptxas", "nvdisasm"] {
        find(&venv, tool)
            .ok_or_else(|| Failed(format!("{tool} is not in the packages {PACKAGES:?}")))?;
    }
    fs::write(&stamp, wanted).map_err(|error| Failed(format!("{}: {error}", stamp.display())))
}

fn install(venv: &Path) -> Result<(), Failed> {
    let made = shell::run(shell::command("python3").args(["-m", "venv"]).arg(venv));
    let mut pip = match made {
        Ok(()) => {
            let mut pip = shell::command(venv.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet"]);
            pip
        }
        // Some systems ship Python without the parts that make an environment;
        // pip can fill a folder of the same shape.
        Err(_) => {
            let mut pip = shell::command("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
                .arg(venv.join("lib/python3/site-packages"));
            pip
        }
    };
    pip.args(["--disable-pip-version-check", "--no-compile", "--no-deps"])
        .args(PACKAGES);
    shell::run(&mut pip).map_err(|Failed(why)| {
        Failed(format!(
            "{why}\nthe tests ask ptxas, which comes from the Python package index: \
             this needs python3 with pip, and a way to the index"
        ))
    })
}

/// A tool inside the environment.
fn find(venv: &Path, tool: &str) -> Option<PathBuf> {
    let libraries = fs::read_dir(venv.join("lib")).ok()?;
    libraries
        .flatten()
        .map(|library| {
            library
                .path()
                .join("site-packages/nvidia/cu13/bin")
                .join(tool)
        })
        .find(|path| path.is_file())
}
