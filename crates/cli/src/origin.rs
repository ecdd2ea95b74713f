//! The CUDA source behind a piece of PTX, where `.file` and `.loc` tell.

use heist_ptx::{Diagnostic, Item, Loc, Module, Source, Span, Statement};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Adds to each finding the source line that its place was made from, and the text of
/// that line where the file is there: as `.file` names it, or beside the PTX.
pub fn add_source_lines(module: &Module, source: &Source, found: &mut [Diagnostic]) {
    let bodies = bodies(module);
    if bodies.iter().all(|body| body.locs.is_empty()) {
        return;
    }
    let paths: HashMap<u32, &str> = module
        .items
        .iter()
        .filter_map(|item| match item {
            Item::File(file) => Some((file.index, file.path.as_str())),
            _ => None,
        })
        .collect();
    let folder = Path::new(source.name()).parent().unwrap_or(Path::new(""));
    let mut files: HashMap<u32, Option<String>> = HashMap::new();
    for diagnostic in found {
        let Some(loc) = loc_of(&bodies, diagnostic.span) else {
            continue;
        };
        let Some(path) = paths.get(&loc.file) else {
            continue;
        };
        let place = format!("{path}:{}:{}", loc.line, loc.column);
        let text = files
            .entry(loc.file)
            .or_insert_with(|| read(folder, path))
            .as_deref()
            .and_then(|text| text.lines().nth((loc.line as usize).checked_sub(1)?));
        let note = match text {
            Some(text) => format!("source line {place}: `{}`", text.trim()),
            None => format!("source line {place}"),
        };
        // A run has said where it is already, without the text.
        diagnostic
            .notes
            .retain(|known| *known != format!("source line {place}"));
        diagnostic.notes.push(note);
    }
}

/// A function's stretch of the text, and its lines of source.
struct Body<'m> {
    start: u32,
    end: u32,
    locs: Vec<&'m Loc>,
}

fn bodies(module: &Module) -> Vec<Body<'_>> {
    module
        .functions()
        .filter_map(|function| {
            let mut body = Body {
                start: u32::MAX,
                end: 0,
                locs: Vec::new(),
            };
            walk(function.body.as_ref()?, &mut body);
            Some(body)
        })
        .collect()
}

fn walk<'m>(statements: &'m [Statement], body: &mut Body<'m>) {
    for statement in statements {
        let span = match statement {
            Statement::Instruction(instruction) => instruction.span,
            Statement::Variable(variable) => variable.span,
            Statement::Loc(loc) => {
                body.locs.push(loc);
                loc.span
            }
            Statement::Block(inner) => {
                walk(inner, body);
                continue;
            }
            _ => continue,
        };
        if !span.is_none() {
            body.start = body.start.min(span.start);
            body.end = body.end.max(span.end);
        }
    }
}

/// The last `.loc` before a place, in its function.
fn loc_of<'m>(bodies: &[Body<'m>], span: Span) -> Option<&'m Loc> {
    if span.is_none() {
        return None;
    }
    let body = bodies
        .iter()
        .find(|body| (body.start..=body.end).contains(&span.start))?;
    let after = body
        .locs
        .partition_point(|loc| loc.span.start <= span.start);
    body.locs.get(after.checked_sub(1)?).copied()
}

/// The source file, by its own name, or beside the PTX.
fn read(folder: &Path, path: &str) -> Option<String> {
    let path = Path::new(path);
    let beside = path.file_name().map(|name| folder.join(name));
    let candidates = [Some(path.to_owned()), Some(folder.join(path)), beside];
    candidates
        .into_iter()
        .flatten()
        .find_map(|path: PathBuf| fs::read_to_string(path).ok())
}
