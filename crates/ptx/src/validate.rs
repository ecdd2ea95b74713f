//! The structural rules of PTX: whether a file is well-formed, before any question of what it does.
//!
//! Checked here, each with a negative file in `tests/invalid/`:
//!
//! - `.version` exists, `.target` exists, and the one has the other
//!   (`P044`, `P031`, `P032`);
//! - every register, label, variable and function is declared before it is
//!   used, in a scope that reaches the use, and once (`P020` to `P026`);
//! - every opcode exists (`P027`); an opcode that is known has the number and
//!   kinds of operands it takes, of types that fit (`P028`, `P029`, `P030`,
//!   `P035`, `P036`, `P037`, `P039`); one whose rules are not known here is
//!   left alone;
//! - a guard is a predicate (`P040`);
//! - a variable is accessed in the state space it lives in (`P038`);
//! - a call passes what the function takes (`P041`);
//! - instructions, special registers and directives exist on the target and in
//!   the version (`P033`, `P034`);
//! - kernel parameters fit, and directives have values that can be (`P042`, `P043`);
//! - addresses have 64 bits (`P006`).
//!
//! The judge is ptxas: what it accepts is never an error here, and what is an
//! error here it rejects too. Both are tested over the corpus and the negative files.

mod call;
mod entity;
mod initial;
mod instruction;
mod kernel;
mod names;
mod operand;

use crate::analysis::{Scopes, Twice};
use crate::arch::{Arch, Feature, NEWEST_PTX, OldTarget};
use crate::diagnostic::{Code, Diagnostic};
use crate::module::{
    AddressSize, Function, FunctionKind, Initializer, Item, Linkage, Module, Name, Registers,
    Statement, Variable, Version,
};
use crate::rule;
use crate::span::{Source, Span};
use crate::types::{ScalarType, Space};
use entity::Entity;
use names::symbols;

/// After this many findings the rest of a file is not looked at.
const MOST_FOUND: usize = 100;

/// What is structurally wrong with `module`, in the order of the file; at most
/// a hundred findings.
///
/// With the `source` that it was parsed from, a diagnostic points at the very
/// name it is about; without, at the instruction.
///
/// ```
/// use heist_ptx::{Source, parse, validate};
/// let source = Source::new("k.ptx", "
///     .version 8.0
///     .target sm_80
///     .address_size 64
///     .visible .entry k() { .reg .b32 %r<2>; add.s32 %r1, %r2, 1; ret; }
/// ");
/// let module = parse(&source).unwrap();
/// let found = validate::validate(&module, Some(&source));
/// assert_eq!(found[0].to_string(), "error[P020]: register `%r2` is not declared");
/// ```
pub fn validate(module: &Module, source: Option<&Source>) -> Vec<Diagnostic> {
    let mut validator = Validator {
        module,
        source,
        target: Target::of(module),
        scopes: Scopes::new(),
        found: Vec::new(),
    };
    validator.header();
    for item in &module.items {
        validator.item(item);
    }
    validator.newer_version();
    validator.found
}

/// What the file says it is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Known(Arch),
    Old(OldTarget),
    Unknown,
}

impl Target {
    fn of(module: &Module) -> Target {
        let name = &module.target.arch;
        if let Some(arch) = Arch::parse(name) {
            Target::Known(arch)
        } else if let Some(old) = OldTarget::parse(name) {
            Target::Old(old)
        } else {
            Target::Unknown
        }
    }
}

struct Validator<'m> {
    module: &'m Module,
    source: Option<&'m Source>,
    target: Target,
    scopes: Scopes<'m, Entity<'m>>,
    found: Vec<Diagnostic>,
}

impl<'m> Validator<'m> {
    fn report(&mut self, diagnostic: Diagnostic) {
        if !self.is_full() {
            self.found.push(diagnostic);
        }
    }

    /// Whether enough was found; a file with more has one cause, or is not PTX.
    fn is_full(&self) -> bool {
        self.found.len() >= MOST_FOUND
    }

