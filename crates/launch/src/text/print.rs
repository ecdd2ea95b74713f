//! Arguments written in the form that reads back to them.

use crate::argument::{Arg, Role};
use crate::buffer::Buffer;
use crate::tensor_map::TensorMap;
use std::fmt;

/// A list in brackets, with runs of equal values written as repeats.
fn write_list(f: &mut fmt::Formatter<'_>, data: &Buffer) -> fmt::Result {
    const RUN: usize = 4;
    f.write_str("[")?;
    let value = |(at, bits)| data.is_written(at).then_some(bits);
    let mut values = data.iter().enumerate().map(value).peekable();
    let mut first = true;
    while let Some(value) = values.next() {
        let mut run = 1;
        while values.next_if_eq(&value).is_some() {
            run += 1;
        }
        let text = value.map_or("?".to_owned(), |bits| data.ty().spell(bits));
        let times = if run >= RUN { 1 } else { run };
        for _ in 0..times {
            f.write_str(if first { "" } else { "," })?;
            f.write_str(&text)?;
            first = false;
        }
        if run >= RUN {
            write!(f, "*{run}")?;
        }
    }
    f.write_str("]")
}

fn write_numbers<T: fmt::Display>(f: &mut fmt::Formatter<'_>, numbers: &[T]) -> fmt::Result {
    f.write_str("[")?;
    for (i, number) in numbers.iter().enumerate() {
        write!(f, "{}{number}", if i == 0 { "" } else { "," })?;
    }
    f.write_str("]")
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Scalar(scalar) => write!(f, "{scalar}"),
            Arg::Bytes(bytes) => {
                f.write_str("bytes:")?;
                write_numbers(f, bytes)
            }
            Arg::Buffer {
                role: Role::Out,
                data,
            } => write!(f, "out:{}:{}", data.ty(), data.len()),
            Arg::Buffer { role, data } => {
                write!(f, "{role}:{}:", data.ty())?;
                write_list(f, data)
            }
            Arg::Pointer { buffer, offset: 0 } => write!(f, "ptr:{buffer}"),
            Arg::Pointer { buffer, offset } => write!(f, "ptr:{buffer}+{offset}"),
            Arg::TensorMap(map) => write!(f, "{map}"),
            Arg::Function(name) => write!(f, "fn:{name}"),
            Arg::Struct(fields) => {
                f.write_str("struct(")?;
                for (i, field) in fields.iter().enumerate() {
                    write!(f, "{}{field}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for TensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "tensormap(buffer={}, type={}, dims=",
            self.buffer, self.element
        )?;
        write_numbers(f, &self.dims)?;
        f.write_str(", strides=")?;
        write_numbers(f, &self.strides)?;
        f.write_str(", box=")?;
        write_numbers(f, &self.box_dims)?;
        f.write_str(", estrides=")?;
        write_numbers(f, &self.element_strides)?;
        write!(
            f,
            ", offset={}, swizzle={}, interleave={}, l2={}, fill={}",
            self.offset, self.swizzle, self.interleave, self.l2, self.fill
        )?;
        if let Some(im2col) = &self.im2col {
            f.write_str(", lower=")?;
            write_numbers(f, &im2col.lower)?;
            f.write_str(", upper=")?;
            write_numbers(f, &im2col.upper)?;
            if let Some(wide) = im2col.wide {
                write!(f, ", wide={wide}")?;
            }
        }
        f.write_str(")")
    }
}
