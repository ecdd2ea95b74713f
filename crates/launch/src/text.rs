//! Arguments as text, for the command line and for file tests.
//!
//! | text | is |
//! |---|---|
//! | `u32:7`, `f32:1.5`, `f32:0x7f800001` | a number by value |
//! | `in:f32:[1, 2, 0..8, 0*64]` | a buffer; lists take ranges (`0..8` is 0 to 7) and repeats |
//! | `in:f32:rand(7, 1024)`, `in:u32:zeros(64)` | the same, filled by rule: seed and count, or count |
//! | `in:f32:values.bin`, `in:f32:values.txt` | the same, from a file: raw little-endian, or text for `.txt` and `.csv` |
//! | `out:f32:64` | a buffer of 64 elements that nobody has written |
//! | `inout:u32:[0, 0]` | a buffer that is read back |
//! | `in:u32:[7, ?*63]` | a buffer of which nobody has written the elements `?` |
//! | `ptr:NAME`, `ptr:NAME+16`, `ptr:0` | a pointer into a named buffer, or into that of argument 0 |
//! | `bytes:[1, 0, 0xff]` | a struct by value |
//! | `struct(ptr:a, ptr:b+16, u32:7)` | the same, laid out as C does |
//! | `fn:NAME` | the address of a function of the module |
//! | `tensormap(buffer=0, type=f16, dims=[64,64], box=[64,8], ...)` | a tensor map by value |
//!
//! A tensor map also takes `strides=[..]` (bytes, of dims 1 and up; dense if
//! left out), `estrides=[..]`, `offset=`, `swizzle=`, `interleave=`, `l2=` and
//! `fill=`. Dims go innermost first. [`Arg`] prints itself in this form, and the
//! print reads back to the same argument.

mod print;
mod tensor_map;

use crate::argument::{Arg, BufferRef, NamedBuffer, Role};
use crate::buffer::Buffer;
use crate::element::{ElementType, Scalar};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Reads a file for `in:TYPE:FILE`. The error is a sentence.
pub type FileReader<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

/// A text that is no argument: what, where, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgTextError {
    /// The whole text.
    pub text: String,
    /// The bytes of it that are wrong; may be empty, at its end.
    pub at: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

impl fmt::Display for ArgTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long lists are cut to the part around the mistake.
        const BEFORE: usize = 40;
        const AFTER: usize = 30;
        let chars: Vec<(usize, char)> = self.text.char_indices().collect();
        let column = chars.partition_point(|(byte, _)| *byte < self.at.start);
        let end = chars.partition_point(|(byte, _)| *byte < self.at.end);
        let (from, to) = (
            column.saturating_sub(BEFORE),
            (end + AFTER).min(chars.len()),
        );
        let shown: String = chars[from..to]
            .iter()
            .map(|(_, c)| if c.is_control() { ' ' } else { *c })
            .collect();
        let dots = |cut| if cut { "…" } else { "" };
        let lead = dots(from > 0);
        writeln!(f, "{} (at column {})", self.message, column + 1)?;
        writeln!(f, "  {lead}{shown}{}", dots(to < chars.len()))?;
        let indent = column - from + lead.chars().count();
        let carets = "^".repeat((end - column).max(1));
        write!(f, "  {}{carets}", " ".repeat(indent))?;
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ArgTextError {}

/// Reads one argument. Files are read by `files`; [`no_files`] refuses them.
///
/// ```
/// use heist_launch::{parse_arg, text::no_files, Arg};
/// assert_eq!(parse_arg("u32:7", &mut no_files).unwrap(), Arg::scalar(7u32));
/// assert_eq!(parse_arg("in:s32:[0..3, -1*2]", &mut no_files).unwrap(), Arg::input(&[0, 1, 2, -1, -1]));
/// let error = parse_arg("in:f31:[1]", &mut no_files).unwrap_err();
/// assert!(error.message.contains("`f31` is not a type"));
/// ```
pub fn parse_arg(text: &str, files: FileReader<'_>) -> Result<Arg, ArgTextError> {
    let reader = Reader { text };
    let whole = reader.trim(0..text.len());
    reader.arg(whole, files)
}

