//! Tensor maps: descriptors of a buffer for bulk tensor copies.
//!
//! The fields are those of the driver's encoder, in its order and units, and
//! [`TensorMap::validate`] holds its published rules, so that a map is refused
//! with the numbers in the message, on the simulator and on the GPU alike.
//!
//! ```
//! use heist_launch::{Swizzle, TensorElement, TensorMap};
//!
//! // A matrix of 1000 rows of 64 halves, in boxes of 128 rows.
//! let map = TensorMap::dense("a", TensorElement::F16, &[64, 1000], &[64, 128]).swizzle(Swizzle::Bytes128);
//! assert!(map.validate().is_ok());
//! assert_eq!(map.box_bytes(), 64 * 128 * 2);
//! let wide = TensorMap::dense("a", TensorElement::F16, &[64, 1000], &[64, 512]);
//! assert!(wide.validate().is_err(), "a box has at most 256 rows");
//! ```

use crate::argument::BufferRef;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

macro_rules! spelled {
    ($(#[$meta:meta])* $name:ident: $what:literal { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// Its name in the textual form.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;

            /// The error lists what there is.
            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => {
                        let all: Vec<_> = $name::ALL.iter().map(|one| one.as_str()).collect();
                        Err(format!("`{text}` is not {}: there are {}", $what, all.join(" ")))
                    }
                }
            }
        }
    };
}

spelled! {
    /// The element type of a tensor map.
    #[allow(missing_docs)]
    TensorElement: "a tensor map's element type" {
        U8 = "u8", U16 = "u16", U32 = "u32", S32 = "s32", U64 = "u64", S64 = "s64",
        F16 = "f16", F32 = "f32", F64 = "f64", Bf16 = "bf16",
        F32Ftz = "f32_ftz", Tf32 = "tf32", Tf32Ftz = "tf32_ftz",
        /// Four bits, two in a byte.
        B4 = "b4x16",
        /// Four bits. Sixteen of them are 8 bytes of the tensor, and in shared memory 8 bytes of padding follow.
        B4Padded = "b4x16_p64",
        /// Six bits. Sixteen of them are 12 bytes of the tensor, and in shared memory 4 bytes of padding follow.
        B6Padded = "b6x16_p32",
    }
}

impl TensorElement {
    /// Bytes of so many elements of the tensor, in a row.
    pub const fn bytes_of(self, count: u64) -> u64 {
        match self {
            TensorElement::B4 | TensorElement::B4Padded => count / 2,
            TensorElement::B6Padded => count / 4 * 3,
            other => count.saturating_mul(other.bytes()),
        }
    }

    /// Bytes of so many elements in shared memory, with their padding.
    pub const fn shared_bytes_of(self, count: u64) -> u64 {
        match self {
            TensorElement::B4 => count / 2,
            other => count.saturating_mul(other.bytes()),
        }
    }

    /// The bytes of shared memory that it has a place in, with its part of the padding.
    pub const fn bytes(self) -> u64 {
        match self {
            TensorElement::U8
            | TensorElement::B4
            | TensorElement::B4Padded
            | TensorElement::B6Padded => 1,
            TensorElement::U16 | TensorElement::F16 | TensorElement::Bf16 => 2,
            TensorElement::U64 | TensorElement::S64 | TensorElement::F64 => 8,
            _ => 4,
        }
    }

    /// Whether [`Fill::Nan`] means something for it.
    pub const fn is_float(self) -> bool {
        !matches!(
            self,
            TensorElement::U8
                | TensorElement::U16
                | TensorElement::U32
                | TensorElement::S32
                | TensorElement::U64
                | TensorElement::S64
                | TensorElement::B4
                | TensorElement::B4Padded
                | TensorElement::B6Padded
        )
    }

    /// Whether sixteen of them have padding behind them in shared memory.
    pub const fn is_padded(self) -> bool {
        matches!(self, TensorElement::B4Padded | TensorElement::B6Padded)
    }
}

spelled! {
    /// How channels are interleaved.
    Interleave: "an interleave" {
        /// Not at all.
        None = "none",
        /// In 16-byte groups.
        Bytes16 = "16",
        /// In 32-byte groups.
        Bytes32 = "32",
    }
}

