//! From recorded lines to a PTX module: names, layout, declarations.

use crate::emit::{Base, Line, Op, Opnd, Place, Recorder, Reg};
use crate::error::{BuildError, Problem};
use crate::params::{ParamInfo, ParamKind};
use crate::scalar::Class;
use crate::spec::{LaunchInfo, Report, SharedUse};
use heist_ptx::{
    BinaryOp, Comment, Constant, FileDirective, Function, FunctionDirective, FunctionKind, Guard,
    Instruction, Integer, Item, Linkage, Loc, Module, Name, Opcode, Operand, PointerInfo,
    RegisterName, Registers, ScalarType, SmolStr, Space, Span, Statement, Variable,
};
use std::collections::{HashMap, HashSet};

/// The most shared memory that a module may declare without asking at launch.
const STATIC_SHARED: u64 = 48 * 1024;

/// What the spec adds to the recorded body.
pub(crate) struct Header<'a> {
    pub(crate) name: &'a str,
    pub(crate) min_blocks: Option<u32>,
    pub(crate) locations: bool,
    pub(crate) params: Vec<ParamInfo>,
    pub(crate) place: Place,
}

/// What lowering gives.
pub(crate) struct Lowered {
    pub(crate) module: Module,
    pub(crate) launch: LaunchInfo,
    pub(crate) report: Report,
}

/// Where the pieces of shared memory lie.
struct SharedLayout {
    names: Vec<SmolStr>,
    offsets: Vec<u64>,
    total: u64,
    align: u32,
    dynamic: bool,
}

/// The name of the one array that holds everything when it is dynamic.
const DYNAMIC: &str = "dynamic_shared";

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
            pure: false,
        }));
    }

    let used = used_registers(&lines);
    let mut names = Names::new(rec, header, &shared, &used);
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
        },
        report: Report {
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
    let limit = rec.arch.max_shared();
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
        dynamic: total > STATIC_SHARED,
    })
}

/// The prologue without what nobody reads.
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
        if op.pure && !wanted {
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

/// The name of a register, a label, a piece of memory.
struct Names {
    registers: HashMap<Reg, Name>,
    labels: Vec<Name>,
    params: Vec<Name>,
    locals: Vec<Name>,
    shared: Vec<(Name, i64)>,
}

impl Names {
    fn new(rec: &Recorder, header: &Header<'_>, shared: &SharedLayout, used: &[Reg]) -> Names {
        let registers = rec.registers.borrow();
        let mut taken = HashSet::new();
        let mut names = HashMap::new();
        let mut counts: HashMap<Class, u32> = HashMap::new();
        for &reg in used {
            let info = &registers[reg.0 as usize];
            let name = match &info.name {
                Some(name) => unique(&format!("%{}", register_name(name)), &mut taken),
                None => {
                    let count = counts.entry(info.class).or_default();
                    *count += 1;
                    SmolStr::from(format!("{}{}", family(info.class), *count - 1))
                }
            };
            names.insert(reg, name);
        }
        let labels = rec.labels.borrow();
        let mut locals_taken = HashSet::new();
        Names {
            registers: names,
            labels: labels
                .iter()
                .enumerate()
                .map(|(index, what)| SmolStr::from(format!("$L{index}_{what}")))
                .collect(),
            params: (0..header.params.len())
                .map(|index| {
                    let param = header.params[index].name;
                    SmolStr::from(format!("{}_{param}", header.name))
                })
                .collect(),
            locals: rec
                .locals
                .borrow()
                .iter()
                .map(|piece| unique(&identifier(&piece.name), &mut locals_taken))
                .collect(),
            shared: (0..shared.names.len())
                .map(|index| {
                    if shared.dynamic {
                        (SmolStr::new(DYNAMIC), shared.offsets[index] as i64)
                    } else {
                        (shared.names[index].clone(), 0)
                    }
                })
                .collect(),
        }
    }

    /// `.reg` lines: a family for the unnamed ones of each class, and the named
    /// ones beside it.
    fn declare_registers(&mut self, rec: &Recorder, used: &[Reg]) -> Vec<Statement> {
        let registers = rec.registers.borrow();
        let mut families: Vec<(Class, u32, Vec<RegisterName>)> = CLASSES
            .iter()
            .map(|&class| (class, 0, Vec::new()))
            .collect();
        for &reg in used {
            let info = &registers[reg.0 as usize];
            let Some(entry) = families.iter_mut().find(|entry| entry.0 == info.class) else {
                continue;
            };
            match info.name {
                None => entry.1 += 1,
                Some(_) => entry.2.push(RegisterName {
                    name: self.registers[&reg].clone(),
                    count: None,
                    span: Span::NONE,
                }),
            }
        }
        let mut statements = Vec::new();
        for (class, count, named) in families {
            let mut names = Vec::new();
            if count > 0 {
                names.push(RegisterName {
                    name: family(class).into(),
                    count: Some(count),
                    span: Span::NONE,
                });
            }
            names.extend(named);
            for chunk in names.chunks(8) {
                statements.push(Statement::Registers(Registers {
                    vector: None,
                    ty: class_type(class),
                    names: chunk.to_vec(),
                }));
            }
        }
        statements
    }

    fn instruction(&self, op: &Op) -> Instruction {
        Instruction {
            guard: op.guard.map(|(reg, negated)| Guard {
                register: self.registers[&reg].clone(),
                negated,
            }),
            opcode: Opcode::from(op.opcode.clone()),
            operands: op.operands.iter().map(|o| self.operand(o)).collect(),
            span: Span::NONE,
        }
    }

    fn operand(&self, operand: &Opnd) -> Operand {
        match operand {
            Opnd::Reg(reg) => Operand::Name(self.registers[reg].clone()),
            Opnd::Const(constant) => Operand::Constant(constant.clone()),
            Opnd::Special(name, None) => Operand::name(*name),
            Opnd::Special(name, Some(part)) => Operand::Part {
                name: (*name).into(),
                part: *part,
            },
            Opnd::Address(base, offset) => {
                let (name, more) = self.base(*base);
                Operand::address(name, offset + more)
            }
            Opnd::AddressOf(base, offset) => {
                let (name, more) = self.base(*base);
                match offset + more {
                    0 => Operand::Name(name),
                    offset => Operand::Constant(Constant::Binary(
                        BinaryOp::Add,
                        Box::new((
                            Constant::Symbol(name),
                            Constant::Int(Integer::decimal(offset)),
                        )),
                    )),
                }
            }
            Opnd::Label(label) => Operand::Name(self.labels[label.0 as usize].clone()),
            Opnd::Vector(lanes) => Operand::Vector(lanes.iter().map(|o| self.operand(o)).collect()),
            Opnd::Pair(pair) => {
                Operand::Pair(Box::new((self.operand(&pair.0), self.operand(&pair.1))))
            }
            Opnd::Sink => Operand::Sink,
        }
    }

    fn base(&self, base: Base) -> (Name, i64) {
        match base {
            Base::Reg(reg) => (self.registers[&reg].clone(), 0),
            Base::Shared(id) => self.shared[id.0 as usize].clone(),
            Base::Param(index) => (self.params[index as usize].clone(), 0),
            Base::Local(index) => (self.locals[index as usize].clone(), 0),
        }
    }
}

/// The classes in the order they are declared.
const CLASSES: [Class; 7] = [
    Class::Pred,
    Class::B16,
    Class::B32,
    Class::B64,
    Class::F32,
    Class::F64,
    Class::B128,
];

fn family(class: Class) -> &'static str {
    match class {
        Class::Pred => "%p",
        Class::B16 => "%rs",
        Class::B32 => "%r",
        Class::B64 => "%rd",
        Class::F32 => "%f",
        Class::F64 => "%fd",
        Class::B128 => "%rq",
    }
}

