//! The arguments of a kernel.
//!
//! [`Arguments`] is the user's form: one [`Arg`] a parameter, and named buffers that are not
//! themselves parameters. [`Bound`] is the device's form: a table of buffers to allocate, and
//! parameters that are bytes, pointers into that table or tensor maps over it.

use crate::buffer::Buffer;
use crate::element::{Element, ElementType, Scalar};
use crate::placed::{Foreign, Placed, Written};
use crate::tensor_map::{HostMaps, TensorMap, TensorMapError};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// What a kernel may do with a buffer, and what happens to it before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Filled before; not read back.
    In,
    /// Poisoned before, "never written"; read back after.
    Out,
    /// Filled before; read back after.
    InOut,
}

impl Role {
    /// Its name in the textual form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::In => "in",
            Role::Out => "out",
            Role::InOut => "inout",
        }
    }

    /// Whether it starts with contents of its own.
    pub const fn is_filled(self) -> bool {
        !matches!(self, Role::Out)
    }

    /// Whether it is read back.
    pub const fn is_read_back(self) -> bool {
        !matches!(self, Role::In)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A number, by value.
    Scalar(Scalar),
    /// A struct, by value: its bytes.
    Bytes(Vec<u8>),
    /// A pointer to a buffer of its own.
    Buffer {
        /// What happens to it.
        role: Role,
        /// What is in it; poison for [`Role::Out`].
        data: Buffer,
    },
    /// A pointer into another argument's buffer or a named one.
    Pointer {
        /// Which.
        buffer: BufferRef,
        /// Bytes from its start.
        offset: u64,
    },
    /// A tensor map, by value.
    TensorMap(TensorMap),
    /// The address of a function of the module; a simulated GPU alone tells it.
    Function(String),
    /// A struct, by value, of numbers, bytes, pointers and functions: laid out as C does.
    Struct(Vec<Arg>),
}

impl Arg {
    /// A number.
    pub fn scalar(value: impl Into<Scalar>) -> Arg {
        Arg::Scalar(value.into())
    }

    /// A buffer that the kernel reads.
    pub fn input<T: Element>(values: &[T]) -> Arg {
        Arg::Buffer {
            role: Role::In,
            data: Buffer::from_slice(values),
        }
    }

    /// A buffer of `count` elements that the kernel fills.
    pub fn output<T: Element>(count: usize) -> Arg {
        Arg::Buffer {
            role: Role::Out,
            data: Buffer::poisoned(T::TYPE, count),
        }
    }

    /// A buffer that the kernel changes.
    pub fn in_out<T: Element>(values: &[T]) -> Arg {
        Arg::Buffer {
            role: Role::InOut,
            data: Buffer::from_slice(values),
        }
    }
}

impl From<Vec<u8>> for Arg {
    fn from(bytes: Vec<u8>) -> Arg {
        Arg::Bytes(bytes)
    }
}

/// Which buffer a pointer or a tensor map means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BufferRef {
    /// The buffer that the argument with this index brings.
    Argument(usize),
    /// A named buffer.
    Named(String),
}

impl From<usize> for BufferRef {
    fn from(index: usize) -> BufferRef {
        BufferRef::Argument(index)
    }
}

impl From<&str> for BufferRef {
    fn from(name: &str) -> BufferRef {
        BufferRef::Named(name.to_owned())
    }
}

impl fmt::Display for BufferRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BufferRef::Argument(index) => write!(f, "{index}"),
            BufferRef::Named(name) => f.write_str(name),
        }
    }
}

/// A buffer that is not itself a parameter; pointers and tensor maps name it.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedBuffer {
    /// What it is called.
    pub name: String,
    /// What happens to it.
    pub role: Role,
    /// What is in it; poison for [`Role::Out`].
    pub data: Buffer,
}

/// Everything a kernel is called with.
///
/// ```
/// use heist_launch::{Arg, Arguments, Param};
/// let arguments = Arguments::new([Arg::input(&[1u32, 2]), Arg::output::<u32>(2), Arg::scalar(7u32)]);
/// let bound = arguments.bind().unwrap();
/// assert_eq!(bound.slots.len(), 2);
/// assert_eq!(bound.params[1], Param::Pointer { slot: 1, offset: 0 });
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// One for each parameter, in order.
    pub params: Vec<Arg>,
    /// Buffers with names.
    pub buffers: Vec<NamedBuffer>,
    /// Memory at addresses of the caller's; a simulated GPU alone can have it.
    pub placed: Vec<Placed>,
    /// What other addresses are, by address, for findings of a simulated GPU.
    pub foreign: Arc<[Foreign]>,
    /// Tensor maps in the bytes of parameters and memory, for a simulated GPU.
    pub maps: Arc<HostMaps>,
}

