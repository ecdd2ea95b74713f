//! From recorded lines to a PTX module: names, layout, declarations.

use crate::emit::{Base, CallSite, Line, Op, Opnd, Origin, Recorder, Reg};
use crate::error::{BuildError, Problem};
use crate::invariant;
use crate::launch_info::{Contents, LaunchInfo, SharedUse};
use crate::names::{Names, identifier, unique};
use crate::params::{ParamInfo, ParamKind};
use heist_ptx::{
    Comment, FileDirective, Function, FunctionDirective, FunctionKind, Item, Linkage, Loc, Module,
    PointerInfo, ScalarType, SmolStr, Space, Span, Statement, Variable,
};
use std::collections::HashSet;

/// What the spec adds to the recorded body.
pub(crate) struct Header<'a> {
    pub(crate) name: &'a str,
    pub(crate) min_blocks: Option<u32>,
    pub(crate) locations: bool,
    pub(crate) params: Vec<ParamInfo>,
    pub(crate) place: CallSite,
}

/// What lowering gives.
pub(crate) struct Lowered {
    pub(crate) module: Module,
    pub(crate) launch: LaunchInfo,
    pub(crate) contents: Contents,
}

/// Where the pieces of shared memory lie.
pub(crate) struct SharedLayout {
    pub(crate) names: Vec<SmolStr>,
    pub(crate) offsets: Vec<u64>,
    total: u64,
    align: u32,
    pub(crate) dynamic: bool,
}

/// The name of the one array that holds everything when it is dynamic.
pub(crate) const DYNAMIC: &str = "dynamic_shared";

pub(crate) fn lower(rec: &Recorder, header: &Header<'_>) -> Result<Lowered, BuildError> {
    if let Some(error) = rec.errors.borrow().first() {
        return Err(error.clone());
    }
    let shared = lay_out(rec, header)?;
    let mut lines = live_prologue(rec);
    lines.extend(rec.body.borrow().iter().cloned());
    if !matches!(lines.last(), Some(Line::Op(op)) if op.opcode == "ret" && op.guard.is_none()) {
        lines.push(Line::Op(Op {
            guard: None,
            opcode: "ret".into(),
            operands: Vec::new(),
            place: header.place,
            origin: Origin::Builder,
        }));
    }

    let lines = if rec.hoists.get() {
        invariant::hoist(lines)
    } else {
        lines
    };
    let used = used_registers(&lines);
    let names = Names::new(rec, header, &shared, &used);
    let declarations = names.declare_registers(rec, &used);
    let mut files = Files::default();
    let mut body: Vec<Statement> = declarations;
    body.extend(local_variables(rec, &names));
    body.extend(shared_variables(rec, &shared));
    let mut instructions = 0;
    let mut last_place = None;
    for line in &lines {
        match line {
            Line::Label(label) => {
                last_place = None;
                body.push(Statement::Label {
                    name: names.labels[label.0 as usize].clone(),
                    span: Span::NONE,
                });
            }
            Line::Comment(text) => body.push(comment(text)),
            Line::Op(op) => {
                if header.locations && last_place != Some((op.place.file(), op.place.line())) {
                    last_place = Some((op.place.file(), op.place.line()));
                    body.push(Statement::Loc(files.loc(op.place)));
                }
                instructions += 1;
                body.push(Statement::Instruction(names.instruction(op)));
            }
        }
    }

    let mut module = Module::new(rec.version.get(), rec.arch.to_string());
    module.items.extend(files.items());
    if shared.dynamic {
        module.items.push(Item::Variable(Variable {
            linkage: Linkage::Extern,
            align: Some(shared.align),
            dims: vec![None],
            ..Variable::new(Space::Shared, ScalarType::B8, DYNAMIC)
        }));
    }
    module
        .items
        .push(Item::Function(function(rec, header, &names, body)));

    let total = shared.total as u32;
    let pieces = rec.shared.borrow();
    Ok(Lowered {
        module,
        launch: LaunchInfo {
            entry: header.name.to_string(),
            block: rec.block,
            cluster: rec.cluster,
            static_shared: if shared.dynamic { 0 } else { total },
            dynamic_shared: if shared.dynamic { total } else { 0 },
            arch: rec.arch,
            params: header.params.clone(),
            tensor_boxes: rec.tensor_boxes.borrow().clone(),
        },
        contents: Contents {
            instructions,
            registers: used.len(),
            shared: (0..pieces.len())
                .map(|index| SharedUse {
                    name: shared.names[index].to_string(),
                    offset: shared.offsets[index],
                    bytes: pieces[index].bytes,
                })
                .collect(),
            features: rec.features.borrow().clone(),
            raw: rec.raw.borrow().clone(),
        },
    })
}