    /// The place of the word `name` inside `span`, when there is a text to look in.
    fn narrow(&self, span: Span, name: &str) -> Span {
        let Some(source) = self.source else {
            return span;
        };
        let text = source.slice(span);
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
        let found = text.match_indices(name).find(|(at, _)| {
            let before = text[..*at].chars().next_back();
            let after = text[at + name.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        });
        match found {
            Some((at, _)) => {
                let start = span.start as usize + at;
                Span::new(start, start + name.len())
            }
            None => span,
        }
    }

    /// The place of a directive of the header that a module does not remember.
    fn directive_span(&self, wanted: &str) -> Span {
        let text = self.source.map_or("", Source::text);
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let directive = line.trim_start();
            if directive.starts_with(wanted) {
                let from = start + (line.len() - directive.len());
                let code = directive.split("//").next().unwrap_or(directive);
                return Span::new(from, from + code.trim_end().len());
            }
            start += line.len();
        }
        Span::NONE
    }

    /// ptxas assembles no more code of 32-bit addresses, for whatever target.
    fn address_size(&mut self) {
        if self.module.address_size == AddressSize::Bits64 {
            return;
        }
        self.report(
            Diagnostic::error(
                rule::BAD_HEADER,
                self.directive_span(".address_size"),
                "addresses of 32 bits are no longer supported",
            )
            .help("write `.address_size 64`, and keep pointers in 64-bit registers"),
        );
    }

    /// A version that is newer than all known here is no mistake by itself, but it
    /// may be why something else in the file is not known.
    fn newer_version(&mut self) {
        let version = self.module.version;
        if version > NEWEST_PTX && !self.found.is_empty() {
            self.report(
                Diagnostic::warning(
                    rule::UNKNOWN_VERSION,
                    self.directive_span(".version"),
                    format!("PTX {version} is newer than {NEWEST_PTX}, the newest known here"),
                )
                .note("what is reported may have come with it")
                .help("where ptxas takes the file, a newer Heist is needed"),
            );
        }
    }

    fn header(&mut self) {
        self.address_size();
        let version = self.module.version;
        let span = self.module.target.span;
        if !version_exists(version) {
            self.report(
                Diagnostic::error(
                    rule::UNKNOWN_VERSION,
                    self.directive_span(".version"),
                    format!("there is no PTX ISA version {version}"),
                )
                .help(format!("versions go up to {NEWEST_PTX}")),
            );
        }
        let (name, needed) = match self.target {
            Target::Known(arch) => (arch.name(), arch.min_ptx()),
            Target::Old(old) => (self.module.target.arch.as_str(), old.min_ptx),
            Target::Unknown => {
                let name = &self.module.target.arch;
                self.report(
                    Diagnostic::error(
                        rule::UNKNOWN_TARGET,
                        span,
                        format!("there is no target `{name}`"),
                    )
                    .help("targets are named like `sm_80`, `sm_90a` or `sm_100f`"),
                );
                return;
            }
        };
        if version < needed {
            let name = name.to_string();
            self.report(
                Diagnostic::error(
                    rule::TARGET_NEEDS_VERSION,
                    span,
                    format!("target `{name}` needs PTX {needed}, and this file is PTX {version}"),
                )
                .help(format!("write `.version {needed}` or later")),
            );
        }
    }

    fn item(&mut self, item: &'m Item) {
        match item {
            Item::Function(function) => self.function(function),
            Item::Variable(variable) => self.global(variable),
            Item::Alias {
                name,
                aliasee,
                span,
            } => {
                if self.find(aliasee).is_none() {
                    let place = self.narrow(*span, aliasee);
                    self.report(Diagnostic::error(
                        rule::UNDECLARED_FUNCTION,
                        place,
                        format!("function `{aliasee}` is not declared"),
                    ));
                } else if let Some(entity) = self.find(aliasee) {
                    self.scopes.redeclare(name, entity, *span);
                }
            }
            Item::File(_) | Item::Section(_) | Item::Pragma(_) | Item::Comment(_) => {}
        }
    }