spelled! {
    /// How shared memory is swizzled, by the span of the pattern in bytes.
    Swizzle: "a swizzle" {
        /// Row after row.
        None = "none",
        /// 16-byte chunks within 32 bytes.
        Bytes32 = "32",
        /// 16-byte chunks within 64 bytes.
        Bytes64 = "64",
        /// 16-byte chunks within 128 bytes.
        Bytes128 = "128",
    }
}

impl Swizzle {
    /// The most bytes the box may have on its innermost axis.
    pub const fn span(self) -> Option<u64> {
        match self {
            Swizzle::None => None,
            Swizzle::Bytes32 => Some(32),
            Swizzle::Bytes64 => Some(64),
            Swizzle::Bytes128 => Some(128),
        }
    }
}

spelled! {
    /// How much the L2 fetches at once.
    L2Promotion: "an L2 promotion" {
        /// No promotion.
        None = "none",
        /// 64 bytes.
        Bytes64 = "64",
        /// 128 bytes.
        Bytes128 = "128",
        /// 256 bytes.
        Bytes256 = "256",
    }
}

spelled! {
    /// What a load finds outside the tensor.
    Fill: "a fill" {
        /// Zeros.
        Zeros = "zeros",
        /// A special NaN; floating-point elements only.
        Nan = "nan",
    }
}

spelled! {
    /// Which pixels a copy of columns takes where it walks along one row alone (`im2col::w`).
    Wide: "a wide mode" {
        /// As many pixels as the map says, then the halo.
        W = "w",
        /// 128 pixels, a halo behind each 32.
        W128 = "w128",
    }
}

/// How a tensor is copied in columns of pixels, for convolutions.
///
/// Its axes are the channels, one to three of space (along a row first), and the images. A copy
/// walks over the pixels of a box in space, row by row and image by image, and takes the channels
/// of each at some distance from it. The map's `box_dims` are the channels of a pixel and the
/// pixels of a column, its `element_strides` how far the walk steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Im2col {
    /// Where the box begins along each axis of space; of a wide map along a row only.
    pub lower: Vec<i32>,
    /// Where it ends, from the last pixel of the tensor on.
    pub upper: Vec<i32>,
    /// The walk stays in a row.
    pub wide: Option<Wide>,
}

/// Tensor maps that the host has encoded before a launch. A program may copy the bytes of such a map
/// anywhere, so a simulated GPU finds the map by what [`HostMaps::bytes`] has put into them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMaps {
    /// The address of each map's tensor, and the map. A map keeps its number.
    pub list: Vec<(u64, TensorMap)>,
    /// Which launch it is, from 1 on: maps that a kernel makes are that launch's own.
    pub launch: u32,
}

impl HostMaps {
    /// What marks the bytes of a map.
    pub const MARK: u64 = 0x7e50_4d41_5048_5354;

    /// The bytes that stand for map `number` of a launch, or of the host, whose launch is 0.
    pub fn bytes(launch: u32, number: u32) -> [u8; 128] {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&HostMaps::MARK.to_le_bytes());
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        bytes[12..16].copy_from_slice(&launch.to_le_bytes());
        bytes
    }

    /// The launch and the number that the bytes of a map hold.
    pub fn number(bytes: &[u8]) -> Option<(u32, u32)> {
        let mark = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        (mark == HostMaps::MARK).then_some((word(12)?, word(8)?))
    }
}

/// A tensor map over one of the launch's buffers, tiled or in columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMap {
    /// The buffer that holds the tensor.
    pub buffer: BufferRef,
    /// Bytes from the buffer's start to the tensor's first element.
    pub offset: u64,
    /// What the elements are.
    pub element: TensorElement,
    /// Extents in elements, innermost first; one to five.
    pub dims: Vec<u64>,
    /// Strides in bytes of `dims[1..]`; the innermost axis is dense.
    pub strides: Vec<u64>,
    /// Extents of one copy in elements, innermost first; of columns their channels and pixels.
    pub box_dims: Vec<u32>,
    /// Take every n-th element, innermost first.
    pub element_strides: Vec<u32>,
    /// Interleave.
    pub interleave: Interleave,
    /// Swizzle.
    pub swizzle: Swizzle,
    /// L2 promotion.
    pub l2: L2Promotion,
    /// What is outside.
    pub fill: Fill,
    /// The map is one of columns.
    pub im2col: Option<Im2col>,
}

