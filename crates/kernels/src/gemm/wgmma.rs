//! Multiplication on Hopper's warpgroups: from a problem and a [`Tiling`](super::Tiling) to launches.

mod block;
mod form;
mod plan;
mod registers;

pub(crate) use block::{copying_registers, is_let_go, takes_tile_after_tile};
pub(crate) use form::{SHORT, edges, element, fits_levels, refusal, tiles, uncopyable, unshared};
pub(crate) use plan::{can_cut, cut, halved, holds, plan};
