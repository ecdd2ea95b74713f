//! PyTorch beside the same kernels.

use super::Share;
use crate::answer::{BadQuestion, question};
use heist::share::holder_ptx;
use heist_kernels::Target;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The script that measures it.
const PEER: &str = include_str!("../../../include/share.py");

impl Share {
    /// The peer's figures, or why there are none.
    pub(super) fn peer(&self, target: Target) -> Result<Value, BadQuestion> {
        let folder = std::env::temp_dir().join(format!("heist-share-{}", std::process::id()));
        let answer = self.ask_peer(&folder, target);
        // Litter in a temporary folder.
        let _ = std::fs::remove_dir_all(&folder);
        answer
    }

    fn ask_peer(&self, folder: &Path, target: Target) -> Result<Value, BadQuestion> {
        let absent = |why: &str| Ok(json!({ "absent": why }));
        let ptx = holder_ptx(target.arch).map_err(|error| question(error.problem))?;
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(folder.join("hold.ptx"), ptx))
            .and_then(|()| std::fs::write(folder.join("share.py"), PEER));
        if let Err(error) = written {
            return absent(&format!("no room for its script: {error}"));
        }
        let case = json!({
            "kernel": self.kernel, "told": self.told, "interactive": self.interactive,
            "held": self.held(target), "samples": self.samples,
        });
        let ran = Command::new(&self.python)
            .arg(folder.join("share.py"))
            .arg(folder.join("hold.ptx"))
            .arg(case.to_string())
            .output();
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => return absent(&format!("{}: {error}", self.python.display())),
        };
        let said = String::from_utf8_lossy(&ran.stdout);
        match said.lines().last().map(serde_json::from_str::<Value>) {
            Some(Ok(figures)) if ran.status.success() => Ok(figures),
            _ => {
                let why = String::from_utf8_lossy(&ran.stderr);
                absent(why.lines().last().unwrap_or("it said nothing"))
            }
        }
    }
}
