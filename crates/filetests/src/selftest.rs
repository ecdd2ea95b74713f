//! Runs files on devices and collects the verdict of every case.

use crate::case::{Action, Case, OnGpu, Run, TestFile};
use crate::device::{CaseError, Checker, Request, TestDevice, entry_of};
use crate::directive::read_directives;
use crate::report::{CaseResult, SelftestReport};
use crate::verdict::{Verdict, judge_agreement, judge_findings, judge_run};
use heist_launch::Outcome;
use heist_ptx::{Diagnostic, Severity, Source};
use heist_run::Program;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{fs, io, thread};

/// What to run, and where.
///
/// Every case runs once on every device that it is for, each file is checked without
/// a launch, and where `compare` is set, what the first two devices gave is compared case
/// by case besides.
pub struct Selftest<'d> {
    /// The devices.
    pub devices: Vec<&'d dyn TestDevice>,
    /// What checks files without running them.
    pub checker: &'d dyn Checker,
    /// Only cases whose `file::case` contains this.
    pub filter: Option<String>,
    /// Compare the first two devices with each other.
    pub compare: bool,
    /// How many threads to use on devices that are not real.
    pub threads: usize,
}

/// The name under which checks without a launch are reported.
pub const STATIC: &str = "check";

impl Selftest<'_> {
    /// Runs everything under `paths`; `progress` hears of each case as it ends, and how many results
    /// there will be in all.
    pub fn run(
        &self,
        paths: &[PathBuf],
        progress: &(dyn Fn(&CaseResult, usize) + Sync),
    ) -> io::Result<SelftestReport> {
        let mut report = SelftestReport::default();
        let mut files = Vec::new();
        for path in find_files(paths)? {
            let bytes = fs::read(&path)?;
            let name = path.display().to_string();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            match read_directives(Source::new(&*name, text)) {
                Ok(file) => {
                    let parsed = heist_ptx::parse(&file.source)
                        .map(|module| Program::parsed(file.source.clone(), module));
                    files.push(Loaded { file, parsed });
                }
                Err(errors) => {
                    let result = CaseResult {
                        file: name,
                        case: "directives".to_owned(),
                        device: STATIC.to_owned(),
                        verdict: Verdict::Failed(errors.iter().map(ToString::to_string).collect()),
                        seconds: 0.0,
                    };
                    report.results.push(result);
                }
            }
        }
        self.run_files(&files, progress, &mut report);
        report.sort();
        Ok(report)
    }

    fn run_files(
        &self,
        files: &[Loaded],
        progress: &(dyn Fn(&CaseResult, usize) + Sync),
        report: &mut SelftestReport,
    ) {
        let all: Vec<Job<'_>> = files
            .iter()
            .flat_map(|loaded| {
                loaded
                    .file
                    .cases
                    .iter()
                    .map(move |case| Job { loaded, case })
            })
            .filter(|job| self.wanted(job))
            .collect();
        let (launches, checks): (Vec<Job<'_>>, Vec<Job<'_>>) = all
            .into_iter()
            .partition(|job| matches!(job.case.action, Action::Run(_)));
        let unlaunched = self.static_jobs(files);
        let compared = self.compare && self.devices.len() > 1;
        let rounds = self.devices.len() + usize::from(compared);
        let checked = report.results.len() + checks.len() + unlaunched.len();
        let in_all = checked + launches.len() * rounds;
        for unread in &report.results {
            progress(unread, in_all);
        }
        let progress = &|result: &CaseResult| progress(result, in_all);
        let checks = self.pool(STATIC, checks, self.threads, progress, &|_, job| {
            Judged::unlaunched(self.check(job))
        });
        report.results.extend(results(checks));
        let unlaunched = self.pool(STATIC, unlaunched, self.threads, progress, &|_, job| {
            Judged::unlaunched(self.check_unlaunched(job))
        });
        report.results.extend(results(unlaunched));
        let mut ran = Vec::with_capacity(self.devices.len());
        for device in &self.devices {
            let threads = if device.is_real() { 1 } else { self.threads };
            let work = |_, job: &Job<'_>| run_case(job, *device);
            ran.push(self.pool(device.name(), launches.clone(), threads, progress, &work));
        }
        if let (true, [one, other, ..]) = (self.compare, ran.as_slice()) {
            let name = format!("{} vs {}", self.devices[0].name(), self.devices[1].name());
            let agreed = self.pool(&name, launches, self.threads, progress, &|index, job| {
                Judged::unlaunched(agree(job, &one[index], &other[index]))
            });
            report.results.extend(results(agreed));
        }
        report.results.extend(ran.into_iter().flat_map(results));
    }

    fn wanted(&self, job: &Job<'_>) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| job.name().contains(filter.as_str()))
    }

    /// One job for each file that has launches and no check of its own.
    fn static_jobs<'f>(&self, files: &'f [Loaded]) -> Vec<Job<'f>> {
        files
            .iter()
            .filter(|loaded| {
                loaded
                    .file
                    .cases
                    .iter()
                    .all(|case| matches!(case.action, Action::Run(_)))
            })
            .filter_map(|loaded| {
                let case = loaded.file.cases.first()?;
                Some(Job { loaded, case })
            })
            .filter(|job| self.wanted(job))
            .collect()
    }

    fn diagnostics(&self, job: &Job<'_>) -> Vec<Diagnostic> {
        match &job.loaded.parsed {
            Ok(program) => self.checker.check(program.module(), program.source()),
            Err(diagnostics) => diagnostics.clone(),
        }
    }

    fn check(&self, job: &Job<'_>) -> Verdict {
        let diagnostics = self.diagnostics(job);
        Verdict::from_complaints(judge_findings(&job.loaded.file, job.case, &diagnostics))
    }

    /// In a file with launches the static checker may report only codes that a case expects; it
    /// need not report them, since it sees no launch. Its warnings may be about cases that a launch
    /// rules out, so they count only in the good half of a rule's pair, where there must be none.
    fn check_unlaunched(&self, job: &Job<'_>) -> Verdict {
        let file = &job.loaded.file;
        let fine: Vec<_> = file
            .cases
            .iter()
            .flat_map(|case| {
                let mut codes = file.expected_codes(case);
                codes.extend(&case.allows);
                codes
            })
            .collect();
        let complaints = self
            .diagnostics(job)
            .iter()
            .filter(|d| !fine.contains(&d.code))
            .filter(|d| d.severity == Severity::Error || file.is_good())
            .map(|d| {
                format!(
                    "unexpected {d} (line {})",
                    file.source.position(d.span).line
                )
            })
            .collect();
        Verdict::from_complaints(complaints)
    }

    /// Runs jobs on threads and gives the results in the jobs' order. `work` hears each job's place
    /// in that order.
    fn pool<'f>(
        &self,
        device: &str,
        jobs: Vec<Job<'f>>,
        threads: usize,
        progress: &(dyn Fn(&CaseResult) + Sync),
        work: &(dyn Fn(usize, &Job<'f>) -> Judged + Sync),
    ) -> Vec<Ended> {
        let next = AtomicUsize::new(0);
        let ended: Mutex<Vec<(usize, Ended)>> = Mutex::new(Vec::with_capacity(jobs.len()));
        let worker = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { break };
                let start = Instant::now();
                let judged = guarded(|| work(index, job));
                let result = CaseResult {
                    file: job.loaded.file.source.name().to_owned(),
                    case: job.case.name.clone(),
                    device: device.to_owned(),
                    verdict: judged.verdict,
                    seconds: start.elapsed().as_secs_f64(),
                };
                progress(&result);
                let outcome = judged.outcome;
                // A panic in a device was caught above, so the lock can't be poisoned by it.
                ended
                    .lock()
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .push((index, Ended { result, outcome }));
            }
        };
        if threads <= 1 {
            worker();
        } else {
            thread::scope(|scope| {
                for _ in 0..threads.min(jobs.len()) {
                    scope.spawn(worker);
                }
            });
        }
        let mut ended = ended
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        ended.sort_by_key(|(index, _)| *index);
        ended.into_iter().map(|(_, ended)| ended).collect()
    }
}

