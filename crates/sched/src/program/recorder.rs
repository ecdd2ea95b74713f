//! The recorder of a policy: every operation on its values becomes a step.

use super::step::{Op, Program, Section, Step, Type, answer};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Not, Shr, Sub};

/// What a portable policy can compute with: `u32`, `u64` and `bool`.
pub trait PortableType: Copy + 'static {
    /// How a program calls it.
    const TYPE: Type;
    /// Its bits, in the low end.
    fn bits(self) -> u64;
}

impl PortableType for u32 {
    const TYPE: Type = Type::U32;
    fn bits(self) -> u64 {
        self.into()
    }
}

impl PortableType for u64 {
    const TYPE: Type = Type::U64;
    fn bits(self) -> u64 {
        self
    }
}

impl PortableType for bool {
    const TYPE: Type = Type::Bool;
    fn bits(self) -> u64 {
        self.into()
    }
}

/// A number: a whole one that can be counted with.
pub trait Whole: PortableType {}
impl Whole for u32 {}
impl Whole for u64 {}

/// Records a policy: its methods append steps to the program.
pub struct Writer {
    program: RefCell<Program>,
    section: RefCell<Section>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({:?})", self.section.borrow())
    }
}

/// A value of a program that is being written.
pub struct Num<'w, T> {
    writer: &'w Writer,
    at: u16,
    kind: PhantomData<T>,
}

impl<T> Clone for Num<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Num<'_, T> {}

impl<T: PortableType> fmt::Debug for Num<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}: {}", self.at, T::TYPE)
    }
}

/// What a policy remembers between its callbacks.
pub struct Slot<'w, T> {
    writer: &'w Writer,
    number: u32,
    kind: PhantomData<T>,
}

impl<T> Clone for Slot<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slot<'_, T> {}

impl<T: PortableType> fmt::Debug for Slot<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state {}: {}", self.number, T::TYPE)
    }
}

/// A value, or a constant that becomes one.
pub trait IntoNum<'w, T> {
    #[doc(hidden)]
    fn into_num(self, writer: &'w Writer) -> Num<'w, T>;
}

impl<'w, T> IntoNum<'w, T> for Num<'w, T> {
    fn into_num(self, _: &'w Writer) -> Num<'w, T> {
        self
    }
}

impl<'w, T: PortableType> IntoNum<'w, T> for T {
    fn into_num(self, writer: &'w Writer) -> Num<'w, T> {
        writer.c(self)
    }
}

impl Writer {
    pub(crate) fn new(words: u32) -> Writer {
        Writer {
            program: RefCell::new(Program {
                words,
                ..Program::default()
            }),
            section: RefCell::new(Section::Init),
        }
    }

    pub(crate) fn begin(&self, section: Section) {
        *self.section.borrow_mut() = section;
    }

    pub(crate) fn answer(&self, of: Num<'_, bool>) {
        self.push(answer(of.at));
    }

    pub(crate) fn into_program(self) -> Program {
        self.program.into_inner()
    }

    fn push(&self, step: Step) -> u16 {
        let mut program = self.program.borrow_mut();
        let steps = &mut program.sections[*self.section.borrow() as usize];
        steps.push(step);
        steps.len() as u16 - 1
    }

    fn step<T: PortableType>(&self, op: Op, args: [u16; 3], number: u32) -> Num<'_, T> {
        Num {
            writer: self,
            at: self.push(Step {
                op,
                ty: T::TYPE,
                args,
                number,
            }),
            kind: PhantomData,
        }
    }

