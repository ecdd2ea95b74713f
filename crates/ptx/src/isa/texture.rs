//! Textures and surfaces.

use super::operands::ANYTHING;
use super::row::{Family, Memory, Results, Row};

const fn texture(name: &'static str) -> Row {
    Row::doing(name, Family::Texture, ANYTHING).untested("textures and surfaces are not simulated")
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    texture("istypep"),
    texture("suld").memory(Memory::Load),
    texture("suq"),
    texture("sured").results(Results::None).memory(Memory::Update),
    texture("sust").results(Results::None).memory(Memory::Store),
    texture("tex").memory(Memory::Load),
    texture("tld4").memory(Memory::Load),
    texture("txq"),
];