    /// What a variable is declared with. Only what another file defines, or a caller gives, may leave its length open.
    fn declared_with(&mut self, variable: &'m Variable, open: bool) {
        let pointed = variable.pointer.and_then(|pointer| pointer.align);
        let listed = matches!(variable.init, Some(Initializer::List(_)));
        let lacks = |(at, dim): (usize, &Option<u64>)| match dim {
            Some(elements) => *elements == 0,
            None => at > 0 || !listed,
        };
        let register = matches!(variable.space, Space::Reg);
        if !open && !register && variable.dims.iter().enumerate().any(lacks) {
            self.report(
                Diagnostic::error(
                    rule::BAD_DIRECTIVE,
                    variable.span,
                    format!("`{}` has no elements", variable.name),
                )
                .help("an array has at least one; dynamic shared memory is `.extern .shared .b8 name[]`"),
            );
        }
        if variable.ty == ScalarType::Pred && !register {
            self.report(
                Diagnostic::error(
                    rule::BAD_DIRECTIVE,
                    variable.span,
                    format!("`{}` is a predicate in memory", variable.name),
                )
                .help("predicates are registers; keep 0 or 1 in a `.u8`"),
            );
        }
        if let Some(init) = &variable.init {
            self.initializer(init, variable);
            let fits = initial::is_allowed(variable).and_then(|()| initial::fits(init, variable));
            if let Err(wrong) = fits {
                let wrong = Diagnostic::error(
                    rule::BAD_DIRECTIVE,
                    variable.span,
                    format!("the initial value of `{}` {}", variable.name, wrong.what()),
                );
                self.report(wrong.help(initial::HELP));
            }
        }
        for align in [variable.align, pointed].into_iter().flatten() {
            if !align.is_power_of_two() {
                self.report(
                    Diagnostic::error(
                        rule::BAD_DIRECTIVE,
                        variable.span,
                        format!("`{}` can't be aligned to {align} bytes", variable.name),
                    )
                    .help("an alignment is a power of two: `.align 16`"),
                );
            }
        }
    }

    fn global(&mut self, variable: &'m Variable) {
        self.declared_with(variable, variable.linkage == Linkage::Extern);
        let entity = Entity::Variable(variable);
        match self.scopes.here(&variable.name) {
            // A variable may be announced any number of times, before or after it is defined.
            Some((Entity::Variable(first), _))
                if first.linkage == Linkage::Extern || variable.linkage == Linkage::Extern =>
            {
                if first.linkage == Linkage::Extern {
                    self.scopes.redeclare(&variable.name, entity, variable.span);
                }
            }
            _ => self.declare(
                &variable.name,
                entity,
                variable.span,
                rule::DUPLICATE_SYMBOL,
            ),
        }
    }

    fn initializer(&mut self, init: &Initializer, variable: &Variable) {
        match init {
            Initializer::List(list) => {
                for init in list {
                    self.initializer(init, variable);
                }
            }
            Initializer::Field(..) => {}
            Initializer::Value(constant) => {
                let mut names = Vec::new();
                symbols(constant, &mut names);
                for name in names {
                    let found = self.find(&name);
                    if let Some(Entity::Variable(other)) = found
                        && !matches!(other.space, Space::Global | Space::Const)
                    {
                        self.report(
                            Diagnostic::error(
                                rule::BAD_DIRECTIVE,
                                variable.span,
                                format!("the initial value of `{}` is the address of `{name}`, which each block or thread has for itself", variable.name),
                            )
                            .help("an address is known before the launch of `.global` and `.const` variables and of functions alone"),
                        );
                    }
                    if name != variable.name && found.is_none() {
                        self.report(
                            Diagnostic::error(
                                rule::UNDECLARED_VARIABLE,
                                variable.span,
                                format!(
                                    "`{name}`, which the value of `{}` refers to, is not declared",
                                    variable.name
                                ),
                            )
                            .help("what an initial value refers to must be declared before it"),
                        );
                    }
                }
            }
        }
    }