/// A verdict, and the buffers that it is about where a kernel ran.
struct Judged {
    verdict: Verdict,
    outcome: Option<Outcome>,
}

impl Judged {
    fn unlaunched(verdict: Verdict) -> Judged {
        Judged {
            verdict,
            outcome: None,
        }
    }
}

/// A job that has ended, and the buffers that a device gave for it.
struct Ended {
    result: CaseResult,
    outcome: Option<Outcome>,
}

fn results(ended: Vec<Ended>) -> impl Iterator<Item = CaseResult> {
    ended.into_iter().map(|ended| ended.result)
}

/// A file and its program, or what the parser said.
struct Loaded {
    file: TestFile,
    parsed: Result<Program, Vec<Diagnostic>>,
}

#[derive(Clone, Copy)]
struct Job<'f> {
    loaded: &'f Loaded,
    case: &'f Case,
}

impl Job<'_> {
    fn name(&self) -> String {
        format!("{}::{}", self.loaded.file.source.name(), self.case.name)
    }
}

/// Why a case does not run on a real device, if it does not.
fn kept_from(file: &TestFile, case: &Case, run: &Run) -> Option<String> {
    match &run.gpu {
        OnGpu::Yes => None,
        OnGpu::No(why) => Some(why.clone()),
        OnGpu::IfClean | OnGpu::Needs(_) if file.is_bad() => {
            Some("the file breaks a rule on purpose; `gpu=yes` would run it".to_owned())
        }
        OnGpu::IfClean | OnGpu::Needs(_) if !file.expected_codes(case).is_empty() => {
            Some("the case breaks a rule on purpose; `gpu=yes` would run it".to_owned())
        }
        // The device says whether it has what a case needs.
        OnGpu::IfClean | OnGpu::Needs(_) => None,
    }
}

