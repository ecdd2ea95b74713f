//! A [`Module`] to text.
//!
//! The print is canonical: four spaces, one statement a line, labels at the
//! margin, registers of a kind together as they were declared. It says all that
//! the module says, so that parsing it gives the module back.

mod operand;

use crate::instruction::Instruction;
use crate::module::{
    AddressSize, Attribute, CallPrototype, Comment, FileDirective, Function, FunctionDirective,
    FunctionKind, Initializer, Item, Linkage, Loc, Module, Pragma, Registers, Section, SectionLine,
    Statement, Variable,
};
use operand::{constant, operand};
use std::fmt::Write;

/// Prints a module as canonical PTX.
///
/// ```
/// use heist_ptx::{Source, parse, print};
/// let text = ".version 8.0 .target sm_90 .address_size 64 .func f() { .reg .b32 %r<2>; mov.b32 %r1, 1; ret; }";
/// let printed = print(&parse(&Source::new("f.ptx", text)).unwrap());
/// assert_eq!(printed, "\
/// .version 8.0
/// .target sm_90
/// .address_size 64
///
/// .func f()
/// {
///     .reg .b32 %r<2>;
///     mov.b32 %r1, 1;
///     ret;
/// }
/// ");
/// ```
pub fn print(module: &Module) -> String {
    let mut printer = Printer { out: String::new() };
    printer.module(module);
    printer.out
}

impl std::fmt::Display for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print(self))
    }
}

impl std::fmt::Display for Instruction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut printer = Printer { out: String::new() };
        printer.instruction(self);
        f.write_str(&printer.out)
    }
}

struct Printer {
    out: String,
}

/// Writing to a string can't fail.
macro_rules! put {
    ($printer:expr, $($format:tt)*) => {
        let _ = write!($printer.out, $($format)*);
    };
}

