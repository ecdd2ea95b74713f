//! ptxas assembles the multiplications for every architecture that they claim,
//! without spills, and there are tensor-core instructions in what it makes.

mod registers;
mod tiles;
mod unaligned;

use heist_kernels::gemm::{self, Activation, Epilogue, Gemm, Input, Layout, Output};
use heist_kernels::grouped::{self, Grouped};
use heist_kernels::{Family, Job, Target, Variant};
use heist_oracle::{MachineCodes, Ptxas, parallel, sample};
use heist_sched::{Schedule, TileSource};

const MACHINES: [(&str, u32); 7] = [
    ("sm_80", 108),
    ("sm_86", 84),
    ("sm_89", 58),
    ("sm_90", 132),
    ("sm_100", 148),
    ("sm_90a", 132),
    ("sm_120", 170),
];

/// Those variants of a family that a machine can run and that are picked by
/// their number.
fn jobs<P>(
    family: &Family<P>,
    problem: &P,
    target: Target,
    pick: impl Fn(usize) -> bool,
    jobs: &mut Vec<(Target, Job)>,
) {
    let suited = |variant: &&&dyn Variant<Problem = P>| variant.suits(problem, target).is_ok();
    for (index, variant) in family.variants.iter().filter(suited).enumerate() {
        if pick(index) {
            let source = [TileSource::Direct, TileSource::Ticket][jobs.len() % 2];
            let job = variant.job(problem, Some(&Schedule::new(source)), target);
            jobs.push((target, job.expect("it suits, so it can be built")));
        }
    }
}

#[test]
fn every_variant_on_every_architecture() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut all = Vec::new();
    for (turn, (name, sms)) in MACHINES.into_iter().enumerate() {
        let arch = heist_builder::Arch::parse(name).expect("a known architecture");
        let target = Target { arch, sms };
        let layout = Layout::ALL[turn % 4];
        let even = Gemm::new(512, 512, 512, Input::Bf16, Output::Bf16, layout);
        // Most are the same text for each: all for two architectures, half for each other.
        let oldest_or_largest = ["sm_80", "sm_90a"].contains(&name);
        let in_turn = |index| oldest_or_largest || (index + turn) % 2 == 0;
        jobs(&gemm::FAMILY, &even, target, in_turn, &mut all);
        // What is added to the sums takes registers beside them.
        let full = even.epilogue(Epilogue {
            alpha: 2.0,
            beta: 0.5,
            bias: true,
            activation: Activation::Gelu,
            ..Epilogue::default()
        });
        jobs(
            &gemm::FAMILY,
            &full,
            target,
            |_| oldest_or_largest,
            &mut all,
        );
        let groups = Grouped::rows(vec![40, 500, 0], 512, 512, Input::Bf16, Output::Bf16);
        jobs(&grouped::FAMILY, &groups, target, in_turn, &mut all);
        // Odd shapes and words take other paths; one kernel each shows them.
        let other = |index| index == turn % 2;
        let odd = Gemm::new(500, 501, 499, Input::F16, Output::F32, layout);
        jobs(&gemm::FAMILY, &odd, target, other, &mut all);
        let words = Gemm::new(500, 500, 500, Input::Tf32, Output::F32, layout);
        jobs(&gemm::FAMILY, &words, target, other, &mut all);
    }
    tiles::warpgroups(&mut all);
    tiles::tile_shapes(&mut all);
    assert!(all.len() > 40, "{} kernels", all.len());
    let mut all = sample(all);
    registers::groups_let_go(&mut all);
    registers::tight(&mut all);
    registers::through_registers(&mut all);
    let mut found = Vec::new();
    registers::found_by_the_scan(&mut found);
    registers::parts_of_c(&mut found);
    all.extend(sample(found));
    let codes = MachineCodes::default();
    let wrong: Vec<String> = parallel(&all, |(target, job)| {
        let name = format!("{} for {}", job.name, target.arch);
        // The first that multiplies.
        let step = job.steps.iter().find(|step| step.entry != "gemm_anew");
        let (ptx, arch) = (step.expect("a product").ptx(), target.arch.name());
        let cubin = match ptxas.assemble(&ptx, arch) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(format!("{name}: {}", rejected.log)),
        };
        let complaints = cubin.complaints();
        if !complaints.is_empty() {
            return Some(format!("{name}: {complaints:?}"));
        }
        for usage in cubin.usage().values() {
            if usage.spill_stores + usage.spill_loads + usage.stack > 0 {
                return Some(format!("{name}: {usage:?}"));
            }
        }
        match codes.first_of_its_kind(arch, &ptx, &cubin) {
            Some(listing)
                if !["HMMA", "HGMMA", "QGMMA"]
                    .iter()
                    .any(|core| listing.contains(core)) =>
            {
                Some(format!("{name}: no HMMA"))
            }
            _ => None,
        }
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
