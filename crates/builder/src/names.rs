//! What registers, labels and memory are called in the finished PTX.

use crate::emit::{Base, Op, Opnd, Recorder, Reg};
use crate::lower::{DYNAMIC, Header, SharedLayout};
use crate::scalar::Class;
use heist_ptx::{
    Address, AddressBase, BinaryOp, Constant, Guard, Instruction, Integer, Name, Opcode, Operand,
    RegisterName, Registers, ScalarType, SmolStr, Span, Statement,
};
use std::collections::{HashMap, HashSet};

/// The name of a register, a label, a piece of memory.
pub(crate) struct Names {
    pub(crate) registers: HashMap<Reg, Name>,
    pub(crate) labels: Vec<Name>,
    pub(crate) params: Vec<Name>,
    pub(crate) locals: Vec<Name>,
    pub(crate) shared: Vec<(Name, i64)>,
}

impl Names {
    pub(crate) fn new(
        rec: &Recorder,
        header: &Header<'_>,
        shared: &SharedLayout,
        used: &[Reg],
    ) -> Names {
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
        let mut locals_taken = shared.names.iter().cloned().collect();
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
    pub(crate) fn declare_registers(&self, rec: &Recorder, used: &[Reg]) -> Vec<Statement> {
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

    pub(crate) fn instruction(&self, op: &Op) -> Instruction {
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
            Opnd::TensorAddress(base, coordinates) => {
                let (name, offset) = self.base(*base);
                Operand::Address(Address {
                    base: AddressBase::Name(name),
                    offset,
                    plus_zero: false,
                    rest: vec![Operand::Vector(
                        coordinates.iter().map(|o| self.operand(o)).collect(),
                    )],
                })
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
pub(crate) fn identifier(name: &str) -> String {
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
pub(crate) fn unique(name: &str, taken: &mut HashSet<SmolStr>) -> SmolStr {
    let mut candidate = SmolStr::new(name);
    let mut count = 1;
    while !taken.insert(candidate.clone()) {
        count += 1;
        candidate = SmolStr::from(format!("{name}_{count}"));
    }
    candidate
}
