//! Products of small floats, the commonest of all: `m16n8`, of any depth.
//!
//! Fragments are multiplied in place, without building matrices. A register of A is eight rows of
//! four members, one of B four members of eight columns, and both count k alike; so the members of
//! B's registers, brought together, are lines of B, and A's factors are taken from where they lie.
//! A register of C holds every other column, so columns are in the order 0, 2, 4, 6, 1, 3, 5, 7 all
//! the way. Each element sums its products in the order of k, in `f64`.

use super::super::element::{Accumulator, Element, each, round_f16, round_f32};
use super::super::gemm::Number;
use super::Mma;
use crate::lanes::{Lanes, multiversion};
use std::borrow::Borrow;

/// Registers that are missing.
static ZEROS: Lanes<u32> = [0; 32];

multiversion! {
    pub(super) fn run[R: Borrow<Lanes<u32>>][R](
        of: &Mma,
        a: &[R],
        b: &[R],
        c: &[R],
        d: &mut [Lanes<u32>],
    ) {
        // The upper eight rows, and the lower ones.
        let mut sums = [before(of.c, c, 0), before(of.c, c, 1)];
        match of.a.per_register() {
            1 => add_products::<FUSES, 1>(of, a, b, &mut sums),
            2 => add_products::<FUSES, 2>(of, a, b, &mut sums),
            _ => add_products::<FUSES, 4>(of, a, b, &mut sums),
        }
        for (half, sums) in sums.iter().enumerate() {
            after(of.d, sums, half, d);
        }
    }
}

/// Adds the products of elements of which `PER` are in a register.
#[inline(always)]
fn add_products<const FUSES: bool, const PER: usize>(
    of: &Mma,
    a: &[impl Borrow<Lanes<u32>>],
    b: &[impl Borrow<Lanes<u32>>],
    sums: &mut [[[f64; 8]; 8]; 2],
) {
    for step in 0..usize::from(of.shape.k) / (4 * PER) {
        let lines = decode::<PER>(of.b, &by_member(at(b, step)));
        for (half, sums) in sums.iter_mut().enumerate() {
            let rows = decode::<PER>(of.a, at(a, 2 * step + half));
            for member in 0..4 {
                for j in 0..PER {
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let factor = rows[j][4 * row + member];
                        for (column, sum) in sums.iter_mut().enumerate() {
                            let other = lines[j][8 * member + column];
                            *sum = other.times_plus::<FUSES>(factor, *sum);
                        }
                    }
                }
            }
        }
    }
}

/// A register; zeros if it is missing.
#[inline(always)]
fn at(registers: &[impl Borrow<Lanes<u32>>], at: usize) -> &Lanes<u32> {
    match registers.get(at) {
        Some(register) => register.borrow(),
        None => &ZEROS,
    }
}

/// The elements of a register.
#[inline(always)]
fn decode<const PER: usize>(of: Element, register: &Lanes<u32>) -> [Lanes<f64>; PER] {
    let mut elements = [[0.0; 32]; PER];
    for (j, element) in elements.iter_mut().enumerate() {
        *element = of.floats(register, j as u32);
    }
    elements
}

/// A register of B with the lanes of each member together, columns in the order of C.
#[inline(always)]
fn by_member(register: &Lanes<u32>) -> Lanes<u32> {
    let mut lines = [0; 32];
    for member in 0..4 {
        for column in 0..8 {
            let at = column / 2 + 4 * (column % 2);
            lines[8 * member + at] = register[4 * column + member];
        }
    }
    lines
}

/// Eight rows of C.
#[inline(always)]
fn before(of: Accumulator, c: &[impl Borrow<Lanes<u32>>], half: usize) -> [[f64; 8]; 8] {
    let mut sums = [[0.0; 8]; 8];
    for odd in 0..2 {
        let values = match of {
            Accumulator::F16 => Element::F16.floats(at(c, half), odd as u32),
            _ => each(at(c, 2 * half + odd), |w| f64::from(f32::from_bits(w))),
        };
        let (groups, _) = values.as_chunks::<4>();
        for (row, group) in sums.iter_mut().zip(groups) {
            row[4 * odd..4 * odd + 4].copy_from_slice(group);
        }
    }
    sums
}

/// Eight rows of D.
#[inline(always)]
fn after(of: Accumulator, sums: &[[f64; 8]; 8], half: usize, d: &mut [Lanes<u32>]) {
    let mut columns = [[0.0; 32]; 2];
    for (odd, values) in columns.iter_mut().enumerate() {
        let (groups, _) = values.as_chunks_mut::<4>();
        for (row, group) in sums.iter().zip(groups) {
            group.copy_from_slice(&row[4 * odd..4 * odd + 4]);
        }
    }
    match of {
        Accumulator::F16 => {
            if let Some(register) = d.get_mut(half) {
                for (lane, word) in register.iter_mut().enumerate() {
                    let [even, odd] = [round_f16(columns[0][lane]), round_f16(columns[1][lane])];
                    *word = u32::from(even) | u32::from(odd) << 16;
                }
            }
        }
        _ => {
            for (odd, values) in columns.iter().enumerate() {
                if let Some(register) = d.get_mut(2 * half + odd) {
                    *register = each(values, round_f32);
                }
            }
        }
    }
}
