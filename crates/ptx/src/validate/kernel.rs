//! Kernels as a whole: their parameters and their directives.

use super::{Target, Validator};
use crate::arch::Feature;
use crate::diagnostic::Diagnostic;
use crate::module::{Function, FunctionDirective, FunctionKind};
use crate::rule;
use crate::span::Span;

impl<'m> Validator<'m> {
    pub(super) fn directives(&mut self, function: &'m Function) {
        if function.kind != FunctionKind::Entry {
            return;
        }
        self.parameters(function);
        let numbers: Vec<(&str, &[u64], Span)> = function
            .directives
            .iter()
            .filter_map(|directive| match directive {
                FunctionDirective::Numbers { name, values, span } => {
                    Some((name.as_str(), values.as_slice(), *span))
                }
                FunctionDirective::Pragma(_) => None,
            })
            .collect();
        let place = |name: &str| {
            numbers
                .iter()
                .find(|(other, ..)| *other == name)
                .map(|(.., span)| *span)
        };
        for &(name, values, span) in &numbers {
            if matches!(
                name,
                "reqnctapercluster" | "maxclusterrank" | "explicitcluster" | "blocksareclusters"
            ) {
                self.feature(Feature::Clusters, span, &format!("`.{name}`"));
            }
            let positive = matches!(name, "maxntid" | "reqntid" | "minnctapersm" | "maxnreg");
            if positive && values.contains(&0) {
                self.report(
                    Diagnostic::error(
                        rule::BAD_DIRECTIVE,
                        span,
                        format!("`.{name}` of 0 can't be"),
                    )
                    .help("leave a dimension out, or write 1"),
                );
            }
        }
        for (one, other) in [
            ("maxntid", "reqntid"),
            ("reqnctapercluster", "maxclusterrank"),
        ] {
            if let (Some(first), Some(second)) = (place(one), place(other)) {
                self.report(
                    Diagnostic::error(
                        rule::BAD_DIRECTIVE,
                        second,
                        format!("`.{one}` and `.{other}` exclude each other"),
                    )
                    .other(first, format!("`.{one}` is here"))
                    .help("keep the one that says more"),
                );
            }
        }
        if let Some(span) = place("blocksareclusters")
            && (place("reqntid").is_none() || place("reqnctapercluster").is_none())
        {
            self.report(
                Diagnostic::error(
                    rule::BAD_DIRECTIVE,
                    span,
                    "`.blocksareclusters` needs `.reqntid` and `.reqnctapercluster` beside it",
                )
                .help("say how many threads a block and how many blocks a cluster has"),
            );
        }
    }

    fn parameters(&mut self, function: &'m Function) {
        let Target::Known(arch) = self.target else {
            return;
        };
        let mut bytes: u64 = 0;
        for param in &function.params {
            let Some(size) = param.size() else {
                return;
            };
            let align = param.alignment().max(1);
            bytes = bytes.div_ceil(align).saturating_mul(align);
            bytes = bytes.saturating_add(size);
        }
        let limit = u64::from(arch.param_limit(self.module.version));
        if bytes > limit {
            let mut diagnostic = Diagnostic::error(
                rule::PARAM_SPACE,
                function.span,
                format!(
                    "the parameters of `{}` take {bytes} bytes, and {limit} is the most",
                    function.name
                ),
            )
            .help("pass a pointer to global or constant memory instead");
            if limit < 32764 {
                diagnostic = diagnostic.note("from PTX 8.1 on it is 32764 bytes");
            }
            self.report(diagnostic);
        }
    }
}
