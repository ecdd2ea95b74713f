//! A record as bytes: 16 bytes that say what it is, a checksum, a head in JSON, and the memory.

use crate::packed::{pack, unpack};
use crate::{After, Kind, Map, Memory, Param, Record};
use heist_launch::Launch;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The first bytes of every record.
pub const MAGIC: &[u8; 8] = b"HEISTREC";
/// The version of the format. It goes up when an older reader would misread a file.
pub const VERSION: u32 = 1;

/// The bytes in front of the head: magic, version, length of the head, checksum.
const FRONT: usize = 8 + 4 + 4 + 32;

/// Why a file can't be read as a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// It begins with something else.
    #[error("it is not a record of a launch: its first bytes are not `HEISTREC`")]
    Foreign,
    /// A newer version wrote it.
    #[error(
        "it has version {0} of the format, and this program reads version {VERSION}: use the newer Heist \
         that recorded it, or record it again"
    )]
    Version(u32),
    /// It ends too early.
    #[error("it is cut off after {have} bytes: copy it again, or record it again")]
    Short {
        /// Its length.
        have: usize,
    },
    /// Its bytes have changed since it was written.
    #[error(
        "its checksum is wrong, so it was damaged on its way: copy it again, or record it again"
    )]
    Damaged,
    /// It says something that can't be.
    #[error("{0}: no version of `heist record` writes that; record it again")]
    Wrong(String),
}

#[derive(Serialize, Deserialize)]
struct Head {
    program: Vec<String>,
    gpu: String,
    capability: u32,
    driver: u32,
    kernel: String,
    number: u64,
    launch: Launch,
    cooperative: bool,
    status: u32,
    params: Vec<HeadParam>,
    memory: Vec<HeadMemory>,
    left_out: Vec<String>,
    ptx_from: String,
    ptx: Blob,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HeadParam {
    Bytes(Vec<u8>),
    Map(Map),
}

#[derive(Serialize, Deserialize)]
struct HeadMemory {
    kind: Kind,
    at: u64,
    before: Blob,
    after: HeadAfter,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HeadAfter {
    Same,
    Changed(Blob),
    Unknown,
}

/// A stretch of the part behind the head, and how many bytes it stands for.
#[derive(Serialize, Deserialize)]
struct Blob {
    at: u64,
    packed: u64,
    bytes: u64,
}

impl Record {
    /// Its bytes, as a file has them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut blobs = Vec::new();
        let mut keep = |bytes: &[u8]| {
            let at = blobs.len();
            pack(bytes, &mut blobs);
            Blob {
                at: at as u64,
                packed: (blobs.len() - at) as u64,
                bytes: bytes.len() as u64,
            }
        };
        let memory = self.memory.iter().map(|one| HeadMemory {
            kind: one.kind.clone(),
            at: one.at,
            before: keep(&one.before),
            after: match &one.after {
                After::Same => HeadAfter::Same,
                After::Changed(bytes) => HeadAfter::Changed(keep(bytes)),
                After::Unknown => HeadAfter::Unknown,
            },
        });
        let memory = memory.collect();
        let params = self.params.iter().map(|param| match param {
            Param::Bytes(bytes) => HeadParam::Bytes(bytes.clone()),
            Param::Map(map) => HeadParam::Map(map.as_ref().clone()),
        });
        let head = Head {
            program: self.program.clone(),
            gpu: self.gpu.clone(),
            capability: self.capability,
            driver: self.driver,
            kernel: self.kernel.clone(),
            number: self.number,
            launch: self.launch,
            cooperative: self.cooperative,
            status: self.status,
            params: params.collect(),
            memory,
            left_out: self.left_out.clone(),
            ptx_from: self.ptx_from.clone(),
            ptx: keep(self.ptx.as_bytes()),
        };
        // Strings, numbers and lists of them are always JSON.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        seal(&head, &blobs)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// What is wrong with them, and what to do.
    pub fn from_bytes(file: &[u8]) -> Result<Record, ReadError> {
        let begun = file.len().min(MAGIC.len());
        if file.is_empty() || file[..begun] != MAGIC[..begun] {
            return Err(ReadError::Foreign);
        }
        let short = ReadError::Short { have: file.len() };
        let Some((front, rest)) = file.split_at_checked(FRONT) else {
            return Err(short);
        };
        let word = |at: usize| {
            u32::from_le_bytes([front[at], front[at + 1], front[at + 2], front[at + 3]])
        };
        if word(8) != VERSION {
            return Err(ReadError::Version(word(8)));
        }
        let Some((head, blobs)) = rest.split_at_checked(word(12) as usize) else {
            return Err(short);
        };
        if checksum(head, blobs)[..] != front[16..] {
            // A head that tells of more memory than there is: the end is missing.
            let whole = serde_json::from_slice::<Head>(head).map(|head| head.end());
            return match whole {
                Ok(end) if end > blobs.len() as u64 => Err(short),
                _ => Err(ReadError::Damaged),
            };
        }
        let wrong = |what: String| ReadError::Wrong(what);
        let head: Head = serde_json::from_slice(head)
            .map_err(|error| wrong(format!("its head is not one: {error}")))?;
        head.read(blobs).map_err(wrong)
    }
}

/// What stands in front of a head and the rest, and they.
fn seal(head: &[u8], blobs: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(FRONT + head.len() + blobs.len());
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend((head.len() as u32).to_le_bytes());
    file.extend(checksum(head, blobs));
    file.extend(head);
    file.extend(blobs);
    file
}

fn checksum(head: &[u8], blobs: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(head)
        .chain_update(blobs)
        .finalize()
        .into()
}

impl Head {
    /// Where the last of its memory ends.
    fn end(&self) -> u64 {
        let memory = self.memory.iter().flat_map(|one| {
            let after = match &one.after {
                HeadAfter::Changed(blob) => Some(blob),
                _ => None,
            };
            [Some(&one.before), after]
        });
        let all = memory.flatten().chain([&self.ptx]);
        all.map(|blob| blob.at.saturating_add(blob.packed))
            .max()
            .unwrap_or(0)
    }

