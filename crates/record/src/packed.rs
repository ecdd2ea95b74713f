//! Bytes, compressed: chunks of up to 4 MiB, each the length of its LZ4 block and the block.

/// The bytes that a chunk stands for; the last one may have fewer.
const CHUNK: usize = 4 << 20;

pub(crate) fn pack(bytes: &[u8], to: &mut Vec<u8>) {
    for chunk in bytes.chunks(CHUNK) {
        let block = lz4_flex::block::compress(chunk);
        to.extend((block.len() as u32).to_le_bytes());
        to.extend(block);
    }
}

/// So many bytes again; nothing where the chunks do not give exactly those.
pub(crate) fn unpack(mut packed: &[u8], len: u64) -> Option<Vec<u8>> {
    // The buffer grows with the chunks: a length alone reserves no memory.
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < len {
        let (head, rest) = packed.split_first_chunk::<4>()?;
        let block = rest.get(..u32::from_le_bytes(*head) as usize)?;
        packed = &rest[block.len()..];
        let want = (len - bytes.len() as u64).min(CHUNK as u64) as usize;
        let chunk = lz4_flex::block::decompress(block, want).ok()?;
        if chunk.len() != want {
            return None;
        }
        bytes.extend(chunk);
    }
    packed.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for len in [0, 1, 5000, CHUNK, CHUNK + 1] {
            let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
            let mut packed = Vec::new();
            pack(&bytes, &mut packed);
            assert!(len < CHUNK || packed.len() < len / 4);
            assert!(
                unpack(&packed, len as u64).as_ref() == Some(&bytes),
                "{len}"
            );
            assert!(unpack(&packed, len as u64 + 1).is_none());
            assert!(len == 0 || unpack(&packed, len as u64 - 1).is_none());
        }
        assert!(unpack(&[255, 255, 255, 255, 0], 9).is_none());
        assert!(unpack(&[0; 4], u64::MAX).is_none());
    }
}