impl Arguments {
    /// Parameters alone.
    pub fn new(params: impl IntoIterator<Item = Arg>) -> Arguments {
        Arguments {
            params: params.into_iter().collect(),
            ..Arguments::default()
        }
    }

    /// Adds a named buffer.
    #[must_use]
    pub fn buffer(mut self, name: impl Into<String>, role: Role, data: Buffer) -> Arguments {
        self.buffers.push(NamedBuffer {
            name: name.into(),
            role,
            data,
        });
        self
    }

    /// Adds memory at an address of the caller's.
    #[must_use]
    pub fn placed(mut self, placed: Placed) -> Arguments {
        self.placed.push(placed);
        self
    }

    /// Adds a parameter.
    #[must_use]
    pub fn arg(mut self, arg: Arg) -> Arguments {
        self.params.push(arg);
        self
    }

    /// Resolves names and indices and checks tensor maps.
    ///
    /// The table holds the buffers of the parameters first, in order, then the
    /// named ones, then those with an address, each in order.
    pub fn bind(&self) -> Result<Bound, BindError> {
        let bound = self.bind_any_map()?;
        for (arg, param) in bound.params.iter().enumerate() {
            if let Param::TensorMap { slot, map } = param {
                map.validate_within(bound.slots[*slot].data.bytes().len() as u64)
                    .map_err(|error| BindError::TensorMap {
                        arg,
                        buffer: map.buffer.to_string(),
                        error,
                    })?;
            }
        }
        Ok(bound)
    }

    /// The same for kernels that replace a map's address before they use it: the tensor need not lie in its buffer.
    pub fn bind_any_map(&self) -> Result<Bound, BindError> {
        let mut slots = Vec::new();
        for (index, arg) in self.params.iter().enumerate() {
            if let Arg::Buffer { role, data } = arg {
                slots.push(Slot {
                    name: BufferRef::Argument(index),
                    role: *role,
                    data: data.clone(),
                    place: None,
                });
            }
        }
        let named = self.buffers.iter().map(|named| Slot {
            name: BufferRef::Named(named.name.clone()),
            role: named.role,
            data: named.data.clone(),
            place: None,
        });
        let mut names = HashSet::new();
        for slot in named.chain(self.placed.iter().map(Slot::of)) {
            if !names.insert(slot.name.clone()) {
                return Err(BindError::Twice {
                    name: slot.name.to_string(),
                });
            }
            slots.push(slot);
        }
        apart(&self.placed)?;
        let find = |arg: usize, buffer: &BufferRef| {
            slots
                .iter()
                .position(|slot| slot.name == *buffer)
                .ok_or_else(|| BindError::NoSuchBuffer {
                    arg,
                    buffer: buffer.clone(),
                    known: known(&slots),
                })
        };
        let pointed = |arg: usize| {
            let (slots, find) = (&slots, &find);
            move |buffer: &BufferRef, offset: u64| {
                let slot = find(arg, buffer)?;
                let bytes = slots[slot].data.bytes().len() as u64;
                if offset <= bytes {
                    return Ok(slot);
                }
                Err(BindError::PastEnd {
                    arg,
                    buffer: buffer.clone(),
                    offset,
                    bytes,
                })
            }
        };
        let mut params = Vec::with_capacity(self.params.len());
        let mut next_own = 0;
        for (index, arg) in self.params.iter().enumerate() {
            params.push(match arg {
                Arg::Scalar(scalar) => Param::Bytes(scalar.to_bytes()),
                Arg::Bytes(bytes) => Param::Bytes(bytes.clone()),
                Arg::Buffer { .. } => {
                    next_own += 1;
                    Param::Pointer {
                        slot: next_own - 1,
                        offset: 0,
                    }
                }
                Arg::Pointer { buffer, offset } => Param::Pointer {
                    slot: pointed(index)(buffer, *offset)?,
                    offset: *offset,
                },
                Arg::TensorMap(map) => {
                    let slot = find(index, &map.buffer)?;
                    let wrong = |error| BindError::TensorMap {
                        arg: index,
                        buffer: map.buffer.to_string(),
                        error,
                    };
                    map.validate().map_err(wrong)?;
                    Param::TensorMap {
                        slot,
                        map: map.clone(),
                    }
                }
                Arg::Function(_) => Fields::of(std::slice::from_ref(arg), &pointed(index))?,
                Arg::Struct(fields) => Fields::of(fields, &pointed(index))?,
            });
        }
        Ok(Bound { slots, params })
    }
}

