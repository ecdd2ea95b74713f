//! Reading a tensor map: a call with named fields.

use super::{ArgTextError, Reader};
use crate::tensor_map::{Im2col, TensorMap};
use std::ops::Range;
use std::str::FromStr;

const TENSOR_MAP_FIELDS: [&str; 14] = [
    "buffer",
    "type",
    "dims",
    "strides",
    "box",
    "estrides",
    "offset",
    "swizzle",
    "interleave",
    "l2",
    "fill",
    "lower",
    "upper",
    "wide",
];

impl Reader<'_> {
    pub(super) fn tensor_map(&self, at: Range<usize>) -> Result<TensorMap, ArgTextError> {
        const FORM: &str =
            "tensormap(buffer=0, type=f16, dims=[64,64], strides=[128], box=[64,8], swizzle=128)";
        let Some(parts) = self.call(&at, "tensormap")? else {
            return Err(self
                .error(at, "a tensor map is written in parentheses")
                .help(format!("such as `{FORM}`")));
        };
        let mut fields: Vec<(&str, Range<usize>)> = Vec::new();
        for part in parts {
            let Some(equals) = self.str(&part).find('=') else {
                return Err(self
                    .error(part, "a field of a tensor map is `name=value`")
                    .help(format!("such as `{FORM}`")));
            };
            let key = self.trim(part.start..part.start + equals);
            let value = self.trim(part.start + equals + 1..part.end);
            let name = self.str(&key);
            if !TENSOR_MAP_FIELDS.contains(&name) {
                return Err(self
                    .error(key, format!("a tensor map has no field `{name}`"))
                    .help(format!("its fields are {}", TENSOR_MAP_FIELDS.join(" "))));
            }
            if fields.iter().any(|(other, _)| *other == name) {
                return Err(self.error(key, format!("`{name}` is given twice")));
            }
            fields.push((name, value));
        }
        let optional = |name: &str| {
            fields
                .iter()
                .find(|(other, _)| *other == name)
                .map(|(_, at)| at.clone())
        };
        let required = |name: &str| {
            optional(name).ok_or_else(|| {
                self.error(at.clone(), format!("the tensor map does not say `{name}=`"))
                    .help(format!("such as `{FORM}`"))
            })
        };
        let element = self.spelled(required("type")?)?;
        let dims: Vec<u64> = self.numbers(required("dims")?)?;
        let box_dims: Vec<u32> = self.numbers(required("box")?)?;
        let mut map = TensorMap::dense(
            self.buffer_ref(required("buffer")?)?,
            element,
            &dims,
            &box_dims,
        );
        if let Some(at) = optional("strides") {
            map.strides = self.numbers(at)?;
        }
        if let Some(at) = optional("estrides") {
            map.element_strides = self.numbers(at)?;
        }
        if let Some(at) = optional("offset") {
            map.offset = self.number(at, "a number of bytes")?;
        }
        if let Some(at) = optional("swizzle") {
            map.swizzle = self.spelled(at)?;
        }
        if let Some(at) = optional("interleave") {
            map.interleave = self.spelled(at)?;
        }
        if let Some(at) = optional("l2") {
            map.l2 = self.spelled(at)?;
        }
        if let Some(at) = optional("fill") {
            map.fill = self.spelled(at)?;
        }
        map.im2col = match (optional("lower"), optional("upper"), optional("wide")) {
            (None, None, None) => None,
            (Some(lower), Some(upper), wide) => Some(Im2col {
                lower: self.signed(lower)?,
                upper: self.signed(upper)?,
                wide: wide.map(|at| self.spelled(at)).transpose()?,
            }),
            _ => {
                return Err(self
                    .error(
                        at,
                        "a map of columns has both corners: `lower=` and `upper=`",
                    )
                    .help("such as `lower=[-1,-1], upper=[-1,-1]`, without which a map is tiled"));
            }
        };
        map.validate()
            .map_err(|error| self.error(at, error.to_string()))?;
        Ok(map)
    }

    fn numbers<T: TryFrom<u64>>(&self, at: Range<usize>) -> Result<Vec<T>, ArgTextError> {
        self.items(at)?
            .into_iter()
            .map(|item| self.number(item, "a whole number in range"))
            .collect()
    }

    fn signed(&self, at: Range<usize>) -> Result<Vec<i32>, ArgTextError> {
        let one = |item: Range<usize>| {
            let number = self.str(&item).parse();
            number
                .map_err(|_| self.error(item, "a corner is a whole number, which may be negative"))
        };
        self.items(at)?.into_iter().map(one).collect()
    }

    fn spelled<T: FromStr<Err = String>>(&self, at: Range<usize>) -> Result<T, ArgTextError> {
        self.str(&at)
            .parse()
            .map_err(|error: String| self.error(at, error))
    }
}
