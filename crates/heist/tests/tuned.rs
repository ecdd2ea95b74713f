//! The operations take the tuner's answers: exactly those, with right results; and none that is stale,
//! broken or unfit.

use half::{bf16, f16};
use heist::job;
use heist::kernels::Tuned;
use heist::kernels::attention::{Cache, Dtype, Layout, Mask};
use heist::kernels::catalogue::{self, Settings as Told};
use heist::kernels::gemm::{Gemm, Input, Layout as GemmLayout, Output, Scales, Summing};
use heist::ops::{
    Added, Attention, AttentionOperands, BorrowedStream, GemmOperands, GroupedGemm,
    GroupedOperands, Memory, Ops, Sequences, WorkspaceMemory,
};
use heist::run::Device;
use heist::sched::{Schedule, TileSource};
use heist::tune::memory;
use heist_tune::{Answer, Candidate, Key, Store};
use std::path::{Path, PathBuf};

const STREAM: BorrowedStream = BorrowedStream(0);

fn device() -> Device {
    Device::open("sim:h200".parse().expect("a device")).expect("a simulated one is there")
}

fn ops(answers: &Path) -> Ops {
    let ops = Ops::new(device()).expect("one for kernels");
    ops.with_answers(Some(answers.to_owned()))
}

/// A place for answers that nobody has used before.
fn place(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tuned-ops");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(format!("{test}.jsonl"));
    let _ = std::fs::remove_file(&path);
    path
}

fn key(kernel: &str, words: &str) -> Key {
    let entry = catalogue::entry(kernel).expect("a kernel");
    let told = Told::from_words(words.split_whitespace()).expect("settings");
    memory::key(entry, &told, &device())
}

/// Plants an answer as the tuner would keep it for these words.
fn plant(path: &Path, key: Key, candidate: &str) -> Candidate {
    let candidate: Candidate = candidate.parse().expect("a candidate");
    let answer = Answer {
        key,
        candidate: candidate.clone(),
        median_ns: 1000.0,
        default_ns: Some(2000.0),
        tried: 7,
        at: String::new(),
    };
    let store = Store::open(path).expect("a store");
    store.keep(&answer).expect("kept");
    candidate
}

fn random(seed: u64, count: usize) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Eighths: exact in every type here.
    let eighths = (0..count).map(|_| f64::from(random.i32(-8..=8)) / 8.0);
    eighths.collect()
}

fn brains(values: &[f64]) -> Vec<u16> {
    let bits = values.iter().map(|v| bf16::from_f64(*v).to_bits());
    bits.collect()
}

fn halves(values: &[f64]) -> Vec<u16> {
    let bits = values.iter().map(|v| f16::from_f64(*v).to_bits());
    bits.collect()
}

/// `a` (m x k, of pitch `lda`) times `b` (n x k), transposed.
fn product(a: &[f64], b: &[f64], (m, n, k, lda): (usize, usize, usize, usize)) -> Vec<f64> {
    let dot =
        |row: usize, col: usize| -> f64 { (0..k).map(|i| a[row * lda + i] * b[col * k + i]).sum() };
    let all = (0..m * n).map(|at| dot(at / n, at % n));
    all.collect()
}

