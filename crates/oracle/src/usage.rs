//! What `ptxas -v` says a function uses.

use std::collections::BTreeMap;

/// The resources of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Registers a thread; 0 for a function that is not a kernel.
    pub registers: u64,
    /// Named barriers.
    pub barriers: u64,
    /// Bytes of static shared memory.
    pub shared: u64,
    /// Bytes of stack frame.
    pub stack: u64,
    /// Bytes of spill stores.
    pub spill_stores: u64,
    /// Bytes of spill loads.
    pub spill_loads: u64,
}

/// The number in front of `unit` in a comma-separated line.
fn before(line: &str, unit: &str) -> Option<u64> {
    line.split(',').find_map(|part| {
        let words = part.trim().strip_suffix(unit)?.trim_end();
        words.rsplit(' ').next()?.parse().ok()
    })
}

/// Reads a log. A function's lines follow `Compiling entry function 'k'` or
/// `Function properties for k`.
pub(crate) fn read(log: &str) -> BTreeMap<String, Usage> {
    let mut table: BTreeMap<String, Usage> = BTreeMap::new();
    let mut current = None;
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            current = rest.split('\'').next();
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            current = Some(name.trim());
        } else if let Some(name) = current {
            let usage = table.entry(name.to_string()).or_default();
            let line = line.split_once(": Used").map_or(line, |(_, rest)| rest);
            for (unit, field) in [
                ("registers", &mut usage.registers),
                ("barriers", &mut usage.barriers),
                ("bytes smem", &mut usage.shared),
                ("bytes stack frame", &mut usage.stack),
                ("bytes spill stores", &mut usage.spill_stores),
                ("bytes spill loads", &mut usage.spill_loads),
            ] {
                if let Some(value) = before(line, unit) {
                    *field = value;
                }
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read() {
        let log = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
    32 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 80 registers, used 2 barriers, 32 bytes cumulative stack size, 1000 bytes smem
ptxas info    : Function properties for f
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
";
        let table = read(log);
        let k = Usage {
            registers: 80,
            barriers: 2,
            shared: 1000,
            stack: 32,
            spill_stores: 12,
            spill_loads: 8,
        };
        assert_eq!(table["k"], k);
        assert_eq!(table["f"], Usage::default());
    }
}