    fn read(self, blobs: &[u8]) -> Result<Record, String> {
        let bytes = |blob: &Blob, what: &str| {
            let end = blob.at.checked_add(blob.packed);
            let range = usize::try_from(blob.at)
                .ok()
                .zip(end.and_then(|end| usize::try_from(end).ok()));
            let packed = range.and_then(|(start, end)| blobs.get(start..end));
            let bytes = packed.and_then(|packed| unpack(packed, blob.bytes));
            bytes.ok_or_else(|| format!("{what} can't be unpacked"))
        };
        let mut memory = Vec::new();
        for one in &self.memory {
            let name = format!("the memory at {:#x}", one.at);
            let before = bytes(&one.before, &name)?;
            let after = match &one.after {
                HeadAfter::Same => After::Same,
                HeadAfter::Changed(blob) => After::Changed(bytes(blob, &name)?),
                HeadAfter::Unknown => After::Unknown,
            };
            if let After::Changed(after) = &after
                && after.len() != before.len()
            {
                return Err(format!("{name} has two lengths"));
            }
            memory.push(Memory {
                kind: one.kind.clone(),
                at: one.at,
                before,
                after,
            });
        }
        let ptx = bytes(&self.ptx, "the PTX")?;
        let ptx = String::from_utf8(ptx).map_err(|_| "the PTX is not text".to_owned())?;
        let params = self.params.into_iter().map(|param| match param {
            HeadParam::Bytes(bytes) => Param::Bytes(bytes),
            HeadParam::Map(map) => Param::Map(Box::new(map)),
        });
        Ok(Record {
            program: self.program,
            gpu: self.gpu,
            capability: self.capability,
            driver: self.driver,
            ptx,
            ptx_from: self.ptx_from,
            kernel: self.kernel,
            number: self.number,
            launch: self.launch,
            cooperative: self.cooperative,
            params: params.collect(),
            memory,
            left_out: self.left_out,
            status: self.status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> Record {
        Record {
            program: vec!["./app".to_owned(), "--n".to_owned()],
            gpu: "NVIDIA H200".to_owned(),
            capability: 90,
            driver: 13000,
            ptx: ".version 8.0\n".to_owned(),
            ptx_from: "the program".to_owned(),
            kernel: "add".to_owned(),
            number: 3,
            launch: Launch::new(4, 128).cluster(2).dynamic_shared(64),
            cooperative: false,
            params: vec![
                Param::Bytes(vec![0, 16, 0, 0, 0, 0, 0, 0]),
                Param::Map(Box::new(map())),
            ],
            memory: vec![
                Memory {
                    kind: Kind::Allocation,
                    at: 0x7f12_3400_0000,
                    before: vec![7; 3000],
                    after: After::Changed((0..3000).map(|i| i as u8).collect()),
                },
                Memory {
                    kind: Kind::Variable("counter".to_owned()),
                    at: 4096,
                    before: vec![1, 2, 3, 4],
                    after: After::Unknown,
                },
            ],
            left_out: vec!["9 bytes".to_owned()],
            status: 700,
        }
    }

    fn map() -> Map {
        Map {
            base: 0x1040,
            element: 6,
            dims: vec![64, 64],
            strides: vec![128],
            box_dims: vec![64, 8],
            element_strides: vec![1, 1],
            interleave: 0,
            swizzle: 3,
            l2: 2,
            fill: 0,
        }
    }

    #[test]
    fn a_record_comes_back() {
        let record = record();
        assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
    }

    #[test]
    fn a_map_is_over_its_memory() {
        let over = map().over("block", 0x1000).unwrap();
        assert_eq!((over.offset, over.box_bytes()), (0x40, 1024));
        assert_eq!(over.swizzle, heist_launch::Swizzle::Bytes128);
        let odd = Map {
            swizzle: 9,
            ..map()
        };
        assert!(
            odd.over("block", 0)
                .unwrap_err()
                .contains("swizzle number 9")
        );
        let narrow = Map {
            box_dims: vec![64],
            ..map()
        };
        assert!(narrow.over("block", 0).is_err());
    }

    #[test]
    fn every_cut_and_every_strange_file_is_told() {
        let whole = record().to_bytes();
        assert_eq!(Record::from_bytes(b""), Err(ReadError::Foreign));
        assert_eq!(
            Record::from_bytes(b"\x7fELF and more"),
            Err(ReadError::Foreign)
        );
        for len in 1..whole.len() {
            let have = whole[..len].len();
            assert_eq!(
                Record::from_bytes(&whole[..len]),
                Err(ReadError::Short { have })
            );
        }
        let mut newer = whole.clone();
        newer[8] = 9;
        assert_eq!(Record::from_bytes(&newer), Err(ReadError::Version(9)));
        let mut longer = whole;
        longer.push(0);
        assert_eq!(Record::from_bytes(&longer), Err(ReadError::Damaged));
    }

    proptest! {
        /// One changed byte anywhere: an error, never another record.
        #[test]
        fn damage_is_found(at in 0usize..10_000, other in 1u8..=255) {
            let mut file = record().to_bytes();
            let at = at % file.len();
            file[at] ^= other;
            prop_assert!(Record::from_bytes(&file).is_err());
        }

        /// The same under a right checksum, as a mistaken writer would make it: an error or a
        /// record, and no panic.
        #[test]
        fn a_wrong_writer_is_survived(at in 0usize..10_000, other in 1u8..=255) {
            let mut file = record().to_bytes();
            let inner = file.len() - FRONT;
            file[FRONT + at % inner] ^= other;
            let len = u32::from_le_bytes([file[12], file[13], file[14], file[15]]) as usize;
            let again = seal(&file[FRONT..FRONT + len], &file[FRONT + len..]);
            let _ = Record::from_bytes(&again);
        }
    }

    #[test]
    fn numbers_of_a_wrong_writer_are_told() {
        let file = record().to_bytes();
        let len = u32::from_le_bytes([file[12], file[13], file[14], file[15]]) as usize;
        let (head, blobs) = (&file[FRONT..FRONT + len], &file[FRONT + len..]);
        let text = String::from_utf8(head.to_vec()).unwrap();
        for (from, to) in [
            ("\"bytes\":3000", "\"bytes\":18446744073709551615"),
            ("\"at\":0,", "\"at\":18446744073709551615,"),
            ("\"bytes\":4", "\"bytes\":5"),
            ("\"kernel\":", "\"kernle\":"),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let other = seal(text.replacen(from, to, 1).as_bytes(), blobs);
            let told = Record::from_bytes(&other).unwrap_err().to_string();
            assert!(told.contains("record it again"), "{told}");
        }
    }
}
