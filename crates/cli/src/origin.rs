//! The CUDA source line of a piece of PTX, from `.file` and `.loc`.

use heist_ptx::{Diagnostic, Item, Loc, Module, Source, SourceLine, Span, Statement};
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
        let Some(loc) = loc_of(&bodies, source, diagnostic.span) else {
            continue;
        };
        let Some(path) = paths.get(&loc.file) else {
            continue;
        };
        let text = files
            .entry(loc.file)
            .or_insert_with(|| read(folder, path))
            .as_deref()
            .and_then(|text| text.lines().nth((loc.line as usize).checked_sub(1)?));
        diagnostic.source_line = Some(SourceLine {
            path: (*path).to_owned(),
            line: loc.line,
            column: loc.column,
            text: text.map(|text| text.trim().to_owned()),
        });
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

/// The last `.loc` before a place, in its function, that does not stand in inline assembly: there LLVM counts lines of
/// the assembly as lines of the source, and behind it goes on from where it was before.
fn loc_of<'m>(bodies: &[Body<'m>], source: &Source, span: Span) -> Option<&'m Loc> {
    if span.is_none() {
        return None;
    }
    let body = bodies
        .iter()
        .find(|body| (body.start..=body.end).contains(&span.start))?;
    let after = body
        .locs
        .partition_point(|loc| loc.span.start <= span.start);
    let before = body.locs[..after].iter().rev();
    let mut own = before.filter(|loc| !in_assembly(source, loc.span.start));
    own.next().copied()
}