/// Reads `NAME in:f32:[…]`: a buffer with a name.
pub fn parse_named_buffer(text: &str, files: FileReader<'_>) -> Result<NamedBuffer, ArgTextError> {
    let reader = Reader { text };
    let whole = reader.trim(0..text.len());
    let Some(blank) = text[whole.clone()].find(char::is_whitespace) else {
        return Err(reader
            .error(whole, "a named buffer is a name, a blank and its contents")
            .help("such as `weights in:f32:[1,2]` or `work out:u8:256`"));
    };
    let name = whole.start..whole.start + blank;
    if !is_name(&text[name.clone()]) {
        return Err(reader.not_a_name(name));
    }
    let rest = reader.trim(name.end..whole.end);
    match reader.arg(rest.clone(), files)? {
        Arg::Buffer { role, data } => Ok(NamedBuffer {
            name: text[name].to_owned(),
            role,
            data,
        }),
        _ => Err(reader
            .error(rest, "a named buffer needs `in:`, `out:` or `inout:`")
            .help("such as `weights in:f32:[1,2]` or `work out:u8:256`")),
    }
}

/// Reads `f32:[1, 2, nan]`: a type and a list of its values.
pub fn parse_values(text: &str) -> Result<Buffer, ArgTextError> {
    let reader = Reader { text };
    let whole = reader.trim(0..text.len());
    let (ty, rest) = reader.ty(whole)?;
    reader.all_written(ty, rest)
}

/// Refuses every file, for texts that may not name one.
pub fn no_files(_: &str) -> Result<Vec<u8>, String> {
    Err("files can't be read here: write the values as a list".to_owned())
}

/// Elements that a list may have: each is read as a number of its own.
const MOST_LISTED: usize = 1 << 22;

/// Bytes that are read of what is no ordinary file, such as a pipe: it may have no end.
const MOST_OF_A_STREAM: u64 = 256 << 20;

/// Reads a file, and no more of it than a buffer may have.
///
/// # Errors
/// Why it can't be read, or that it is too long.
pub fn read_file(path: &str) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| error.to_string();
    let file = std::fs::File::open(path).map_err(told)?;
    let known = file.metadata().map_err(told)?;
    let most = if known.is_file() {
        Buffer::MAX_FILE_BYTES as u64
    } else {
        MOST_OF_A_STREAM
    };
    if known.is_file() && known.len() > most {
        return Err(too_long(most));
    }
    read_at_most(file, most)
}

fn too_long(most: u64) -> String {
    format!("it has more than {most} bytes, which is the most that is read of it")
}

fn read_at_most(from: impl std::io::Read, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut from.take(most + 1), &mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(too_long(most));
    }
    Ok(bytes)
}

impl FromStr for Arg {
    type Err = ArgTextError;

    /// [`parse_arg`] without files.
    fn from_str(text: &str) -> Result<Arg, ArgTextError> {
        parse_arg(text, &mut no_files)
    }
}

impl ArgTextError {
    fn help(mut self, help: impl Into<String>) -> ArgTextError {
        self.help = Some(help.into());
        self
    }
}

/// The text; every other function takes the range of it to look at.
struct Reader<'t> {
    text: &'t str,
}