    fn look<T: PortableType>(&self, op: Op) -> Num<'_, T> {
        self.step(op, [0; 3], 0)
    }

    /// A constant.
    pub fn c<T: PortableType>(&self, value: T) -> Num<'_, T> {
        let (low, high) = (value.bits() as u32, (value.bits() >> 32) as u32);
        if high == 0 {
            return self.step(Op::Const, [0; 3], low);
        }
        let low = self.step::<u32>(Op::Const, [0; 3], low);
        self.step(Op::High, [low.at, 0, 0], high)
    }

    /// Always.
    pub fn yes(&self) -> Num<'_, bool> {
        self.c(true)
    }

    /// Never.
    pub fn no(&self) -> Num<'_, bool> {
        self.c(false)
    }

    /// Something to remember, and what it starts with. For `init` alone.
    pub fn var<'w, T: PortableType>(
        &'w self,
        name: &'static str,
        value: impl IntoNum<'w, T>,
    ) -> Slot<'w, T> {
        let value = value.into_num(self);
        let number = {
            let mut program = self.program.borrow_mut();
            program.states.push(name);
            program.states.len() as u32 - 1
        };
        let slot = Slot {
            writer: self,
            number,
            kind: PhantomData,
        };
        slot.set(value);
        slot
    }

    /// The block's number among all that were launched.
    pub fn worker(&self) -> Num<'_, u32> {
        self.look(Op::Worker)
    }

    /// How many were launched.
    pub fn workers(&self) -> Num<'_, u32> {
        self.look(Op::Workers)
    }

    /// How many tiles there are.
    pub fn tiles(&self) -> Num<'_, u32> {
        self.look(Op::Tiles)
    }

    /// How many blocks the GPU can run at a time; at least 1.
    pub fn resident(&self) -> Num<'_, u32> {
        self.look(Op::Resident)
    }

    /// The GPU's clock in nanoseconds, now.
    pub fn nanoseconds(&self) -> Num<'_, u64> {
        self.look(Op::Nanoseconds)
    }

    /// The number of the multiprocessor.
    pub fn sm(&self) -> Num<'_, u32> {
        self.look(Op::Sm)
    }

    /// Whether somebody asks for the GPU.
    pub fn is_asked_to_yield(&self) -> Num<'_, bool> {
        self.look(Op::Bell)
    }

    pub(crate) fn granted(&self) -> Num<'_, u32> {
        self.look(Op::Granted)
    }

    /// Adds to a shared word where `condition` holds; what was there before, and zero
    /// where it does not hold.
    pub fn word_add<'w>(
        &'w self,
        word: u32,
        value: impl IntoNum<'w, u64>,
        condition: impl IntoNum<'w, bool>,
    ) -> Num<'w, u64> {
        let (value, condition) = (value.into_num(self), condition.into_num(self));
        self.step(Op::WordAdd, [value.at, condition.at, 0], word)
    }

    /// Writes the larger one to a shared word where `condition` holds; what was there
    /// before, and zero where it does not hold.
    pub fn word_max<'w>(
        &'w self,
        word: u32,
        value: impl IntoNum<'w, u64>,
        condition: impl IntoNum<'w, bool>,
    ) -> Num<'w, u64> {
        let (value, condition) = (value.into_num(self), condition.into_num(self));
        self.step(Op::WordMax, [value.at, condition.at, 0], word)
    }
}

impl<'w, T: PortableType> Slot<'w, T> {
    /// What it holds now.
    pub fn get(self) -> Num<'w, T> {
        self.writer.step(Op::Get, [0; 3], self.number)
    }

    /// Writes it.
    pub fn set(self, value: impl IntoNum<'w, T>) {
        let value = value.into_num(self.writer);
        self.writer.push(Step {
            op: Op::Set,
            ty: T::TYPE,
            args: [value.at, 0, 0],
            number: self.number,
        });
    }
}

impl<'w, T: PortableType> Num<'w, T> {
    fn with<U: PortableType, R: PortableType>(
        self,
        op: Op,
        other: impl IntoNum<'w, U>,
    ) -> Num<'w, R> {
        let other = other.into_num(self.writer);
        self.writer.step(op, [self.at, other.at, 0], 0)
    }
}

