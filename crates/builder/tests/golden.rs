//! Whole kernels as text, so that a change in what is emitted is seen.
//!
//! `HEIST_GOLDEN=write cargo test -p heist-builder --test golden` writes the
//! files anew; read the difference before you commit it.

#[allow(dead_code, unreachable_pub)]
#[path = "../examples/05_cluster_sum.rs"]
mod cluster_sum;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/02_reduction.rs"]
mod reduction;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/01_saxpy.rs"]
mod saxpy;
#[allow(dead_code, unreachable_pub)]
#[path = "../examples/06_steal.rs"]
mod steal;

use heist_builder::{Arch, BuildError, BuiltKernel};
use heist_ptx::{FunctionDirective, Item, Module, Statement};
use std::path::Path;

/// The module without `.file` and `.loc`: lines of Rust move too easily.
fn without_places(mut module: Module) -> Module {
    module.items.retain(|item| !matches!(item, Item::File(_)));
    for item in &mut module.items {
        if let Item::Function(function) = item
            && let Some(body) = &mut function.body
        {
            body.retain(|statement| !matches!(statement, Statement::Loc(_)));
        }
    }
    module
}

fn golden<A>(name: &str, kernel: Result<BuiltKernel<A>, BuildError>) {
    let kernel = kernel.unwrap_or_else(|error| panic!("{name}: {error}"));
    let text = heist_ptx::print(&without_places(kernel.module));
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("HEIST_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        std::fs::write(&path, &text).expect("the golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(
        text == expected,
        "{name} is not what {} says; first difference:\n{}",
        path.display(),
        first_difference(&expected, &text)
    );
}

fn first_difference(expected: &str, found: &str) -> String {
    expected
        .lines()
        .zip(found.lines())
        .enumerate()
        .find(|(_, (a, b))| a != b)
        .map_or("one ends before the other".into(), |(index, (a, b))| {
            format!("line {}\n- {a}\n+ {b}", index + 1)
        })
}

#[test]
fn saxpy() {
    golden("saxpy.sm_80.ptx", saxpy::saxpy(Arch::SM_80));
}

#[test]
fn reduction() {
    golden("reduction.sm_80.ptx", reduction::reduction(Arch::SM_80));
}

#[test]
fn cluster_sum() {
    golden(
        "cluster_sum.sm_90.ptx",
        cluster_sum::cluster_sum(Arch::SM_90),
    );
}

#[test]
fn steal() {
    golden("steal.sm_100.ptx", steal::steal(Arch::SM_100));
}

/// The lines of Rust that a kernel comes from are in it, once per run of
/// instructions of the same line.
#[test]
fn places_point_at_rust() {
    let kernel = saxpy::saxpy(Arch::SM_80).expect("builds");
    let files: Vec<&str> = kernel
        .module
        .items
        .iter()
        .filter_map(|item| match item {
            Item::File(file) => Some(file.path.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(files, ["crates/builder/tests/../examples/01_saxpy.rs"]);
    let function = kernel.module.entries().next().expect("one kernel");
    let body = function.body.as_ref().expect("it has a body");
    let lines: Vec<u32> = body
        .iter()
        .filter_map(|statement| match statement {
            Statement::Loc(loc) => Some(loc.line),
            _ => None,
        })
        .collect();
    assert!(lines.len() >= 4, "{lines:?}");
    let source = include_str!("../examples/01_saxpy.rs");
    let load = source
        .lines()
        .position(|line| line.contains("args.x.at(i).load()"))
        .expect("the example loads x") as u32
        + 1;
    assert!(lines.contains(&load), "{lines:?} has no {load}");
    assert!(matches!(
        function.directives.first(),
        Some(FunctionDirective::Numbers { name, values, .. })
            if name == "reqntid" && values == &[256, 1, 1]
    ));
}

/// Names given in Rust are the names in the PTX, made unique and legal.
#[test]
fn names_come_from_rust() {
    use heist_builder::*;
    kernel_params! { struct Args { data: Global<u32>, n: u32 } }
    let kernel = KernelSpec::<Args>::new("names")
        .build(Arch::SM_80, |k, args| {
            let a = (args.n + 1).named("row");
            let b = (args.n + 2).named("row");
            let c = (args.n + 3).named("tid");
            let d = (args.n + 4).named("r7");
            let e = (args.n + 5).named("größe in bytes");
            args.data.store(a + b + c + d + e);
            let _ = k;
        })
        .expect("builds");
    let text = heist_ptx::print(&kernel.module);
    for name in [
        "%row,",
        "%row_2,",
        "%tid_value,",
        "%r7_value,",
        "%gr__e_in_bytes,",
    ] {
        assert!(text.contains(&format!("add.s32 {name}")), "{name}\n{text}");
    }
}
