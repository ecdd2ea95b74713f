//! Reads the directives in a file's comments.
//!
//! ```text
//! // heist: run NAME entry=add grid=2,1,1 block=64,1,1 [cluster=2,1,1] [smem=1024]
//! //            [device=sim:b200] [seed=3] [explore=8] [chaos] [cooperative] [gpu=yes | gpu=no "why"]
//! // heist: arg in:u32:[1,2,3]           one line a parameter, in order
//! // heist: buffer NAME out:u32:64       a buffer that no parameter is
//! // heist: expect 1 u32:[2,4,6]         by index or name; then ulp=2, rel=1e-3, abs=1e-6
//! // heist: opaque 2 "a tensor map"     devices leave formats of their own there: not compared
//! // heist: finds R001                   this code must be reported by this case
//! // heist: allows M013                  this one may be
//! // heist: clean                        nothing may be, whatever the file's marks say
//! // heist: check NAME                   a case that checks the file and runs nothing
//! st.shared.u32 [a], r;   //~ R001       reported at this line; `//~^` means the line above
//! ```
//!
//! A directive is one line. `arg`, `buffer`, `expect`, `opaque`, `finds`, `allows`
//! and `clean` belong to the `run` or `check` before them; before any, `finds`,
//! `allows` and `clean` belong to the check that a file without cases is.

use crate::case::{Action, Case, Expect, Findings, Mark, OnGpu, Opaque, Run, TestFile};
use crate::compare::Tolerance;
use heist_launch::text::{no_files, parse_named_buffer};
use heist_launch::{Arguments, Bound, BufferRef, Dim3, Launch, Slot, parse_arg, parse_values};
use heist_ptx::arch::Arch;
use heist_ptx::{Code, Source, rule};
use std::fmt;

/// A directive that can't be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectiveError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for DirectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for DirectiveError {}

/// Reads every directive of a file; every mistake is reported, not the first alone.
///
/// ```
/// use heist_ptx::Source;
/// let file = heist_filetests::read_directives(Source::new("add.ptx", "\
/// // heist: run small entry=add grid=1 block=32
/// // heist: arg out:u32:2
/// // heist: expect 0 u32:[1,2]
/// ")).unwrap();
/// assert_eq!(file.cases[0].name, "small");
/// ```
pub fn read_directives(source: Source) -> Result<TestFile, Vec<DirectiveError>> {
    let mut reader = Reader {
        cases: Vec::new(),
        marks: Vec::new(),
        implicit: check_case(String::new(), 0),
        implicit_line: None,
        errors: Vec::new(),
        line: 0,
    };
    for (index, text) in source.text().lines().enumerate() {
        reader.line = index as u32 + 1;
        reader.line(text);
    }
    reader.finish(source)
}

fn check_case(name: String, line: u32) -> Case {
    Case {
        name,
        line,
        action: Action::Check,
        findings: Findings::Marked,
        allows: Vec::new(),
    }
}

fn run_case(name: String, line: u32, run: Run) -> Case {
    Case {
        action: Action::Run(Box::new(run)),
        ..check_case(name, line)
    }
}

/// A launch with the defaults.
fn no_run() -> Run {
    Run {
        entry: None,
        launch: Launch::new(Dim3::ONE, Dim3::ONE),
        arguments: Arguments::default(),
        expects: Vec::new(),
        opaque: Vec::new(),
        device: None,
        seed: None,
        explore: None,
        chaos: false,
        cooperative: false,
        gpu: OnGpu::IfClean,
    }
}

struct Reader {
    cases: Vec<Case>,
    marks: Vec<Mark>,
    /// The case that `finds` and similar directives before any case belong to.
    implicit: Case,
    implicit_line: Option<u32>,
    errors: Vec<(u32, String)>,
    line: u32,
}

impl Reader {
    fn error(&mut self, message: impl Into<String>) {
        self.errors.push((self.line, message.into()));
    }

    fn line(&mut self, text: &str) {
        let Some(at) = text.find("//") else { return };
        let comment = text[at + 2..].trim();
        if let Some(directive) = comment.strip_prefix("heist:") {
            if let Err(message) = self.directive(directive.trim()) {
                self.error(message);
            }
        } else if let Some(tilde) = text.rfind("//~") {
            self.mark(&text[tilde + 3..]);
        }
    }