/// Runs a case and judges it.
fn run_case(job: &Job<'_>, device: &dyn TestDevice) -> Judged {
    let file = &job.loaded.file;
    let Action::Run(run) = &job.case.action else {
        return Judged::unlaunched(Verdict::Skipped("it launches nothing".to_owned()));
    };
    if let Some(why) = kept_from(file, job.case, run).filter(|_| device.is_real()) {
        return Judged::unlaunched(Verdict::Skipped(why));
    }
    let program = match &job.loaded.parsed {
        Ok(program) => program,
        Err(diagnostics) => {
            let complaints = judge_findings(file, job.case, diagnostics);
            return Judged::unlaunched(Verdict::from_complaints(complaints));
        }
    };
    let entry = match entry_of(program, run) {
        Ok(entry) => entry,
        Err(why) => return Judged::unlaunched(Verdict::Failed(vec![why])),
    };
    let request = Request {
        program,
        case: &job.case.name,
        entry,
        run,
    };
    match device.run(&request) {
        Ok(ran) => Judged {
            verdict: Verdict::from_complaints(judge_run(file, job.case, run, &ran)),
            outcome: Some(ran.outcome),
        },
        Err(CaseError::NotForThisDevice(why)) => Judged::unlaunched(Verdict::Skipped(why)),
        Err(CaseError::Failed(why)) => Judged::unlaunched(Verdict::Failed(vec![why])),
    }
}

/// Compares what two devices gave for a case, in the runs that were judged.
fn agree(job: &Job<'_>, one: &Ended, other: &Ended) -> Verdict {
    let Action::Run(run) = &job.case.action else {
        return Verdict::Skipped("it launches nothing".to_owned());
    };
    if let (Some(one), Some(other)) = (&one.outcome, &other.outcome) {
        return Verdict::from_complaints(judge_agreement(run, one, other));
    }
    let absent = if one.outcome.is_none() { one } else { other };
    match &absent.result.verdict {
        Verdict::Skipped(why) => Verdict::Skipped(why.clone()),
        Verdict::Failed(whys) => {
            let device = &absent.result.device;
            Verdict::Failed(whys.iter().map(|why| format!("{device}: {why}")).collect())
        }
        Verdict::Passed => Verdict::Skipped("no device got to run it".to_owned()),
    }
}

/// A panic anywhere below is this case's failure and no other's.
fn guarded(work: impl FnOnce() -> Judged) -> Judged {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a message");
        let why = format!("panicked, which is a bug: {what}");
        Judged::unlaunched(Verdict::Failed(vec![why]))
    })
}

/// Every `.ptx` file under the paths, in order of their names.
pub fn find_files(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    fn walk(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
        if fs::metadata(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?
            .is_dir()
        {
            let mut entries: Vec<_> = fs::read_dir(path)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<_>>()?;
            entries.sort();
            for entry in entries {
                if entry.is_dir() || entry.extension().is_some_and(|ext| ext == "ptx") {
                    walk(&entry, files)?;
                }
            }
        } else {
            files.push(path.to_owned());
        }
        Ok(())
    }
    let mut files = Vec::new();
    for path in paths {
        walk(path, &mut files)?;
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