impl<'t> Reader<'t> {
    fn str(&self, at: &Range<usize>) -> &'t str {
        self.text.get(at.clone()).unwrap_or("")
    }

    fn error(&self, at: Range<usize>, message: impl Into<String>) -> ArgTextError {
        ArgTextError {
            text: self.text.to_owned(),
            at,
            message: message.into(),
            help: None,
        }
    }

    fn trim(&self, at: Range<usize>) -> Range<usize> {
        let text = self.str(&at);
        let start = at.start + (text.len() - text.trim_start().len());
        let end = at.end - (text.len() - text.trim_end().len());
        start..end.max(start)
    }

    /// What is before and after the first colon.
    fn colon(&self, at: &Range<usize>) -> Option<(Range<usize>, Range<usize>)> {
        let colon = at.start + self.str(at).find(':')?;
        Some((self.trim(at.start..colon), self.trim(colon + 1..at.end)))
    }

    fn arg(&self, at: Range<usize>, files: FileReader<'_>) -> Result<Arg, ArgTextError> {
        let text = self.str(&at);
        if text.starts_with("tensormap") {
            return self.tensor_map(at).map(Arg::TensorMap);
        }
        if let Some(parts) = self.call(&at, "struct")? {
            let fields = parts.into_iter().map(|part| self.field(part));
            return fields.collect::<Result<_, _>>().map(Arg::Struct);
        }
        let Some((head, rest)) = self.colon(&at) else {
            return Err(self
                .error(at, "an argument says its type or its role first")
                .help("such as `u32:7`, `in:f32:[1,2]`, `out:f32:64` or `ptr:NAME`"));
        };
        match self.str(&head) {
            "in" => self.buffer(Role::In, rest, files),
            "inout" => self.buffer(Role::InOut, rest, files),
            "out" => self.poisoned(rest),
            "ptr" => self.pointer(rest),
            "fn" => self.function(rest),
            "bytes" => {
                let data = self.all_written(ElementType::U8, rest)?;
                Ok(Arg::Bytes(data.into_bytes()))
            }
            _ => {
                let (ty, value) = self.ty(at)?;
                let bits = self.value(ty, value)?;
                Ok(Arg::Scalar(Scalar::new(ty, bits)))
            }
        }
    }

    /// A part of a struct.
    fn field(&self, at: Range<usize>) -> Result<Arg, ArgTextError> {
        match self.arg(at.clone(), &mut no_files)? {
            Arg::Buffer { .. } | Arg::TensorMap(_) | Arg::Struct(_) => Err(self
                .error(
                    at,
                    "a part of a struct is a number, bytes, a pointer or a function",
                )
                .help("give a buffer a name of its own, and write `ptr:NAME` here")),
            field => Ok(field),
        }
    }

    fn function(&self, at: Range<usize>) -> Result<Arg, ArgTextError> {
        let text = self.str(&at);
        let sign = |c: char| c.is_ascii_alphanumeric() || "_$%".contains(c);
        if text.is_empty() || !text.chars().all(sign) {
            let error = self.error(at, format!("`{text}` is not the name of a function"));
            return Err(error.help("write it as the PTX does"));
        }
        Ok(Arg::Function(text.to_owned()))
    }

    /// `TYPE:rest`.
    fn ty(&self, at: Range<usize>) -> Result<(ElementType, Range<usize>), ArgTextError> {
        let Some((head, rest)) = self.colon(&at) else {
            return Err(self
                .error(
                    at.end..at.end,
                    "a type, a colon and contents are missing here",
                )
                .help("such as `f32:[1,2]`"));
        };
        match self.str(&head).parse() {
            Ok(ty) => Ok((ty, rest)),
            Err(error) => {
                let error = self.error(head, format!("{error}"));
                Err(error.help(
                    "an argument starts with one of these, or with `in:` `out:` `inout:` `ptr:` `fn:` `bytes:` `struct(` `tensormap(`",
                ))
            }
        }
    }

    fn value(&self, ty: ElementType, at: Range<usize>) -> Result<u64, ArgTextError> {
        let text = self.str(&at);
        ty.parse_bits(text).map_err(|error| {
            let error = self.error(at, error.to_string());
            if text.starts_with('[') {
                error.help(format!("a list needs a buffer around it: `in:{ty}:{text}`"))
            } else {
                error
            }
        })
    }

    fn buffer(
        &self,
        role: Role,
        at: Range<usize>,
        files: FileReader<'_>,
    ) -> Result<Arg, ArgTextError> {
        let (ty, rest) = self.ty(at)?;
        let data = self.filled(ty, rest, files)?;
        Ok(Arg::Buffer { role, data })
    }

    fn poisoned(&self, at: Range<usize>) -> Result<Arg, ArgTextError> {
        let (ty, rest) = self.ty(at)?;
        if self.str(&rest).starts_with('[') {
            return Err(self
                .error(rest, "an output has no contents before the kernel ran")
                .help(format!(
                    "write how many elements it has, `out:{ty}:64`, or use `inout:`"
                )));
        }
        let count = self.count(rest.clone())?;
        self.fits(ty, count, rest)?;
        Ok(Arg::Buffer {
            role: Role::Out,
            data: Buffer::poisoned(ty, count),
        })
    }

    fn count(&self, at: Range<usize>) -> Result<usize, ArgTextError> {
        self.number(at, "a number of elements")
    }

    fn number<T: TryFrom<u64>>(&self, at: Range<usize>, what: &str) -> Result<T, ArgTextError> {
        ElementType::U64
            .parse_bits(self.str(&at))
            .ok()
            .and_then(|n| T::try_from(n).ok())
            .ok_or_else(|| {
                let text = self.str(&at);
                self.error(at, format!("`{text}` is not {what}"))
                    .help("write a whole number, such as 64")
            })
    }

    fn fits(&self, ty: ElementType, count: usize, at: Range<usize>) -> Result<(), ArgTextError> {
        match count.checked_mul(ty.bytes()) {
            Some(bytes) if bytes <= Buffer::MAX_TEXT_BYTES => Ok(()),
            _ => Err(self.error(
                at,
                format!(
                    "{count} elements of {ty} are more than a buffer may have ({} GiB)",
                    Buffer::MAX_TEXT_BYTES >> 30
                ),
            )),
        }
    }

    fn can_be_listed(&self, count: usize, at: Range<usize>) -> Result<(), ArgTextError> {
        if count <= MOST_LISTED {
            return Ok(());
        }
        let told = format!("{count} elements are more than a list may have ({MOST_LISTED})");
        let help = "write `rand(SEED,COUNT)`, `zeros(COUNT)` or a file's path";
        Err(self.error(at, told).help(help))
    }

    fn filled(
        &self,
        ty: ElementType,
        at: Range<usize>,
        files: FileReader<'_>,
    ) -> Result<Buffer, ArgTextError> {
        let text = self.str(&at);
        if text.starts_with('[') {
            let mut values = Vec::new();
            for item in self.items(at)? {
                self.item(ty, item, &mut values)?;
            }
            return Ok(Buffer::partly(ty, &values));
        }
        if let Some(parts) = self.call(&at, "rand")? {
            let [seed, count] = self.exactly(parts, &at, "rand(SEED, COUNT)")?;
            let seed = self.number(seed, "a seed")?;
            let number = self.count(count.clone())?;
            self.fits(ty, number, count)?;
            return Ok(Buffer::random(ty, seed, number));
        }
        if let Some(parts) = self.call(&at, "zeros")? {
            let [count] = self.exactly(parts, &at, "zeros(COUNT)")?;
            let number = self.count(count.clone())?;
            self.fits(ty, number, count)?;
            return Ok(Buffer::zeros(ty, number));
        }
        if text.is_empty() {
            return Err(self.error(at, "the contents are missing").help(
                "write a list `[1,2]`, `rand(SEED,COUNT)`, `zeros(COUNT)` or a file's path",
            ));
        }
        self.file(ty, at, files)
    }

    /// Contents of which every element has a value.
    fn all_written(&self, ty: ElementType, at: Range<usize>) -> Result<Buffer, ArgTextError> {
        let data = self.filled(ty, at.clone(), &mut no_files)?;
        match data.written() {
            None => Ok(data),
            Some(_) => Err(self.error(
                at,
                "only a buffer may have elements that nobody has written",
            )),
        }
    }

    fn file(
        &self,
        ty: ElementType,
        at: Range<usize>,
        files: FileReader<'_>,
    ) -> Result<Buffer, ArgTextError> {
        let path = self.str(&at);
        let bytes = files(path).map_err(|why| {
            self.error(at.clone(), format!("`{path}`: {why}")).help(
                "contents are a list `[1,2]`, `rand(SEED,COUNT)`, `zeros(COUNT)` or a file's path",
            )
        })?;
        if !(path.ends_with(".txt") || path.ends_with(".csv")) {
            let len = bytes.len();
            return Buffer::from_bytes(ty, bytes).ok_or_else(|| {
                self.error(
                    at,
                    format!("`{path}` has {len} bytes, which is no whole number of {ty}"),
                )
                .help("a file of raw values is little-endian; text files end in .txt or .csv")
            });
        }
        let text = String::from_utf8_lossy(&bytes);
        let words = text
            .split(|c: char| c == ',' || c.is_whitespace())
            .filter(|word| !word.is_empty());
        let mut values = Vec::new();
        for (index, word) in words.enumerate() {
            values.push(ty.parse_bits(word).map_err(|error| {
                self.error(
                    at.clone(),
                    format!("`{path}`, value {}: {error}", index + 1),
                )
            })?);
        }
        Ok(Buffer::from_bits(ty, values))
    }

    /// The parts between the brackets of a list.
    fn items(&self, at: Range<usize>) -> Result<Vec<Range<usize>>, ArgTextError> {
        let text = self.str(&at);
        if !text.starts_with('[') {
            return Err(self
                .error(at, format!("`{text}` is not a list"))
                .help("a list stands in square brackets: `[1,2]`"));
        }
        let Some(close) = text.find(']') else {
            return Err(self.error(at.end..at.end, "the list is not closed: `]` is missing"));
        };
        let end = at.start + close;
        if end + 1 != at.end {
            return Err(self.error(end + 1..at.end, "nothing may follow the list"));
        }
        Ok(self.split(at.start + 1..end))
    }

    /// Parts between commas outside brackets; none for an empty text.
    fn split(&self, at: Range<usize>) -> Vec<Range<usize>> {
        let text = self.str(&at);
        if text.trim().is_empty() {
            return Vec::new();
        }
        let mut parts = Vec::new();
        let (mut depth, mut start) = (0i32, at.start);
        for (byte, c) in text.char_indices() {
            match c {
                '[' | '(' => depth += 1,
                ']' | ')' => depth -= 1,
                ',' if depth <= 0 => {
                    parts.push(self.trim(start..at.start + byte));
                    start = at.start + byte + 1;
                }
                _ => {}
            }
        }
        parts.push(self.trim(start..at.end));
        parts
    }

    /// `x`, `a..b` or `x*n`, where `?` is an element that nobody has written.
    fn item(
        &self,
        ty: ElementType,
        at: Range<usize>,
        values: &mut Vec<Option<u64>>,
    ) -> Result<(), ArgTextError> {
        let text = self.str(&at);
        if let Some(dots) = text.find("..") {
            let from = self.trim(at.start..at.start + dots);
            let to = self.trim(at.start + dots + 2..at.end);
            let (low, high) = (self.end_of_range(from)?, self.end_of_range(to)?);
            if low > high {
                return Err(self
                    .error(at, format!("the range goes from {low} down to {high}"))
                    .help("a range `a..b` counts up from a to b-1"));
            }
            let count = usize::try_from(high.abs_diff(low)).unwrap_or(usize::MAX);
            self.can_be_listed(values.len().saturating_add(count), at.clone())?;
            for n in low..high {
                // The text of the number takes the same checks as one written out.
                let bits = ty.parse_bits(&n.to_string());
                let bits = bits.map_err(|error| self.error(at.clone(), error.to_string()))?;
                values.push(Some(bits));
            }
            return Ok(());
        }
        let (value, count) = match text.find('*') {
            Some(star) => {
                let count = self.trim(at.start + star + 1..at.end);
                (
                    self.trim(at.start..at.start + star),
                    self.number(count, "a number of repeats")?,
                )
            }
            None => (at.clone(), 1),
        };
        let bits = match self.str(&value) {
            "?" => None,
            _ => Some(self.value(ty, value)?),
        };
        self.can_be_listed(values.len().saturating_add(count), at)?;
        values.extend(std::iter::repeat_n(bits, count));
        Ok(())
    }

    fn end_of_range(&self, at: Range<usize>) -> Result<i64, ArgTextError> {
        let text = self.str(&at);
        let bits = ElementType::S64.parse_bits(text).map_err(|_| {
            self.error(at, format!("`{text}` is not a whole number"))
                .help("a range is `a..b` with whole numbers, from a to b-1")
        })?;
        Ok(bits as i64)
    }

    /// The parts between the parentheses of `name(…)`; `None` if it isn't that.
    fn call(
        &self,
        at: &Range<usize>,
        name: &str,
    ) -> Result<Option<Vec<Range<usize>>>, ArgTextError> {
        let Some(rest) = self.str(at).strip_prefix(name) else {
            return Ok(None);
        };
        let open = at.end - rest.trim_start().len();
        if !self.str(&(open..at.end)).starts_with('(') {
            return Ok(None);
        }
        if !rest.ends_with(')') {
            return Err(self.error(
                at.end..at.end,
                format!("`{name}(` is not closed: `)` is missing"),
            ));
        }
        Ok(Some(self.split(open + 1..at.end - 1)))
    }

    fn exactly<const N: usize>(
        &self,
        parts: Vec<Range<usize>>,
        at: &Range<usize>,
        form: &str,
    ) -> Result<[Range<usize>; N], ArgTextError> {
        let found = parts.len();
        parts.try_into().map_err(|_| {
            self.error(at.clone(), format!("{form} takes {N}, not {found}"))
                .help(format!("write {form}"))
        })
    }

    fn buffer_ref(&self, at: Range<usize>) -> Result<BufferRef, ArgTextError> {
        let text = self.str(&at);
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            return self
                .number(at, "an argument's index")
                .map(BufferRef::Argument);
        }
        if is_name(text) {
            return Ok(BufferRef::Named(text.to_owned()));
        }
        Err(self.not_a_name(at))
    }

    fn not_a_name(&self, at: Range<usize>) -> ArgTextError {
        let text = self.str(&at);
        self.error(at, format!("`{text}` is not the name of a buffer"))
            .help("a name starts with a letter and goes on with letters, digits, `_`, `-` and `.`; a number means the buffer of that argument")
    }

    fn pointer(&self, at: Range<usize>) -> Result<Arg, ArgTextError> {
        let text = self.str(&at);
        let (name, offset) = match text.find('+') {
            Some(plus) => {
                let offset = self.trim(at.start + plus + 1..at.end);
                (
                    self.trim(at.start..at.start + plus),
                    self.number(offset, "a number of bytes")?,
                )
            }
            None => (at, 0),
        };
        Ok(Arg::Pointer {
            buffer: self.buffer_ref(name)?,
            offset,
        })
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

#[cfg(test)]
mod tests;
