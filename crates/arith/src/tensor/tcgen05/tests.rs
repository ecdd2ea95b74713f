use super::place::{Layout, Shape};
use super::*;
use crate::tensor::swizzle::Swizzle;
use crate::tensor::wgmma::Major;
use std::collections::HashSet;

#[test]
fn a_descriptor_of_a_real_kernel() {
    // What Triton writes for 64 by 64 halves with B transposed.
    let form = Form::decode(MmaKind::F16, 0x0411_0010, Usage::default()).unwrap();
    assert_eq!((form.m, form.n, form.k), (64, 64, 16));
    assert_eq!(
        (form.a, form.b, form.d),
        (Format::F16, Format::F16, Accumulator::F32)
    );
    assert!(form.transpose_b && !form.transpose_a);
}

#[test]
fn what_no_descriptor_may_say() {
    let decode = |kind, bits| Form::decode(kind, bits, Usage::default());
    for (kind, bits, word) in [
        (MmaKind::F16, 0, "M = 0"),
        (MmaKind::F16, 0x0411_0050, "reserved"),
        (MmaKind::F16, 0x0411_0014, "sparsity"),
        (MmaKind::F16, 0x0411_0110, "the type 2 of A"),
        (MmaKind::Tf32, 0x0411_0010, "the type 0 of A"),
        (MmaKind::F16, 0x0411_0020, "the type 2 of D"),
        (MmaKind::F16, 0x0411_0018, "saturate"),
        (MmaKind::F16, 0x0c11_0010, "M = 192"),
        (MmaKind::F8f6f4, 0x0411_1690, "K-major"),
    ] {
        let told = decode(kind, bits).unwrap_err().to_string();
        assert!(told.contains(word), "{bits:#x}: {told}");
    }
}

#[test]
fn a_version_of_the_sparsity_says_nothing() {
    // What the CuTe DSL writes for a pair of blocks, and the same without it.
    let kind = MmaKind::Mxf4nvf4 { sixteen: true };
    let usage = Usage {
        pair: true,
        ..Usage::default()
    };
    let of = |bits| Form::decode(kind, bits, usage).unwrap();
    assert_eq!(of(0x0840_1480), of(0x0840_0480));
}

#[test]
fn results_never_overlap_and_fill_their_columns() {
    let usage = |pair, ws| Usage {
        pair,
        ws,
        ..Usage::default()
    };
    for (m, n, usage) in [
        (64, 32, usage(false, false)),
        (128, 256, usage(false, false)),
        (128, 64, usage(true, false)),
        (256, 64, usage(true, false)),
        (32, 64, usage(false, true)),
        (64, 128, usage(false, true)),
    ] {
        let layout = Layout::of(m, usage);
        let mut seen = HashSet::new();
        for row in 0..m {
            for column in 0..n {
                let place = layout.place(row, column, n);
                assert!(place.1 < 128 && place.2 < layout.width(n), "{layout:?}");
                assert!(seen.insert(place), "{layout:?}");
            }
        }
    }
    assert_eq!(Layout::F.place(17, 3, 8), (0, 33, 3));
    assert_eq!(Layout::B.place(70, 40, 64), (1, 70, 8));
}

/// The registers of a load, the other way around: for each 32-bit cell its thread and
/// register, as the pictures of the book show them.
fn holder(shape: Shape, lane: usize, column: usize) -> (usize, usize) {
    match shape {
        Shape::L32x32 => (lane, column),
        // Rows of 64 bits: two threads hold one, and eight rows further down comes the next pair.
        Shape::L16x64 => (4 * (lane % 8) + lane / 8 + 2 * (column % 2), column / 2),
        Shape::L16x128 => (4 * (lane % 8) + column % 4, 2 * (column / 4) + lane / 8),
        Shape::L16x256 => (
            4 * (lane % 8) + column % 8 / 2,
            4 * (column / 8) + 2 * (lane / 8) + column % 2,
        ),
        Shape::L16x32x2(split) => {
            let upper = column / split as usize;
            (lane + 16 * upper, column - upper * split as usize)
        }
    }
}

#[test]
fn loads_agree_with_their_inverse() {
    for count in [1, 2, 8] {
        for shape in [
            Shape::L32x32,
            Shape::L16x64,
            Shape::L16x128,
            Shape::L16x256,
            Shape::L16x32x2(count as u32),
        ] {
            let mut cells = HashSet::new();
            for thread in 0..32 {
                for register in 0..count * shape.registers() {
                    let (lane, column) = shape.place(thread, register);
                    assert!(lane < shape.lanes());
                    assert_eq!(holder(shape, lane, column), (thread, register), "{shape:?}");
                    assert!(cells.insert((lane, column)));
                }
            }
        }
    }
}

#[test]
fn matrix_descriptors() {
    let bits = 0x4000_4000_0001_0000 | 0x123 | 1 << 46 | 0x40 << 32;
    let read = operand::decode(bits).unwrap();
    assert_eq!((read.start, read.stride, read.leading), (0x1230, 0x400, 16));
    assert_eq!(read.swizzle, Swizzle::B128);
    for (bits, word) in [
        (0x4000_0000_0001_0000, "46 to 48"),
        (0x6000_4000_0001_0000, "swizzle 3"),
        (0x4020_4000_0001_0000, "53 to 60"),
        (0x4010_4000_0001_0000, "absolute"),
    ] {
        let told = operand::decode(bits).unwrap_err();
        assert!(told.contains(word), "{told}");
    }
}