impl TensorMap {
    /// A dense tensor: strides from the extents, nothing swizzled or interleaved.
    pub fn dense(
        buffer: impl Into<BufferRef>,
        element: TensorElement,
        dims: &[u64],
        box_dims: &[u32],
    ) -> TensorMap {
        TensorMap {
            buffer: buffer.into(),
            offset: 0,
            element,
            strides: TensorMap::dense_strides(element, dims),
            dims: dims.to_vec(),
            box_dims: box_dims.to_vec(),
            element_strides: vec![1; dims.len()],
            interleave: Interleave::None,
            swizzle: Swizzle::None,
            l2: L2Promotion::None,
            fill: Fill::Zeros,
            im2col: None,
        }
    }

    /// The strides that a tensor without gaps has.
    pub fn dense_strides(element: TensorElement, dims: &[u64]) -> Vec<u64> {
        let inner = dims.len().saturating_sub(1);
        dims[..inner]
            .iter()
            .scan(1u64, |count, dim| {
                *count = count.saturating_mul(*dim);
                Some(element.bytes_of(*count))
            })
            .collect()
    }

    /// The same, swizzled.
    #[must_use]
    pub fn swizzle(mut self, swizzle: Swizzle) -> TensorMap {
        self.swizzle = swizzle;
        self
    }

    /// How many axes it has.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Bytes from the tensor's first to one past its last element, or `None`
    /// when that overflows.
    pub fn span_bytes(&self) -> Option<u64> {
        let first = *self.dims.first()?;
        first.checked_mul(self.element.bytes())?;
        let inner = self.element.bytes_of(first);
        self.dims
            .iter()
            .skip(1)
            .zip(&self.strides)
            .try_fold(inner, |bytes, (dim, stride)| {
                bytes.checked_add(dim.saturating_sub(1).checked_mul(*stride)?)
            })
    }

    /// Bytes that one full box takes in shared memory; of a wide map without a halo.
    pub fn box_bytes(&self) -> u64 {
        if self.im2col.is_some() {
            let elements = self.box_dims.iter().map(|&extent| u64::from(extent));
            return self
                .element
                .shared_bytes_of(elements.fold(1, u64::saturating_mul));
        }
        let elements =
            self.box_dims
                .iter()
                .zip(&self.element_strides)
                .fold(1u64, |n, (extent, step)| {
                    n.saturating_mul(u64::from(*extent).div_ceil(u64::from(*step).max(1)))
                });
        self.element.shared_bytes_of(elements)
    }

    /// The driver's published rules.
    pub fn validate(&self) -> Result<(), TensorMapError> {
        use TensorMapError as E;
        let rank = self.rank();
        if !(1..=5).contains(&rank) {
            return Err(E::Rank { rank });
        }
        if self.interleave != Interleave::None && rank < 3 {
            return Err(E::InterleaveRank {
                interleave: self.interleave,
                rank,
            });
        }
        for (what, len, want) in [
            ("strides", self.strides.len(), rank - 1),
            ("box", self.box_dims.len(), self.box_axes()),
            ("estrides", self.element_strides.len(), rank),
        ] {
            if len != want {
                return Err(E::Lengths {
                    what,
                    len,
                    rank,
                    want,
                });
            }
        }
        for (axis, &dim) in self.dims.iter().enumerate() {
            if dim == 0 || dim > 1 << 32 {
                return Err(E::Dim { axis, dim });
            }
        }
        self.validate_padding()?;
        // Rows may lie over each other: the driver takes any stride, zero too.
        let align = self.alignment();
        for (i, &stride) in self.strides.iter().enumerate() {
            if !stride.is_multiple_of(align) || stride >= 1 << 40 {
                return Err(E::Stride {
                    axis: i + 1,
                    stride,
                    align,
                });
            }
        }
        for (axis, &extent) in self.box_dims.iter().enumerate() {
            // The second number of columns is their pixels.
            let pixels = axis == 1 && self.im2col.is_some();
            if extent == 0 || extent > if pixels { 1024 } else { 256 } {
                return Err(E::Box { axis, extent });
            }
        }
        self.validate_columns()?;
        for (axis, &step) in self.element_strides.iter().enumerate() {
            if step == 0 || step > 8 {
                return Err(E::ElementStride { axis, step });
            }
        }
        self.validate_inner_box()?;
        if self.fill == Fill::Nan && !self.element.is_float() {
            return Err(E::NanFill {
                element: self.element,
            });
        }
        if !self.offset.is_multiple_of(align) {
            return Err(E::Offset {
                offset: self.offset,
                align,
            });
        }
        Ok(())
    }

