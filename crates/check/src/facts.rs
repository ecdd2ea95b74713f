//! Flow-insensitive facts about registers: address spaces and congruences.
//!
//! For each register: which memories it may point into, and what it is modulo a
//! power of two. Both hold for every value that the register ever has, so an excluded value is
//! impossible; a fact that says "may" means that some assignment makes it so.

use crate::flow::{Flow, Op, Register};
use heist_ptx::isa::space_of;
use heist_ptx::{AddressBase, BinaryOp, Constant, Operand, Space};

/// The memories that a pointer may point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Spaces(u8);

impl Spaces {
    pub(crate) const LOCAL: Spaces = Spaces(1);
    pub(crate) const SHARED: Spaces = Spaces(2);
    pub(crate) const GLOBAL: Spaces = Spaces(4);
    pub(crate) const CONST: Spaces = Spaces(8);
    pub(crate) const PARAM: Spaces = Spaces(16);
    /// Could be anything.
    const UNKNOWN: Spaces = Spaces(32);

    fn of(space: Space) -> Spaces {
        match space {
            Space::Local => Spaces::LOCAL,
            Space::Shared => Spaces::SHARED,
            Space::Global => Spaces::GLOBAL,
            Space::Const => Spaces::CONST,
            Space::Param => Spaces::PARAM,
            _ => Spaces::default(),
        }
    }

    fn with(self, other: Spaces) -> Spaces {
        Spaces(self.0 | other.0)
    }

    /// Whether one of the assignments surely puts a pointer into `space` here.
    pub(crate) fn includes(self, space: Spaces) -> bool {
        self.0 & space.0 != 0
    }

    /// Whether it can only be a pointer into `space`.
    pub(crate) fn only(self, space: Spaces) -> bool {
        self == space
    }
}

/// A value is `residue` modulo `modulus`, a power of two; modulus 1 says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Congruence {
    pub(crate) modulus: u64,
    pub(crate) residue: u64,
}

/// A constant is congruent to itself modulo more than any address has.
const EXACT: u64 = 1 << 62;

impl Congruence {
    const ANY: Congruence = Congruence {
        modulus: 1,
        residue: 0,
    };

    fn exactly(value: u64) -> Congruence {
        Congruence::new(EXACT, value)
    }

    fn multiple_of(size: u64) -> Congruence {
        Congruence::new(1 << size.max(1).trailing_zeros(), 0)
    }

    fn new(modulus: u64, residue: u64) -> Congruence {
        Congruence {
            modulus,
            residue: residue & (modulus - 1),
        }
    }

    /// The join: what holds for both.
    fn join(self, other: Congruence) -> Congruence {
        let modulus = self.modulus.min(other.modulus);
        let differ = (self.residue ^ other.residue) & (modulus - 1);
        let modulus = if differ == 0 {
            modulus
        } else {
            1 << differ.trailing_zeros()
        };
        Congruence::new(modulus, self.residue)
    }

    fn add(self, other: Congruence) -> Congruence {
        let modulus = self.modulus.min(other.modulus);
        Congruence::new(modulus, self.residue.wrapping_add(other.residue))
    }

    fn negate(self) -> Congruence {
        Congruence::new(self.modulus, self.residue.wrapping_neg())
    }

    fn shift_left(self, by: u64) -> Congruence {
        if by >= 62 {
            return Congruence::multiple_of(EXACT);
        }
        let modulus = self.modulus.checked_shl(by as u32).unwrap_or(0);
        let modulus = if modulus == 0 || modulus > EXACT {
            EXACT
        } else {
            modulus
        };
        Congruence::new(modulus, self.residue << by)
    }

    fn multiply(self, other: Congruence) -> Congruence {
        // (m·a + r)(n·b + s): every product but r·s has a factor m·s, n·r or m·n.
        let (m, r) = (self.modulus, self.residue);
        let (n, s) = (other.modulus, other.residue);
        let low = |x: u64, y: u64| {
            let bits = x.trailing_zeros().min(62) + y.trailing_zeros().min(62);
            1u64 << bits.min(62)
        };
        let modulus = low(m, s).min(low(n, r)).min(low(m, n)).min(EXACT);
        Congruence::new(modulus, r.wrapping_mul(s))
    }

    /// The low bits that a mask leaves are known to be zero where the mask is.
    fn and(self, mask: u64) -> Congruence {
        let zeros = 1u64 << mask.trailing_zeros().min(62);
        if zeros >= self.modulus {
            Congruence::new(zeros, 0)
        } else {
            Congruence::new(self.modulus, self.residue & mask)
        }
    }

