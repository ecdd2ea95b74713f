//! The book: `docs` as pages for mdBook, readable as plain files too.
//!
//! A program in a page stands below a line `<!-- program: PATH -->`. Its text is what the file
//! has between `// book: begin` and `// book: end`, and that file is a test; `cargo xtask book`
//! writes it into the page, and the tests compare. Links lead to files and headings that are
//! there, and from the contents or the front page links lead to every page.

use crate::shell::{self, Failed};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The builder of the book; any release of the same minor version works.
const BUILDER: &str = "mdbook 0.5.4";

/// Writes programs into the pages, checks, and builds the book where mdBook is.
pub(crate) fn book() -> Result<(), Failed> {
    for page in pages()? {
        let text = read(&page)?;
        let filled = with_programs(&page, &text)?;
        if filled != text {
            println!("{} has its programs anew", shown(&page));
            fs::write(&page, filled).map_err(|error| failed(&page, error))?;
        }
    }
    check()?;
    let built = shell::command("mdbook").args(["build", "docs"]).status();
    match built {
        Ok(status) if status.success() => println!("the book: target/book/index.html"),
        Ok(status) => return Err(Failed(format!("mdbook ended with {status}"))),
        Err(_) => println!(
            "no mdbook here, so no pages of HTML (`cargo install --locked {}`); the files read as they are",
            BUILDER.replace(' ', "@")
        ),
    }
    Ok(())
}

/// Checks the pages: programs, links, contents.
pub(crate) fn check() -> Result<(), Failed> {
    let mut wrong = Vec::new();
    let pages = pages()?;
    for page in &pages {
        let text = read(page)?;
        if with_programs(page, &text)? != text {
            let page = shown(page);
            wrong.push(format!(
                "{page}: a program is not as its file has it; `cargo xtask book` writes it"
            ));
        }
        wrong.extend(broken_links(page, &text));
    }
    let reached = reached()?;
    for page in pages.iter().filter(|page| !reached.contains(*page)) {
        let page = shown(page);
        wrong.push(format!(
            "{page}: no link leads here from docs/SUMMARY.md or README.md"
        ));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failed(wrong.join("\n"))),
    }
}

/// The pages that links lead to, from the contents and from the front page.
fn reached() -> Result<BTreeSet<PathBuf>, Failed> {
    let root = shell::root();
    let mut next = vec![root.join("docs/SUMMARY.md"), root.join("README.md")];
    next.push(root.join("CHANGELOG.md"));
    let mut reached = BTreeSet::new();
    while let Some(page) = next.pop() {
        let Ok(page) = page.canonicalize() else {
            continue;
        };
        if page.extension().is_some_and(|e| e == "md") && reached.insert(page.clone()) {
            let folder = page.parent().unwrap_or(&page).to_path_buf();
            let text = read(&page)?;
            let files = links(&text).map(|(_, target)| target.split('#').next().unwrap_or(target));
            next.extend(files.map(|file| folder.join(file)));
        }
    }
    Ok(reached)
}

/// All pages: those of the book, and those at the root.
fn pages() -> Result<Vec<PathBuf>, Failed> {
    let root = shell::root();
    let mut found = Vec::new();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    let at_root = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name));
    found.extend(at_root.into_iter().filter(|page| page.exists()));
    let found = found.iter().filter_map(|page| page.canonicalize().ok());
    let mut found: Vec<PathBuf> = found.collect();
    found.sort();
    Ok(found)
}

fn failed(path: &Path, why: impl std::fmt::Display) -> Failed {
    Failed(format!("{}: {why}", shown(path)))
}

fn shown(path: &Path) -> String {
    let inside = path.strip_prefix(shell::root()).unwrap_or(path);
    inside.display().to_string()
}

fn read(path: &Path) -> Result<String, Failed> {
    fs::read_to_string(path).map_err(|error| failed(path, error))
}

/// The page with the programs as their files have them now.
fn with_programs(page: &Path, text: &str) -> Result<String, Failed> {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let named = line.strip_prefix("<!-- program: ");
        let Some(path) = named.and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        if lines.next() != Some("```rust") {
            return Err(failed(
                page,
                format!("below `{line}` no program begins (```rust)"),
            ));
        }
        if !lines.by_ref().any(|line| line == "```") {
            return Err(failed(
                page,
                format!("the program below `{line}` does not end"),
            ));
        }
        out.push_str("```rust\n");
        out.push_str(&program(path)?);
        out.push_str("```\n");
    }
    Ok(out)
}

/// The part of a file that is in the book.
fn program(path: &str) -> Result<String, Failed> {
    let file = shell::root().join(path);
    let text = read(&file)?;
    let part = text
        .split_once("// book: begin\n")
        .and_then(|(_, rest)| rest.split_once("// book: end\n"))
        .map(|(part, _)| part.to_owned());
    part.ok_or_else(|| failed(&file, "it has no `// book: begin` and `// book: end`"))
}

/// Every link of a page with its line: `[text](target)` outside of code.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    prose.flat_map(|(number, line)| {
        // Spans of code are every second part between backticks.
        let words = line.split('`').step_by(2);
        let targets = words.flat_map(|part| part.split("](").skip(1));
        targets.filter_map(move |rest| Some((number + 1, rest.split_once(')')?.0)))
    })
}

fn broken_links(page: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let file = match file {
            "" => page.to_path_buf(),
            file => page.parent().unwrap_or(page).join(file),
        };
        let says = |why: &str| format!("{}:{line}: {target}: {why}", shown(page));
        if !file.exists() {
            wrong.push(says("there is no such file"));
        } else if !heading.is_empty() {
            let other = fs::read_to_string(&file).unwrap_or_default();
            if !headings(&other).any(|found| found == heading) {
                wrong.push(says("there is no such heading"));
            }
        }
    }
    wrong
}

/// The names by which headings are linked to: small letters, spaces as hyphens.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    heads.map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_is_as_it_should_be() {
        if let Err(Failed(why)) = check() {
            panic!("{why}");
        }
    }

    #[test]
    fn links_are_found_outside_of_code_and_headings_by_their_names() {
        let text = "see [a](b.md#c-d) and `[x](y)`\n```\n[no](no.md)\n```\n[e](f)";
        assert_eq!(links(text).collect::<Vec<_>>(), [(1, "b.md#c-d"), (5, "f")]);
        let heads: Vec<String> = headings("# A page's `code`, told\ntext\n## Two words").collect();
        assert_eq!(heads, ["a-pages-code-told", "two-words"]);
    }

    #[test]
    fn a_link_to_nowhere_is_told_with_its_line() {
        let page = shell::root().join("README.md");
        let wrong = broken_links(&page, "\n[a](no-such-file.md) [b](docs/builder.md#no-such)");
        assert_eq!(wrong.len(), 2);
        assert!(
            wrong[0].starts_with("README.md:2: no-such-file.md: "),
            "{}",
            wrong[0]
        );
    }
}
