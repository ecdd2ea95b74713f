//! Attribution of a fault to a launch.
//!
//! A kernel that faults does so while the host is doing something else, and the
//! driver reports it from whatever call comes next. So every launch leaves a
//! [`LaunchRecord`], and after it the device is asked to write the record's
//! number into host memory, in stream order. When a call fails, the first launch
//! whose number was not written is the one at fault. That memory is the host's
//! own, so it is readable when the context is gone.

use crate::status::Status;
use heist_launch::{Arg, Arguments, Launch};
use heist_ptx::Diagnostic;
use heist_ptx::Span;
use std::fmt::{self, Write};

/// The record of a launch, kept until it is known to have ended without a fault.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchRecord {
    /// The module: a path, where it came from a file.
    pub module: String,
    /// The kernel.
    pub kernel: String,
    /// Its shape.
    pub launch: Launch,
    /// Its arguments as flags of the command, where they are known.
    pub arguments: Option<String>,
}

impl LaunchRecord {
    /// The command that runs the same launch on the simulated GPU with every
    /// check on.
    pub fn next_command(&self) -> String {
        let mut text = format!(
            "heist check {} --entry {} {}",
            shell_word(&self.module),
            shell_word(&self.kernel),
            self.launch
        );
        match &self.arguments {
            Some(arguments) if !arguments.is_empty() => {
                text.push(' ');
                text.push_str(arguments);
            }
            Some(_) => {}
            None => text.push_str(" --arg ..."),
        }
        text
    }
}

impl fmt::Display for LaunchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of {}, {}", self.kernel, self.module, self.launch)
    }
}

/// A launch and its place in a stream.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) stream: u64,
    /// Counted from 1 in each stream.
    pub(crate) number: u32,
    pub(crate) record: LaunchRecord,
}

/// The launches that may have faulted.
#[derive(Clone, Debug, PartialEq)]
pub enum Suspects {
    /// It was this one.
    One(LaunchRecord),
    /// It was one of these: several streams were at work, or the launches were
    /// not tracked one by one.
    Several(Vec<LaunchRecord>),
    /// Nothing was known to be at work.
    None,
}

/// A kernel did something that ended its context.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The device.
    pub device: String,
    /// What the driver said, and which call it said it in.
    pub status: Status,
    /// The launches that may have caused it.
    pub suspects: Suspects,
}

impl Fault {
    /// As a diagnostic about the kernel, for reports.
    pub fn diagnostic(&self) -> Diagnostic {
        let message = match &self.suspects {
            Suspects::One(record) => {
                format!(
                    "kernel `{}` faulted: {}",
                    record.kernel,
                    self.status.in_words()
                )
            }
            _ => format!("a kernel faulted: {}", self.status.in_words()),
        };
        let mut diagnostic = Diagnostic::error(self.status.rule(), Span::NONE, message)
            .note(format!("the driver's words: {}", self.status));
        if let Suspects::One(record) = &self.suspects {
            diagnostic = diagnostic.note(format!("launch: {record}")).help(format!(
                "run it on the simulated GPU: {}",
                record.next_command()
            ));
        }
        diagnostic
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.status.in_words();
        match &self.suspects {
            Suspects::One(record) => {
                writeln!(
                    f,
                    "kernel `{}` faulted on {}: {words}",
                    record.kernel, self.device
                )?;
                writeln!(f, "  launch: {record}")?;
            }
            Suspects::Several(records) => {
                writeln!(
                    f,
                    "one of {} launches faulted on {}: {words}",
                    records.len(),
                    self.device
                )?;
                for record in records {
                    writeln!(f, "  launch: {record}")?;
                }
            }
            Suspects::None => {
                writeln!(f, "a kernel faulted on {}: {words}", self.device)?;
            }
        }
        writeln!(f, "  driver: {}", self.status)?;
        write!(
            f,
            "  the GPU context is lost: its buffers and kernels are gone, other processes are not affected"
        )?;
        let first = match &self.suspects {
            Suspects::One(record) => Some(record),
            Suspects::Several(records) => records.first(),
            Suspects::None => None,
        };
        if let Some(record) = first {
            write!(f, "\n  next: {}", record.next_command())?;
        }
        Ok(())
    }
}

/// Picks the launches that can be at fault: in each stream, the first that did
/// not end. `ended` gives the number of the last launch of a stream known to have
/// ended, or `None` when launches of that stream are not tracked.
pub(crate) fn suspects(pending: &[Pending], ended: impl Fn(u64) -> Option<u32>) -> Suspects {
    let mut found: Vec<LaunchRecord> = Vec::new();
    let mut settled: Vec<u64> = Vec::new();
    for launch in pending {
        if settled.contains(&launch.stream) {
            continue;
        }
        match ended(launch.stream) {
            Some(number) if launch.number <= number => {}
            Some(_) => {
                settled.push(launch.stream);
                found.push(launch.record.clone());
            }
            None => found.push(launch.record.clone()),
        }
    }
    if found.len() > 1 {
        return Suspects::Several(found);
    }
    found.pop().map_or(Suspects::None, Suspects::One)
}

