//! A launch that was recorded on a GPU: the kernel's PTX, its shape and arguments, and the memory
//! that it could reach, before and after.
//!
//! `heist record` writes such files, `heist check` replays them. `docs/recording.md` describes the
//! format for other readers.
//!
//! - [`Record`]: what is in one.
//! - `file`: as bytes.
//! - `packed`: stretches of memory, compressed.

mod file;
mod packed;

pub use file::{MAGIC, ReadError, VERSION};

use heist_launch::{
    Fill, Interleave, L2Promotion, Launch, Swizzle, TensorElement, TensorMap, TensorMapError,
};

/// A recorded launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// What the driver calls the GPU.
    pub gpu: String,
    /// The compute capability without its dot: 90.
    pub capability: u32,
    /// The version of the driver's interface: 13000 for 13.0.
    pub driver: u32,
    /// The kernel's module, as text.
    pub ptx: String,
    /// Where the text was: in the program, or in a file.
    pub ptx_from: String,
    /// The kernel, as the PTX names it.
    pub kernel: String,
    /// Which of the program's launches this is, from 1.
    pub number: u64,
    /// Its shape.
    pub launch: Launch,
    /// Whether all blocks had to be on the device at once.
    pub cooperative: bool,
    /// One for each parameter.
    pub params: Vec<Param>,
    /// The memory that the kernel could reach.
    pub memory: Vec<Memory>,
    /// What was left out, in words.
    pub left_out: Vec<String>,
    /// The driver's status after the launch: 0, or what went wrong.
    pub status: u32,
}

/// A kernel's parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// Its bytes; pointers are addresses on the GPU.
    Bytes(Vec<u8>),
    /// A tensor map, as the driver was asked for it.
    Map(Box<Map>),
}

/// The arguments of the driver's encoder of tiled tensor maps.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Map {
    /// The address of the first element.
    pub base: u64,
    /// The driver's number of the elements' type.
    pub element: u32,
    /// Extents, innermost first.
    pub dims: Vec<u64>,
    /// Bytes from one to the next, along all axes but the first.
    pub strides: Vec<u64>,
    /// Extents of a copy.
    pub box_dims: Vec<u32>,
    /// Elements from one that is copied to the next.
    pub element_strides: Vec<u32>,
    /// The driver's number of the interleave.
    pub interleave: u32,
    /// The driver's number of the swizzle.
    pub swizzle: u32,
    /// The driver's number of the L2 promotion.
    pub l2: u32,
    /// The driver's number of the fill.
    pub fill: u32,
}

impl Map {
    /// The map over a stretch of memory of that name, which begins at that address.
    ///
    /// # Errors
    /// In words, which of its numbers stands for nothing that the simulated GPU has, or which
    /// of the driver's rules it breaks.
    pub fn over(&self, name: &str, start: u64) -> Result<TensorMap, String> {
        fn pick<T: Copy>(all: &[T], number: u32, what: &str) -> Result<T, String> {
            let known = all.get(number as usize).copied();
            known.ok_or_else(|| format!("a tensor map with {what} number {number}"))
        }
        // The driver numbers them in the order in which `TensorElement` lists them, but for two.
        const ELEMENTS: [TensorElement; 16] = [
            TensorElement::U8,
            TensorElement::U16,
            TensorElement::U32,
            TensorElement::S32,
            TensorElement::U64,
            TensorElement::S64,
            TensorElement::F16,
            TensorElement::F32,
            TensorElement::F64,
            TensorElement::Bf16,
            TensorElement::F32Ftz,
            TensorElement::Tf32,
            TensorElement::Tf32Ftz,
            TensorElement::B4,
            TensorElement::B4Padded,
            TensorElement::B6Padded,
        ];
        let element = pick(&ELEMENTS, self.element, "the element type")?;
        let map = TensorMap {
            buffer: name.into(),
            offset: self.base.wrapping_sub(start),
            element,
            dims: self.dims.clone(),
            strides: self.strides.clone(),
            box_dims: self.box_dims.clone(),
            element_strides: self.element_strides.clone(),
            interleave: pick(Interleave::ALL, self.interleave, "the interleave")?,
            swizzle: pick(Swizzle::ALL, self.swizzle, "the swizzle")?,
            l2: pick(L2Promotion::ALL, self.l2, "the L2 promotion")?,
            fill: pick(Fill::ALL, self.fill, "the fill")?,
            im2col: None,
        };
        map.validate()
            .map_err(|error: TensorMapError| format!("a tensor map: {error}"))?;
        Ok(map)
    }
}

/// A stretch of memory before and after the launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// What it is.
    pub kind: Kind,
    /// Its address on the GPU.
    pub at: u64,
    /// Its bytes before the launch.
    pub before: Vec<u8>,
    /// Its bytes after the launch; none where they could not be read.
    pub after: After,
}

/// What a stretch of memory is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An allocation.
    Allocation,
    /// A variable of the kernel's module.
    Variable(String),
}

/// Memory after a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// As it was before.
    Same,
    /// Other bytes, as many.
    Changed(Vec<u8>),
    /// It could not be read: the launch had failed.
    Unknown,
}

impl Memory {
    /// The bytes after the launch, where they are known.
    pub fn left(&self) -> Option<&[u8]> {
        match &self.after {
            After::Same => Some(&self.before),
            After::Changed(bytes) => Some(bytes),
            After::Unknown => None,
        }
    }
}