    /// The bits that a mask sets are known; compilers write `2 * i + 1` as `i' | 1`.
    fn or(self, mask: u64) -> Congruence {
        let known = ((self.modulus - 1) | mask).trailing_ones().min(62);
        Congruence::new(1 << known, self.residue | mask)
    }
}

/// What is known of one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) spaces: Spaces,
    pub(crate) congruence: Congruence,
}

impl Fact {
    const UNKNOWN: Fact = Fact {
        spaces: Spaces::UNKNOWN,
        congruence: Congruence::ANY,
    };

    fn number(congruence: Congruence) -> Fact {
        Fact {
            spaces: Spaces(0),
            congruence,
        }
    }

    fn join(self, other: Fact) -> Fact {
        Fact {
            spaces: self.spaces.with(other.spaces),
            congruence: self.congruence.join(other.congruence),
        }
    }
}

/// The facts of a function.
pub(crate) struct Facts {
    registers: Vec<Option<Fact>>,
}

impl Facts {
    pub(crate) fn of(flow: &Flow<'_>) -> Facts {
        let mut facts = Facts {
            registers: vec![None; flow.registers],
        };
        // The facts descend in a lattice: a congruence loses precision at most 62 times, and in
        // practice a few rounds reach the fixed point.
        for _ in 0..64 {
            let mut changed = false;
            for op in &flow.ops {
                changed |= facts.apply(flow, op);
            }
            if !changed {
                return facts;
            }
        }
        facts.registers.fill(Some(Fact::UNKNOWN));
        facts
    }

    /// What is known of the address in an operand such as `[%rd1+16]`.
    pub(crate) fn address(&self, flow: &Flow<'_>, op: &Op<'_>, operand: &Operand) -> Fact {
        let Operand::Address(address) = operand else {
            return self.operand(flow, op, operand).unwrap_or(Fact::UNKNOWN);
        };
        let base = match &address.base {
            AddressBase::Name(name) => self.named(flow, op, name).unwrap_or(Fact::UNKNOWN),
            AddressBase::Part { .. } => Fact::UNKNOWN,
            AddressBase::Absolute(at) => Fact::number(Congruence::exactly(*at)),
        };
        Fact {
            spaces: base.spaces,
            congruence: base
                .congruence
                .add(Congruence::exactly(address.offset as u64)),
        }
    }

    /// The fact of a name: a register's, or that of a variable's address.
    fn named(&self, flow: &Flow<'_>, op: &Op<'_>, name: &heist_ptx::Name) -> Option<Fact> {
        if let Some(register) = op.roles.register_named(name) {
            return self.registers[register.index()];
        }
        let variable = flow.variable(name)?;
        Some(Fact {
            spaces: Spaces::of(variable.space),
            congruence: Congruence::multiple_of(variable.alignment()),
        })
    }

    /// `None` for a register of which nothing is known yet.
    fn operand(&self, flow: &Flow<'_>, op: &Op<'_>, operand: &Operand) -> Option<Fact> {
        match operand {
            Operand::Name(name) => match self.named(flow, op, name) {
                Some(fact) => Some(fact),
                None if op.roles.register_named(name).is_some() => None,
                None => Some(Fact::UNKNOWN),
            },
            Operand::Constant(Constant::Int(int)) => {
                Some(Fact::number(Congruence::exactly(int.bits())))
            }
            Operand::Constant(Constant::Binary(BinaryOp::Add, sides)) => {
                match (&sides.0, &sides.1) {
                    (Constant::Symbol(name), Constant::Int(int)) => {
                        let base = self.named(flow, op, name)?;
                        Some(Fact {
                            spaces: base.spaces,
                            congruence: base.congruence.add(Congruence::exactly(int.bits())),
                        })
                    }
                    _ => Some(Fact::UNKNOWN),
                }
            }
            _ => Some(Fact::UNKNOWN),
        }
    }

    /// Applies the transfer function of one instruction; says whether a fact changed.
    fn apply(&mut self, flow: &Flow<'_>, op: &Op<'_>) -> bool {
        let [written] = op.roles.writes[..] else {
            // Several results at once come from memory or from a unit that is not modelled.
            let mut changed = false;
            for &register in &op.roles.writes {
                changed |= self.assign(register, Fact::UNKNOWN);
            }
            return changed;
        };
        match self.result(flow, op) {
            Some(fact) => self.assign(written, fact),
            None => false,
        }
    }