impl From<Vec<Arg>> for Arguments {
    fn from(params: Vec<Arg>) -> Arguments {
        Arguments::new(params)
    }
}

fn known(slots: &[Slot]) -> String {
    match slots {
        [] => "the launch has no buffer at all".to_owned(),
        _ => {
            let names: Vec<_> = slots.iter().map(|slot| slot.name.to_string()).collect();
            format!("buffers are: {}", names.join(", "))
        }
    }
}

/// A buffer that a device allocates for a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Its origin: a parameter's index, or a name.
    pub name: BufferRef,
    /// What happens to it.
    pub role: Role,
    /// What it is filled with before the launch.
    pub data: Buffer,
    /// Where it has to lie, if that is not the device's choice.
    pub place: Option<Placement>,
}

/// Where memory has to lie, and what of it was written before.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Its address.
    pub at: u64,
    /// Its bytes that were written; all of them, where nothing is said.
    pub written: Option<Written>,
}

impl Slot {
    fn of(placed: &Placed) -> Slot {
        let bytes = Buffer::from_shared(ElementType::U8, placed.bytes.clone());
        Slot {
            name: BufferRef::Named(placed.name.clone()),
            role: Role::InOut,
            data: bytes.unwrap_or_else(|| Buffer::zeros(ElementType::U8, 0)),
            place: Some(Placement {
                at: placed.at,
                written: placed.written.clone(),
            }),
        }
    }
}

/// No two stretches of placed memory may have a byte in common.
fn apart(placed: &[Placed]) -> Result<(), BindError> {
    let mut sorted: Vec<&Placed> = placed.iter().collect();
    sorted.sort_by_key(|one| one.at);
    for pair in sorted.windows(2) {
        let end = pair[0].at.checked_add(pair[0].bytes.len() as u64);
        if end.is_none_or(|end| end > pair[1].at) {
            return Err(BindError::Overlap {
                first: pair[0].name.clone(),
                second: pair[1].name.clone(),
            });
        }
    }
    Ok(())
}

/// One parameter, as a device wants it.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// Bytes, by value.
    Bytes(Vec<u8>),
    /// The address of a slot, plus bytes.
    Pointer {
        /// Index into [`Bound::slots`].
        slot: usize,
        /// Bytes from its start.
        offset: u64,
    },
    /// A tensor map over a slot: 128 bytes, by value, 64-byte aligned.
    TensorMap {
        /// Index into [`Bound::slots`].
        slot: usize,
        /// The map; its own buffer reference is resolved already.
        map: TensorMap,
    },
    /// Bytes, by value, with addresses in them that only the device knows.
    Struct(Fields),
}

/// A struct by value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Its bytes, with zeros where addresses go.
    bytes: Vec<u8>,
    /// Where in the bytes an address goes, and of what.
    addresses: Vec<(usize, Address)>,
}

/// What a field of a struct is the address of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of a slot, plus bytes.
    Slot {
        /// Index into [`Bound::slots`].
        slot: usize,
        /// Bytes from its start.
        offset: u64,
    },
    /// Of a function of the module.
    Function(String),
}

