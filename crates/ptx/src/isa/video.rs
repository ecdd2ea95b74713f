//! Video instructions: bytes and halves of 32-bit registers, alone or side by side.

use super::operands::ANYTHING;
use super::row::{Family, Row};

const fn scalar(name: &'static str) -> Row {
    Row::computing(name, Family::Video, ANYTHING).tested("tests/ptx/video/scalar.ptx")
}

const fn packed(name: &'static str) -> Row {
    Row::computing(name, Family::Video, ANYTHING).tested("tests/ptx/video/packed.ptx")
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    scalar("vabsdiff"), scalar("vadd"), scalar("vmad"), scalar("vmax"), scalar("vmin"),
    scalar("vset"), scalar("vshl"), scalar("vshr"), scalar("vsub"),
    packed("vabsdiff2"), packed("vadd2"), packed("vavrg2"), packed("vmax2"), packed("vmin2"),
    packed("vset2").tested("tests/ptx/video/set_packed.ptx"), packed("vsub2"),
    packed("vabsdiff4"), packed("vadd4"), packed("vavrg4"), packed("vmax4"), packed("vmin4"),
    packed("vset4").tested("tests/ptx/video/set_packed.ptx"), packed("vsub4"),
];