/// Every canonical layout puts every element at an address of its own.
#[test]
fn operands_lie_apart() {
    let format = Format::Tf32;
    for (code, leading, stride) in [
        (0u64, 128u64, 256u64),
        (1, 512, 1024),
        (2, 2048, 1024),
        (4, 1024, 512),
        (6, 512, 256),
    ] {
        let bits = code << 61 | 1 << 46 | (stride >> 4) << 32 | (leading >> 4) << 16;
        let descriptor = operand::decode(bits).unwrap();
        for major in [Major::K, Major::Mn] {
            if major == Major::K && descriptor.swizzle == Swizzle::B128Atom32 {
                continue;
            }
            let operand = Operand {
                descriptor,
                major,
                format,
                mn: 16,
                k: 8,
            };
            let all: Vec<u32> = operand.chunks().collect();
            let apart: HashSet<u32> = all.iter().copied().collect();
            assert_eq!(all.len(), apart.len(), "{code} {major:?}");
        }
    }
}

#[test]
fn scales() {
    assert_eq!(Scale::Ue8m0.value(127), 1.0);
    assert_eq!(Scale::Ue8m0.value(130), 8.0);
    assert_eq!(Scale::Ue4m3.value(0x38), 1.0);
    assert!(Scale::Ue8m0.value(255).is_nan());
}

#[test]
fn integers_wrap_or_clamp() {
    let form = |bits| Form::decode(MmaKind::I8, bits, Usage::default()).unwrap();
    // M 64, N 8, s8 by s8.
    let plain = 4 << 24 | 1 << 17 | 1 << 7 | 1 << 10 | 2 << 4;
    for (bits, expect) in [(plain, i32::MIN + 31), (plain | 1 << 3, i32::MAX)] {
        let form = form(bits);
        let mut d = vec![i32::MAX as u32; 64 * 8];
        let mut a = Numbers::Integers(vec![1; 64 * 32]);
        let mut b = Numbers::Integers(vec![1; 32 * 8]);
        form.multiply(&mut a, &mut b, Some(0), &mut d);
        assert_eq!(d[77] as i32, expect);
    }
}

/// A sparse product of 128 by 8.
fn sparse(kind: MmaKind, bits: u32) -> Form {
    let usage = Usage {
        sparse: true,
        ..Usage::default()
    };
    Form::decode(kind, 8 << 24 | 1 << 17 | 1 << 2 | bits, usage).unwrap()
}

#[test]
fn every_group_has_metadata_of_its_own() {
    for (kind, groups) in [
        (MmaKind::F16, 8),
        (MmaKind::Tf32, 8),
        (MmaKind::I8, 16),
        (MmaKind::Mxf4, 16),
    ] {
        let mut seen = HashSet::new();
        for row in 0..128 {
            for group in 0..groups {
                let (lane, column, bit) = kind.metadata_place(row, group);
                assert!(lane < 128 && column < kind.metadata_columns() && bit < 32);
                assert!(seen.insert((lane, column, bit)), "{kind:?}");
            }
        }
        // They fill their columns.
        assert_eq!(seen.len(), 128 * 8 * kind.metadata_columns());
    }
}

#[test]
fn a_sparse_factor_gets_its_zeros_back() {
    let form = sparse(MmaKind::F16, 1 << 4);
    assert_eq!((form.k, form.stored()), (32, 16));
    let stored = Numbers::Floats((0..128 * 16).map(f64::from).collect());
    let all = form.expand(&stored, |row, group| [0x4, 0x6, 0xe][(row + group) % 3]);
    let Ok(Numbers::Floats(all)) = all else {
        panic!("floats");
    };
    assert_eq!(
        all[..12],
        [0.0, 1.0, 0.0, 0.0, 0.0, 3.0, 2.0, 0.0, 0.0, 0.0, 4.0, 5.0]
    );
    let bad = form.expand(
        &stored,
        |row, group| if (row, group) == (3, 2) { 5 } else { 4 },
    );
    let (row, k, bits) = (3, 8, 5);
    assert_eq!(bad.err(), Some(BadGroup { row, k, bits }));
    let single = sparse(MmaKind::Tf32, 1 << 4 | 2 << 7 | 2 << 10);
    let stored = Numbers::Floats((1..=128 * 8).map(f64::from).collect());
    let all = single.expand(&stored, |_, group| if group == 0 { 0xe } else { 4 });
    let Ok(Numbers::Floats(all)) = all else {
        panic!("floats");
    };
    assert_eq!(all[..6], [0.0, 1.0, 2.0, 0.0, 3.0, 0.0]);
    assert!(single.expand(&stored, |_, _| 8).is_err());
}

#[test]
fn pairs_of_small_elements_stay_together() {
    let usage = Usage {
        sparse: true,
        ..Usage::default()
    };
    let bits = 1 << 27 | 1 << 17 | 1 << 2 | 1 << 7 | 1 << 10 | 1 << 23;
    let form = Form::decode(MmaKind::Mxf4, bits, usage).unwrap();
    // Twice as deep, and as many scale factors.
    assert_eq!((form.k, form.block()), (128, 64));
    let stored = Numbers::Floats((1..=128 * 64).map(f64::from).collect());
    let Ok(Numbers::Floats(all)) = form.expand(&stored, |_, _| 0xc) else {
        panic!("floats");
    };
    assert_eq!(
        all[..10],
        [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0]
    );
}

#[test]
fn a_selector_is_for_sparse_halves_alone() {
    assert_eq!(sparse(MmaKind::F16, 1 << 4 | 1).selector, 1);
    let told = Form::decode(MmaKind::F16, 0x0411_0011, Usage::default()).unwrap_err();
    assert!(told.to_string().contains("selector is 1"), "{told}");
}
