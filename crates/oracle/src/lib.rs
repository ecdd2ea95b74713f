//! The vendor's assembler as a judge, for tests alone.
//!
//! `ptxas` decides what is PTX and what is not; no crate needs it to run, every
//! crate may ask it in a test. It is found through the environment variable
//! `HEIST_PTXAS`, else in the virtual environment `.venv` at the root of the
//! workspace (`cargo xtask test` makes that), else on the `PATH`. A test without
//! it says so and passes:
//!
//! ```
//! use heist_oracle::Ptxas;
//! let Some(ptxas) = Ptxas::find_or_say_skipped() else { return };
//! let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
//! let cubin = ptxas.assemble(ptx, "sm_80").expect("a kernel that does nothing");
//! assert!(cubin.text_sections().unwrap().contains_key(".text.k"));
//! let refusal = ptxas.assemble("not PTX", "sm_80").unwrap_err();
//! assert!(refusal.log.contains("ptxas"));
//! ```
//!
//! Everything here may be called from several threads at once: each run has a
//! folder of its own, which goes away with the value that names it.

mod elf;
mod scratch;
mod usage;

pub use elf::ElfError;
pub use usage::Usage;

use scratch::Scratch;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The root of the workspace that this crate was built in.
pub fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The assembler.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
}

impl Ptxas {
    /// Looks for it; `None` when there is none.
    ///
    /// # Panics
    /// When `HEIST_PTXAS` names something that is not a file: a test that was
    /// told to ask the assembler must not pass without it.
    pub fn find() -> Option<Ptxas> {
        if let Some(path) = std::env::var_os("HEIST_PTXAS") {
            let path = PathBuf::from(path);
            assert!(
                path.is_file(),
                "HEIST_PTXAS is {}, and that is not a file",
                path.display()
            );
            return Some(Ptxas { path });
        }
        Ptxas::in_workspace().or_else(Ptxas::on_path)
    }

    fn in_workspace() -> Option<Ptxas> {
        let lib = workspace_root().join(".venv/lib");
        let mut pythons: Vec<PathBuf> = fs::read_dir(lib)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        pythons.sort();
        pythons
            .into_iter()
            .map(|python| python.join("site-packages/nvidia/cu13/bin/ptxas"))
            .find(|path| path.is_file())
            .map(|path| Ptxas { path })
    }

    fn on_path() -> Option<Ptxas> {
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders)
            .map(|folder| folder.join("ptxas"))
            .find(|path| path.is_file())
            .map(|path| Ptxas { path })
    }

    /// [`Ptxas::find`], and says on the test's output when there is none.
    pub fn find_or_say_skipped() -> Option<Ptxas> {
        let found = Ptxas::find();
        if found.is_none() {
            println!("skipped: ptxas not found");
        }
        found
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last line but one of `--version`: `Cuda compilation tools, release 13.4, V13.4.92`.
    pub fn version(&self) -> String {
        let out = Command::new(&self.path).arg("--version").output();
        let text = out.map_or_else(
            |error| error.to_string(),
            |out| String::from_utf8_lossy(&out.stdout).into_owned(),
        );
        text.lines()
            .find(|line| line.contains("release"))
            .unwrap_or(&text)
            .to_string()
    }

    /// Assembles `ptx` for `arch` (`sm_90a`), with `-v` so that the log says
    /// what each kernel uses.
    ///
    /// # Errors
    /// What ptxas said, when it did not accept the text.
    ///
    /// # Panics
    /// When the temporary folder can't be written or ptxas can't be started.
    pub fn assemble(&self, ptx: &str, arch: &str) -> Result<Cubin, Rejected> {
        self.assemble_with(ptx, arch, &[])
    }

    /// [`Ptxas::assemble`] with further options, such as `-c` or `--maxrregcount=32`.
    ///
    /// # Errors
    /// What ptxas said, when it did not accept the text.
    ///
    /// # Panics
    /// When the temporary folder can't be written or ptxas can't be started.
    pub fn assemble_with(
        &self,
        ptx: &str,
        arch: &str,
        options: &[&str],
    ) -> Result<Cubin, Rejected> {
        let scratch = Scratch::new();
        let input = scratch.path().join("in.ptx");
        let output = scratch.path().join("out.cubin");
        fs::write(&input, ptx).expect("the temporary folder can be written");
        let run = Command::new(&self.path)
            .args(["-v", &format!("-arch={arch}"), "-o", "out.cubin", "in.ptx"])
            .args(options)
            .current_dir(scratch.path())
            .output()
            .expect("ptxas can be started");
        let mut log = String::from_utf8_lossy(&run.stdout).into_owned();
        log.push_str(&String::from_utf8_lossy(&run.stderr));
        if run.status.success() && output.is_file() {
            Ok(Cubin {
                scratch,
                log,
                disassembler: self.path.with_file_name("nvdisasm"),
            })
        } else {
            if log.trim().is_empty() {
                log = format!("ptxas: {}", run.status);
            }
            Err(Rejected { log })
        }
    }

    /// Whether ptxas accepts `ptx` for `arch`.
    pub fn accepts(&self, ptx: &str, arch: &str) -> bool {
        self.assemble(ptx, arch).is_ok()
    }
}