impl Fields {
    /// Lays fields out as C does: each at a multiple of its own size, and the whole a multiple of the
    /// largest. `pointed` finds the slot of a pointer.
    fn of(
        fields: &[Arg],
        pointed: &dyn Fn(&BufferRef, u64) -> Result<usize, BindError>,
    ) -> Result<Param, BindError> {
        let mut of = Fields::default();
        let mut widest = 1;
        for field in fields {
            let (value, align, address) = match field {
                Arg::Scalar(scalar) => {
                    let bytes = scalar.to_bytes();
                    let align = bytes.len();
                    (bytes, align, None)
                }
                Arg::Bytes(bytes) => (bytes.clone(), 1, None),
                Arg::Pointer { buffer, offset } => {
                    let slot = pointed(buffer, *offset)?;
                    let offset = *offset;
                    (vec![0; 8], 8, Some(Address::Slot { slot, offset }))
                }
                Arg::Function(name) => (vec![0; 8], 8, Some(Address::Function(name.clone()))),
                Arg::Buffer { .. } | Arg::TensorMap(_) | Arg::Struct(_) => {
                    return Err(BindError::Field {
                        field: field.to_string(),
                    });
                }
            };
            widest = widest.max(align);
            of.bytes.resize(of.bytes.len().next_multiple_of(align), 0);
            of.addresses
                .extend(address.map(|one| (of.bytes.len(), one)));
            of.bytes.extend(value);
        }
        of.bytes.resize(of.bytes.len().next_multiple_of(widest), 0);
        Ok(Param::Struct(of))
    }

    /// The bytes with every address in its place, as `address` tells it.
    ///
    /// # Errors
    /// What `address` does not know.
    pub fn filled<E>(
        &self,
        mut address: impl FnMut(&Address) -> Result<u64, E>,
    ) -> Result<Vec<u8>, E> {
        let mut bytes = self.bytes.clone();
        for (at, of) in &self.addresses {
            bytes[*at..at + 8].copy_from_slice(&address(of)?.to_le_bytes());
        }
        Ok(bytes)
    }
}

impl Param {
    /// How many bytes it takes in parameter memory, with 64-bit addresses.
    pub fn size(&self) -> usize {
        match self {
            Param::Bytes(bytes) => bytes.len(),
            Param::Pointer { .. } => 8,
            Param::TensorMap { .. } => 128,
            Param::Struct(fields) => fields.bytes.len(),
        }
    }
}

/// Arguments with every name resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The buffers.
    pub slots: Vec<Slot>,
    /// The parameters, in order.
    pub params: Vec<Param>,
}

impl Bound {
    /// The slot that a parameter brought or that has a name.
    pub fn slot(&self, name: &BufferRef) -> Option<usize> {
        self.slots.iter().position(|slot| slot.name == *name)
    }
}