/// Places the pieces one after the other, the strictest alignment first so that
/// no padding is lost between them.
fn lay_out(rec: &Recorder, header: &Header<'_>) -> Result<SharedLayout, BuildError> {
    let pieces = rec.shared.borrow();
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(pieces[index].align));
    let mut offsets = vec![0; pieces.len()];
    let mut total = 0u64;
    for &index in &order {
        let piece = &pieces[index];
        total = total.next_multiple_of(u64::from(piece.align));
        offsets[index] = total;
        total = total.saturating_add(piece.bytes);
    }
    let limit = u64::from(rec.arch.limits().shared_opt_in);
    if total > limit {
        let mut sizes: Vec<(String, u64)> = pieces
            .iter()
            .map(|piece| (piece.name.to_string(), piece.bytes))
            .collect();
        sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let problem = Problem::SharedMemory {
            asked: total,
            limit,
            arch: rec.arch,
            pieces: sizes,
        };
        return Err(BuildError::at(problem, header.place));
    }
    // Static ones are declared as the kernel asked for them, with padding between.
    let declared = pieces.iter().fold(0u64, |end, piece| {
        end.next_multiple_of(piece.align.into())
            .saturating_add(piece.bytes)
    });
    let mut taken = HashSet::new();
    let names = pieces
        .iter()
        .map(|piece| unique(&identifier(&piece.name), &mut taken))
        .collect();
    Ok(SharedLayout {
        names,
        offsets,
        total,
        align: pieces.iter().map(|piece| piece.align).max().unwrap_or(16),
        dynamic: total.max(declared) > u64::from(rec.arch.limits().shared_static),
    })
}

/// The prologue without dead instructions.
fn live_prologue(rec: &Recorder) -> Vec<Line> {
    let prologue = rec.prologue.borrow();
    let mut read = HashSet::new();
    for line in rec.body.borrow().iter() {
        if let Line::Op(op) = line {
            visit(op, true, &mut |reg| {
                read.insert(reg);
            });
        }
    }
    let mut kept = Vec::new();
    for line in prologue.iter().rev() {
        let Line::Op(op) = line else {
            kept.push(line.clone());
            continue;
        };
        let wanted = matches!(op.operands.first(), Some(Opnd::Reg(reg)) if read.contains(reg));
        if op.origin == Origin::Prologue && !wanted {
            continue;
        }
        visit(op, false, &mut |reg| {
            read.insert(reg);
        });
        kept.push(line.clone());
    }
    kept.reverse();
    kept
}

/// Every register of an instruction; the first operand only `with_first`.
fn visit(op: &Op, with_first: bool, see: &mut impl FnMut(Reg)) {
    if let Some((reg, _)) = op.guard {
        see(reg);
    }
    for operand in op.operands.iter().skip(usize::from(!with_first)) {
        visit_operand(operand, see);
    }
}

fn visit_operand(operand: &Opnd, see: &mut impl FnMut(Reg)) {
    match operand {
        Opnd::Reg(reg) => see(*reg),
        Opnd::Address(Base::Reg(reg), _) | Opnd::AddressOf(Base::Reg(reg), _) => see(*reg),
        Opnd::TensorAddress(base, coordinates) => {
            if let Base::Reg(reg) = base {
                see(*reg);
            }
            coordinates
                .iter()
                .for_each(|operand| visit_operand(operand, see));
        }
        Opnd::Vector(operands) => operands
            .iter()
            .for_each(|operand| visit_operand(operand, see)),
        Opnd::Pair(pair) => {
            visit_operand(&pair.0, see);
            visit_operand(&pair.1, see);
        }
        Opnd::Const(_)
        | Opnd::Special(..)
        | Opnd::Address(..)
        | Opnd::AddressOf(..)
        | Opnd::Label(_)
        | Opnd::Sink => {}
    }
}