    /// What a name means here.
    fn find(&self, name: &str) -> Option<Entity<'m>> {
        Entity::find(&self.scopes, name)
    }

    /// Opens a scope, and reports labels that it has twice.
    fn enter(&mut self, statements: &'m [Statement]) {
        for Twice { name, first, span } in self.scopes.enter(statements) {
            self.twice(rule::DUPLICATE_LABEL, name, span, first);
        }
    }

    /// Declares a name in the innermost scope, and says so when it is taken.
    fn declare(&mut self, name: &Name, entity: Entity<'m>, span: Span, code: Code) {
        if name == "_" {
            return;
        }
        if let Err(clash) = self.scopes.declare(name, entity, span) {
            self.twice(code, name, span, clash.first);
        }
    }

    fn twice(&mut self, code: Code, name: &str, span: Span, first: Span) {
        let (what, help) = match code {
            rule::DUPLICATE_REGISTER => (
                "register",
                "give one of them another name, or put it in a scope `{ ... }` of its own",
            ),
            rule::DUPLICATE_LABEL => (
                "label",
                "a label shares its scope's names with registers and variables; rename one",
            ),
            _ => ("name", "remove one of them, or give it another name"),
        };
        let mut diagnostic = Diagnostic::error(
            code,
            span,
            format!("{what} `{name}` is already taken in this scope"),
        )
        .help(help);
        if !first.is_none() {
            diagnostic = diagnostic.other(first, "first declared here");
        }
        self.report(diagnostic);
    }

    fn function(&mut self, function: &'m Function) {
        match self.scopes.here(&function.name) {
            Some((Entity::Function(first), first_span)) => {
                if first.body.is_some() {
                    self.twice(
                        rule::DUPLICATE_SYMBOL,
                        &function.name,
                        function.span,
                        first_span,
                    );
                } else {
                    self.scopes.redeclare(
                        &function.name,
                        Entity::Function(function),
                        function.span,
                    );
                }
            }
            _ => self.declare(
                &function.name,
                Entity::Function(function),
                function.span,
                rule::DUPLICATE_SYMBOL,
            ),
        }
        self.directives(function);
        let Some(body) = &function.body else {
            return;
        };
        self.enter(body);
        let open = function.kind != FunctionKind::Entry;
        let params = function.params.iter().map(|param| (param, open));
        for (param, open) in function
            .returns
            .iter()
            .map(|one| (one, false))
            .chain(params)
        {
            self.declared_with(param, open);
            let entity = match param.space {
                Space::Reg => Entity::Register {
                    ty: param.ty,
                    vector: param.vector,
                },
                _ => Entity::Variable(param),
            };
            self.declare(&param.name, entity, param.span, rule::DUPLICATE_SYMBOL);
        }
        self.statements(body);
        self.scopes.leave();
    }

    fn statements(&mut self, statements: &'m [Statement]) {
        for statement in statements {
            if self.is_full() {
                return;
            }
            match statement {
                Statement::Instruction(instruction) => self.instruction(instruction),
                Statement::Registers(registers) => self.registers(registers),
                Statement::Variable(variable) => {
                    self.declared_with(variable, variable.linkage == Linkage::Extern);
                    self.declare(
                        &variable.name,
                        Entity::Variable(variable),
                        variable.span,
                        rule::DUPLICATE_SYMBOL,
                    );
                }
                Statement::Block(inner) => {
                    self.enter(inner);
                    self.statements(inner);
                    self.scopes.leave();
                }
                Statement::Label { name, span } => {
                    if let Some((_, first)) = self.scopes.here(name) {
                        self.twice(rule::DUPLICATE_LABEL, name, *span, first);
                    }
                }
                Statement::BranchTargets { targets, span, .. } => {
                    for target in targets {
                        if self.scopes.label(target).is_none() {
                            self.no_label(target, *span);
                        }
                    }
                }
                Statement::CallTargets { targets, span, .. } => {
                    for target in targets {
                        if !matches!(self.find(target), Some(Entity::Function(_))) {
                            self.no_function(target, *span);
                        }
                    }
                }
                Statement::CallPrototype(_)
                | Statement::Loc(_)
                | Statement::Pragma(_)
                | Statement::Comment(_) => {}
            }
        }
    }

    fn registers(&mut self, registers: &'m Registers) {
        let entity = Entity::Register {
            ty: registers.ty,
            vector: registers.vector,
        };
        for register in &registers.names {
            match register.count {
                None => self.declare(
                    &register.name,
                    entity,
                    register.span,
                    rule::DUPLICATE_REGISTER,
                ),
                Some(count) => {
                    let declared =
                        self.scopes
                            .declare_family(&register.name, count, entity, register.span);
                    if let Err(clash) = declared {
                        let name = format!("{}<{count}>", register.name);
                        self.twice(rule::DUPLICATE_REGISTER, &name, register.span, clash.first);
                    }
                }
            }
        }
    }

    /// Whether the target and version have `feature`; says so when they do not.
    fn feature(&mut self, feature: Feature, span: Span, what: &str) -> bool {
        let version = self.module.version;
        let support = feature.support();
        let needed = match self.target {
            Target::Known(arch) => arch.ptx_for(feature),
            // An old target has what every target has.
            Target::Old(old) => match support {
                crate::arch::Support::From(number) if number <= old.number.max(75) => {
                    Some(feature.min_ptx())
                }
                _ if old.number > 100 => return true,
                _ => None,
            },
            Target::Unknown => return true,
        };
        match needed {
            None => {
                let target = self.module.target.arch.clone();
                let mut diagnostic = Diagnostic::error(
                    rule::FEATURE_NEEDS_TARGET,
                    span,
                    format!("{what} needs {support}, and the target is `{target}`"),
                )
                .note(format!("it belongs to: {}", feature.name()));
                if let (Target::Known(arch), Some(first)) = (self.target, support.first()) {
                    let specific = Arch::ALL
                        .iter()
                        .find(|other| other.number() == arch.number() && other.supports(feature));
                    diagnostic = match specific {
                        Some(specific) => diagnostic.help(format!(
                            "write `.target {specific}`; the code then runs on that architecture alone"
                        )),
                        None => diagnostic.help(format!("the first target that has it is `{first}`")),
                    };
                }
                self.report(diagnostic);
                false
            }
            Some(needed) if version < needed => {
                self.report(
                    Diagnostic::error(
                        rule::FEATURE_NEEDS_VERSION,
                        span,
                        format!("{what} needs PTX {needed}, and this file is PTX {version}"),
                    )
                    .note(format!("it belongs to: {}", feature.name()))
                    .help(format!("write `.version {needed}` or later")),
                );
                false
            }
            Some(_) => true,
        }
    }
}