    /// What the start and the strides are multiples of, in bytes.
    fn alignment(&self) -> u64 {
        if self.element.is_padded() || self.interleave == Interleave::Bytes32 {
            32
        } else {
            16
        }
    }

    /// The rules for elements that are padded in shared memory.
    fn validate_padding(&self) -> Result<(), TensorMapError> {
        use TensorMapError as E;
        if !self.element.is_padded() {
            return Ok(());
        }
        if !self.dims[0].is_multiple_of(128) || self.box_dims[0] != 128 {
            return Err(E::PaddedInner {
                dim: self.dims[0],
                extent: self.box_dims[0],
            });
        }
        let swizzles = matches!(self.swizzle, Swizzle::None | Swizzle::Bytes128);
        if self.interleave != Interleave::None || !swizzles {
            return Err(E::PaddedLayout {
                interleave: self.interleave,
                swizzle: self.swizzle,
            });
        }
        Ok(())
    }

    /// The rules for a row of the box: what the interleaving and the swizzle ask of its bytes.
    fn validate_inner_box(&self) -> Result<(), TensorMapError> {
        use TensorMapError as E;
        let inner = self.element.shared_bytes_of(u64::from(self.box_dims[0]));
        if self.interleave == Interleave::None && !inner.is_multiple_of(16) {
            return Err(E::InnerBox { inner });
        }
        let span = match self.interleave {
            Interleave::Bytes32 if self.swizzle != Swizzle::Bytes32 => {
                return Err(E::InterleaveSwizzle {
                    swizzle: self.swizzle,
                });
            }
            Interleave::None => self.swizzle.span(),
            _ => None,
        };
        match span.filter(|span| inner > *span) {
            Some(span) => Err(E::SwizzleSpan { inner, span }),
            None => Ok(()),
        }
    }

    /// How many numbers the box has.
    fn box_axes(&self) -> usize {
        match self.im2col {
            Some(_) => 2,
            None => self.rank(),
        }
    }

    /// The rules for a map of columns.
    fn validate_columns(&self) -> Result<(), TensorMapError> {
        use TensorMapError as E;
        let Some(im2col) = &self.im2col else {
            return Ok(());
        };
        let rank = self.rank();
        if rank < 3 {
            return Err(E::ColumnsRank { rank });
        }
        let want = match im2col.wide {
            Some(_) => 1,
            None => rank - 2,
        };
        for (what, corner) in [("lower", &im2col.lower), ("upper", &im2col.upper)] {
            if corner.len() != want {
                let len = corner.len();
                return Err(E::Lengths {
                    what,
                    len,
                    rank,
                    want,
                });
            }
            let bits = [15, 7, 4][rank - 3];
            for &at in corner {
                if !(-(1 << bits)..1 << bits).contains(&at) {
                    return Err(E::Corner { what, at, bits });
                }
            }
        }
        if im2col.wide.is_some() && self.swizzle == Swizzle::None {
            return Err(E::WideSwizzle);
        }
        if self.element.is_padded() || self.element == TensorElement::B4 {
            return Err(E::PaddedColumns);
        }
        Ok(())
    }

    /// Checks that the tensor lies inside a buffer of `bytes` bytes.
    pub fn validate_within(&self, bytes: u64) -> Result<(), TensorMapError> {
        let end = self
            .span_bytes()
            .and_then(|span| span.checked_add(self.offset));
        match end {
            Some(end) if end <= bytes => Ok(()),
            _ => Err(TensorMapError::OutsideBuffer {
                end: end.unwrap_or(u64::MAX),
                bytes,
            }),
        }
    }
}