/// Launches a multiplication on random numbers and holds it against f64; the plan's name and what
/// the tuner had to do with it.
fn multiply(ops: &Ops, problem: &Gemm) -> (String, heist::ops::Tuning) {
    let plan = ops.gemm(problem, None).expect("a plan");
    let size = [problem.m, problem.n, problem.k, problem.lda].map(|number| number as usize);
    let [m, n, k, lda] = size;
    let (a, b) = (random(1, m * lda), random(2, n * k));
    let (a_bits, b_bits) = (brains(&a), brains(&b));
    let mut d = vec![f32::NAN; m * n];
    let operands = GemmOperands {
        a: Memory::host(&a_bits),
        b: Memory::host(&b_bits),
        c: None,
        d: Memory::host_mut(&mut d),
        bias: None,
        scales: None,
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    let expected = product(&a, &b, (m, n, k, lda));
    for (at, (found, expected)) in d.iter().zip(&expected).enumerate() {
        let alpha = f64::from(problem.epilogue.alpha);
        let error = (f64::from(*found) - alpha * expected).abs();
        assert!(error < 1e-3, "element {at}: {found}, and {expected}");
    }
    (plan.name().to_owned(), plan.tuning().clone())
}

fn gemm(m: u32, n: u32, k: u32) -> Gemm {
    Gemm::new(m, n, k, Input::Bf16, Output::F32, GemmLayout::Nt)
}

#[test]
fn a_product_takes_the_answer() {
    let path = place("gemm");
    let words = "m=100 n=136 k=64 out=f32";
    let untuned = multiply(&ops(&path), &gemm(100, 136, 64));
    assert!(!path.exists(), "looking an answer up makes no file");
    assert_eq!(untuned.1.answer, None);
    let asked = untuned.1.problem.expect("it was looked up");
    assert!(asked.starts_with("gemm m=100 n=136 k=64 batch=1 dtype=bf16 out=f32 layout=nt"));
    for (candidate, tile) in [
        ("rows=64 cols=48 depth=64 stages=3", "wgmma:64x48x64/3"),
        (
            "rows=64 cols=32 depth=64 stages=2 swapped=true",
            "wgmma:64x32x64/2/swapped",
        ),
        (
            "rows=64 cols=64 depth=32 warp=32x32 stages=2",
            "64x64x32/32x32/2",
        ),
        (
            "variant=mma-64x64 schedule=ticket late",
            "64x64x32/32x32/4*2",
        ),
    ] {
        assert!(!untuned.0.ends_with(tile), "{}", untuned.0);
        let planted = plant(&path, key("gemm", words), candidate);
        let (name, tuning) = multiply(&ops(&path), &gemm(100, 136, 64));
        assert!(name.ends_with(tile), "{name} is not {tile}");
        assert_eq!(tuning.answer, Some(planted));
        assert_eq!(tuning.refusal, None);
        // Numbers that scale cost nothing, and gaps between rows fit these kernels.
        let mut same = gemm(100, 136, 64);
        same.lda = 72;
        same.epilogue.alpha = 0.5;
        assert_eq!(multiply(&ops(&path), &same).0, name);
    }
    // Another problem, a schedule of the caller's, and no answers asked for: as without tuning.
    let ops = ops(&path);
    assert_eq!(multiply(&ops, &gemm(100, 136, 72)).1.answer, None);
    let schedule = Schedule::new(TileSource::Direct);
    let scheduled = ops.gemm(&gemm(100, 136, 64), Some(&schedule));
    assert_eq!(*scheduled.expect("a plan").tuning(), Default::default());
    let (name, tuning) = multiply(&ops.with_answers(None), &gemm(100, 136, 64));
    assert_eq!((name, tuning.problem), (untuned.0, None));
}

/// Shares of the depth are summed in memory that the plan asks for.
#[test]
fn an_answer_with_a_workspace() {
    let path = place("split");
    let untuned = multiply(&ops(&path), &gemm(64, 64, 1024)).0;
    plant(
        &path,
        key("gemm", "m=64 n=64 k=1024 out=f32"),
        "rows=64 cols=64 depth=64 stages=4 split=4",
    );
    let (name, tuning) = multiply(&ops(&path), &gemm(64, 64, 1024));
    assert!(tuning.answer.is_some(), "{:?}", tuning.refusal);
    assert_eq!(
        tuning.answer.expect("taken").get("split"),
        Some("4"),
        "{name}"
    );
    assert_ne!(name, untuned);
}

#[test]
fn what_is_stale_broken_or_unfit_is_not_obeyed() {
    let problem = gemm(100, 136, 64);
    let untuned = multiply(&ops(&place("nothing")), &problem).0;
    let refused = |path: &Path, words: &[&str]| {
        let (name, tuning) = multiply(&ops(path), &problem);
        assert_eq!((name, tuning.answer), (untuned.clone(), None));
        let why = tuning.refusal.expect("a reason");
        for word in words {
            assert!(why.contains(word), "{word}: {why}");
        }
    };
    let own = key("gemm", "m=100 n=136 k=64 out=f32");
    let good = "rows=64 cols=48 depth=64 stages=3";
    let path = place("driver");
    let old = Key {
        driver: "570.1".into(),
        ..own.clone()
    };
    plant(&path, old, good);
    refused(&path, &["driver 570.1", "heist tune gemm m=100"]);
    let path = place("version");
    let old = Key {
        version: "0.0.1".into(),
        ..own.clone()
    };
    plant(&path, old, good);
    refused(&path, &["version 0.0.1"]);
    // Of another GPU there is nothing to say.
    let path = place("device");
    let other = Key {
        device: "sim:b200".into(),
        ..own.clone()
    };
    plant(&path, other, good);
    assert_eq!(multiply(&ops(&path), &problem).1.refusal, None);
    for (candidate, why) in [
        ("rows=128 cols=256 depth=64 stages=12", "shared memory"),
        ("rows=100 cols=48 depth=64 stages=3", "rows"),
        ("rows=64 cols=48 depth=64 stages=many", "many"),
        ("variant=mma-7", "mma-7"),
        ("cols=64 stages=4", "tcgen05"),
        (
            "rows=64 cols=48 depth=64 stages=3 schedule=sometimes",
            "sometimes",
        ),
    ] {
        let path = place("unfit");
        plant(&path, own.clone(), candidate);
        refused(&path, &["can't be taken", why, "heist tune gemm m=100"]);
    }
    // Rows that no tensor copy can reach are written anew, and then the tiles suit.
    let path = place("pitch");
    plant(&path, own.clone(), good);
    let mut odd = problem;
    odd.lda = 65;
    let (_, tuning) = multiply(&ops(&path), &odd);
    assert_eq!((tuning.answer.is_some(), tuning.refusal), (true, None));
    // A view that begins anywhere is no problem that was tuned.
    let mut view = problem;
    view.anywhere = [true, false];
    let (_, tuning) = multiply(&ops(&path), &view);
    assert_eq!((tuning.answer, tuning.refusal), (None, None));
    // Files that are something else.
    for contents in [&b"not a database"[..], &[0; 4096]] {
        let path = place("broken");
        std::fs::write(&path, contents).expect("written");
        refused(&path, &["broken.jsonl", "HEIST_TUNED"]);
        assert_eq!(std::fs::read(&path).expect("there"), contents);
    }
}

/// Attention of sequences whose rows lie one after the other, in f64: out of `rows`, head by head.
fn attend(
    [q, k, v]: &[Vec<f64>; 3],
    sequences: &[(usize, usize)],
    (heads, dim, causal): (usize, usize, bool),
) -> Vec<f64> {
    let mut out = vec![0.0; q.len()];
    let (mut first_row, mut first_key) = (0, 0);
    for &(queries, keys) in sequences {
        for row in 0..queries {
            for head in 0..heads {
                let at = |row: usize, e: usize| (row * heads + head) * dim + e;
                let seen = match causal {
                    true => (keys + row + 1).saturating_sub(queries).min(keys),
                    false => keys,
                };
                let score = |key: usize| -> f64 {
                    let dot = |e| q[at(first_row + row, e)] * k[at(first_key + key, e)];
                    (0..dim).map(dot).sum::<f64>() / (dim as f64).sqrt()
                };
                let scores: Vec<f64> = (0..seen).map(score).map(f64::exp).collect();
                let sum: f64 = scores.iter().sum();
                for e in 0..dim {
                    let weighed = (0..seen).map(|key| scores[key] * v[at(first_key + key, e)]);
                    out[at(first_row + row, e)] = weighed.sum::<f64>() / sum;
                }
            }
        }
        first_row += queries;
        first_key += keys;
    }
    out
}

/// Launches attention over rows and holds it against f64.
fn attended(
    ops: &Ops,
    problem: &Attention,
    sequences: &[(usize, usize)],
) -> (String, heist::ops::Tuning) {
    let plan = ops.attention(problem, None).expect("a plan");
    let (heads, dim) = (problem.heads as usize, problem.head_dim as usize);
    let rows: usize = sequences.iter().map(|one| one.0).sum();
    let keys: usize = sequences.iter().map(|one| one.1).sum();
    let data = [rows, keys, keys].map(|rows| random(rows as u64, rows * heads * dim));
    let [q, k, v] = [0, 1, 2].map(|at| halves(&data[at]));
    let mut out = vec![0xffffu16; q.len()];
    let starts = |of: fn(&(usize, usize)) -> usize| {
        let mut starts = vec![0u32];
        for one in sequences {
            starts.push(starts.last().expect("one") + of(one) as u32);
        }
        starts
    };
    let (q_starts, k_starts) = (starts(|one| one.0), starts(|one| one.1));
    let packed = matches!(problem.sequences, Sequences::Packed { .. });
    let operands = AttentionOperands {
        q_starts: packed.then_some(Memory::host(&q_starts)),
        k_starts: packed.then_some(Memory::host(&k_starts)),
        ..AttentionOperands::new(
            Memory::host(&q),
            Memory::host(&k),
            Memory::host(&v),
            Memory::host_mut(&mut out),
        )
    };
    plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
        .expect("a launch");
    let expected = attend(&data, sequences, (heads, dim, problem.mask == Mask::Causal));
    for (at, (found, expected)) in out.iter().zip(&expected).enumerate() {
        let found = f16::from_bits(*found).to_f64();
        let error = (found - expected).abs();
        assert!(
            error < 4e-3,
            "element {at}: {found}, and {expected} is right"
        );
    }
    (plan.name().to_owned(), plan.tuning().clone())
}

fn attention(sequences: Sequences, mask: Mask) -> Attention {
    Attention {
        sequences,
        heads: 2,
        kv_heads: 2,
        head_dim: 64,
        value_dim: None,
        dtype: Dtype::F16,
        cache: Cache::Same,
        append: None,
        mask,
        layout: Layout::Rows,
        views: None,
        scale: None,
        added: Added::default(),
    }
}

#[test]
fn attention_takes_the_answer() {
    let path = place("attention");
    let same = Sequences::Same {
        batch: 1,
        queries: 200,
        keys: 200,
    };
    let words = "batch=1 queries=200 heads=2 dim=64 mask=causal layout=rows";
    let problem = attention(same, Mask::Causal);
    let untuned = attended(&ops(&path), &problem, &[(200, 200)]).0;
    for candidate in [
        "kernel=wgmma groups=2 keys=48 stages=2 strip=2",
        "kernel=wgmma groups=3 keys=64 stages=3 stay=true",
        "variant=buffered",
    ] {
        let planted = plant(&path, key("attention", words), candidate);
        let (name, tuning) = attended(&ops(&path), &problem, &[(200, 200)]);
        assert_eq!(tuning.answer, Some(planted), "{:?}", tuning.refusal);
        assert_ne!(name, untuned);
        // The factor of scores costs nothing: an answer is for all.
        let scaled = Attention {
            scale: Some(0.125),
            ..problem
        };
        assert_eq!(attended(&ops(&path), &scaled, &[(200, 200)]).0, name);
    }
    plant(
        &path,
        key("attention", words),
        "kernel=wgmma groups=2 keys=4000",
    );
    let (name, tuning) = attended(&ops(&path), &problem, &[(200, 200)]);
    assert_eq!((name, tuning.answer), (untuned, None));
    assert!(tuning.refusal.is_some());
}

#[test]
fn decoding_takes_the_answer() {
    let path = place("decode");
    let one = Sequences::Same {
        batch: 1,
        queries: 1,
        keys: 700,
    };
    let words = "batch=1 queries=1 keys=700 heads=2 dim=64 layout=rows";
    let problem = attention(one, Mask::Full);
    let (untuned, before) = attended(&ops(&path), &problem, &[(1, 700)]);
    assert_eq!(before.answer, None);
    let (mut taken, mut refusals) = (0, Vec::new());
    for combine in ["nobody", "last", "launch"] {
        let candidate = format!("kernel=decode keys=64 stages=2 blocks=1 combine={combine}");
        plant(&path, key("attention", words), &candidate);
        let (name, tuning) = attended(&ops(&path), &problem, &[(1, 700)]);
        // Which of them fit depends on how the keys are dealt.
        match tuning.answer {
            Some(_) => {
                taken += 1;
                assert_ne!(name, untuned);
            }
            None => {
                assert_eq!(name, untuned);
                refusals.extend(tuning.refusal);
            }
        }
    }
    assert!(taken > 0, "{refusals:?}");
}

/// The real lengths are on the device, and are others than those that were planned and tuned for.
#[test]
fn packed_sequences_take_the_answer() {
    let path = place("packed");
    let packed = Sequences::Packed {
        batch: 3,
        most_queries: 150,
        most_keys: 150,
        query_rows: 310,
        key_rows: 310,
    };
    let problem = attention(packed, Mask::Causal);
    // The longest, and the rest as even as can be.
    let words = "lengths=150,80*2 heads=2 dim=64 mask=causal";
    let untuned = attended(&ops(&path), &problem, &[(150, 150), (80, 80), (80, 80)]).0;
    for candidate in [
        "kernel=wgmma groups=2 keys=64 stages=2",
        "kernel=wgmma groups=3 keys=80 stages=3",
        "variant=persistent",
    ] {
        let planted = plant(&path, key("attention", words), candidate);
        for lengths in [[150, 80, 80], [10, 150, 150], [149, 11, 150]] {
            let sequences = lengths.map(|length| (length, length));
            let (name, tuning) = attended(&ops(&path), &problem, &sequences);
            assert_eq!(tuning.answer.as_ref(), Some(&planted), "{tuning:?}");
            assert_ne!(name, untuned);
        }
    }
}

#[test]
fn groups_take_the_answer_for_as_many_rows() {
    let path = place("grouped");
    let problem = GroupedGemm {
        groups: 3,
        rows: 130,
        n: 96,
        k: 64,
        input: Input::Bf16,
        output: Output::F32,
        layout: GemmLayout::Nt,
        masked: None,
        scales: Scales::None,
        sums: Summing::Levels,
    };
    let words = "rows=44,43*2 n=96 k=64 out=f32";
    let untuned = ops(&path).grouped_gemm(&problem, None).expect("a plan");
    for (candidate, tile) in [
        ("rows=128 cols=96 depth=64 stages=2", "wgmma:128x96x64/2"),
        ("variant=mma-16", "16x128x64/16x32/6*2"),
    ] {
        assert!(!untuned.name().ends_with(tile), "{}", untuned.name());
        let planted = plant(&path, key("grouped-gemm", words), candidate);
        let plan = ops(&path).grouped_gemm(&problem, None).expect("a plan");
        assert_eq!(plan.tuning().answer.as_ref(), Some(&planted));
        assert!(plan.name().ends_with(tile), "{}", plan.name());
        let (a, b) = (random(4, 130 * 64), random(5, 3 * 96 * 64));
        let (a_bits, b_bits) = (brains(&a), brains(&b));
        // Other groups than those that were planned for, and rows that no group has.
        let ends = [100u32, 100, 128];
        let mut d = vec![-7f32; 130 * 96];
        let operands = GroupedOperands {
            a: Memory::host(&a_bits),
            b: Memory::host(&b_bits),
            d: Memory::host_mut(&mut d),
            ends: Memory::host(&ends),
            scales: None,
        };
        plan.launch(&operands, WorkspaceMemory::NONE, STREAM)
            .expect("a launch");
        let mut first = 0;
        for (group, end) in ends.map(|end| end as usize).into_iter().enumerate() {
            let (a, b) = (&a[first * 64..end * 64], &b[group * 96 * 64..]);
            let expected = product(a, b, (end - first, 96, 64, 64));
            for (found, expected) in d[first * 96..].iter().zip(expected) {
                assert!(
                    (f64::from(*found) - expected).abs() < 1e-3,
                    "{found} {expected}"
                );
            }
            first = end;
        }
        assert!(d[128 * 96..].iter().all(|untouched| *untouched == -7.0));
    }
}

/// What a problem says of itself is what the catalogue reads, and the same problem.
#[test]
fn words_of_a_problem_are_read_back() {
    for (kernel, words) in [
        ("gemm", "m=8 beta=0.5 alpha=3 bias=true activation=gelu"),
        ("gemm", "dtype=e4m3 scales=rows sums=fast batch=3 layout=nt"),
        ("attention", "kv-heads=8 keys=512 scale=0.3"),
        (
            "attention",
            "lengths=5,5,5,9:30 page=0 softcap=30 alibi=true",
        ),
        (
            "attention",
            "lengths=1:64,1:64 page=16 cache=e4m3 mask=causal",
        ),
        (
            "attention",
            "mask=window(5,0) prefix=4 sinks=true documents=true out=f32",
        ),
        ("grouped-gemm", "rows=5,5,7 layout=nn check=true"),
        ("grouped-gemm", "groups=40x128x64,40x128x64,7x256x32"),
    ] {
        let Key { problem, .. } = key(kernel, words);
        assert_eq!(key(kernel, &problem).problem, problem, "{kernel} {words}");
        let entry = catalogue::entry(kernel).expect("a kernel");
        let told = Told::from_words(problem.split_whitespace()).expect("settings");
        let space = entry.space(&told, job::target(&device()).expect("a target"));
        assert!(space.is_ok(), "{kernel} {problem}: {:?}", space.err());
    }
    let same = |one, other| {
        assert_eq!(
            key("attention", one).problem,
            key("attention", other).problem
        )
    };
    same("kv-heads=8 keys=512 scale=0.3", "");
    same("lengths=5,5,5", "lengths=5*3");
    assert_eq!(
        gemm(8, 8, 8).words(),
        Some(key("gemm", "m=8 n=8 k=8 out=f32").problem)
    );
}