fn class_type(class: Class) -> ScalarType {
    match class {
        Class::Pred => ScalarType::Pred,
        Class::B16 => ScalarType::B16,
        Class::B32 => ScalarType::B32,
        Class::B64 => ScalarType::B64,
        Class::F32 => ScalarType::F32,
        Class::F64 => ScalarType::F64,
        Class::B128 => ScalarType::B128,
    }
}

/// A given name as part of a register's: without what PTX does not allow, and
/// never that of a special register or of a family's member.
fn register_name(name: &str) -> String {
    let name = identifier(name);
    let family_member = ["p", "rs", "r", "rd", "f", "fd", "rq"]
        .iter()
        .any(|prefix| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
        });
    let special = [
        "tid",
        "ntid",
        "laneid",
        "warpid",
        "nwarpid",
        "ctaid",
        "nctaid",
        "smid",
        "nsmid",
        "gridid",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "total_smem_size",
        "dynamic_smem_size",
        "aggr_smem_size",
        "current_graph_exec",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
    ]
    .contains(&name.as_str());
    if family_member || special || name.starts_with("pm") || name.starts_with("envreg") {
        format!("{name}_value")
    } else {
        name
    }
}

/// `name` with everything that an identifier can't have replaced.
fn identifier(name: &str) -> String {
    let mut text: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        text.insert(0, 'v');
    }
    text
}

/// `name`, or `name_2`, `name_3`, ... where it is taken.
fn unique(name: &str, taken: &mut HashSet<SmolStr>) -> SmolStr {
    let mut candidate = SmolStr::new(name);
    let mut count = 1;
    while !taken.insert(candidate.clone()) {
        count += 1;
        candidate = SmolStr::from(format!("{name}_{count}"));
    }
    candidate
}

/// The files that `.loc` points into.
#[derive(Default)]
struct Files {
    paths: Vec<&'static str>,
}

impl Files {
    fn loc(&mut self, place: Place) -> Loc {
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