/// The registers that some line mentions, in the order they were made.
fn used_registers(lines: &[Line]) -> Vec<Reg> {
    let mut used = HashSet::new();
    for line in lines {
        if let Line::Op(op) = line {
            visit(op, true, &mut |reg| {
                used.insert(reg);
            });
        }
    }
    let mut used: Vec<Reg> = used.into_iter().collect();
    used.sort_by_key(|reg| reg.0);
    used
}

/// The files that `.loc` points into.
#[derive(Default)]
struct Files {
    paths: Vec<&'static str>,
}

impl Files {
    fn loc(&mut self, place: CallSite) -> Loc {
        let index = self
            .paths
            .iter()
            .position(|path| *path == place.file())
            .unwrap_or_else(|| {
                self.paths.push(place.file());
                self.paths.len() - 1
            });
        Loc {
            file: index as u32 + 1,
            line: place.line(),
            column: place.column(),
            inlined: None,
            span: Span::NONE,
        }
    }

    fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.paths.iter().enumerate().map(|(index, path)| {
            Item::File(FileDirective {
                index: index as u32 + 1,
                path: path.replace('\\', "/"),
                stamp: None,
                span: Span::NONE,
            })
        })
    }
}

fn comment(text: &str) -> Statement {
    Statement::Comment(Comment {
        text: text.to_string(),
        trailing: false,
        span: Span::NONE,
    })
}

/// Per-thread arrays.
fn local_variables(rec: &Recorder, names: &Names) -> Vec<Statement> {
    let locals = rec.locals.borrow();
    locals
        .iter()
        .zip(&names.locals)
        .map(|(piece, name)| {
            Statement::Variable(Variable {
                align: Some(piece.align),
                dims: vec![Some(piece.bytes)],
                ..Variable::new(Space::Local, ScalarType::B8, name.clone())
            })
        })
        .collect()
}

/// Static shared arrays by name, or what lies where in the dynamic one.
fn shared_variables(rec: &Recorder, shared: &SharedLayout) -> Vec<Statement> {
    let pieces = rec.shared.borrow();
    let mut statements = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let name = &shared.names[index];
        if shared.dynamic {
            let (offset, bytes) = (shared.offsets[index], piece.bytes);
            statements.push(comment(&format!(
                "{DYNAMIC}+{offset}: {name}, {bytes} bytes"
            )));
        } else {
            statements.push(Statement::Variable(Variable {
                align: Some(piece.align),
                dims: vec![Some(piece.bytes)],
                ..Variable::new(Space::Shared, ScalarType::B8, name.clone())
            }));
        }
    }
    statements
}

/// The entry with its parameters and directives.
fn function(rec: &Recorder, header: &Header<'_>, names: &Names, body: Vec<Statement>) -> Function {
    let params = header
        .params
        .iter()
        .zip(&names.params)
        .map(|(param, name)| {
            let plain = |ty| Variable::new(Space::Param, ty, name.clone());
            match param.kind {
                ParamKind::Number(ty) => plain(ty.parse().unwrap_or(ScalarType::B32)),
                ParamKind::Pointer(_, align) => Variable {
                    pointer: Some(PointerInfo {
                        space: Some(Space::Global),
                        align: Some(align),
                    }),
                    ..plain(ScalarType::U64)
                },
                ParamKind::TensorMap => Variable {
                    align: Some(64),
                    dims: vec![Some(128)],
                    ..plain(ScalarType::B8)
                },
            }
        })
        .collect();
    let numbers = |name: &str, values: &[u32]| FunctionDirective::Numbers {
        name: name.into(),
        values: values.iter().map(|&n| n.into()).collect(),
        span: Span::NONE,
    };
    let mut directives = vec![numbers("reqntid", &rec.block)];
    if let Some(cluster) = rec.cluster {
        directives.push(numbers("explicitcluster", &[]));
        directives.push(numbers("reqnctapercluster", &cluster));
    }
    if let Some(blocks) = header.min_blocks {
        directives.push(numbers("minnctapersm", &[blocks]));
    }
    if let Some(registers) = rec.max_registers.get() {
        directives.push(numbers("maxnreg", &[registers]));
    }
    Function {
        linkage: Linkage::Visible,
        kind: FunctionKind::Entry,
        attributes: Vec::new(),
        returns: Vec::new(),
        name: header.name.into(),
        params,
        directives,
        body: Some(body),
        span: Span::NONE,
    }
}
