//! The commands that pages show are run, each page in a folder of its own that is laid out as the page
//! says, and what a page shows of an answer is what is answered.
//!
//! A block of `sh` is commands. In a block of `console` a command stands behind `$`, and its answer follows;
//! a line `...` there stands for lines that are left out. In a sentence, a command of three words or more
//! is run too, unless it is a form (`heist new FOLDER`) or only names an option. `OTHERWISE` has those that are
//! not run as they stand, and `FILES` what a page supposes to be there. `HEIST_BLESS=1` writes the answers into the pages.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What becomes of a command that is not run as it stands, or that is to find something.
enum Otherwise {
    /// It is not run: why.
    Not(&'static str),
    /// This is run in its place: the same in small.
    Small(&'static str),
    /// It ends with status 1, because there is something to find.
    Finds,
    /// It ends with status 2: the page shows a mistake.
    Refused,
}
use Otherwise::{Finds, Not, Refused, Small};

const MEASURES: &str = "it needs a GPU";
const BUILDS: &str = "it builds the repository, or installs from a package index";
const PYTHON: &str = "it needs PyTorch; python/tests runs it";
const NVCC: &str = "it needs a program made by nvcc; crates/cudart/tests runs some";
const FILES_OF_TESTS: &str = "tests of other crates run all of these files";

/// By words of a command; the first entry that fits holds.
const OTHERWISE: &[(&str, Otherwise)] = &[
    ("--device gpu", Not(MEASURES)),
    (
        "demo",
        Not("crates/cli/tests/schemas.rs runs it, on a smaller GPU"),
    ),
    ("cargo ", Not(BUILDS)),
    ("pip install ", Not(BUILDS)),
    ("cd nvcc/", Not(BUILDS)),
    ("ln -s ", Not(BUILDS)),
    ("cases/make.sh", Not("it needs nvcc")),
    ("pytest ", Not(PYTHON)),
    ("nvcc ", Not(NVCC)),
    ("heist cuda ", Not(NVCC)),
    ("heist record ", Not("it needs a GPU to record on")),
    ("heist bench", Not(MEASURES)),
    ("heist qualify", Not(MEASURES)),
    ("heist tune gemm m=4096", Not(MEASURES)),
    ("heist tune gemm m=16", Not(MEASURES)),
    ("heist tune attention", Not(MEASURES)),
    ("heist share gemm m=8192", Not(MEASURES)),
    ("heist share attention", Not(MEASURES)),
    ("heist selftest  ", Not(FILES_OF_TESTS)),
    ("heist selftest cases", Not(FILES_OF_TESTS)),
    (
        "heist selftest rules cases --explore 50",
        Small("heist selftest rules/R001-shared-race --explore 2 --chaos --device sim"),
    ),
    ("heist selftest --device none", Not(FILES_OF_TESTS)),
    (
        "heist run uniform --tiles 200000",
        Small("heist run uniform --tiles 200 --mean 1 --timeout 1500 --trace run.html"),
    ),
    (
        "heist tune gemm m=512 n=512 k=128 --device sim:h200",
        Small("heist tune gemm m=512 n=512 k=128 --device sim:h200 --limit 2"),
    ),
    (
        "heist share gemm m=4096 n=4096 k=4096 --device sim:h200 --trace share.html",
        Small(
            "heist share gemm m=256 n=256 k=256 --device sim:h200 --samples 2 --held 1 --row own --trace share.html",
        ),
    ),
    (
        "heist share gemm m=4096 n=4096 k=4096 --device sim:b200",
        Small(
            "heist share gemm m=256 n=256 k=256 --device sim:b200 --samples 2 --held 1 --row own",
        ),
    ),
    ("heist check build.log", Finds),
    ("heist check cases/wmma-local/", Finds),
    ("heist check cases/tensor-map-workspace/", Finds),
    ("heist check rules/R001-shared-race/bad.ptx", Finds),
    ("heist run power-law --config wrong.toml", Refused),
];

/// What pages suppose to be there: the page's name, or `` for all; a file; what it holds.
const FILES: &[(&str, &str, &str)] = &[
    ("", "kernel.ptx", include_str!("shown/kernel.ptx")),
    ("", "build.log", include_str!("shown/build.log")),
    // However slow the machine is.
    ("", "heist.toml", "timeout = 3600\n"),
    (
        "docs/configuration.md",
        "wrong.toml",
        "timeout = 20\n\ndevice = \"sim:h300\"\n",
    ),
];

/// Recordings by the names that pages give them.
const RECORDINGS: &[(&str, &str)] = &[
    ("add.heist", "add_shared.heist"),
    ("record.heist", "add_shared.heist"),
    (
        "records/test_ops.py_test_softmax.heist",
        "triton_softmax.heist",
    ),
];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository")
}

/// A page: its name, and its text.
fn pages() -> Vec<(String, String)> {
    let root = root();
    let inside = |folder: &str| fs::read_dir(root.join(folder)).expect("a folder").flatten();
    let mut paths: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "cases/README.md"]
        .map(|name| root.join(name))
        .into();
    let docs = inside("docs").chain(inside("docs/measurements"));
    paths.extend(
        docs.map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    paths.extend(
        inside("rules")
            .map(|entry| entry.path().join("page.md"))
            .filter(|path| path.is_file()),
    );
    paths.sort();
    let named = |path: PathBuf| {
        let name = path
            .strip_prefix(&root)
            .expect("below the root")
            .display()
            .to_string();
        (name, fs::read_to_string(path).expect("text"))
    };
    paths.into_iter().map(named).collect()
}

/// A command as a page shows it.
#[derive(Debug, PartialEq)]
struct Shown {
    line: usize,
    command: String,
    /// In a sentence, it may only name an option.
    in_a_sentence: bool,
    /// The lines of its answer, where they are shown.
    answer: Vec<String>,
}

/// The commands of a page in their order.
fn commands(text: &str) -> Result<Vec<Shown>, String> {
    let mut found: Vec<Shown> = Vec::new();
    let mut block: Option<&str> = None;
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let own = |command: &str| Shown {
            line: number,
            command: command.to_owned(),
            in_a_sentence: false,
            answer: Vec::new(),
        };
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then_some(fence);
            goes_on = false;
            continue;
        }
        match block {
            Some("sh") => {
                let words = line.trim();
                if goes_on {
                    let last = found.last_mut().expect("it goes on");
                    last.command = format!("{} {words}", last.command.trim_end_matches('\\'));
                } else if !words.is_empty() && !words.starts_with('#') {
                    found.push(own(words));
                }
                goes_on = words.ends_with('\\');
            }
            Some("console") => match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push(own(command)),
                (None, Some(last)) => last.answer.push(line.trim_end().to_owned()),
                (None, None) => return Err(format!("{number}: an answer without a command")),
            },
            Some("" | "text") if line.starts_with("heist ") || line.starts_with("$ ") => {
                return Err(format!(
                    "{number}: a command in a block that is neither `sh` nor `console`"
                ));
            }
            Some(_) => {}
            None => {
                let spans = line.split('`').skip(1).step_by(2);
                let whole = spans.filter(|span| span.starts_with("heist ") && is_whole(span));
                found.extend(whole.map(|span| Shown {
                    in_a_sentence: true,
                    ..own(span)
                }));
            }
        }
    }
    Ok(found)
}

