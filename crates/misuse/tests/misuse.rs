//! Misuse that must not compile, and what the compiler says about it.
//!
//! The expected messages are part of the interface: they are what a user reads.
//! `TRYBUILD=overwrite cargo test -p heist-misuse` writes them anew.

#[test]
fn misuse_does_not_compile() {
    let checked = trybuild::TestCases::new();
    checked.compile_fail("tests/refused/*.rs");
    drop(checked);

    // Assertions about constants are evaluated by a build and not by a check; a
    // case that passes makes trybuild build.
    let built = trybuild::TestCases::new();
    built.pass("tests/accepted/*.rs");
    built.compile_fail("tests/refused_late/*.rs");
}