    fn mark(&mut self, text: &str) {
        let above = text.bytes().take_while(|&byte| byte == b'^').count() as u32;
        let codes = text.trim_start_matches('^');
        let Some(line) = self.line.checked_sub(above).filter(|&line| line > 0) else {
            return self.error(format!(
                "`//~{}` points above the first line",
                "^".repeat(above as usize)
            ));
        };
        let mut any = false;
        for word in codes
            .split([',', ' ', '\t'])
            .filter(|word| !word.is_empty())
        {
            any = true;
            match code(word) {
                Ok(code) => self.marks.push(Mark { line, code }),
                Err(message) => self.error(message),
            }
        }
        if !any {
            self.error("`//~` names no code: write `//~ R001`");
        }
    }

    fn directive(&mut self, text: &str) -> Result<(), String> {
        let (word, rest) = split_word(text);
        match word {
            "run" => {
                let read = self.run(rest);
                if read.is_err() {
                    // The directives after it still belong to it, and are not errors.
                    let name = format!("line {}", self.line);
                    self.cases.push(run_case(name, self.line, no_run()));
                }
                read
            }
            "check" => {
                let name = if rest.is_empty() { "check" } else { rest };
                self.start(check_case(name.to_owned(), self.line))
            }
            "arg" => {
                let arg = parse_arg(rest, &mut no_files).map_err(|error| error.to_string())?;
                self.current_run("arg")?.arguments.params.push(arg);
                Ok(())
            }
            "buffer" => {
                let buffer =
                    parse_named_buffer(rest, &mut no_files).map_err(|error| error.to_string())?;
                self.current_run("buffer")?.arguments.buffers.push(buffer);
                Ok(())
            }
            "expect" => {
                let expect = expect(rest, self.line)?;
                self.current_run("expect")?.expects.push(expect);
                Ok(())
            }
            "opaque" => {
                let opaque = opaque(rest, self.line)?;
                self.current_run("opaque")?.opaque.push(opaque);
                Ok(())
            }
            "finds" => {
                let codes = codes(rest)?;
                match &mut self.current().findings {
                    Findings::Listed(listed) => listed.extend(codes),
                    other => *other = Findings::Listed(codes),
                }
                Ok(())
            }
            "allows" => {
                let codes = codes(rest)?;
                self.current().allows.extend(codes);
                Ok(())
            }
            "clean" if rest.is_empty() => {
                self.current().findings = Findings::Clean;
                Ok(())
            }
            _ => Err(format!(
                "`{word}` is not a directive: there are run, arg, buffer, expect, opaque, finds, allows, clean and check"
            )),
        }
    }

    fn start(&mut self, case: Case) -> Result<(), String> {
        if let Some(other) = self.cases.iter().find(|other| other.name == case.name) {
            return Err(format!(
                "there is a case named `{}` already, at line {}",
                case.name, other.line
            ));
        }
        self.cases.push(case);
        Ok(())
    }

    fn current(&mut self) -> &mut Case {
        if self.cases.is_empty() {
            self.implicit_line = Some(self.line);
        }
        self.cases.last_mut().unwrap_or(&mut self.implicit)
    }

    fn current_run(&mut self, word: &str) -> Result<&mut Run, String> {
        match self.cases.last_mut().map(|case| &mut case.action) {
            Some(Action::Run(run)) => Ok(run),
            _ => Err(format!(
                "`{word}` belongs to a launch, and there is no `run` line before it"
            )),
        }
    }

