//! What each family of instructions does: how it is decoded, and how it runs.
//!
//! A family is a module with a `decode` function that takes an instruction apart
//! and emits one or more [`crate::code::Instr`]s. [`decode`] finds the family by
//! the opcode's first part; to add one, write a module and name it there.

pub(crate) mod access;
pub(crate) mod atomic;
pub(crate) mod barrier;
pub(crate) mod bits;
pub(crate) mod builtin;
pub(crate) mod bulk;
pub(crate) mod call;
pub(crate) mod clc;
pub(crate) mod cluster;
pub(crate) mod compare;
pub(crate) mod conflict;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod cp_async;
pub(crate) mod exit;
pub(crate) mod fence;
pub(crate) mod flight;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod hint;
pub(crate) mod integer;
pub(crate) mod load;
pub(crate) mod map;
pub(crate) mod map_edit;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod moves;
pub(crate) mod order;
pub(crate) mod pattern;
pub(crate) mod qualifier;
pub(crate) mod registers;
pub(crate) mod stack;
pub(crate) mod store;
pub(crate) mod tensor_map;
pub(crate) mod video;
pub(crate) mod warp;
pub(crate) mod wgmma;
mod word;

use crate::decode::{Decoded, Decoder};
use crate::watch::Role;
use heist_arith::float::Rounding;
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// Decodes one instruction.
pub(crate) fn decode<'m>(d: &mut Decoder<'m>, i: &'m Instruction) -> Decoded<()> {
    let (base, mods) = (i.opcode.base(), Mods::of(i));
    d.moves = base == "mov";
    d.trail.role = match base {
        "mov" => Role::Moves,
        "cvt" | "shfl" => Role::Copies,
        "add" if mods.ty().is_some_and(|ty| ty.bits() == 32) => Role::Adds,
        _ => Role::Computes,
    };
    d.trail.pure = computes(base);
    d.trail.loads = matches!(base, "ld" | "ldu" | "atom" | "ldmatrix");
    d.pipe = crate::decode::pipe::Pipe::of(i);
    match base {
        "add" | "sub" | "mul" | "mad" | "div" | "rem" | "abs" | "neg" | "min" | "max" | "fma"
        | "sad" | "mul24" | "mad24" | "dp4a" | "dp2a" | "addc" | "subc" | "madc" | "rcp"
        | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "testp" | "copysign" => {
            match mods.arithmetic_type() {
                Some(ty) if matches!(ty, ScalarType::F32 | ScalarType::F64 | ScalarType::F32x2) => {
                    float::decode(d, i, &mods, ty)
                }
                Some(ty)
                    if matches!(
                        ty,
                        ScalarType::F16 | ScalarType::F16x2 | ScalarType::Bf16 | ScalarType::Bf16x2
                    ) =>
                {
                    half::decode(d, i, &mods, ty)
                }
                Some(ty) => integer::decode(d, i, &mods, ty),
                None => Err(d.wrong(
                    rule::MISSING_MODIFIER,
                    format!("`{}` names no type", i.opcode),
                )),
            }
        }
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "popc" | "clz"
        | "brev" | "bfind" | "fns" | "bfe" | "bfi" | "bmsk" | "szext" | "prmt" => {
            bits::decode(d, i, &mods)
        }
        "setp" | "set" | "selp" | "slct" => compare::decode(d, i, &mods),
        "cvt" => convert::decode(d, i, &mods),
        "mov" | "cvta" | "isspacep" => moves::decode(d, i, &mods),
        "ld" | "ldu" => load::decode(d, i, &mods),
        "st" if mods.has("async") => bulk::decode_remote(d, i, &mods),
        "st" => store::decode(d, i, &mods),
        "bra" | "brx" | "exit" | "ret" | "trap" | "brkpt" | "nanosleep" | "pmevent" => {
            control::decode(d, i, &mods)
        }
        "call" => call::decode(d, i, &mods),
        "bar" | "barrier" => barrier::decode(d, i, &mods),
        "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => warp::decode(d, i, &mods),
        "atom" | "red" => atomic::decode(d, i, &mods),
        "cp" if mods.has("bulk") => bulk::decode(d, i, &mods),
        "cp" => cp_async::decode(d, i, &mods),
        "fence" | "membar" => fence::decode(d, i, &mods),
        "mbarrier" => mbarrier::decode(d, i, &mods),
        "mapa" | "getctarank" => cluster::decode(d, i, &mods),
        "clusterlaunchcontrol" => clc::decode(d, i, &mods),
        "ldmatrix" | "stmatrix" | "movmatrix" | "mma" | "wmma" => matrix::decode(d, i, &mods),
        "tensormap" => map_edit::decode(d, i, &mods),
        "wgmma" => wgmma::decode(d, i, &mods),
        "createpolicy" | "griddepcontrol" | "prefetch" | "prefetchu" | "discard"
        | "applypriority" => hint::decode(d, i, &mods),
        "setmaxnreg" => registers::decode(d, i, &mods),
        "alloca" | "stacksave" | "stackrestore" => stack::decode(d, i, &mods),
        base if video::is_known(base) => video::decode(d, i, &mods),
        "tcgen05" => Err(d.unsupported(i, "fifth-generation tensor cores are not simulated")),
        "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" | "istypep" => {
            Err(d.unsupported(i, "textures and surfaces are not simulated"))
        }
        _ => Err(d.unsupported(i, "there is nothing here that can run it")),
    }
}