/// Whether a command in a sentence can be run: it has arguments, and none stands for others.
fn is_whole(span: &str) -> bool {
    let stands_for_others = |word: &str| {
        let stem = word.split('.').next().unwrap_or(word);
        word.contains("..") || word.contains('*') || stem.chars().all(|c| c.is_ascii_uppercase())
    };
    let words: Vec<&str> = span.split_whitespace().collect();
    let asks_for_help = words.contains(&"--help");
    words.len() > 2 && !asks_for_help && !words.iter().any(|word| stands_for_others(word))
}

/// A folder as a page supposes it: the repository's files by links, and files of its own.
fn laid_out(page: &str) -> PathBuf {
    let folder = super::folder(&format!("shown/{}", page.replace('/', "-")));
    for name in ["cases", "rules", "tests", "crates", "docs"] {
        symlink(root().join(name), folder.join(name)).expect("a link");
    }
    for (of, file, text) in FILES {
        if of.is_empty() || *of == page {
            fs::write(folder.join(file), text).expect("a file");
        }
    }
    fs::create_dir(folder.join("records")).expect("a folder");
    for (name, file) in RECORDINGS {
        symlink(
            root().join("crates/cli/tests/records").join(file),
            folder.join(name),
        )
        .expect("a link");
    }
    folder
}