    fn run(&mut self, rest: &str) -> Result<(), String> {
        let (name, mut rest) = split_word(rest);
        if name.is_empty() || name.contains('=') {
            return Err(
                "a `run` line starts with a name: `run NAME entry=KERNEL grid=1 block=32`"
                    .to_owned(),
            );
        }
        let (mut grid, mut block) = (None, None);
        let mut run = no_run();
        let mut said = Vec::new();
        while !rest.is_empty() {
            let (word, after) = split_word(rest);
            rest = after;
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if said.contains(&key) {
                return Err(format!("`{word}`: the run line says `{key}` twice"));
            }
            said.push(key);
            let number = || {
                value
                    .parse()
                    .map_err(|_| format!("`{word}`: `{value}` is not a whole number"))
            };
            let shape = || {
                value
                    .parse::<Dim3>()
                    .map_err(|error| format!("`{word}`: {error}"))
            };
            match key {
                "entry" => run.entry = Some(value.to_owned()),
                "grid" => grid = Some(shape()?),
                "block" => block = Some(shape()?),
                "cluster" => run.launch.cluster = Some(shape()?),
                "smem" => run.launch.dynamic_shared = number()?,
                "device" => run.device = Some(value.to_owned()),
                "seed" => {
                    run.seed = Some(value.parse().map_err(|_| format!("`{word}`: not a seed"))?)
                }
                "explore" => run.explore = Some(number()?),
                "chaos" if value.is_empty() => run.chaos = true,
                "cooperative" if value.is_empty() => run.cooperative = true,
                "gpu" if value == "yes" => run.gpu = OnGpu::Yes,
                "gpu" if value == "no" => {
                    let Some((why, after)) = split_reason(rest) else {
                        return Err(
                            "`gpu=no` needs its reason in quotes: `gpu=no \"why\"`".to_owned()
                        );
                    };
                    run.gpu = match why.strip_prefix("needs ") {
                        Some(target) if Arch::parse(target).is_some() => {
                            OnGpu::Needs(target.to_owned())
                        }
                        _ => OnGpu::No(why.to_owned()),
                    };
                    rest = after;
                }
                _ => {
                    return Err(format!(
                        "`{word}` is nothing that a run line has: there are entry= grid= block= cluster= smem= device= seed= explore= chaos cooperative gpu=yes gpu=no \"why\""
                    ));
                }
            }
        }
        run.launch.grid = grid.ok_or("the run line does not say `grid=`")?;
        run.launch.block = block.ok_or("the run line does not say `block=`")?;
        self.start(run_case(name.to_owned(), self.line, run))
    }

    /// The buffer that a directive is about; complains where devices do not give it back.
    fn read_back<'b>(
        &mut self,
        word: &str,
        which: &BufferRef,
        case: &Case,
        bound: &'b Bound,
    ) -> Option<&'b Slot> {
        let Some(slot) = bound.slot(which) else {
            self.error(format!(
                "`{word} {which}`: case `{}` has no such buffer",
                case.name
            ));
            return None;
        };
        let slot = &bound.slots[slot];
        if !slot.role.is_read_back() {
            self.error(format!(
                "`{word} {which}`: the buffer is `in:` and is not read back; use `inout:` or `out:`"
            ));
        }
        Some(slot)
    }

    /// Checks that need the complete case.
    fn complete(&mut self, case: &Case) {
        self.line = case.line;
        let Action::Run(run) = &case.action else {
            return;
        };
        let bound = match run.arguments.bind_any_map() {
            Ok(bound) => bound,
            Err(error) => return self.error(format!("case `{}`: {error}", case.name)),
        };
        for (index, opaque) in run.opaque.iter().enumerate() {
            self.line = opaque.line;
            let which = &opaque.buffer;
            self.read_back("opaque", which, case, &bound);
            if run.opaque[..index].iter().any(|o| o.buffer == *which) {
                self.error(format!("case `{}` says `opaque {which}` twice", case.name));
            }
        }
        for expect in &run.expects {
            self.line = expect.line;
            if run.opaque.iter().any(|o| o.buffer == expect.buffer) {
                self.error(format!(
                    "`expect {0}`: nothing is expected of a buffer that is `opaque {0}`",
                    expect.buffer
                ));
            }
            let Some(slot) = self.read_back("expect", &expect.buffer, case, &bound) else {
                continue;
            };
            let (want, has) = (expect.values.bytes().len(), slot.data.bytes().len());
            if want != has {
                self.error(format!(
                    "`expect {}` lists {want} bytes ({} of {}), the buffer has {has} ({} of {})",
                    expect.buffer,
                    expect.values.len(),
                    expect.values.ty(),
                    slot.data.len(),
                    slot.data.ty()
                ));
            }
        }
    }

    fn finish(mut self, source: Source) -> Result<TestFile, Vec<DirectiveError>> {
        let mut cases = std::mem::take(&mut self.cases);
        if let (Some(line), false) = (self.implicit_line, cases.is_empty()) {
            self.line = line;
            self.error("this line belongs to no case: put it after a `run` or `check` line");
        }
        for case in &cases {
            self.complete(case);
        }
        if cases.is_empty() {
            cases.push(Case {
                name: "check".to_owned(),
                ..self.implicit
            });
        }
        let file = TestFile {
            source,
            cases,
            marks: self.marks,
        };
        for mark in &file.marks {
            let heard = file
                .cases
                .iter()
                .any(|case| file.marks_of(case).any(|other| other == mark));
            if !heard {
                let message = format!("`//~ {0}`: no case of this file finds {0}", mark.code);
                self.errors.push((mark.line, message));
            }
        }
        if self.errors.is_empty() {
            return Ok(file);
        }
        let name = file.source.name();
        self.errors.sort_by_key(|(line, _)| *line);
        Err(self
            .errors
            .into_iter()
            .map(|(line, message)| DirectiveError {
                file: name.to_owned(),
                line,
                message,
            })
            .collect())
    }
}

