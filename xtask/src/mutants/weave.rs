//! Many mutants in one build: a function's body stands once for each of its mutants, and
//! the environment says which of them runs.
//!
//! One build and one short run a mutant take the place of one build a mutant.

use super::body;
use super::mutant::Mutant;
use crate::shell::Failed;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Names the mutant that runs: its number in the list, from 1; or [`TRACE`].
pub(super) const ACTIVE: &str = "XTASK_MUTANT";
/// No mutant runs, and each that a test meets is written down, with the test's thread.
pub(super) const TRACE: &str = "trace";
/// The file where it is written down.
pub(super) const TRACE_FILE: &str = "XTASK_MUTANT_TRACE";

/// What a woven crate asks, at the end of its root.
const ASKING: &str = r#"
#[allow(dead_code, missing_docs, unreachable_pub)]
pub(crate) fn woven_mutant(number: usize) -> bool {
    use std::sync::LazyLock;
    const TRACE: usize = usize::MAX;
    static ACTIVE: LazyLock<usize> = LazyLock::new(|| match std::env::var("XTASK_MUTANT") {
        Ok(word) if word == "trace" => TRACE,
        Ok(word) => word.parse().unwrap_or(0),
        Err(_) => 0,
    });
    #[cold]
    fn met(number: usize) {
        use std::cell::RefCell;
        use std::collections::HashSet;
        use std::io::Write;
        thread_local!(static MET: RefCell<HashSet<usize>> = RefCell::default());
        let new = MET.try_with(|met| met.try_borrow_mut().is_ok_and(|mut met| met.insert(number)));
        if new != Ok(true) {
            return;
        }
        let thread = std::thread::current();
        let line = format!("{number} {}\n", thread.name().unwrap_or("?"));
        if let Some(path) = std::env::var_os("XTASK_MUTANT_TRACE") {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }
    if *ACTIVE == TRACE {
        met(number);
    }
    *ACTIVE == number
}
"#;

/// What a woven crate lets pass, at the beginning of its root: a mutant such as `1 << 64` ends
/// the test that meets it, and must not end the build of all the others.
const ALLOWING: &str = "#![allow(arithmetic_overflow, unconditional_panic)]\n";

/// Where the text of a mutant stands, by its number.
type Place = (Range<usize>, usize);
/// Where a function stands, and the mutants in it.
type Function = (Range<usize>, Vec<usize>);

/// Files with mutants in them, until it is dropped: then they are as they were.
///
/// The originals also lie in a folder, for a run that is killed.
pub(super) struct Woven {
    root: PathBuf,
    aside: PathBuf,
    originals: BTreeMap<String, String>,
    /// In each file, where the text of which mutant stands.
    places: BTreeMap<String, Vec<Place>>,
    /// In each file, where functions stand that have mutants, and those mutants.
    functions: BTreeMap<String, Vec<Function>>,
}

impl Woven {
    /// Puts back what a killed run has left, and begins with nothing woven.
    pub(super) fn new(root: &Path, aside: &Path) -> Result<Woven, Failed> {
        let list = aside.join("files");
        if let Ok(files) = fs::read_to_string(&list) {
            for (index, file) in files.lines().enumerate() {
                let (path, kept) = (root.join(file), aside.join(index.to_string()));
                // A file that has changed since is somebody's work.
                let woven = fs::read_to_string(kept.with_extension("woven"));
                if woven.is_ok_and(|woven| read(&path).is_ok_and(|now| now == woven)) {
                    write(&path, &read(&kept)?)?;
                }
            }
            let _ = fs::remove_file(&list);
        }
        Ok(Woven {
            root: root.to_owned(),
            aside: aside.to_owned(),
            originals: BTreeMap::new(),
            places: BTreeMap::new(),
            functions: BTreeMap::new(),
        })
    }

    /// Weaves these mutants (by number, from 1) into their files, and the question into
    /// the roots of their crate.
    pub(super) fn weave(
        &mut self,
        mutants: &[Mutant],
        numbers: &[usize],
        roots: &[String],
    ) -> Result<(), Failed> {
        let before = std::mem::take(&mut self.originals);
        self.places.clear();
        self.functions.clear();
        let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &number in numbers {
            let mutant = &mutants[number - 1];
            files.entry(&mutant.file).or_default().push(number);
        }
        let mut texts = BTreeMap::new();
        for name in files
            .keys()
            .copied()
            .chain(roots.iter().map(String::as_str))
        {
            let text = match before.get(name) {
                Some(text) => text.clone(),
                None => read(&self.root.join(name))?,
            };
            texts.insert(name.to_owned(), text);
        }
        let originals = texts.clone();
        // Those that have no mutants any more.
        let bare = before.into_iter();
        let bare = bare.filter(|(name, _)| !originals.contains_key(name));
        self.put(&bare.collect())?;
        for (file, numbers) in files {
            let woven = file_text(&texts[file], mutants, &numbers);
            texts.insert(file.to_owned(), woven.text);
            self.places.insert(file.to_owned(), woven.places);
            self.functions.insert(file.to_owned(), woven.functions);
        }
        for root in roots {
            let text = texts.entry(root.clone()).or_default();
            text.insert_str(0, ALLOWING);
            text.push_str(ASKING);
            self.shift(root, ALLOWING.len());
        }
        self.replace(originals, &texts)
    }

    /// What stands in a file stands so much further on.
    fn shift(&mut self, file: &str, by: usize) {
        let move_on = |range: &mut Range<usize>| *range = range.start + by..range.end + by;
        for (range, _) in self.places.get_mut(file).into_iter().flatten() {
            move_on(range);
        }
        for (range, _) in self.functions.get_mut(file).into_iter().flatten() {
            move_on(range);
        }
    }

    /// One mutant as cargo-mutants would have it: for those that can't be woven.
    pub(super) fn alone(&mut self, mutant: &Mutant) -> Result<(), Failed> {
        self.unweave()?;
        let original = read(&self.root.join(&mutant.file))?;
        let mut text = original.clone();
        text.replace_range(mutant.range.clone(), &mutant.replacement);
        let one = |text| BTreeMap::from([(mutant.file.clone(), text)]);
        self.replace(one(original), &one(text))
    }

    /// Whose text an error in a file points at: of one mutant, or of a function that
    /// has mutants.
    pub(super) fn blame(&self, file: &str, offset: usize) -> Blame {
        let within = |range: &Range<usize>| range.contains(&offset);
        let mutant = self.places.get(file).and_then(|places| {
            let place = places.iter().find(|(range, _)| within(range));
            place.map(|&(_, number)| Blame::Mutant(number))
        });
        let function = || {
            let functions = self.functions.get(file)?;
            let function = functions.iter().find(|(range, _)| within(range));
            function.map(|(_, numbers)| Blame::Function(numbers.clone()))
        };
        mutant.or_else(function).unwrap_or(Blame::Nobody)
    }

    /// Keeps the originals aside, and puts the woven texts of the same files in their place.
    fn replace(
        &mut self,
        originals: BTreeMap<String, String>,
        woven: &BTreeMap<String, String>,
    ) -> Result<(), Failed> {
        fs::create_dir_all(&self.aside)
            .map_err(|error| Failed(format!("{}: {error}", self.aside.display())))?;
        for (index, (original, woven)) in originals.values().zip(woven.values()).enumerate() {
            let kept = self.aside.join(index.to_string());
            write(&kept, original)?;
            write(&kept.with_extension("woven"), woven)?;
        }
        let names: Vec<&str> = originals.keys().map(String::as_str).collect();
        write(&self.aside.join("files"), &names.join("\n"))?;
        self.originals = originals;
        self.put(woven)
    }

    /// A file that has this text keeps its time: cargo compiles anew what is newer.
    fn put(&self, texts: &BTreeMap<String, String>) -> Result<(), Failed> {
        let mut texts = texts
            .iter()
            .map(|(name, text)| (self.root.join(name), text))
            .filter(|(path, text)| read(path).map_or(true, |now| now != **text));
        texts.try_for_each(|(path, text)| write(&path, text))
    }

    fn unweave(&mut self) -> Result<(), Failed> {
        self.put(&self.originals)?;
        let _ = fs::remove_file(self.aside.join("files"));
        self.originals.clear();
        self.places.clear();
        self.functions.clear();
        Ok(())
    }
}

impl Drop for Woven {
    fn drop(&mut self) {
        if let Err(Failed(why)) = self.unweave() {
            eprintln!("mutants are left in the sources, take them back with git: {why}");
        }
    }
}

/// Who is to blame for an error of the compiler.
pub(super) enum Blame {
    /// The text of a mutant: it is no program.
    Mutant(usize),
    /// Weaving as such, in a function with these mutants.
    Function(Vec<usize>),
    /// Neither.
    Nobody,
}

/// Those that can be woven, of all mutants by number: functions that are no constants
/// and have no woven function inside.
pub(super) fn can_be_woven(mutants: &[Mutant], texts: &BTreeMap<String, String>) -> Vec<bool> {
    mutants
        .iter()
        .map(|mutant| {
            let Some(function) = &mutant.function else {
                return false;
            };
            let text = &texts[&mutant.file][function.clone()];
            let inner = mutants.iter().any(|other| {
                let inside = |other: &Range<usize>| {
                    other != function && other.start >= function.start && other.end <= function.end
                };
                other.file == mutant.file && other.function.as_ref().is_some_and(inside)
            });
            match body::of(text) {
                Some(body) => !inner && !body::is_const(&text[..body.start]),
                None => false,
            }
        })
        .collect()
}

struct File {
    text: String,
    places: Vec<Place>,
    functions: Vec<Function>,
}

fn file_text(source: &str, mutants: &[Mutant], numbers: &[usize]) -> File {
    let mut functions: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for &number in numbers {
        if let Some(function) = &mutants[number - 1].function {
            let key = (function.start, function.end);
            functions.entry(key).or_default().push(number);
        }
    }
    let mut file = File {
        text: String::new(),
        places: Vec::new(),
        functions: Vec::new(),
    };
    let mut done = 0;
    for ((start, end), numbers) in functions {
        let Some(body) = body::of(&source[start..end]) else {
            continue;
        };
        let body = start + body.start..start + body.end;
        file.text.push_str(&source[done..body.start]);
        let from = file.text.len();
        for &number in &numbers {
            let mutant = &mutants[number - 1];
            file.text
                .push_str(&format!(" if crate::woven_mutant({number}) {{"));
            let branch = file.text.len();
            file.text.push_str(&source[body.start..mutant.range.start]);
            file.text.push_str(&mutant.replacement);
            file.text.push_str(&source[mutant.range.end..body.end]);
            file.places.push((branch..file.text.len(), number));
            file.text.push_str("} else");
        }
        file.text.push_str(" {");
        file.text.push_str(&source[body.clone()]);
        file.text.push_str("} ");
        file.functions.push((from..file.text.len(), numbers));
        done = body.end;
    }
    file.text.push_str(&source[done..]);
    file
}

fn read(path: &Path) -> Result<String, Failed> {
    fs::read_to_string(path).map_err(|error| Failed(format!("{}: {error}", path.display())))
}

fn write(path: &Path, text: &str) -> Result<(), Failed> {
    fs::write(path, text).map_err(|error| Failed(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(source: &str, function: &str, old: &str, new: &str) -> Mutant {
        let start = source.find(function).unwrap();
        let at = start + function.find(old).unwrap();
        Mutant {
            name: format!("{old} becomes {new}"),
            file: "a.rs".to_owned(),
            function: Some(start..start + function.len()),
            range: at..at + old.len(),
            replacement: new.to_owned(),
        }
    }

    #[test]
    fn every_mutant_has_a_branch_and_the_function_is_the_last() {
        let (less, sum) = (
            "fn less(a: u8) -> bool { a < 3 }",
            "fn sum(a: u8) -> u8 { a + 1 }",
        );
        let source = format!("{less}\nconst A: u8 = 1;\n{sum}\n");
        let mutants = [
            mutant(&source, less, "<", ">"),
            mutant(&source, less, "<", "=="),
            mutant(&source, sum, "a + 1", "0"),
        ];
        let file = file_text(&source, &mutants, &[1, 2, 3]);
        assert_eq!(
            file.text,
            "fn less(a: u8) -> bool { if crate::woven_mutant(1) { a > 3 } else \
             if crate::woven_mutant(2) { a == 3 } else { a < 3 } }\nconst A: u8 = 1;\n\
             fn sum(a: u8) -> u8 { if crate::woven_mutant(3) { 0 } else { a + 1 } }\n"
        );
        let (branch, number) = &file.places[1];
        assert_eq!((&file.text[branch.clone()], *number), (" a == 3 ", 2));
    }

    #[test]
    fn sources_are_as_they_were_afterwards_and_after_a_run_that_was_killed() {
        let folder = std::env::temp_dir().join(format!("heist-weave-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let source = "fn less(a: u8) -> bool { a < 3 }";
        let (path, aside) = (folder.join("a.rs"), folder.join("aside"));
        fs::write(&path, source).unwrap();
        let mutants = [mutant(source, source, "<", ">")];
        let woven = || {
            let mut woven = Woven::new(&folder, &aside).ok().unwrap();
            let roots = ["a.rs".to_owned()];
            assert!(woven.weave(&mutants, &[1], &roots).is_ok());
            // Woven again, it is the same text, and the file is as old as before.
            let time = || fs::metadata(&path).unwrap().modified().unwrap();
            let (once, at) = (fs::read_to_string(&path).unwrap(), time());
            assert!(woven.weave(&mutants, &[1], &roots).is_ok());
            assert_eq!((fs::read_to_string(&path).unwrap(), time()), (once, at));
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("#![allow(arithmetic_overflow"));
            assert!(text.contains("fn woven_mutant"));
            let at = |part: &str| woven.blame("a.rs", text.find(part).unwrap());
            assert!(matches!(at("a > 3"), Blame::Mutant(1)));
            assert!(matches!(at("a < 3"), Blame::Function(_)));
            assert!(matches!(at("fn woven"), Blame::Nobody));
            woven
        };
        drop(woven());
        assert_eq!(fs::read_to_string(&path).unwrap(), source);
        std::mem::forget(woven());
        drop(Woven::new(&folder, &aside));
        assert_eq!(fs::read_to_string(&path).unwrap(), source);
        // What was changed since a run was killed stays.
        std::mem::forget(woven());
        fs::write(&path, "fn more() {}").unwrap();
        drop(Woven::new(&folder, &aside));
        assert_eq!(fs::read_to_string(&path).unwrap(), "fn more() {}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn constants_and_functions_around_others_are_not_woven() {
        let source =
            "fn a() { fn b() { 1 + 1; } 2 + 2; }\nconst fn c() { 3 + 3; }\nfn d() { 4 + 4; }";
        let lines: Vec<&str> = source.lines().collect();
        let mutants = [
            mutant(source, lines[0], "2 + 2", "0"),
            mutant(source, "fn b() { 1 + 1; }", "1 + 1", "0"),
            mutant(source, lines[1], "3 + 3", "0"),
            mutant(source, lines[2], "4 + 4", "0"),
        ];
        let texts = BTreeMap::from([("a.rs".to_owned(), source.to_owned())]);
        assert_eq!(can_be_woven(&mutants, &texts), [false, true, false, true]);
    }
}
