//! Typed bytes: what a kernel reads and writes through a pointer.

use crate::element::{Element, ElementType};
use crate::placed::Written;
use std::fmt;
use std::sync::Arc;

/// Elements of one type, little-endian, as they lie in device memory.
///
/// ```
/// use heist_launch::Buffer;
/// let buffer = Buffer::from_slice(&[1.0f32, 2.0]);
/// assert_eq!(buffer.bytes().len(), 8);
/// assert_eq!(buffer.to_vec::<f32>(), Some(vec![1.0, 2.0]));
/// assert_eq!(buffer.to_vec::<u64>(), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Buffer {
    ty: ElementType,
    /// Shared by copies until one of them is written.
    bytes: Arc<Vec<u8>>,
    /// Which of them anybody has written, where that is not all.
    written: Option<Arc<Written>>,
}

impl Buffer {
    /// The most bytes that a buffer written as text may have, so that a typing mistake does not
    /// allocate all memory.
    pub const MAX_TEXT_BYTES: usize = 1 << 30;
    /// The most bytes that are read of a file.
    pub const MAX_FILE_BYTES: usize = 4 << 30;

    /// Elements from a slice of values.
    pub fn from_slice<T: Element>(values: &[T]) -> Buffer {
        Buffer::from_bits(T::TYPE, values.iter().map(|value| value.to_bits()))
    }

    /// Elements from their bits; bits above the type's width are dropped.
    pub fn from_bits(ty: ElementType, values: impl IntoIterator<Item = u64>) -> Buffer {
        let values = values.into_iter();
        let mut bytes = Vec::with_capacity(values.size_hint().0 * ty.bytes());
        for bits in values {
            bytes.extend_from_slice(&bits.to_le_bytes()[..ty.bytes()]);
        }
        Buffer::whole(ty, Arc::new(bytes))
    }

    /// Elements from their bits, some of which nobody has written.
    pub fn partly(ty: ElementType, values: &[Option<u64>]) -> Buffer {
        let bits = values.iter().map(|value| value.unwrap_or(ty.poison()));
        let mut buffer = Buffer::from_bits(ty, bits);
        if values.contains(&None) {
            let mut written = Written::none(buffer.bytes.len());
            for (at, _) in values
                .iter()
                .enumerate()
                .filter(|(_, value)| value.is_some())
            {
                written.mark(at * ty.bytes(), ty.bytes());
            }
            buffer.written = Some(Arc::new(written));
        }
        buffer
    }

    fn whole(ty: ElementType, bytes: Arc<Vec<u8>>) -> Buffer {
        Buffer {
            ty,
            bytes,
            written: None,
        }
    }

    /// Elements from their bytes; `None` when a part of an element is left over.
    pub fn from_bytes(ty: ElementType, bytes: Vec<u8>) -> Option<Buffer> {
        Buffer::from_shared(ty, Arc::new(bytes))
    }

    /// The same from bytes that others hold as well; they are copied only to be written.
    pub fn from_shared(ty: ElementType, bytes: Arc<Vec<u8>>) -> Option<Buffer> {
        bytes
            .len()
            .is_multiple_of(ty.bytes())
            .then(|| Buffer::whole(ty, bytes))
    }

    /// `count` elements that were never written.
    pub fn poisoned(ty: ElementType, count: usize) -> Buffer {
        let one = &ty.poison().to_le_bytes()[..ty.bytes()];
        Buffer::whole(ty, Arc::new(one.repeat(count)))
    }

    /// `count` zeros.
    pub fn zeros(ty: ElementType, count: usize) -> Buffer {
        Buffer::whole(ty, Arc::new(vec![0; count * ty.bytes()]))
    }

    /// Deterministic noise, the same on every machine: uniform in [-1, 1) for
    /// floats (before rounding to the type), uniform over all values for the
    /// rest.
    pub fn random(ty: ElementType, seed: u64, count: usize) -> Buffer {
        let mut state = seed;
        let values = std::iter::repeat_with(move || {
            let bits = split_mix(&mut state);
            if ty.is_float() {
                // 24 bits fill an f32's significand without rounding to 1.
                let unit = (bits >> 40) as f64 / (1u64 << 24) as f64;
                ty.from_f64(unit * 2.0 - 1.0)
            } else {
                bits >> (64 - ty.bits())
            }
        });
        Buffer::from_bits(ty, values.take(count))
    }

    /// The type of its elements.
    pub fn ty(&self) -> ElementType {
        self.ty
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.ty.bytes()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Which bytes anybody has written; nothing where that is all of them.
    pub fn written(&self) -> Option<&Written> {
        self.written.as_deref()
    }

    /// Whether anybody has written all of an element.
    pub fn is_written(&self, index: usize) -> bool {
        let size = self.ty.bytes();
        self.written()
            .is_none_or(|written| written.first_missing(index * size, size).is_none())
    }

    /// Its bytes, to be written; their number stays, and all count as written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.written = None;
        Arc::make_mut(&mut self.bytes).as_mut_slice()
    }

