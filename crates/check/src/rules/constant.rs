//! Constant memory against the architecture.

use heist_ptx::arch::Arch;
use heist_ptx::{Diagnostic, Linkage, Module, Space, Variable, rule};

/// X029: the constant variables of a file, which share one bank.
pub(crate) fn constant_size(module: &Module, arch: Arch) -> Option<Diagnostic> {
    let variables = || {
        let constant = |variable: &&Variable| {
            variable.space == Space::Const && variable.linkage != Linkage::Extern
        };
        module.variables().filter(constant)
    };
    let limit = u64::from(arch.limits().constant_bytes);
    let mut end = 0u64;
    let mut beyond = None;
    for variable in variables() {
        end = end
            .checked_next_multiple_of(variable.alignment().max(1))
            .and_then(|start| start.checked_add(variable.size().unwrap_or(0)))
            .unwrap_or(u64::MAX);
        if end > limit && beyond.is_none() {
            beyond = Some(variable);
        }
    }
    let told = Diagnostic::error(
        rule::CONSTANT_LIMIT,
        beyond?.span,
        format!("the constant variables of this file take {end} bytes; a file may have {limit}"),
    );
    Some(
        told.label("the first that does not fit")
            .help("keep large tables in global memory, or stage them in shared memory"),
    )
}

#[cfg(test)]
mod tests {
    use heist_ptx::{Source, parse};

    fn codes(first: u32, second: u32) -> Vec<&'static str> {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.const .align 4 .b8 a[{first}];\n\
             .const .align 256 .b8 b[{second}];\n.visible .entry k() {{ ret; }}\n"
        );
        let module = parse(&Source::new("k.ptx", text)).expect("PTX");
        let found = crate::check(&module);
        found.iter().map(|one| one.code.0).collect()
    }

    #[test]
    fn a_bank_may_be_full_and_no_more() {
        assert!(codes(512, 65024).is_empty());
        assert_eq!(codes(512, 65025), ["X029"]);
        // Alignment counts.
        assert_eq!(codes(513, 65024), ["X029"]);
        assert_eq!(codes(4, u32::MAX), ["X029"]);
    }
}
