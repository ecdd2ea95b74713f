//! Functions that the system brings: `vprintf`, `malloc`, `__assertfail`.

use crate::access::context::Cx;
use crate::access::doubt;
use crate::access::group::{Does, Home, groups};
use crate::code::{Flow, Reach};
use crate::decode::map::with;
use crate::decode::names::{Memory, Named, Storage};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each};
use heist_ptx::{Instruction, Operand, rule};

/// Bytes of output that a kernel may print.
const MOST_PRINTED: usize = 1 << 20;

/// Whether a function is the system's, and not one that the module defines.
pub(crate) fn is_known(d: &Decoder<'_>, name: &str) -> bool {
    matches!(name, "vprintf" | "malloc" | "free" | "__assertfail")
        && d.by_name
            .get(name)
            .is_none_or(|function| function.body.is_none())
}

pub(crate) fn decode(
    d: &mut Decoder<'_>,
    i: &Instruction,
    name: &str,
    returns: &[Operand],
    arguments: &[Operand],
) -> Decoded<()> {
    let arguments = arguments
        .iter()
        .map(|operand| frame_of(d, operand))
        .collect::<Decoded<Vec<u32>>>()?;
    let result = returns
        .first()
        .map(|operand| frame_of(d, operand))
        .transpose()?;
    let wanted = match name {
        "vprintf" => 2,
        "malloc" | "free" => 1,
        _ => 5,
    };
    if arguments.len() != wanted {
        return Err(d.unsupported(i, &format!("`{name}` takes {wanted} arguments")));
    }
    match name {
        "vprintf" => {
            let instr = with(move |cx| {
                let (formats, values) = (argument(cx, arguments[0]), argument(cx, arguments[1]));
                let mut counts = [0; LANES];
                for lane in each(cx.mask) {
                    let (text, count) = print(cx, lane, formats[lane], values[lane]);
                    counts[lane] = count;
                    if cx.machine.printed.len() + text.len() <= MOST_PRINTED {
                        cx.machine.printed.push_str(&text);
                    }
                }
                answer(cx, result, counts, 4);
                Flow::Next
            });
            d.emit_reaching(instr, Cost::ROUTINE, Reach::Device);
        }
        "malloc" => {
            let instr = with(move |cx| {
                let sizes = argument(cx, arguments[0]);
                let mut out = [0; LANES];
                for lane in each(cx.mask) {
                    let size = sizes[lane];
                    if size > 0 && size <= 8 << 20 {
                        let name = format!("what {} allocated", cx.who(lane));
                        out[lane] = cx.machine.global.allocate(name, size);
                    }
                }
                answer(cx, result, out, 8);
                Flow::Next
            });
            d.emit_reaching(instr, Cost::ROUTINE, Reach::Device);
        }
        "free" => {
            let instr = with(move |cx| {
                let addresses = argument(cx, arguments[0]);
                for lane in each(cx.mask).filter(|&lane| addresses[lane] != 0) {
                    if !cx.machine.global.free(addresses[lane]) {
                        let what = cx.machine.global.describe(addresses[lane]);
                        cx.report(rule::ALLOCATION, 1 << lane, |_, mut told| {
                            told.message = format!(
                                "gives back {what}, which is not an allocation that is in use"
                            );
                            told
                        });
                    }
                }
                Flow::Next
            });
            d.emit_reaching(instr, Cost::ROUTINE, Reach::Device);
        }
        _ => {
            let instr = with(move |cx| {
                let lane = crate::lanes::first(cx.mask);
                let message = string(cx, argument(cx, arguments[0])[lane]);
                let file = string(cx, argument(cx, arguments[1])[lane]);
                let line = argument(cx, arguments[2])[lane] as u32;
                cx.report(rule::ASSERTION, cx.mask, |_, mut told| {
                    told.message = format!("assertion `{message}` failed at {file}:{line}");
                    told
                });
                Flow::Stop
            });
            d.emit_reaching(instr, Cost::ROUTINE, Reach::Device);
        }
    }
    Ok(())
}

/// The frame offset of a parameter variable.
fn frame_of(d: &mut Decoder<'_>, operand: &Operand) -> Decoded<u32> {
    if let Operand::Name(name) = operand
        && let Some(Named::Memory(Memory {
            place: Storage::Frame(at),
            ..
        })) = d.find(name)
    {
        return Ok(at);
    }
    Err(d.wrong(rule::OPERAND_KIND, "a `.param` variable is wanted here"))
}

fn argument(cx: &Cx<'_>, at: u32) -> [u64; LANES] {
    let offsets = [u64::from(cx.fragment.local + at); LANES];
    cx.warp.local.load(&offsets, cx.mask, 8).0
}

fn answer(cx: &mut Cx<'_>, at: Option<u32>, values: [u64; LANES], size: u32) {
    if let Some(at) = at {
        let offsets = [u64::from(cx.fragment.local + at); LANES];
        let mask = cx.mask;
        cx.warp.local.store(&offsets, mask, size, &values);
    }
}