    /// Its bytes, without the type.
    pub fn into_bytes(self) -> Vec<u8> {
        Arc::unwrap_or_clone(self.bytes)
    }

    /// Its bytes, without a copy even where other buffers hold them as well.
    pub fn into_shared(self) -> Arc<Vec<u8>> {
        self.bytes
    }

    /// The same bytes seen as another type; `None` when they do not divide.
    pub fn cast(self, ty: ElementType) -> Option<Buffer> {
        let written = self.written;
        Buffer::from_shared(ty, self.bytes).map(|buffer| Buffer { written, ..buffer })
    }

    /// The bits of one element.
    pub fn get(&self, index: usize) -> Option<u64> {
        let size = self.ty.bytes();
        let start = index.checked_mul(size)?;
        let bytes = self.bytes.get(start..start.checked_add(size)?)?;
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(bytes);
        Some(u64::from_le_bytes(wide))
    }

    /// The bits of every element.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.bytes.chunks_exact(self.ty.bytes()).map(|bytes| {
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        })
    }

    /// The elements as Rust values; `None` when `T` is of another width.
    ///
    /// A buffer of `b32` may be read as `u32`, `i32` or `f32`: only the width counts.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        (T::TYPE.bytes() == self.ty.bytes()).then(|| self.iter().map(T::from_bits).collect())
    }
}

/// One step of SplitMix64, a generator with one word of state.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        write!(f, "{}[{}]:[", self.ty, self.len())?;
        for (i, bits) in self.iter().take(SHOWN).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}", self.ty.spell(bits))?;
        }
        f.write_str(if self.len() > SHOWN { ",…]" } else { "]" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back() {
        let buffer = Buffer::from_slice(&[1i16, -2, 3]);
        assert_eq!(buffer.to_vec::<i16>(), Some(vec![1, -2, 3]));
        assert_eq!(buffer.to_vec::<u16>(), Some(vec![1, 0xfffe, 3]));
        assert_eq!(buffer.get(1), Some(0xfffe));
        assert_eq!(buffer.get(3), None);
        assert_eq!(buffer.get(usize::MAX), None);
        assert_eq!(Buffer::from_bytes(ElementType::U32, vec![0; 6]), None);
        assert_eq!(format!("{buffer:?}"), "s16[3]:[1,-2,3]");
    }

    #[test]
    fn a_part_may_be_unwritten() {
        let mut buffer = Buffer::partly(ElementType::U16, &[Some(7), None, Some(9)]);
        assert_eq!(buffer.get(1), Some(ElementType::U16.poison()));
        assert!(buffer.is_written(0) && !buffer.is_written(1) && buffer.is_written(2));
        assert_ne!(buffer, Buffer::from_bits(buffer.ty(), buffer.iter()));
        let bytes = buffer.clone().cast(ElementType::U8).unwrap();
        assert!(bytes.is_written(1) && !bytes.is_written(2));
        buffer.bytes_mut()[0] = 1;
        assert!(buffer.is_written(1));
        let whole = Buffer::partly(ElementType::U16, &[Some(1)]);
        assert_eq!(whole, Buffer::from_slice(&[1u16]));
    }

    #[test]
    fn written_bytes_are_the_buffer_s() {
        let mut buffer = Buffer::from_slice(&[1u16, 2]);
        let kept = buffer.clone();
        buffer.bytes_mut()[2] = 7;
        assert_eq!(buffer.to_vec::<u16>(), Some(vec![1, 7]));
        assert_eq!(
            kept.to_vec::<u16>(),
            Some(vec![1, 2]),
            "a clone keeps its own"
        );
    }

    #[test]
    fn noise_is_fixed_and_in_range() {
        let a = Buffer::random(ElementType::F32, 7, 1000);
        assert_eq!(a, Buffer::random(ElementType::F32, 7, 1000));
        assert_ne!(a, Buffer::random(ElementType::F32, 8, 1000));
        let values = a.to_vec::<f32>().unwrap();
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        let mean = values.iter().sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
        // Pinned: files of expected outputs depend on it.
        assert_eq!(
            Buffer::random(ElementType::U32, 1, 2).to_vec::<u32>(),
            Some(vec![0x910a_2dec, 0xbeeb_8da1])
        );
    }

    #[test]
    fn poison_fills_every_element() {
        let buffer = Buffer::poisoned(ElementType::F32, 3);
        assert!(buffer.iter().all(|bits| bits == 0xffa5_a5a5));
        assert_eq!(buffer.len(), 3);
    }
}
