//! Textures and surfaces.

use super::operands::ANYTHING;
use super::row::{Family, Memory, Results, Row};

const IMAGES: &str = "tests/ptx/texture/images.ptx";

const fn texture(name: &'static str) -> Row {
    Row::doing(name, Family::Texture, ANYTHING)
        .untested("of textures and surfaces, `tex`, `suld` and `sust` are simulated")
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    texture("istypep"),
    texture("suld").memory(Memory::Load).tested(IMAGES),
    texture("suq"),
    texture("sured").results(Results::None).memory(Memory::Update),
    texture("sust").results(Results::None).memory(Memory::Store).tested(IMAGES),
    texture("tex").memory(Memory::Load).tested(IMAGES),
    texture("tld4").memory(Memory::Load),
    texture("txq"),
];