/// A tensor map that the encoder would refuse.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum TensorMapError {
    /// No axes, or more than five.
    #[error("a tensor map has 1 to 5 dims, this one has {rank}")]
    Rank { rank: usize },
    /// Interleaved with fewer than three axes.
    #[error("interleave={interleave} needs at least 3 dims, this tensor has {rank}")]
    InterleaveRank { interleave: Interleave, rank: usize },
    /// Lists that do not fit together.
    #[error("{what} has {len} numbers, a tensor of {rank} dims needs {want}")]
    Lengths {
        what: &'static str,
        len: usize,
        rank: usize,
        want: usize,
    },
    /// An extent out of range.
    #[error("dims[{axis}] is {dim}: a dim is 1 to 2^32")]
    Dim { axis: usize, dim: u64 },
    /// A stride that the engine can't step.
    #[error(
        "the stride of dims[{axis}] is {stride} bytes: strides are multiples of {align} below 2^40"
    )]
    Stride {
        axis: usize,
        stride: u64,
        align: u64,
    },
    /// A box out of range.
    #[error("box[{axis}] is {extent}: a box is 1 to 256 elements on each axis")]
    Box { axis: usize, extent: u32 },
    /// An element stride out of range.
    #[error("estrides[{axis}] is {step}: an element stride is 1 to 8")]
    ElementStride { axis: usize, step: u32 },
    /// An inner box that is no multiple of 16 bytes.
    #[error("the innermost axis of the box is {inner} bytes: it must be a multiple of 16")]
    InnerBox { inner: u64 },
    /// A box wider than the swizzle.
    #[error(
        "the innermost axis of the box is {inner} bytes, swizzle={span} takes at most {span}: use a narrower box or a wider swizzle"
    )]
    SwizzleSpan { inner: u64, span: u64 },
    /// Interleave 32 goes with swizzle 32 alone.
    #[error("interleave=32 needs swizzle=32, this map has swizzle={swizzle}")]
    InterleaveSwizzle { swizzle: Swizzle },
    /// Padded elements that are no whole group of 128.
    #[error(
        "dims[0] is {dim} and box[0] is {extent}: of padded elements a tensor has a multiple of 128 elements along its innermost axis, and a box 128"
    )]
    PaddedInner { dim: u64, extent: u32 },
    /// Padded elements in another pattern than one of 128 bytes.
    #[error(
        "interleave={interleave} swizzle={swizzle}: a map of padded elements takes interleave=none and swizzle=none or 128"
    )]
    PaddedLayout {
        interleave: Interleave,
        swizzle: Swizzle,
    },
    /// Columns of a tensor without space between channels and images.
    #[error("lower and upper corners are for tensors of 3 to 5 dims, this one has {rank}")]
    ColumnsRank { rank: usize },
    /// A corner out of range.
    #[error("{what} has {at}: a corner of this tensor is -2^{bits} to 2^{bits} - 1")]
    Corner {
        what: &'static str,
        at: i32,
        bits: u32,
    },
    /// A wide map that is not swizzled.
    #[error("a wide map is swizzled, and this one has swizzle=none")]
    WideSwizzle,
    /// Padded elements in columns.
    #[error("elements of four and six bits in columns are not supported")]
    PaddedColumns,
    /// NaN for integers.
    #[error("fill=nan is for floating-point elements, this map has {element}")]
    NanFill { element: TensorElement },
    /// A base that is not aligned.
    #[error("the tensor starts {offset} bytes into its buffer: that must be a multiple of {align}")]
    Offset { offset: u64, align: u64 },
    /// Larger than the buffer behind it.
    #[error("the tensor ends at byte {end} of a buffer of {bytes} bytes")]
    OutsideBuffer { end: u64, bytes: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> TensorMap {
        TensorMap::dense(0, TensorElement::F16, &[64, 32], &[64, 8]).swizzle(Swizzle::Bytes128)
    }

    #[test]
    fn dense_is_valid() {
        let map = map();
        assert_eq!(map.strides, [128]);
        assert_eq!(map.validate(), Ok(()));
        assert_eq!(map.span_bytes(), Some(64 * 32 * 2));
        assert_eq!(map.box_bytes(), 64 * 8 * 2);
        assert_eq!(map.validate_within(4096), Ok(()));
        assert!(map.validate_within(4095).is_err());
    }

    #[test]
    fn an_element_has_its_size() {
        for element in TensorElement::ALL {
            let digits: String = element
                .as_str()
                .chars()
                .filter(char::is_ascii_digit)
                .take(2)
                .collect();
            let bytes = match digits.as_str() {
                // Four or six bits, with their padding; and two of four in one place.
                "41" | "61" => 1,
                // tf32 takes the room of an f32, and bf16 that of an f16.
                "19" => 4,
                bits => bits.parse::<u64>().expect("a width") / 8,
            };
            assert_eq!(element.bytes(), bytes, "{}", element.as_str());
        }
    }

    #[test]
    fn padded_elements_take_half_a_byte_of_the_tensor_and_one_of_shared_memory() {
        let map = TensorMap::dense(0, TensorElement::B4Padded, &[256, 8], &[128, 4])
            .swizzle(Swizzle::Bytes128);
        assert_eq!(map.strides, [128]);
        assert_eq!(map.validate(), Ok(()));
        assert_eq!((map.span_bytes(), map.box_bytes()), (Some(1024), 512));
        let six = TensorMap::dense(0, TensorElement::B6Padded, &[256, 8], &[128, 4]);
        assert_eq!((six.span_bytes(), six.box_bytes()), (Some(1536), 512));
        let plain = TensorMap::dense(0, TensorElement::B4, &[256, 8], &[128, 4]);
        assert_eq!((plain.validate(), plain.box_bytes()), (Ok(()), 256));
        let (mut short, mut narrow) = (map.clone(), map.clone());
        short.dims[0] = 192;
        narrow.box_dims[0] = 64;
        for map in [short, narrow] {
            assert!(matches!(
                map.validate(),
                Err(TensorMapError::PaddedInner { .. })
            ));
        }
        let other = map.clone().swizzle(Swizzle::Bytes64);
        assert!(matches!(
            other.validate(),
            Err(TensorMapError::PaddedLayout { .. })
        ));
        let mut apart = map;
        apart.strides[0] = 144;
        assert!(matches!(
            apart.validate(),
            Err(TensorMapError::Stride { align: 32, .. })
        ));
    }

    #[test]
    fn a_third_axis_is_named_by_its_number() {
        let mut map = TensorMap::dense(0, TensorElement::F16, &[64, 32, 4], &[64, 8, 1]);
        map.strides[1] = 130;
        assert_eq!(
            map.validate(),
            Err(TensorMapError::Stride {
                axis: 2,
                stride: 130,
                align: 16
            })
        );
    }

    /// As the driver has it: seen on an H200.
    #[test]
    fn rows_may_lie_over_each_other() {
        for stride in [128, 16, 0] {
            let mut map = TensorMap::dense(0, TensorElement::U8, &[256, 64], &[64, 64]);
            map.strides[0] = stride;
            assert_eq!(map.validate(), Ok(()), "{stride}");
            assert_eq!(map.span_bytes(), Some(256 + 63 * stride));
        }
    }

    #[test]
    fn the_largest_of_each_is_accepted() {
        let mut map = map();
        map.dims[1] = 1 << 32;
        map.box_dims[1] = 256;
        map.element_strides[1] = 8;
        assert_eq!(map.validate(), Ok(()));
    }

    #[test]
    fn each_rule_refuses() {
        let broken = |change: fn(&mut TensorMap), says: &str| {
            let mut map = map();
            change(&mut map);
            let error = map.validate().expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        };
        broken(|m| m.dims.clear(), "1 to 5 dims");
        broken(|m| m.strides.push(1), "strides has 2 numbers");
        broken(|m| m.box_dims.push(1), "box has 3 numbers");
        broken(|m| m.dims[1] = 0, "dims[1] is 0");
        broken(|m| m.dims[1] = (1 << 32) + 1, "dims[1] is 4294967297");
        broken(|m| m.strides[0] = 130, "multiples of 16");
        broken(|m| m.box_dims[1] = 257, "1 to 256");
        broken(|m| m.element_strides[0] = 9, "1 to 8");
        broken(|m| m.box_dims[0] = 7, "multiple of 16");
        broken(
            |m| m.swizzle = Swizzle::Bytes64,
            "swizzle=64 takes at most 64",
        );
        broken(|m| m.offset = 8, "multiple of 16");
        broken(|m| m.interleave = Interleave::Bytes16, "at least 3 dims");
        broken(
            |m| {
                m.element = TensorElement::U16;
                m.fill = Fill::Nan;
            },
            "floating-point",
        );
    }
}
