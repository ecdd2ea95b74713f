//! Running other programs, and saying which one failed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

/// A chore that did not come off, with the reason.
pub(crate) struct Failed(pub(crate) String);

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Whether what is started builds without what only helps later builds and debuggers.
static ONCE: AtomicBool = AtomicBool::new(false);

/// In a clone where nothing was built yet, nothing is kept for a second build, and lines for
/// debuggers are left out: that saves minutes. Panics still tell their own line.
pub(crate) fn build_once_if_fresh() {
    let built = fs::read_dir(root().join("target/debug/.fingerprint"))
        .is_ok_and(|crates| crates.flatten().any(|of| is_of_a_part(&of.file_name())));
    ONCE.store(!built, Ordering::Relaxed);
}

/// Whether a fingerprint is that of a crate of the toolkit, rather than of these chores.
fn is_of_a_part(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with("heist-")
}

/// What cargo starts in place of rustc, for the crates of this workspace.
static COMPILER: OnceLock<PathBuf> = OnceLock::new();

/// Has every cargo that is started from now on compile the workspace with a program.
pub(crate) fn compile_with(program: PathBuf) {
    COMPILER.get_or_init(|| program);
}

/// A command in the root of the workspace.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    if ONCE.load(Ordering::Relaxed) {
        command.env("CARGO_INCREMENTAL", "0");
        command.env("CARGO_PROFILE_DEV_DEBUG", "false");
    }
    if let Some(program) = COMPILER.get() {
        command.env("RUSTC_WORKSPACE_WRAPPER", program);
    }
    command
}

/// Says what is run, and runs it.
pub(crate) fn run(command: &mut Command) -> Result<(), Failed> {
    let line = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    eprintln!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failed(format!("`{line}` failed: {status}"))),
        Err(error) => Err(Failed(format!("`{line}` can't be started: {error}"))),
    }
}

/// Runs cargo in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Result<(), Failed> {
    run(command("cargo").args(arguments))
}

/// A chore that runs beside others: what it prints is kept, and shown when it has ended.
pub(crate) struct Aside {
    chore: &'static str,
    running: Child,
    log: PathBuf,
}

impl Aside {
    /// Starts `cargo xtask CHORE`.
    pub(crate) fn start(chore: &'static str) -> Result<Aside, Failed> {
        let log = root().join(format!("target/{chore}.log"));
        let cannot = |error: io::Error| Failed(format!("`cargo xtask {chore}`: {error}"));
        fs::create_dir_all(root().join("target")).map_err(cannot)?;
        let out = fs::File::create(&log).map_err(cannot)?;
        let running = command(std::env::current_exe().map_err(cannot)?)
            .arg(chore)
            .stdin(Stdio::null())
            .stderr(out.try_clone().map_err(cannot)?)
            .stdout(out)
            .spawn()
            .map_err(cannot)?;
        eprintln!("$ cargo xtask {chore} & (its lines follow at the end)");
        Ok(Aside {
            chore,
            running,
            log,
        })
    }

    /// Waits for it, and shows what it printed.
    pub(crate) fn finish(mut self) -> Result<(), Failed> {
        let cannot = |error: io::Error| Failed(format!("`cargo xtask {}`: {error}", self.chore));
        let status = self.running.wait().map_err(cannot)?;
        let said = fs::read(&self.log).map_err(cannot)?;
        println!("{}", String::from_utf8_lossy(&said));
        match status.success() {
            true => Ok(()),
            false => Err(Failed(format!(
                "`cargo xtask {}` failed: {status}",
                self.chore
            ))),
        }
    }
}
