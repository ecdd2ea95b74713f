//! What `heist record` is told: lines of JSON.

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

pub(crate) struct Report(Option<File>);

impl Report {
    /// A file in a folder, which other processes of the program may write to as well.
    pub(crate) fn new(folder: &Path) -> Report {
        let path = folder.join("report.jsonl");
        Report(OpenOptions::new().create(true).append(true).open(path).ok())
    }

    pub(crate) fn line(&mut self, value: &Value) {
        if let Some(file) = &mut self.0 {
            // In one piece, so that lines of two processes do not mix. There is nowhere to say
            // that it can't be written.
            let _ = file.write_all(format!("{value}\n").as_bytes());
        }
    }

    /// Something that is worth a line to the user.
    pub(crate) fn remark(&mut self, text: &str) {
        self.line(&json!({ "remark": text }));
    }
}
