//! The protocol between parent and child: one JSON value a line.
//!
//! A line of ours begins with [`MARK`], on a line of its own. Anything else on the
//! child's standard output was printed by a kernel, or by the driver, and is no answer.

use crate::device::CaseError;
use heist_launch::{Buffer, BufferRef, ElementType, Outcome};
use heist_ptx::{Diagnostic, Severity, Span, rule};
use heist_run::Execution;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// What no kernel prints by accident.
const MARK: char = '\u{1}';

/// Parent to child: run this case of this text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) case: String,
}

/// Child to parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The first message: there is a device.
    Ready,
    /// The first message: there is none. `machine` says that the machine has no GPU or driver, and
    /// that nothing failed.
    NoDevice { why: String, machine: bool },
    /// A case ran. After `lost` the child runs nothing more.
    Ran {
        outputs: Vec<WireBuffer>,
        findings: Vec<Finding>,
        lost: bool,
    },
    /// A case that is not for this device.
    NotForThisDevice(String),
    /// A case that should have run.
    Failed { why: String, lost: bool },
}

/// One buffer, read back.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireBuffer {
    argument: Option<usize>,
    name: Option<String>,
    ty: String,
    /// Two hexadecimal digits a byte.
    bytes: String,
}

/// One diagnostic. What a real device says has one place at most.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Finding {
    code: String,
    error: bool,
    message: String,
    span: (usize, usize),
    notes: Vec<String>,
    helps: Vec<String>,
}

impl Answer {
    pub(super) fn of(result: Result<Execution, CaseError>, lost: bool) -> Answer {
        match result {
            Ok(ran) => Answer::Ran {
                outputs: ran.outcome.outputs.iter().map(WireBuffer::of).collect(),
                findings: ran.findings.iter().map(Finding::of).collect(),
                lost,
            },
            Err(CaseError::NotForThisDevice(why)) => Answer::NotForThisDevice(why),
            Err(CaseError::Failed(why)) => Answer::Failed { why, lost },
        }
    }
}

impl WireBuffer {
    fn of((place, buffer): &(BufferRef, Buffer)) -> WireBuffer {
        let (argument, name) = match place {
            BufferRef::Argument(index) => (Some(*index), None),
            BufferRef::Named(name) => (None, Some(name.clone())),
        };
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        WireBuffer {
            argument,
            name,
            ty: buffer.ty().to_string(),
            bytes: buffer
                .bytes()
                .iter()
                .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
                .collect(),
        }
    }

    fn buffer(self) -> Option<(BufferRef, Buffer)> {
        let place = match (self.argument, self.name) {
            (Some(index), None) => BufferRef::Argument(index),
            (None, Some(name)) => BufferRef::Named(name),
            _ => return None,
        };
        let ty: ElementType = self.ty.parse().ok()?;
        let bytes: Option<Vec<u8>> = self
            .bytes
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        Some((place, Buffer::from_bytes(ty, bytes?)?))
    }
}

impl Finding {
    fn of(found: &Diagnostic) -> Finding {
        Finding {
            code: found.code.to_string(),
            error: found.severity == Severity::Error,
            message: found.message.clone(),
            span: (found.span.start as usize, found.span.end as usize),
            notes: found.facts(),
            helps: found.helps.clone(),
        }
    }

    fn diagnostic(self) -> Option<Diagnostic> {
        let code = rule::find(&self.code)?.code;
        let span = Span::new(self.span.0, self.span.1);
        let found = if self.error {
            Diagnostic::error(code, span, self.message)
        } else {
            Diagnostic::warning(code, span, self.message)
        };
        let found = self.notes.into_iter().fold(found, Diagnostic::note);
        Some(self.helps.into_iter().fold(found, Diagnostic::help))
    }
}

/// The result of a child; `None` for a message that this version can't have sent.
pub(super) fn ran(outputs: Vec<WireBuffer>, findings: Vec<Finding>) -> Option<Execution> {
    Some(Execution {
        outcome: Outcome {
            outputs: outputs
                .into_iter()
                .map(WireBuffer::buffer)
                .collect::<Option<_>>()?,
            trace: None,
        },
        findings: findings
            .into_iter()
            .map(Finding::diagnostic)
            .collect::<Option<_>>()?,
        ..Execution::default()
    })
}

/// Says one thing, on a line of its own whatever was printed before.
pub(super) fn say(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string(what)?;
    writeln!(to, "\n{MARK}{json}")?;
    to.flush()
}

/// What a line says, if it is one of ours.
pub(super) fn heard<T: for<'de> Deserialize<'de>>(line: &str) -> Option<Result<T, String>> {
    let json = line.strip_prefix(MARK)?;
    Some(serde_json::from_str(json).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_out_as_it_went_in() {
        let outputs = vec![
            (BufferRef::Argument(2), Buffer::from_slice(&[1.5f32, -0.0])),
            (BufferRef::from("DATA"), Buffer::from_slice(&[0u8, 255])),
        ];
        let found = Diagnostic::error(rule::ILLEGAL_ADDRESS, Span::new(3, 9), "outside")
            .note("why")
            .help("what to do");
        let answer = Answer::of(
            Ok(Execution {
                outcome: Outcome {
                    outputs: outputs.clone(),
                    trace: None,
                },
                findings: vec![found.clone()],
                ..Execution::default()
            }),
            true,
        );
        let mut text = Vec::new();
        say(&mut text, &answer).unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines().filter_map(heard::<Answer>);
        let Some(Ok(Answer::Ran {
            outputs: wired,
            findings,
            lost: true,
        })) = lines.next()
        else {
            panic!("{text}");
        };
        assert!(lines.next().is_none(), "{text}");
        let back = ran(wired, findings).unwrap();
        assert_eq!(back.outcome.outputs, outputs);
        assert_eq!(back.findings, [found]);
    }

    #[test]
    fn what_a_kernel_prints_is_not_an_answer() {
        let mut text = b"thread 0 {\"Ready\"".to_vec();
        say(&mut text, &Answer::Ready).unwrap();
        let text = String::from_utf8(text).unwrap();
        let answers: Vec<_> = text.lines().filter_map(heard::<Answer>).collect();
        assert!(matches!(answers.as_slice(), [Ok(Answer::Ready)]), "{text}");
        assert!(heard::<Answer>("\u{1}{").unwrap().is_err());
    }
}