    fn assign(&mut self, register: Register, fact: Fact) -> bool {
        let slot = &mut self.registers[register.index()];
        let joined = slot.map_or(fact, |before| before.join(fact));
        let changed = *slot != Some(joined);
        *slot = Some(joined);
        changed
    }

    /// What an instruction with one result gives; `None` while an input is not known yet.
    fn result(&self, flow: &Flow<'_>, op: &Op<'_>) -> Option<Fact> {
        let operand = |at: usize| match op.instruction.operands.get(at) {
            Some(operand) => self.operand(flow, op, operand),
            None => Some(Fact::UNKNOWN),
        };
        let opcode = &op.instruction.opcode;
        Some(match opcode.base() {
            "mov" | "cvt" if op.instruction.operands.len() == 2 => {
                match &op.instruction.operands[1] {
                    Operand::Vector(_) => Fact::UNKNOWN,
                    _ => operand(1)?,
                }
            }
            "cvta" => {
                let inner = operand(1)?;
                match space_of(opcode).map(Spaces::of) {
                    // The conversion says what it points into, unless we know better.
                    Some(space) if !inner.spaces.includes(Spaces(31)) => Fact {
                        spaces: space,
                        ..inner
                    },
                    _ => inner,
                }
            }
            "add" => pointer_sum(operand(1)?, operand(2)?),
            "sub" => {
                let (a, b) = (operand(1)?, operand(2)?);
                Fact {
                    spaces: a.spaces,
                    congruence: a.congruence.add(b.congruence.negate()),
                }
            }
            "mul" if !opcode.has("hi") => {
                Fact::number(operand(1)?.congruence.multiply(operand(2)?.congruence))
            }
            "mad" if !opcode.has("hi") => {
                let product = operand(1)?.congruence.multiply(operand(2)?.congruence);
                pointer_sum(operand(3)?, Fact::number(product))
            }
            "shl" => {
                let (a, by) = (operand(1)?, operand(2)?);
                match by.congruence.modulus {
                    EXACT => Fact::number(a.congruence.shift_left(by.congruence.residue)),
                    _ => Fact::number(Congruence::ANY),
                }
            }
            "and" => {
                let (a, b) = (operand(1)?, operand(2)?);
                match (a.congruence.modulus, b.congruence.modulus) {
                    (_, EXACT) => Fact {
                        spaces: a.spaces,
                        congruence: a.congruence.and(b.congruence.residue),
                    },
                    (EXACT, _) => Fact {
                        spaces: b.spaces,
                        congruence: b.congruence.and(a.congruence.residue),
                    },
                    _ => Fact::UNKNOWN,
                }
            }
            "or" => {
                let (a, b) = (operand(1)?, operand(2)?);
                match (a.congruence.modulus, b.congruence.modulus) {
                    (_, EXACT) => Fact {
                        spaces: a.spaces,
                        congruence: a.congruence.or(b.congruence.residue),
                    },
                    (EXACT, _) => Fact {
                        spaces: b.spaces,
                        congruence: b.congruence.or(a.congruence.residue),
                    },
                    _ => Fact::UNKNOWN,
                }
            }
            "selp" => operand(1)?.join(operand(2)?),
            "ld" => self.parameter(flow, op),
            _ => Fact::UNKNOWN,
        })
    }

    /// A kernel parameter that says what it points to; nothing is known of what other memory holds.
    fn parameter(&self, flow: &Flow<'_>, op: &Op<'_>) -> Fact {
        let pointer = match op.instruction.operands.get(1) {
            Some(Operand::Address(address)) => match &address.base {
                AddressBase::Name(name) => flow
                    .function
                    .params
                    .iter()
                    .find(|parameter| parameter.name == *name)
                    .and_then(|parameter| parameter.pointer),
                _ => None,
            },
            _ => None,
        };
        match pointer {
            Some(pointer) => Fact {
                spaces: pointer.space.map_or(Spaces::UNKNOWN, Spaces::of),
                congruence: Congruence::multiple_of(pointer.align.map_or(1, u64::from)),
            },
            None => Fact::UNKNOWN,
        }
    }
}

/// A pointer and a distance, in either order.
fn pointer_sum(a: Fact, b: Fact) -> Fact {
    let known = |fact: Fact| fact.spaces.includes(Spaces(31));
    let spaces = match (known(a), known(b)) {
        (true, false) => Spaces(a.spaces.0 & 31),
        (false, true) => Spaces(b.spaces.0 & 31),
        _ => a.spaces.with(b.spaces),
    };
    Fact {
        spaces,
        congruence: a.congruence.add(b.congruence),
    }
}