/// What a command ended with and printed. It runs by the shell, with no user's files.
fn run(command: &str, folder: &Path) -> (Option<i32>, String) {
    let built = Path::new(env!("CARGO_BIN_EXE_heist"))
        .parent()
        .expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let ended = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", built.display()))
        .env("HOME", folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("HEIST_TUNED")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    (
        ended.status.code(),
        String::from_utf8_lossy(&ended.stdout).into_owned(),
    )
}

/// Whether the lines shown are among those printed, in their order; none in between but for `...`.
fn is_shown(shown: &[String], printed: &[&str]) -> bool {
    match shown {
        [] => printed.iter().all(|line| line.is_empty()),
        [dots, rest @ ..] if dots == "..." => {
            (0..=printed.len()).any(|at| is_shown(rest, &printed[at..]))
        }
        [line, rest @ ..] => printed
            .split_first()
            .is_some_and(|(first, later)| first.trim_end() == line && is_shown(rest, later)),
    }
}

/// The page with another answer behind one of its commands.
fn with_answer(text: &str, shown: &Shown, printed: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (before, rest) = lines.split_at(shown.line);
    let after = &rest[shown.answer.len()..];
    let all = before
        .iter()
        .copied()
        .chain(printed.trim_end().lines())
        .chain(after.iter().copied());
    all.map(|line| format!("{line}\n")).collect()
}

/// Runs what a page shows; what is wrong with it, and which entries of `OTHERWISE` it needed.
fn judge(page: &str, text: &str) -> (Vec<String>, BTreeSet<&'static str>) {
    let shown = match commands(text) {
        Ok(shown) => shown,
        Err(why) => return (vec![format!("{page}:{why}")], BTreeSet::new()),
    };
    let (mut wrong, mut needed) = (Vec::new(), BTreeSet::new());
    let folder = if shown.is_empty() {
        PathBuf::new()
    } else {
        laid_out(page)
    };
    let mut answers = Vec::new();
    let mut done = BTreeSet::new();
    for one in &shown {
        let entry = OTHERWISE
            .iter()
            .find(|(words, _)| one.command.contains(words));
        needed.extend(entry.map(|(words, _)| *words));
        let (command, status) = match entry {
            Some((_, Not(why))) => {
                assert!(!why.is_empty(), "{}: why not?", one.command);
                continue;
            }
            Some((_, Small(instead))) => (*instead, 0),
            Some((_, Finds)) => (&*one.command, 1),
            Some((_, Refused)) => (&*one.command, 2),
            None => (&*one.command, 0),
        };
        if !done.insert(command) && one.answer.is_empty() {
            continue;
        }
        let (ended, printed) = run(command, &folder);
        let only_named =
            one.in_a_sentence && printed.contains("required arguments were not provided");
        if ended != Some(status) && !only_named {
            wrong.push(format!(
                "{page}:{}: {command}\nended with {ended:?}, and {status} was expected:\n{printed}",
                one.line
            ));
        }
        let lines = printed.lines().filter(|line| !line.contains(" s so far; "));
        let lines: Vec<&str> = lines.collect();
        if !one.answer.is_empty() && !is_shown(&one.answer, &lines) {
            wrong.push(format!("{page}:{}: {command}\nit printed (`HEIST_BLESS=1` writes it into the page):\n{printed}", one.line));
            answers.push((one, printed));
        }
    }
    if !answers.is_empty() && std::env::var_os("HEIST_BLESS").is_some() {
        // The last one first: the others keep their lines.
        let answers = answers.iter().rev();
        let blessed = answers.fold(text.to_owned(), |page, (one, printed)| {
            with_answer(&page, one, printed)
        });
        fs::write(root().join(page), blessed).expect("the page");
    }
    (wrong, needed)
}

#[test]
fn every_command_that_a_page_shows_does_what_the_page_says() {
    let pages = pages();
    let next = Mutex::new(pages.iter());
    let judged = Mutex::new((Vec::new(), BTreeSet::new()));
    let work = || loop {
        let Some((page, text)) = next.lock().expect("pages").next() else {
            break;
        };
        let (wrong, needed) = judge(page, text);
        let mut all = judged.lock().expect("judgements");
        all.0.extend(wrong);
        all.1.extend(needed);
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let (mut wrong, needed) = judged.into_inner().expect("judgements");
    let unused = OTHERWISE
        .iter()
        .filter(|(words, _)| !needed.contains(words));
    wrong.extend(unused.map(|(words, _)| format!("`{words}` of `OTHERWISE` is shown nowhere")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_page_s_commands_are_found_where_they_stand() {
    let page = "Try `heist explain L003` or `heist new FOLDER`.\n```sh\nheist a \\\n  b  # why\n# a remark\n```\n```console\n$ heist c\nit says\n...\n```\n";
    let found = commands(page).expect("a page");
    let told: Vec<(usize, &str, bool)> = found
        .iter()
        .map(|one| (one.line, &*one.command, one.in_a_sentence))
        .collect();
    assert_eq!(
        told,
        [
            (1, "heist explain L003", true),
            (3, "heist a  b  # why", false),
            (8, "heist c", false)
        ]
    );
    assert_eq!(found[2].answer, ["it says", "..."]);
    assert!(commands("```\nheist run\n```\n").is_err());
    assert!(is_shown(&found[2].answer, &["it says", "this", "and that"]));
    assert!(!is_shown(&found[2].answer, &["first this", "it says"]));
    assert_eq!(
        with_answer(page, &found[2], "other\n").lines().nth(8),
        Some("other")
    );
}