/// Arguments that do not fit together.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs)]
pub enum BindError {
    /// Two buffers of one name.
    #[error("there are two buffers named `{name}`: give one of them another name")]
    Twice { name: String },
    /// A pointer or tensor map to nothing.
    #[error("argument {arg} refers to buffer `{buffer}`, and there is none: {known}")]
    NoSuchBuffer {
        arg: usize,
        buffer: BufferRef,
        known: String,
    },
    /// A pointer past the end of its buffer.
    #[error("argument {arg} points {offset} bytes into buffer `{buffer}`, which has {bytes} bytes")]
    PastEnd {
        arg: usize,
        buffer: BufferRef,
        offset: u64,
        bytes: u64,
    },
    /// Two stretches of memory that share bytes.
    #[error("`{first}` and `{second}` lie over one another: give them addresses apart")]
    Overlap { first: String, second: String },
    /// A part of a struct that has no place in one.
    #[error(
        "`{field}` can't be a part of a struct: that takes numbers, bytes, `ptr:NAME` and `fn:NAME`"
    )]
    Field { field: String },
    /// A tensor map that breaks a rule.
    #[error("argument {arg} is a tensor map over buffer `{buffer}` that no device takes: {error}")]
    TensorMap {
        arg: usize,
        buffer: String,
        error: TensorMapError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::ElementType;
    use crate::tensor_map::TensorElement;

    #[test]
    fn names_and_indices_resolve() {
        let arguments = Arguments::new([
            Arg::scalar(1u32),
            Arg::in_out(&[0f32; 64]),
            Arg::Pointer {
                buffer: "work".into(),
                offset: 4,
            },
            Arg::Pointer {
                buffer: 1.into(),
                offset: 0,
            },
            Arg::TensorMap(TensorMap::dense(1, TensorElement::F32, &[8, 8], &[8, 8])),
        ])
        .buffer("work", Role::Out, Buffer::poisoned(ElementType::U8, 8));
        let bound = arguments.bind().unwrap();
        assert_eq!(bound.slots.len(), 2);
        assert_eq!(bound.params[2], Param::Pointer { slot: 1, offset: 4 });
        assert_eq!(bound.params[3], Param::Pointer { slot: 0, offset: 0 });
        assert!(matches!(bound.params[4], Param::TensorMap { slot: 0, .. }));
        assert_eq!(bound.slot(&"work".into()), Some(1));
        let sizes: Vec<_> = bound.params.iter().map(Param::size).collect();
        assert_eq!(sizes, [4, 8, 8, 8, 128]);
    }

    #[test]
    fn a_struct_is_laid_out_as_c_does() {
        let pointer = |buffer: &str, offset| Arg::Pointer {
            buffer: buffer.into(),
            offset,
        };
        let with = |fields| {
            Arguments::new([Arg::Struct(fields)])
                .buffer("a", Role::In, Buffer::zeros(ElementType::U8, 16))
                .buffer("b", Role::In, Buffer::zeros(ElementType::U8, 16))
                .bind()
        };
        let bound = with(vec![
            Arg::scalar(7u8),
            pointer("b", 4),
            Arg::scalar(0x0102_u16),
            Arg::Function("f".to_owned()),
            Arg::Bytes(vec![9]),
        ]);
        let bound = bound.unwrap();
        let [param @ Param::Struct(fields)] = &bound.params[..] else {
            panic!("{bound:?}")
        };
        assert_eq!(param.size(), 40);
        let filled = fields.filled(|address| match address {
            Address::Slot { slot, offset } => Ok(0x1000 * *slot as u64 + offset),
            Address::Function(name) if name == "f" => Ok(0x77),
            Address::Function(name) => Err(name.clone()),
        });
        let mut wanted = vec![0; 40];
        wanted[0] = 7;
        wanted[8..10].copy_from_slice(&[4, 0x10]);
        wanted[16..18].copy_from_slice(&[2, 1]);
        wanted[24] = 0x77;
        wanted[32] = 9;
        assert_eq!(filled, Ok(wanted));
        let past = with(vec![pointer("b", 17)]);
        assert!(matches!(past, Err(BindError::PastEnd { .. })), "{past:?}");
        let inner = with(vec![Arg::Struct(Vec::new())]);
        assert!(matches!(inner, Err(BindError::Field { .. })), "{inner:?}");
    }

    #[test]
    fn memory_with_an_address_is_found_by_its_name() {
        let block = |name: &str, at| Placed::filled(name, at, vec![1; 64]);
        let map = TensorMap::dense("b", TensorElement::F32, &[4, 4], &[4, 4]);
        let arguments = Arguments::new([Arg::TensorMap(map)]).placed(block("a", 4096));
        let bound = arguments.clone().placed(block("b", 4160)).bind().unwrap();
        assert!(matches!(bound.params[0], Param::TensorMap { slot: 1, .. }));
        assert_eq!(
            bound.slots[1].place.as_ref().map(|place| place.at),
            Some(4160)
        );
        let says = |one| {
            arguments
                .clone()
                .placed(one)
                .bind()
                .unwrap_err()
                .to_string()
        };
        assert!(says(block("b", 4159)).contains("`a` and `b` lie over one another"));
        assert!(says(block("a", 8192)).contains("two buffers"));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let pointer = |buffer: &str, offset| Arg::Pointer {
            buffer: buffer.into(),
            offset,
        };
        let says = |arguments: Arguments| arguments.bind().unwrap_err().to_string();
        assert!(says(Arguments::new([pointer("a", 0)])).contains("no buffer at all"));
        let eight = || Buffer::zeros(ElementType::U8, 8);
        let a = Arguments::new([pointer("b", 0)]).buffer("a", Role::In, eight());
        assert!(says(a).contains("buffers are: a"));
        let a = Arguments::new([pointer("a", 9)]).buffer("a", Role::In, eight());
        assert!(says(a).contains("which has 8 bytes"));
        let twice =
            Arguments::default()
                .buffer("a", Role::In, eight())
                .buffer("a", Role::In, eight());
        assert!(says(twice).contains("two buffers"));
        let map = TensorMap::dense(0, TensorElement::F32, &[64, 8], &[8, 8]);
        let a = Arguments::new([Arg::input(&[0f32; 8]), Arg::TensorMap(map)]);
        assert!(says(a).contains("buffer of 32 bytes"));
    }
}
