//! The judge of built kernels: the vendor's assembler.

use heist_builder::{Arch, BuildError, BuiltKernel};
use heist_oracle::{Ptxas, Usage};

/// The architectures that kernels without newer features claim.
#[allow(dead_code)]
pub(crate) const ALL: &[Arch] = &[
    Arch::SM_80,
    Arch::SM_86,
    Arch::SM_89,
    Arch::SM_90,
    Arch::SM_90A,
    Arch::SM_100,
    Arch::SM_100A,
    Arch::SM_120,
];

/// From Hopper on.
#[allow(dead_code)]
pub(crate) const HOPPER: &[Arch] = &[
    Arch::SM_90,
    Arch::SM_90A,
    Arch::SM_100,
    Arch::SM_100A,
    Arch::SM_120,
];

/// Builds a kernel for each architecture, reads its PTX back, and lets ptxas
/// assemble it: without spills, and without a word of complaint.
pub(crate) fn assembles<A>(
    archs: &[Arch],
    build: impl Fn(Arch) -> Result<BuiltKernel<A>, BuildError> + Sync,
) -> Vec<Usage> {
    let ptxas = Ptxas::find_or_say_skipped();
    heist_oracle::parallel(archs, |&arch| {
        let kernel = build(arch).unwrap_or_else(|error| panic!("{arch}: {error}"));
        let text = heist_ptx::print(&kernel.module);
        let source = heist_ptx::Source::new("built.ptx", text.clone());
        let again =
            heist_ptx::parse(&source).unwrap_or_else(|errors| panic!("{arch}: {errors:?}\n{text}"));
        assert_eq!(
            again, kernel.module,
            "{arch}: read back differently\n{text}"
        );
        let findings: Vec<String> = heist_ptx::validate::validate(&again, Some(&source))
            .into_iter()
            .chain(heist_check::check(&again))
            .map(|finding| format!("{finding}: {}", source.slice(finding.span)))
            .collect();
        assert!(findings.is_empty(), "{arch}: {findings:#?}\n{text}");
        let Some(ptxas) = &ptxas else {
            return Usage::default();
        };
        let cubin = ptxas
            .assemble(&text, &arch.to_string())
            .unwrap_or_else(|refusal| panic!("{arch}: {refusal}\n{}", numbered(&text)));
        assert_eq!(
            cubin.complaints(),
            Vec::<&str>::new(),
            "{arch}\n{}",
            numbered(&text)
        );
        let usage = cubin.usage()[&kernel.launch.entry];
        assert_eq!(
            (usage.spill_loads, usage.spill_stores),
            (0, 0),
            "{arch}: spills"
        );
        usage
    })
}

fn numbered(text: &str) -> String {
    text.lines()
        .enumerate()
        .map(|(index, line)| format!("{:5} {line}\n", index + 1))
        .collect()
}