/// Arguments as flags of the command. Long contents are replaced by zeros of the
/// same length, and the text says so.
pub fn argument_flags(arguments: &Arguments) -> String {
    let mut text = String::new();
    let mut shortened = false;
    let mut contents = |arg: &Arg| match (brief(arg), arg) {
        (Some(full), _) => full,
        (None, Arg::Buffer { role, data }) => {
            shortened = true;
            format!("{role}:{}:zeros({})", data.ty(), data.len())
        }
        (None, other) => other.to_string(),
    };
    for named in &arguments.buffers {
        let arg = Arg::Buffer {
            role: named.role,
            data: named.data.clone(),
        };
        let word = shell_word(&format!("{} {}", named.name, contents(&arg)));
        let _ = write!(text, "--buffer {word} ");
    }
    for arg in &arguments.params {
        let _ = write!(text, "--arg {} ", shell_word(&contents(arg)));
    }
    if shortened {
        text.push_str("  # long contents are left out: put yours in place of zeros(...)");
    }
    text.trim_end().to_owned()
}

/// What is written, if it is short. It is not written to the end otherwise: a
/// matrix takes seconds to spell, and every launch asks for its flags.
fn brief(what: &impl fmt::Display) -> Option<String> {
    struct Brief(String);
    impl fmt::Write for Brief {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            const LONGEST: usize = 160;
            if self.0.len() + part.len() > LONGEST {
                return Err(fmt::Error);
            }
            self.0.push_str(part);
            Ok(())
        }
    }
    let mut text = Brief(String::new());
    write!(text, "{what}").ok().map(|()| text.0)
}

/// Quotes a word for a POSIX shell where it needs it.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{Buffer, ElementType, Role};

    fn record(kernel: &str) -> LaunchRecord {
        LaunchRecord {
            module: "k.ptx".to_owned(),
            kernel: kernel.to_owned(),
            launch: Launch::new(2, 64),
            arguments: Some("--arg u32:1".to_owned()),
        }
    }

    fn pending(stream: u64, number: u32, kernel: &str) -> Pending {
        Pending {
            stream,
            number,
            record: record(kernel),
        }
    }

    #[test]
    fn what_is_long_is_not_written_to_its_end() {
        struct Endless(std::cell::Cell<u32>);
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    self.0.set(self.0.get() + 1);
                    f.write_str("0.5,")?;
                }
            }
        }
        let endless = Endless(std::cell::Cell::new(0));
        assert_eq!(brief(&endless), None);
        assert!(endless.0.get() < 100);
        assert_eq!(brief(&"0.5").as_deref(), Some("0.5"));
    }

    #[test]
    fn the_next_command_has_the_arguments_that_are_known() {
        let mut record = record("k");
        assert_eq!(
            record.next_command(),
            format!("heist check k.ptx --entry k {} --arg u32:1", record.launch)
        );
        record.arguments = Some(String::new());
        assert_eq!(
            record.next_command(),
            format!("heist check k.ptx --entry k {}", record.launch)
        );
        record.arguments = None;
        assert!(record.next_command().ends_with(" --arg ..."));
    }

    #[test]
    fn the_first_that_did_not_end_is_at_fault() {
        let list = [pending(1, 1, "a"), pending(1, 2, "b"), pending(1, 3, "c")];
        assert_eq!(suspects(&list, |_| Some(1)), Suspects::One(record("b")));
        assert_eq!(suspects(&list, |_| Some(0)), Suspects::One(record("a")));
        assert_eq!(suspects(&list, |_| Some(3)), Suspects::None);
    }

    #[test]
    fn one_suspect_for_each_stream_and_all_of_an_untracked_one() {
        let list = [pending(1, 1, "a"), pending(2, 1, "b"), pending(1, 2, "c")];
        assert_eq!(
            suspects(&list, |_| Some(0)),
            Suspects::Several(vec![record("a"), record("b")])
        );
        assert_eq!(
            suspects(&list, |stream| (stream == 2).then_some(1)),
            Suspects::Several(vec![record("a"), record("c")])
        );
    }

    #[test]
    fn the_message_names_kernel_launch_error_and_next_step() {
        let fault = Fault {
            device: "NVIDIA H200".to_owned(),
            status: Status::new("cuStreamSynchronize", 700),
            suspects: Suspects::One(record("add")),
        };
        let text = fault.to_string();
        for part in [
            "kernel `add` faulted on NVIDIA H200",
            "not in any allocation",
            "--grid 2,1,1 --block 64,1,1",
            "cuStreamSynchronize failed",
            "700",
            "context is lost",
            "next: heist check k.ptx --entry add --grid 2,1,1 --block 64,1,1 --arg u32:1",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert_eq!(fault.diagnostic().code.0, "G004");
        let message = fault.diagnostic().message;
        assert!(message.starts_with("kernel `add` faulted: "), "{message}");
        assert_eq!(fault.diagnostic().helps.len(), 1);
    }

    #[test]
    fn arguments_become_flags_that_a_shell_takes() {
        let arguments = Arguments::new([
            Arg::scalar(7u32),
            Arg::input(&[1u32, 2]),
            Arg::Buffer {
                role: Role::In,
                data: Buffer::random(ElementType::F32, 1, 1000),
            },
        ])
        .buffer("work", Role::Out, Buffer::poisoned(ElementType::U8, 4));
        assert_eq!(
            argument_flags(&arguments),
            "--buffer 'work out:u8:4' --arg u32:7 --arg 'in:u32:[1,2]' --arg 'in:f32:zeros(1000)'   # long contents are left out: put yours in place of zeros(...)"
        );
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