/// Whether a place lies in inline assembly.
fn in_assembly(source: &Source, place: u32) -> bool {
    let before = source.text().get(..place as usize).unwrap_or("");
    let begun = before.rfind("// begin inline asm");
    begun.is_some_and(|begun| !before[begun..].contains("// end inline asm"))
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

/// A finding moved to the source that its PTX was compiled from, with that source: all its places
/// are lines of it, and the PTX is a note. None where the PTX has no line information, or the file
/// does not exist.
pub fn lifted(
    module: &Module,
    source: &Source,
    diagnostic: &Diagnostic,
) -> Option<(Diagnostic, Source)> {
    let bodies = bodies(module);
    let here = home(&bodies, source, diagnostic.span)?;
    let path = module.items.iter().find_map(|item| match item {
        Item::File(file) if file.index == here.0 => Some(file.path.as_str()),
        _ => None,
    })?;
    let folder = Path::new(source.name()).parent().unwrap_or(Path::new(""));
    let above = Source::new(path, read(folder, path)?);
    let mut told = diagnostic.clone();
    told.span = line_span(&above, here)?;
    told.others.clear();
    for other in &diagnostic.others {
        // A place in another file, or in a loop the same one, is left to the notes.
        let place = home(&bodies, source, other.span).filter(|place| place.0 == here.0);
        if let Some(span) = place.and_then(|place| line_span(&above, place))
            && (span.start, span.end) != (told.span.start, told.span.end)
        {
            told = told.other(span, other.text.clone());
        }
    }
    told.source_line = None;
    let line = source.position(diagnostic.span).line;
    let text = source.line(line).trim();
    told.notes.push(format!("in PTX, line {line}: `{text}`"));
    Some((told, above))
}

/// The file, line and column behind a place: of the kernel's own file, where the code was
/// inlined there from another one.
fn home(bodies: &[Body<'_>], source: &Source, span: Span) -> Option<(u32, u32, u32)> {
    let loc = loc_of(bodies, source, span)?;
    let here = (loc.file, loc.line, loc.column);
    let body = bodies
        .iter()
        .find(|body| (body.start..=body.end).contains(&span.start))?;
    let own = body.locs.first()?.file;
    // Each call stands in a line that may be inlined itself, which was said before.
    let (mut place, mut call, mut before) = (here, loc.inlined.as_ref(), loc.span.start);
    while place.0 != own {
        let Some(outer) = call else {
            return Some(here);
        };
        place = outer.at;
        let said =
            body.locs.iter().rev().find(|loc| {
                loc.span.start < before && (loc.file, loc.line, loc.column) == outer.at
            });
        call = said.and_then(|loc| loc.inlined.as_ref());
        before = said.map_or(0, |loc| loc.span.start);
    }
    Some(place)
}

/// From a column to the end of its line; the whole line without a column.
fn line_span(source: &Source, (_, line, column): (u32, u32, u32)) -> Option<Span> {
    let text = source.text();
    let mut start = 0;
    for _ in 1..line {
        start += text.get(start..)?.find('\n')? + 1;
    }
    let line = text.get(start..)?.lines().next()?;
    let blank = line.len() - line.trim_start().len();
    let from = (column.saturating_sub(1) as usize).max(blank);
    let from = if from < line.trim_end().len() {
        from
    } else {
        blank
    };
    let from = line.floor_char_boundary(from);
    let to = line.trim_end().len().max(from);
    Some(Span {
        start: u32::try_from(start + from).ok()?,
        end: u32::try_from(start + to).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::rule;

    /// Two accesses in inline assembly, of which LLVM counts the lines as lines of the source,
    /// and one that is inlined from a library.
    const PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
.reg .b32 %r<3>; .reg .b64 %rd<2>;
.loc 1 2 1
ld.param.u64 %rd1, [x];
.loc 1 3 5
// begin inline asm
.loc 1 3 5
mov.u32 %r1, 0;
.loc 1 4 5
ld.global.u32 %r1, [%rd1];
// end inline asm
.loc 1 5 1
// begin inline asm
.loc 1 6 1
st.global.u32 [%rd1], %r1;
// end inline asm
// begin inline asm
.loc 1 7 1
st.global.u32 [%rd1+8], %r1;
// end inline asm
.loc 2 7 1, function_name $L__info_string0, inlined_at 1 5 3
st.global.u32 [%rd1+4], %r1;
.loc 2 8 1, function_name $L__info_string0, inlined_at 1 3 5
.loc 2 9 1, function_name $L__info_string0, inlined_at 2 8 1
st.global.u32 [%rd1+12], %r1;
ret;
}
.file 1 \"KERNEL\"
.file 2 \"library.py\"
.section .debug_str
{
$L__info_string0:
.b8 0
}
";

    fn span_of(source: &Source, text: &str) -> Span {
        let start = source.text().find(text).unwrap() as u32;
        Span {
            start,
            end: start + text.len() as u32,
        }
    }

    #[test]
    fn a_finding_is_told_at_the_lines_of_its_source() {
        let kernel = std::env::temp_dir().join(format!("heist-origin-{}.py", std::process::id()));
        fs::write(
            &kernel,
            "import a\ndef k():\n    load(x)\n\nb(); store(x)\n",
        )
        .unwrap();
        let text = PTX.replace("KERNEL", &kernel.display().to_string());
        let source = Source::new("k.ptx", text);
        let module = heist_ptx::parse(&source).unwrap();
        let (load, store) = ("ld.global.u32", "st.global.u32 [%rd1],");
        let found = Diagnostic::error(rule::GLOBAL_RACE, span_of(&source, store), "a race")
            .other(span_of(&source, load), "read here");
        let (told, above) = lifted(&module, &source, &found).unwrap();
        let line = |span: Span| {
            (
                above.position(span).line,
                &above.text()[span.start as usize..span.end as usize],
            )
        };
        assert_eq!(line(told.span), (5, "b(); store(x)"));
        assert_eq!(line(told.others[0].span), (3, "load(x)"));
        assert!(
            told.notes[0].starts_with("in PTX, line 19: `st.global"),
            "{:?}",
            told.notes
        );
        let inlined = Diagnostic::error(
            rule::GLOBAL_RACE,
            span_of(&source, "st.global.u32 [%rd1+4]"),
            "a race",
        );
        let (told, _) = lifted(&module, &source, &inlined).unwrap();
        assert_eq!(line(told.span), (5, "); store(x)"));
        // A function that a function of another file calls.
        let nested = span_of(&source, "st.global.u32 [%rd1+12]");
        let nested = Diagnostic::error(rule::GLOBAL_RACE, nested, "a race");
        let (told, _) = lifted(&module, &source, &nested).unwrap();
        assert_eq!(line(told.span), (3, "load(x)"));
        // Behind other assembly with nothing said in between, it is where that began.
        let next = span_of(&source, "st.global.u32 [%rd1+8]");
        let next = Diagnostic::error(rule::GLOBAL_RACE, next, "a race");
        let (told, _) = lifted(&module, &source, &next).unwrap();
        assert_eq!(line(told.span), (5, "b(); store(x)"));
        fs::remove_file(kernel).unwrap();
        assert!(lifted(&module, &source, &inlined).is_none());
    }

    #[test]
    fn a_place_without_a_column_begins_with_the_first_word_of_its_line() {
        let source = Source::new("k.cu", "int a;\n    store(x);  \n");
        let text = |column| {
            let span = line_span(&source, (1, 2, column)).expect("a line");
            &source.text()[span.start as usize..span.end as usize]
        };
        assert_eq!(
            (text(0), text(2), text(7)),
            ("store(x);", "store(x);", "ore(x);")
        );
        assert_eq!(text(99), "store(x);", "a column behind the line");
    }
}
