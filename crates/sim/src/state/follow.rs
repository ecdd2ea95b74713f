//! Taint tracking: what is known of the followed registers.

use super::memory::window::Window;
use crate::code::Bloom;
use crate::lanes::Mask;
use crate::race::clock::Agent;
use crate::special::Axis;
use rustc_hash::FxHashMap;

/// The origin of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stock {
    /// No tracked origin.
    #[default]
    Other,
    /// A coordinate of a granted cluster's first block, as it was decoded, and the
    /// number of the grant.
    First(Axis, u32),
    /// The block's place in its cluster, as it was read.
    Own(ClusterRegister),
    /// Computed from the first block's coordinates alone.
    FromFirst(u32),
    /// Computed from the block's own rank, and perhaps also from the first block's coordinates.
    FromOwn(Option<u32>),
}

impl Stock {
    /// The origin of a value computed from both.
    pub(crate) fn mixed(self, other: Stock) -> Stock {
        use Stock::*;
        let grant = self.grant().or(other.grant());
        match (self, other) {
            (Own(_) | FromOwn(_), _) | (_, Own(_) | FromOwn(_)) => FromOwn(grant),
            _ => grant.map_or(Other, FromFirst),
        }
    }

    /// The grant that it comes from.
    pub(crate) fn grant(self) -> Option<u32> {
        match self {
            Stock::First(_, grant) | Stock::FromFirst(grant) => Some(grant),
            Stock::FromOwn(grant) => grant,
            Stock::Other | Stock::Own(_) => None,
        }
    }
}

/// A special register that says where in its cluster a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterRegister {
    /// `%cluster_ctaid`.
    Offset(Axis),
    /// `%cluster_ctarank`.
    Rank,
}

/// Where a value comes from that is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The instruction that read it first.
    pub(crate) pc: u32,
    pub(crate) lacks: Lacks,
    /// Whether it came beside bytes that are defined, as padding does.
    pub(crate) beside: bool,
}

impl Origin {
    pub(crate) fn new(pc: u32, lacks: Lacks) -> Origin {
        let beside = false;
        Origin { pc, lacks, beside }
    }
}

/// Memory that undefined values are followed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// An allocation of global memory.
    Global(usize),
    /// The shared memory of the block with this rank.
    Shared(u32),
    /// Each lane's own.
    Local,
}

/// What gave a value that is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// The row of an uninitialised register.
    Register(u32),
    /// A lane that took no part in a shuffle.
    Lane,
    /// A column of tensor memory that nothing has written.
    Column(u32),
    /// A byte of memory, by its offset, that nothing has written.
    Byte(Memory, u64),
    /// An integer that was divided by zero.
    Quotient,
    /// An order before another thread's write: see [`super::late`].
    Late,
}

/// The lanes in which a value is not defined, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) lanes: Mask,
    /// None of a register that nothing has set, and that was not read yet.
    pub(crate) origin: Option<Origin>,
}

impl Doubt {
    pub(crate) fn add(&mut self, lanes: Mask, origin: Option<Origin>) {
        if lanes != 0 {
            self.lanes |= lanes;
            self.origin = self.origin.or(origin);
        }
    }

    /// Some lanes are as another value's.
    pub(crate) fn set(&mut self, mask: Mask, to: Doubt) {
        self.lanes &= !mask;
        if self.lanes == 0 {
            self.origin = None;
        }
        self.add(to.lanes & mask, to.origin);
    }

    pub(crate) fn within(self, mask: Mask) -> Doubt {
        Doubt {
            lanes: self.lanes & mask,
            ..self
        }
    }
}

/// For each byte of a register the lanes in which it is not defined.
pub(crate) type Bytes = [Mask; 16];

/// The undefined values of a warp, see [`crate::access::doubt`].
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// By rows of the kernel's window, and by numbers of predicates.
    rows: Vec<Doubt>,
    pub(crate) preds: Vec<Doubt>,
    /// The bytes of registers that are defined in part; of others no byte is where the register is not.
    parts: FxHashMap<u32, Bytes>,
    /// Those that are not defined.
    pub(crate) some: Bloom,
    /// While a store of one runs: where it goes: the memory, lanes, and offsets.
    pub(crate) stores: Option<Vec<(Memory, Mask, [u64; crate::lanes::LANES])>>,
}

impl Doubts {
    /// The lanes in which a register is not defined, in any byte.
    pub(crate) fn row(&self, row: u32) -> Doubt {
        self.rows.get(row as usize).copied().unwrap_or_default()
    }

    /// The bytes of a register that are not defined.
    pub(crate) fn bytes(&self, row: u32) -> Bytes {
        let lanes = self.row(row).lanes;
        match self.parts.get(&row) {
            Some(bytes) => bytes.map(|byte| byte & lanes),
            None => [lanes; 16],
        }
    }

    /// A register is as another value in some lanes.
    pub(crate) fn set_row(&mut self, row: u32, mask: Mask, to: Doubt) {
        self.set_bytes(row, mask, [to.lanes; 16], to.origin);
    }

    /// Some bytes of a register are not defined in some lanes, and the others are.
    pub(crate) fn set_bytes(&mut self, row: u32, mask: Mask, bytes: Bytes, origin: Option<Origin>) {
        let mut all = self.bytes(row);
        for (byte, to) in all.iter_mut().zip(bytes) {
            *byte = *byte & !mask | to & mask;
        }
        let lanes = bytes.iter().fold(0, |lanes, byte| lanes | byte);
        self.some.add(Bloom::of([row].into_iter(), [].into_iter()));
        at(&mut self.rows, row).set(mask, Doubt { lanes, origin });
        match all.iter().all(|byte| *byte == all[0]) {
            true => self.parts.remove(&row),
            false => self.parts.insert(row, all),
        };
    }

    /// A register is not defined in some more lanes.
    pub(crate) fn add_row(&mut self, row: u32, lanes: Mask, origin: Option<Origin>) {
        if lanes != 0 {
            self.set_row(row, lanes, Doubt { lanes, origin });
        }
    }

    /// A register counts as defined in some lanes.
    pub(crate) fn clear_row(&mut self, row: u32, lanes: Mask) {
        self.set_row(row, lanes, Doubt::default());
    }

    pub(crate) fn pred(&mut self, pred: u32) -> &mut Doubt {
        self.some.add(Bloom::of([].into_iter(), [pred].into_iter()));
        at(&mut self.preds, pred)
    }

    /// Forgets what is defined by now; whether everything is.
    pub(crate) fn is_over(&mut self) -> bool {
        self.some = Bloom::of(undefined(&self.rows), undefined(&self.preds));
        self.some == Bloom::default()
    }
}

/// The numbers of values that are not defined.
fn undefined(list: &[Doubt]) -> impl Iterator<Item = u32> {
    let undefined = |(number, doubt): (u32, &Doubt)| (doubt.lanes != 0).then_some(number);
    (0..).zip(list).filter_map(undefined)
}

fn at(list: &mut Vec<Doubt>, at: u32) -> &mut Doubt {
    let at = at as usize;
    if list.len() <= at {
        list.resize(at + 1, Doubt::default());
    }
    &mut list[at]
}

/// A strong load whose value may lack another thread's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The space that it names, and the address.
    pub(crate) place: (Option<Window>, u64),
    pub(crate) pc: u32,
    pub(crate) lacks: Written,
}

/// A write, and who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) agent: Agent,
    pub(crate) lane: u8,
    pub(crate) pc: u32,
}