impl<'w, T: Whole> Num<'w, T> {
    /// Whether it is less.
    pub fn lt(self, other: impl IntoNum<'w, T>) -> Num<'w, bool> {
        self.with(Op::Less, other)
    }

    /// Whether it is at most the other.
    pub fn le(self, other: impl IntoNum<'w, T>) -> Num<'w, bool> {
        self.with(Op::AtMost, other)
    }

    /// Whether it is more.
    pub fn gt(self, other: impl IntoNum<'w, T>) -> Num<'w, bool> {
        other.into_num(self.writer).lt(self)
    }

    /// Whether it is at least the other.
    pub fn ge(self, other: impl IntoNum<'w, T>) -> Num<'w, bool> {
        other.into_num(self.writer).le(self)
    }

    /// Whether they are the same.
    pub fn eq(self, other: impl IntoNum<'w, T>) -> Num<'w, bool> {
        self.with(Op::Equal, other)
    }

    /// The smaller one.
    pub fn min(self, other: impl IntoNum<'w, T>) -> Num<'w, T> {
        self.with(Op::Min, other)
    }

    /// The larger one.
    pub fn max(self, other: impl IntoNum<'w, T>) -> Num<'w, T> {
        self.with(Op::Max, other)
    }
}

impl<'w> Num<'w, u32> {
    /// The upper half of the product.
    pub fn mul_high(self, other: impl IntoNum<'w, u32>) -> Num<'w, u32> {
        self.with(Op::MulHigh, other)
    }

    /// In 64 bits.
    pub fn wide(self) -> Num<'w, u64> {
        self.writer.step(Op::Cast, [self.at, 0, 0], 0)
    }
}

impl<'w> Num<'w, u64> {
    /// The low 32 bits.
    pub fn narrow(self) -> Num<'w, u32> {
        self.writer.step(Op::Cast, [self.at, 0, 0], 0)
    }
}

impl<'w> Num<'w, bool> {
    /// `yes` where this holds, `no` where it does not.
    pub fn select<T: PortableType>(
        self,
        yes: impl IntoNum<'w, T>,
        no: impl IntoNum<'w, T>,
    ) -> Num<'w, T> {
        let (yes, no) = (yes.into_num(self.writer), no.into_num(self.writer));
        self.writer.step(Op::Select, [self.at, yes.at, no.at], 0)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $bound:ident;)*) => {$(
        impl<'w, T: $bound, R: IntoNum<'w, T>> $trait<R> for Num<'w, T> {
            type Output = Num<'w, T>;
            fn $method(self, other: R) -> Num<'w, T> {
                self.with(Op::$trait, other)
            }
        }
    )*};
}

impl<'w, T: PortableType, R: IntoNum<'w, T>> BitAnd<R> for Num<'w, T> {
    type Output = Num<'w, T>;
    fn bitand(self, other: R) -> Num<'w, T> {
        self.with(Op::And, other)
    }
}

impl<'w, T: PortableType, R: IntoNum<'w, T>> BitOr<R> for Num<'w, T> {
    type Output = Num<'w, T>;
    fn bitor(self, other: R) -> Num<'w, T> {
        self.with(Op::Or, other)
    }
}

impl<'w, T: Whole, R: IntoNum<'w, T>> BitXor<R> for Num<'w, T> {
    type Output = Num<'w, T>;
    fn bitxor(self, other: R) -> Num<'w, T> {
        self.with(Op::Xor, other)
    }
}

operators! {
    Add add Whole;
    Sub sub Whole;
    Mul mul Whole;
    Div div Whole;
}

impl<'w, T: Whole> Shr<u32> for Num<'w, T> {
    type Output = Num<'w, T>;
    fn shr(self, distance: u32) -> Num<'w, T> {
        self.writer.step(Op::Shr, [self.at, 0, 0], distance)
    }
}

impl<'w> Not for Num<'w, bool> {
    type Output = Num<'w, bool>;
    fn not(self) -> Num<'w, bool> {
        self.writer.step(Op::Not, [self.at, 0, 0], 0)
    }
}