/// What ptxas said about a text that it did not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// All of it.
    pub log: String,
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.log.trim_end())
    }
}

impl std::error::Error for Rejected {}

/// Machine code, in a temporary folder that goes away with this value.
#[derive(Debug)]
pub struct Cubin {
    scratch: Scratch,
    /// What ptxas said while it made it.
    pub log: String,
    disassembler: PathBuf,
}

impl Cubin {
    /// The file.
    pub fn path(&self) -> PathBuf {
        self.scratch.path().join("out.cubin")
    }

    /// Its bytes.
    ///
    /// # Panics
    /// When the file is gone.
    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).expect("the cubin is where it was written")
    }

    /// The machine code of each function, by section name (`.text.kernel`).
    ///
    /// # Errors
    /// When the file is not an ELF file of the expected kind.
    pub fn text_sections(&self) -> Result<BTreeMap<String, Vec<u8>>, ElfError> {
        elf::sections(&self.bytes(), |name| name.starts_with(".text"))
    }

    /// The machine code as text, by nvdisasm beside ptxas; `None` when it is not installed.
    ///
    /// # Panics
    /// When nvdisasm does not understand what ptxas made.
    pub fn disassembly(&self) -> Option<String> {
        if !self.disassembler.is_file() {
            return None;
        }
        // The code alone, and no analysis of its branches: half the time.
        let run = Command::new(&self.disassembler)
            .args(["--print-code", "--no-dataflow"])
            .arg(self.path())
            .output()
            .expect("nvdisasm can be started");
        assert!(
            run.status.success(),
            "nvdisasm: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        Some(String::from_utf8_lossy(&run.stdout).into_owned())
    }

    /// Registers, spills, stack and shared memory of each function, from the log.
    pub fn usage(&self) -> BTreeMap<String, Usage> {
        usage::read(&self.log)
    }

    /// The lines of the log that say the code is not what was written: words
    /// like "serialized", "ignored" and "injected". A good kernel has none.
    pub fn complaints(&self) -> Vec<&str> {
        self.log
            .lines()
            .filter(|line| {
                let line = line.to_ascii_lowercase();
                ["serialized", "ignored", "injected", "warning"]
                    .iter()
                    .any(|word| line.contains(word))
            })
            .collect()
    }
}

/// Runs `work` over all `items` on a few threads, and gives the results in the
/// order of the items. Waiting for ptxas is most of the time of such tests.
///
/// # Panics
/// When `work` panics.
pub fn parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    parallel_on(threads, items, work)
}

/// The same on so many threads.
///
/// # Panics
/// When `work` panics.
pub fn parallel_on<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = work(item);
                    results
                        .lock()
                        .expect("no worker panicked")
                        .push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no worker panicked");
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A fifth of `items`, as a die falls that falls the same way every time; all of them where the
/// environment says `HEIST_CASES=all`. ptxas and the simulator take seconds for a large kernel, and
/// what holds for a fifth of many alike holds for the rest almost always.
pub fn sample<T>(items: Vec<T>) -> Vec<T> {
    let all = std::env::var_os("HEIST_CASES").is_some_and(|told| told == "all");
    let chosen = |at: usize| (at as u32).wrapping_mul(0x9E37_79B9) < u32::MAX / 5;
    let each = items.into_iter().enumerate();
    each.filter(|(at, _)| all || chosen(*at))
        .map(|(_, item)| item)
        .collect()
}