/// Whether there ever was such a version. ptxas takes any two-digit minor for a
/// version that once was, and so does this.
fn version_exists(version: Version) -> bool {
    let last = match version.major {
        1 => 5,
        2 => 3,
        3 => 2,
        4 => 3,
        5 => 1,
        6 => 5,
        7 | 8 => 8,
        _ => return version.major >= 9,
    };
    version.minor <= last || version.minor >= 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_there_were() {
        for (major, last) in [
            (1, 5),
            (2, 3),
            (3, 2),
            (4, 3),
            (5, 1),
            (6, 5),
            (7, 8),
            (8, 8),
        ] {
            assert!(version_exists(Version::new(major, 0)), "{major}.0");
            assert!(version_exists(Version::new(major, last)), "{major}.{last}");
            assert!(!version_exists(Version::new(major, last + 1)), "{major}");
            assert!(version_exists(Version::new(major, 10)), "{major}.10");
        }
        assert!(version_exists(NEWEST_PTX));
        assert!(!version_exists(Version::new(0, 1)));
        // What is newer than this is not known to be wrong.
        assert!(version_exists(Version::new(9, 99)));
        assert!(version_exists(Version::new(10, 0)));
    }

    fn codes(body: &str) -> Vec<String> {
        let source = Source::new(
            "newer.ptx",
            format!(
                ".version 99.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{ {body} }}\n"
            ),
        );
        let module = crate::parse(&source).unwrap();
        validate(&module, Some(&source))
            .iter()
            .map(|found| found.code.to_string())
            .collect()
    }

    #[test]
    fn a_newer_version_is_told_beside_other_findings_alone() {
        assert_eq!(codes("ret;"), [""; 0]);
        assert_eq!(codes("mov.b32 %r1, 0; ret;"), ["P020", "P044"]);
    }
}
