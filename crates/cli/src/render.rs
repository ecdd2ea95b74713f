//! Diagnostics as text for people, and as JSON for machines.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use heist_ptx::{Diagnostic, Severity, Source, Span};
use serde::Serialize;

/// One diagnostic as annotated source, ready for a terminal.
///
/// The text carries ANSI colours; a stream that is not a terminal should strip
/// them (`anstream` does).
pub fn to_text(diagnostic: &Diagnostic, source: &Source) -> String {
    let renderer = Renderer::styled();
    let level = match diagnostic.severity {
        Severity::Warning => Level::WARNING,
        Severity::Error => Level::ERROR,
    };
    let title = level
        .primary_title(&diagnostic.message)
        .id(diagnostic.code.0);
    let mut group = Group::with_title(title);
    if !diagnostic.span.is_none() {
        let window = Window::of(diagnostic, source);
        let primary = AnnotationKind::Primary
            .span(window.range(diagnostic.span))
            .label(&diagnostic.label);
        let others = diagnostic.others.iter().map(|other| {
            AnnotationKind::Context
                .span(window.range(other.span))
                .label(&other.text)
        });
        group = group.element(
            Snippet::source(window.text)
                .line_start(window.line)
                .path(source.name())
                .annotation(primary)
                .annotations(others),
        );
    }
    let notes = diagnostic.facts();
    for note in &notes {
        group = group.element(Level::NOTE.message(note));
    }
    for help in &diagnostic.helps {
        group = group.element(Level::HELP.message(help));
    }
    renderer.render(&[group])
}

/// The lines of the source that a diagnostic is about. The renderer reads all that it is given,
/// and a file can have as many diagnostics as lines.
struct Window<'s> {
    text: &'s str,
    start: usize,
    /// The number of its first line.
    line: usize,
}

impl<'s> Window<'s> {
    fn of(diagnostic: &Diagnostic, source: &'s Source) -> Window<'s> {
        let text = source.text();
        let others = diagnostic.others.iter().map(|other| other.span);
        let spans = || std::iter::once(diagnostic.span).chain(others.clone());
        let first = spans().map(|span| span.start).min().unwrap_or(0);
        let last = spans().map(|span| span.end.max(span.start)).max();
        let first = floor(text, first);
        let last = floor(text, last.unwrap_or(0));
        let start = text[..first].rfind('\n').map_or(0, |at| at + 1);
        let end = text[last..]
            .find('\n')
            .map_or(text.len(), |at| last + at + 1);
        let line = source.position(Span::new(start, start)).line as usize;
        Window {
            text: &text[start..end],
            start,
            line,
        }
    }

    /// A span as the renderer wants it: inside the text, and on character boundaries.
    fn range(&self, span: Span) -> std::ops::Range<usize> {
        let within = |at: u32| floor(self.text, at.saturating_sub(self.start as u32));
        let start = within(span.start);
        start..within(span.end).max(start)
    }
}

/// The character boundary at or before a place, inside the text.
fn floor(text: &str, at: u32) -> usize {
    text.floor_char_boundary((at as usize).min(text.len()))
}

/// A diagnostic in the form that `--json` prints.
#[derive(Serialize)]
pub struct JsonDiagnostic<'a> {
    code: &'a str,
    severity: &'static str,
    message: &'a str,
    file: &'a str,
    #[serde(flatten)]
    place: Option<JsonPlace>,
    #[serde(skip_serializing_if = "str::is_empty")]
    label: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<JsonLabel<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    helps: &'a [String],
}

#[derive(Serialize)]
struct JsonPlace {
    line: u32,
    column: u32,
}

#[derive(Serialize)]
struct JsonLabel<'a> {
    #[serde(flatten)]
    place: Option<JsonPlace>,
    text: &'a str,
}

fn place(span: Span, source: &Source) -> Option<JsonPlace> {
    (!span.is_none()).then(|| {
        let position = source.position(span);
        JsonPlace {
            line: position.line,
            column: position.column,
        }
    })
}

/// One diagnostic for machines.
pub fn to_json<'a>(diagnostic: &'a Diagnostic, source: &'a Source) -> JsonDiagnostic<'a> {
    JsonDiagnostic {
        code: diagnostic.code.0,
        severity: match diagnostic.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        },
        message: &diagnostic.message,
        file: source.name(),
        place: place(diagnostic.span, source),
        label: &diagnostic.label,
        others: diagnostic
            .others
            .iter()
            .map(|other| JsonLabel {
                place: place(other.span, source),
                text: &other.text,
            })
            .collect(),
        notes: diagnostic.facts(),
        helps: &diagnostic.helps,
    }
}