/// One machine code for each architecture and set of tensor-core and copy instructions:
/// ptxas translates an instruction alike in every kernel, and reading machine code takes
/// longer than making it.
#[derive(Debug, Default)]
pub struct MachineCodes(Mutex<BTreeSet<(String, BTreeSet<String>)>>);

impl MachineCodes {
    /// The machine code of a text that was assembled, if it is the first of its kind;
    /// `None` also when there is no nvdisasm.
    ///
    /// # Panics
    /// When nvdisasm does not understand what ptxas made.
    pub fn first_of_its_kind(&self, arch: &str, ptx: &str, cubin: &Cubin) -> Option<String> {
        let instructions = ptx.lines().filter_map(|line| {
            let opcode = line
                .split_whitespace()
                .find(|word| !word.starts_with('@'))?;
            let kinds = ["mma", "wgmma", "tcgen05", "ldmatrix", "cp."];
            let of_a_kind = kinds.iter().any(|kind| opcode.starts_with(kind));
            of_a_kind.then(|| opcode.trim_end_matches(';').to_owned())
        });
        let kind = (arch.to_owned(), instructions.collect());
        let first = self.0.lock().expect("no worker panicked").insert(kind);
        first.then(|| cubin.disassembly()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "
        .version 8.0
        .target sm_80
        .address_size 64
        .visible .entry k(.param .u64 p) {
            .reg .b64 %a;
            .reg .b32 %r;
            .shared .align 4 .b8 s[1000];
            ld.param.u64 %a, [p];
            mov.u32 %r, %tid.x;
            st.shared.u32 [s], %r;
            bar.sync 0;
            ld.shared.u32 %r, [s+8];
            st.global.u32 [%a], %r;
            ret;
        }";

    #[test]
    fn a_kernel_is_assembled_measured_and_disassembled() {
        let Some(ptxas) = Ptxas::find_or_say_skipped() else {
            return;
        };
        assert!(ptxas.version().contains("release"), "{}", ptxas.version());
        let cubin = ptxas.assemble(KERNEL, "sm_80").expect("a valid kernel");
        assert_eq!(cubin.complaints(), Vec::<&str>::new());
        let text = cubin.text_sections().expect("an ELF file");
        assert_eq!(text.keys().collect::<Vec<_>>(), [".text.k"]);
        assert_eq!(text[".text.k"].len() % 16, 0);
        let usage = &cubin.usage()["k"];
        assert_eq!((usage.shared, usage.barriers, usage.stack), (1000, 1, 0));
        assert!(usage.registers > 0);
        let codes = MachineCodes::default();
        let first = |arch, ptx| codes.first_of_its_kind(arch, ptx, &cubin);
        if let Some(listing) = first("sm_80", KERNEL) {
            assert!(listing.contains("BAR.SYNC"), "{listing}");
            assert_eq!(first("sm_80", KERNEL), None);
            let copies = KERNEL.replace("bar.sync 0", "@p cp.async.wait_all");
            assert!(first("sm_80", &copies).is_some(), "another instruction");
            assert!(first("sm_90", KERNEL).is_some(), "another architecture");
        }
        let folder = cubin.scratch.path().to_path_buf();
        drop(cubin);
        assert!(!folder.exists());
    }

    #[test]
    fn a_refusal_says_why() {
        let Some(ptxas) = Ptxas::find_or_say_skipped() else {
            return;
        };
        let refusal = ptxas
            .assemble(&KERNEL.replace("%tid.x", "%nosuch"), "sm_80")
            .expect_err("an unknown register");
        assert!(refusal.log.contains("%nosuch"), "{refusal}");
    }

    #[test]
    fn many_at_once_do_not_meet() {
        let Some(ptxas) = Ptxas::find_or_say_skipped() else {
            return;
        };
        let sizes: Vec<u64> = (1..=16).map(|n| n * 16).collect();
        let seen = parallel(&sizes, |size| {
            let text = KERNEL.replace("1000", &size.to_string());
            ptxas.assemble(&text, "sm_90").expect("valid").usage()["k"].shared
        });
        assert_eq!(seen, sizes);
    }
}