/// Whether an instruction makes its results of registers alone, and does nothing else.
pub(crate) fn computes(base: &str) -> bool {
    matches!(
        base,
        "add"
            | "sub"
            | "mul"
            | "mad"
            | "div"
            | "rem"
            | "abs"
            | "neg"
            | "min"
            | "max"
            | "fma"
            | "sad"
            | "mul24"
            | "mad24"
            | "dp4a"
            | "dp2a"
            | "addc"
            | "subc"
            | "madc"
            | "rcp"
            | "sqrt"
            | "rsqrt"
            | "sin"
            | "cos"
            | "lg2"
            | "ex2"
            | "tanh"
            | "copysign"
            | "and"
            | "or"
            | "xor"
            | "not"
            | "cnot"
            | "shl"
            | "shr"
            | "shf"
            | "lop3"
            | "popc"
            | "clz"
            | "brev"
            | "bfind"
            | "fns"
            | "bfe"
            | "bfi"
            | "bmsk"
            | "szext"
            | "prmt"
            | "set"
            | "selp"
            | "slct"
            | "cvt"
            | "mov"
            | "cvta"
            | "shfl"
            | "mma"
            | "movmatrix"
    ) || video::is_known(base)
}

/// The modifiers of an opcode.
pub(crate) struct Mods<'i> {
    pub(crate) all: Vec<&'i str>,
}

impl<'i> Mods<'i> {
    pub(crate) fn of(i: &'i Instruction) -> Mods<'i> {
        Mods {
            all: i.opcode.modifiers().collect(),
        }
    }

    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.all.contains(&modifier)
    }

    /// The types among the modifiers, in order.
    pub(crate) fn types(&self) -> impl DoubleEndedIterator<Item = ScalarType> {
        self.all.iter().filter_map(|text| text.parse().ok())
    }

    /// The last type.
    pub(crate) fn ty(&self) -> Option<ScalarType> {
        self.types().next_back()
    }

    /// The type that arithmetic is in: the first one, since `dp4a` has two and
    /// mixed-precision `fma` ends with the narrow one.
    fn arithmetic_type(&self) -> Option<ScalarType> {
        self.types().next()
    }

    /// How results are rounded, if the opcode says.
    pub(crate) fn rounding(&self) -> Option<Rounding> {
        self.all.iter().find_map(|&text| {
            Some(match text {
                "rn" | "rni" => Rounding::Nearest,
                "rna" => Rounding::NearestAway,
                "rz" | "rzi" => Rounding::Zero,
                "rm" | "rmi" => Rounding::Down,
                "rp" | "rpi" => Rounding::Up,
                _ => return None,
            })
        })
    }

    /// Modifiers that are none of `known`.
    pub(crate) fn other_than(&self, known: &[&str]) -> Option<&'i str> {
        self.all
            .iter()
            .copied()
            .find(|text| !known.contains(text) && text.parse::<ScalarType>().is_err())
    }
}

/// The operands, if there are `count` of them.
pub(crate) fn operands<'i>(
    d: &Decoder<'_>,
    i: &'i Instruction,
    count: usize,
) -> Decoded<&'i [Operand]> {
    if i.operands.len() == count {
        Ok(&i.operands)
    } else {
        Err(d.wrong(
            rule::OPERAND_COUNT,
            format!(
                "`{}` takes {count} operands, and here are {}",
                i.opcode,
                i.operands.len()
            ),
        ))
    }
}

/// Refuses a modifier that the family does not know.
pub(crate) fn only(
    d: &Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    known: &[&str],
) -> Decoded<()> {
    match mods.other_than(known) {
        None => Ok(()),
        Some(other) => Err(d.unsupported(i, &format!("`.{other}` is not known here"))),
    }
}