/// The first word and what follows it.
fn split_word(text: &str) -> (&str, &str) {
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
    }
}

/// A reason in quotes and what follows it; `None` where there is none.
fn split_reason(text: &str) -> Option<(&str, &str)> {
    let (why, rest) = text.strip_prefix('"')?.split_once('"')?;
    (!why.trim().is_empty()).then_some((why, rest.trim_start()))
}

fn code(word: &str) -> Result<Code, String> {
    rule::find(word)
        .map(|rule| rule.code)
        .ok_or_else(|| format!("`{word}` is not the code of a rule"))
}

fn codes(text: &str) -> Result<Vec<Code>, String> {
    let codes: Vec<Code> = text
        .split([',', ' ', '\t'])
        .filter(|word| !word.is_empty())
        .map(code)
        .collect::<Result<_, _>>()?;
    if codes.is_empty() {
        return Err("a code is missing, such as R001".to_owned());
    }
    Ok(codes)
}

fn buffer_ref(which: &str) -> BufferRef {
    match which.parse() {
        Ok(index) => BufferRef::Argument(index),
        Err(_) => BufferRef::Named(which.to_owned()),
    }
}

fn opaque(text: &str, line: u32) -> Result<Opaque, String> {
    let (which, rest) = split_word(text);
    if which.is_empty() || which.starts_with('"') {
        return Err(
            "`opaque` starts with the buffer's argument index or name: `opaque 1 \"why\"`"
                .to_owned(),
        );
    }
    match split_reason(rest) {
        Some((_, "")) => Ok(Opaque {
            line,
            buffer: buffer_ref(which),
        }),
        Some((_, more)) => Err(format!("`{more}` is nothing that an opaque line has")),
        None => Err(format!(
            "`opaque {which}` needs its reason in quotes: `opaque {which} \"why\"`"
        )),
    }
}

fn expect(text: &str, line: u32) -> Result<Expect, String> {
    let (which, rest) = split_word(text);
    if which.is_empty() || which.contains(':') {
        return Err(
            "`expect` starts with the buffer's argument index or name: `expect 1 u32:[2,4]`"
                .to_owned(),
        );
    }
    let buffer = buffer_ref(which);
    let end = rest.rfind([']', ')']).map_or(rest.len(), |at| at + 1);
    let values = parse_values(&rest[..end]).map_err(|error| error.to_string())?;
    let mut tolerance = Tolerance::EXACT;
    for word in rest[end..].split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let positive = || {
            value
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite() && *number >= 0.0)
                .ok_or_else(|| format!("`{word}`: `{value}` is not a number of zero or more"))
        };
        match key {
            "ulp" => {
                let ulp = value
                    .parse()
                    .map_err(|_| format!("`{word}`: `{value}` is not a whole number"))?;
                tolerance.ulp = Some(ulp);
            }
            "rel" => tolerance.rel = Some(positive()?),
            "abs" => tolerance.abs = Some(positive()?),
            _ => {
                return Err(format!(
                    "`{word}` is no tolerance: there are ulp=N, rel=X and abs=X"
                ));
            }
        }
    }
    Ok(Expect {
        line,
        buffer,
        values,
        tolerance,
    })
}

#[cfg(test)]
mod tests;
