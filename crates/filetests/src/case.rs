//! The cases of a test file, as data.

use crate::compare::Tolerance;
use heist_launch::{Arguments, Buffer, BufferRef, Launch};
use heist_ptx::{Code, Source};

/// A PTX file and its directives.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// The text, named by its path.
    pub source: Source,
    /// What is to be done with it. Never empty: a file that says nothing is
    /// checked without being run.
    pub cases: Vec<Case>,
    /// `//~ CODE` marks.
    pub marks: Vec<Mark>,
}

impl TestFile {
    /// The marks that a case must produce: those of the codes it lists with `finds`, or all of them
    /// without such a list.
    pub fn marks_of<'f>(&'f self, case: &'f Case) -> impl Iterator<Item = &'f Mark> {
        self.marks.iter().filter(move |mark| match &case.findings {
            Findings::Marked => true,
            Findings::Listed(codes) => codes.contains(&mark.code),
            Findings::Clean => false,
        })
    }

    /// Every code that a case must report.
    pub fn expected_codes(&self, case: &Case) -> Vec<Code> {
        let mut codes: Vec<Code> = self.marks_of(case).map(|mark| mark.code).collect();
        if let Findings::Listed(listed) = &case.findings {
            codes.extend(listed);
        }
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Whether the file is the half of a rule's pair that breaks the rule.
    pub fn is_bad(&self) -> bool {
        self.file_name().starts_with("bad")
    }

    /// Whether the file is the other half, which keeps the rule.
    pub fn is_good(&self) -> bool {
        self.file_name().starts_with("good")
    }

    fn file_name(&self) -> &str {
        self.source.name().rsplit(['/', '\\']).next().unwrap_or("")
    }
}

/// `//~ CODE` at the end of a line: the code is reported there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The line it is about, from 1.
    pub line: u32,
    /// The code.
    pub code: Code,
}

/// One thing to do with a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its name, unique in the file.
    pub name: String,
    /// The line that starts it; 0 for a case that the file does not spell out.
    pub line: u32,
    /// What to do.
    pub action: Action,
    /// What must be reported.
    pub findings: Findings,
    /// Codes that may be reported besides.
    pub allows: Vec<Code>,
}

/// What to do with a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Check it without a launch.
    Check,
    /// Launch a kernel.
    Run(Box<Run>),
}

/// A launch and what must come out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The kernel; the module's only one when not said.
    pub entry: Option<String>,
    /// Its shape.
    pub launch: Launch,
    /// Its arguments.
    pub arguments: Arguments,
    /// What must be in the buffers.
    pub expects: Vec<Expect>,
    /// Buffers in which every device leaves a format of its own.
    pub opaque: Vec<Opaque>,
    /// `device=sim:b200`: the simulated device to run on.
    pub device: Option<String>,
    /// `seed=3`: the schedule.
    pub seed: Option<u64>,
    /// `explore=8`: how many schedules.
    pub explore: Option<u32>,
    /// `chaos`: refusals, delays and reorderings on purpose.
    pub chaos: bool,
    /// `cooperative`: every block of the grid at once on the device.
    pub cooperative: bool,
    /// Whether it may run on a real GPU.
    pub gpu: OnGpu,
}

/// Whether a case may run on a real GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnGpu {
    /// Where it is expected to run clean.
    IfClean,
    /// `gpu=yes`: also where something is expected to be found.
    Yes,
    /// `gpu=no "needs sm_100a"`: where it is expected to run clean, on a GPU that runs this target.
    Needs(String),
    /// `gpu=no "why"`.
    No(String),
}

/// What a case must report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Findings {
    /// The file's marks; nothing, where it has none.
    Marked,
    /// `finds CODE` lines.
    Listed(Vec<Code>),
    /// `clean`: nothing, although the file has marks for other cases.
    Clean,
}

/// What must be in a buffer after the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The line that says so.
    pub line: u32,
    /// Which buffer.
    pub buffer: BufferRef,
    /// The elements.
    pub values: Buffer,
    /// How close they must be.
    pub tolerance: Tolerance,
}

/// A buffer that is not compared between devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// The line that says so.
    pub line: u32,
    /// Which buffer.
    pub buffer: BufferRef,
}