impl Printer {
    fn module(&mut self, module: &Module) {
        for comment in &module.preamble {
            self.comment(comment, "");
        }
        put!(
            self,
            ".version {}\n.target {}",
            module.version,
            module.target.arch
        );
        for option in &module.target.options {
            put!(self, ", {option}");
        }
        self.out.push('\n');
        if module.address_size == AddressSize::Bits64 {
            self.out.push_str(".address_size 64\n");
        }
        for (at, item) in module.items.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &module.items[before]);
            if starts_paragraph(before, item) {
                self.out.push('\n');
            }
            self.item(item);
        }
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Function(function) => self.function(function),
            Item::Variable(variable) => {
                self.variable(variable);
                self.out.push_str(";\n");
            }
            Item::Alias { name, aliasee, .. } => {
                put!(self, ".alias {name}, {aliasee};\n");
            }
            Item::File(file) => self.file(file),
            Item::Section(section) => self.section(section),
            Item::Pragma(pragma) => {
                self.pragma(pragma);
                self.out.push('\n');
            }
            Item::Comment(comment) => self.comment(comment, ""),
        }
    }

    fn function(&mut self, function: &Function) {
        self.linkage(function.linkage);
        self.out.push_str(match function.kind {
            FunctionKind::Entry => ".entry ",
            FunctionKind::Func => ".func ",
        });
        self.attributes(&function.attributes);
        if !function.returns.is_empty() {
            self.parameters(&function.returns);
            self.out.push(' ');
        }
        put!(self, "{}", function.name);
        self.parameters(&function.params);
        self.function_directives(&function.directives, "\n");
        match &function.body {
            Some(body) => {
                self.out.push_str("\n{\n");
                self.statements(body, 1);
                self.out.push_str("}\n");
            }
            None => self.out.push_str(";\n"),
        }
    }

    fn linkage(&mut self, linkage: Linkage) {
        self.out.push_str(match linkage {
            Linkage::Private => "",
            Linkage::Visible => ".visible ",
            Linkage::Extern => ".extern ",
            Linkage::Weak => ".weak ",
            Linkage::Common => ".common ",
        });
    }

    fn attributes(&mut self, attributes: &[Attribute]) {
        if attributes.is_empty() {
            return;
        }
        self.out.push_str(".attribute(");
        for (at, attribute) in attributes.iter().enumerate() {
            put!(self, "{}.{}", comma(at), attribute.name);
            if !attribute.values.is_empty() {
                self.out.push('(');
                for (at, value) in attribute.values.iter().enumerate() {
                    put!(self, "{}{value:#x}", comma(at));
                }
                self.out.push(')');
            }
        }
        self.out.push_str(") ");
    }

    /// One parameter in line, several on lines of their own.
    fn parameters(&mut self, parameters: &[Variable]) {
        self.out.push('(');
        let several = parameters.len() > 1;
        for (at, parameter) in parameters.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            if several {
                self.out.push_str("\n    ");
            }
            self.variable(parameter);
        }
        if several {
            self.out.push('\n');
        }
        self.out.push(')');
    }

    fn function_directives(&mut self, directives: &[FunctionDirective], before: &str) {
        for directive in directives {
            self.out.push_str(before);
            match directive {
                FunctionDirective::Numbers { name, values, .. } => {
                    put!(self, ".{name}");
                    for (at, value) in values.iter().enumerate() {
                        put!(self, "{}{value}", if at == 0 { " " } else { ", " });
                    }
                }
                FunctionDirective::Pragma(pragma) => self.pragma(pragma),
            }
        }
    }

    /// A declaration without its `;`.
    fn variable(&mut self, variable: &Variable) {
        self.linkage(variable.linkage);
        put!(self, ".{}", variable.space);
        if let Some(bank) = variable.bank {
            put!(self, "[{bank}]");
        }
        self.out.push(' ');
        self.attributes(&variable.attributes);
        // A pointer's alignment is its own; the parameter's stands before the type.
        if let Some(align) = variable.align {
            put!(self, ".align {align} ");
        }
        if let Some(vector) = variable.vector {
            put!(self, ".{} ", vector.as_str());
        }
        put!(self, ".{} ", variable.ty);
        if let Some(pointer) = variable.pointer {
            self.out.push_str(".ptr ");
            if let Some(space) = pointer.space {
                put!(self, ".{space} ");
            }
            if let Some(align) = pointer.align {
                put!(self, ".align {align} ");
            }
        }
        put!(self, "{}", variable.name);
        for dim in &variable.dims {
            match dim {
                Some(dim) => {
                    put!(self, "[{dim}]");
                }
                None => self.out.push_str("[]"),
            }
        }
        if let Some(init) = &variable.init {
            self.out.push_str(" = ");
            self.initializer(init);
        }
    }

    fn initializer(&mut self, init: &Initializer) {
        match init {
            Initializer::Value(value) => constant(&mut self.out, value),
            Initializer::Field(name, value) => {
                put!(self, "{name} = ");
                constant(&mut self.out, value);
            }
            Initializer::List(list) => {
                self.out.push('{');
                for (at, init) in list.iter().enumerate() {
                    self.out.push_str(comma(at));
                    self.initializer(init);
                }
                self.out.push('}');
            }
        }
    }

    fn statements(&mut self, statements: &[Statement], depth: usize) {
        let indent = "    ".repeat(depth);
        for statement in statements {
            match statement {
                Statement::Comment(comment) => {
                    self.comment(comment, &indent);
                    continue;
                }
                Statement::Label { name, .. } => {
                    put!(self, "{name}:\n");
                    continue;
                }
                _ => self.out.push_str(&indent),
            }
            self.statement(statement, depth, &indent);
            self.out.push('\n');
        }
    }

    /// A statement that is neither a comment nor a label, without its line's end.
    fn statement(&mut self, statement: &Statement, depth: usize, indent: &str) {
        match statement {
            Statement::Instruction(instruction) => self.instruction(instruction),
            Statement::Registers(registers) => self.registers(registers),
            Statement::Variable(variable) => {
                self.variable(variable);
                self.out.push(';');
            }
            Statement::Block(inner) => {
                self.out.push_str("{\n");
                self.statements(inner, depth + 1);
                self.out.push_str(indent);
                self.out.push('}');
            }
            Statement::Loc(loc) => self.loc(loc),
            Statement::BranchTargets { label, targets, .. } => {
                self.targets(label, ".branchtargets", targets);
            }
            Statement::CallTargets { label, targets, .. } => {
                self.targets(label, ".calltargets", targets);
            }
            Statement::CallPrototype(prototype) => self.call_prototype(prototype),
            Statement::Pragma(pragma) => self.pragma(pragma),
            Statement::Label { .. } | Statement::Comment(_) => {}
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        if let Some(guard) = &instruction.guard {
            self.out.push_str(if guard.negated { "@!" } else { "@" });
            self.out.push_str(&guard.register);
            self.out.push(' ');
        }
        self.out.push_str(instruction.opcode.as_str());
        for (at, item) in instruction.operands.iter().enumerate() {
            self.out.push_str(if at == 0 { " " } else { ", " });
            operand(&mut self.out, item);
        }
        self.out.push(';');
    }

    fn registers(&mut self, registers: &Registers) {
        self.out.push_str(".reg ");
        if let Some(vector) = registers.vector {
            put!(self, ".{} ", vector.as_str());
        }
        put!(self, ".{} ", registers.ty);
        for (at, name) in registers.names.iter().enumerate() {
            put!(self, "{}{}", comma(at), name.name);
            if let Some(count) = name.count {
                put!(self, "<{count}>");
            }
        }
        self.out.push(';');
    }

    fn targets(&mut self, label: &str, directive: &str, targets: &[crate::Name]) {
        put!(self, "{label}: {directive}");
        for (at, target) in targets.iter().enumerate() {
            put!(self, "{}{target}", if at == 0 { " " } else { ", " });
        }
        self.out.push(';');
    }

    fn call_prototype(&mut self, prototype: &CallPrototype) {
        put!(self, "{}: .callprototype ", prototype.label);
        self.parameters(&prototype.returns);
        put!(self, " {} ", prototype.name);
        self.parameters(&prototype.params);
        self.function_directives(&prototype.directives, " ");
        self.out.push(';');
    }

    fn pragma(&mut self, pragma: &Pragma) {
        self.out.push_str(".pragma ");
        for (at, text) in pragma.strings.iter().enumerate() {
            put!(self, "{}\"{text}\"", comma(at));
        }
        self.out.push(';');
    }

    fn file(&mut self, file: &FileDirective) {
        put!(self, ".file {} \"{}\"", file.index, file.path);
        if let Some((time, size)) = file.stamp {
            put!(self, ", {time}, {size}");
        }
        self.out.push('\n');
    }

    fn loc(&mut self, loc: &Loc) {
        put!(self, ".loc {} {} {}", loc.file, loc.line, loc.column);
        if let Some(inlined) = &loc.inlined {
            put!(self, ", function_name {}", inlined.function);
            if inlined.offset > 0 {
                put!(self, "+{}", inlined.offset);
            }
            let (file, line, column) = inlined.at;
            put!(self, ", inlined_at {file} {line} {column}");
        }
    }

    fn section(&mut self, section: &Section) {
        put!(self, ".section {}\n{{\n", section.name);
        for line in &section.lines {
            match line {
                SectionLine::Label(label) => {
                    put!(self, "{label}:\n");
                }
                SectionLine::Data { ty, values } => {
                    put!(self, "    .{ty} ");
                    for (at, value) in values.iter().enumerate() {
                        self.out.push_str(comma(at));
                        constant(&mut self.out, value);
                    }
                    self.out.push('\n');
                }
            }
        }
        self.out.push_str("}\n");
    }

    fn comment(&mut self, comment: &Comment, indent: &str) {
        if comment.trailing && self.out.ends_with('\n') {
            self.out.pop();
            self.out.push(' ');
        } else {
            self.out.push_str(indent);
        }
        if comment.text.contains('\n') {
            put!(self, "/* {} */\n", comment.text);
        } else if comment.text.is_empty() {
            self.out.push_str("//\n");
        } else {
            put!(self, "// {}\n", comment.text);
        }
    }
}

fn comma(at: usize) -> &'static str {
    if at == 0 { "" } else { ", " }
}

/// Whether a blank line goes before an item: around functions and sections, and
/// where the kind of item changes, but not between what belongs together.
fn starts_paragraph(before: Option<&Item>, item: &Item) -> bool {
    if let Item::Comment(comment) = item
        && comment.trailing
    {
        return false;
    }
    match before {
        None => true,
        Some(Item::Comment(_)) => false,
        Some(Item::Function(_) | Item::Section(_)) => true,
        Some(before) => std::mem::discriminant(before) != std::mem::discriminant(item),
    }
}