/// Reads bytes at one lane's generic address.
fn peek(cx: &mut Cx<'_>, lane: usize, address: u64, size: u32) -> u64 {
    let mut out = 0;
    let all = cx.mask;
    cx.mask = 1 << lane;
    groups(
        cx,
        None,
        &[address; LANES],
        size,
        Does::Reads,
        |cx, group| {
            out = match group.home {
                Home::Local => {
                    doubt::printed(cx, lane, group.offsets[lane], size);
                    cx.warp.local.load(&group.offsets, group.mask, size).0[lane]
                }
                home => cx.region(home).map_or(0, |region| {
                    region.read(group.offsets[lane], size as usize) as u64
                }),
            };
        },
    );
    cx.mask = all;
    out
}

/// A string that ends with a zero, at most a page of it.
fn string(cx: &mut Cx<'_>, address: u64) -> String {
    let lane = crate::lanes::first(cx.mask);
    let bytes: Vec<u8> = (0..4096)
        .map(|at| peek(cx, lane, address + at, 1) as u8)
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Formats as `printf` does, with the arguments from a buffer; also how many they were.
fn print(cx: &mut Cx<'_>, lane: usize, format: u64, mut values: u64) -> (String, u64) {
    let mut count = 0;
    let all = cx.mask;
    cx.mask = 1 << lane;
    let format = string(cx, format);
    let mut out = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = String::new();
        let mut kind = None;
        while let Some(&c) = rest.peek() {
            rest.next();
            if c.is_ascii_alphabetic() && !matches!(c, 'l' | 'h' | 'z' | 'j' | 't') || c == '%' {
                kind = Some(c);
                break;
            }
            spec.push(c);
        }
        let long =
            spec.contains('l') || spec.contains('z') || spec.contains('j') || spec.contains('t');
        let layout = Layout::of(&spec);
        let mut take = |cx: &mut Cx<'_>, size: u64| {
            values = values.next_multiple_of(size);
            let bits = peek(cx, lane, values, size as u32);
            values += size;
            count += 1;
            bits
        };
        match kind {
            Some('%') => out.push('%'),
            Some('d' | 'i') if long => out.push_str(&layout.pad((take(cx, 8) as i64).to_string())),
            Some('d' | 'i') => out.push_str(&layout.pad((take(cx, 4) as i32).to_string())),
            Some(k @ ('u' | 'x' | 'X' | 'o')) => {
                let value = take(cx, if long { 8 } else { 4 });
                out.push_str(&layout.pad(match k {
                    'u' => value.to_string(),
                    'x' => format!("{value:x}"),
                    'X' => format!("{value:X}"),
                    _ => format!("{value:o}"),
                }));
            }
            Some('p') => out.push_str(&layout.pad(format!("{:#x}", take(cx, 8)))),
            Some('c') => out.push(char::from(take(cx, 4) as u8)),
            Some('s') => {
                let at = take(cx, 8);
                out.push_str(&layout.pad(string(cx, at)));
            }
            Some('f' | 'F') => {
                let value = f64::from_bits(take(cx, 8));
                out.push_str(&layout.pad(format!("{value:.*}", layout.precision.unwrap_or(6))));
            }
            Some('e' | 'E') => {
                let value = f64::from_bits(take(cx, 8));
                out.push_str(&layout.pad(exponent(value, layout.precision.unwrap_or(6))));
            }
            Some('g' | 'G' | 'a' | 'A') => {
                let value = f64::from_bits(take(cx, 8));
                out.push_str(&layout.pad(value.to_string()));
            }
            _ => {
                cx.report(rule::PRINTF_FORMAT, 1 << lane, |_, mut told| {
                    told.message = format!("`%{spec}` in a printf format is no conversion");
                    told
                });
            }
        }
    }
    cx.mask = all;
    (out, count)
}

/// `1.5e+03` as C writes it.
fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

/// Width, precision and flags.
struct Layout {
    width: usize,
    precision: Option<usize>,
    left: bool,
    zeros: bool,
}

impl Layout {
    fn of(spec: &str) -> Layout {
        let flags: String = spec.chars().take_while(|c| "-+ #0".contains(*c)).collect();
        let numbers: String = spec[flags.len()..]
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        let (width, precision) = match numbers.split_once('.') {
            Some((width, precision)) => (width, Some(precision.parse().unwrap_or(0))),
            None => (numbers.as_str(), None),
        };
        Layout {
            width: width.parse().unwrap_or(0).min(4096),
            precision: precision.map(|digits: usize| digits.min(100)),
            left: flags.contains('-'),
            zeros: flags.contains('0'),
        }
    }

    fn pad(&self, text: String) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if missing == 0 {
            text
        } else if self.left {
            text + &" ".repeat(missing)
        } else if self.zeros {
            let (sign, digits) = match text.strip_prefix('-') {
                Some(digits) => ("-", digits),
                None => ("", text.as_str()),
            };
            format!("{sign}{}{digits}", "0".repeat(missing))
        } else {
            " ".repeat(missing) + &text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_follows_c() {
        assert_eq!(Layout::of("5").pad("42".into()), "   42");
        assert_eq!(Layout::of("-5").pad("42".into()), "42   ");
        assert_eq!(Layout::of("05").pad("-42".into()), "-0042");
        assert_eq!(Layout::of("8.3").precision, Some(3));
        assert_eq!(exponent(1500.0, 2), "1.50e+03");
    }
}
