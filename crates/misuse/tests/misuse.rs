//! Misuse that must not compile, and what the compiler says about it.
//!
//! The expected messages are part of the interface: they are what a user reads.
//! `TRYBUILD=overwrite cargo test -p heist-misuse` writes them anew.

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/refused/*.rs");
    // Assertions about constants are evaluated by a build and not by a check; a case that passes
    // makes trybuild build all of them, so that what they depend on is compiled once.
    cases.pass("tests/accepted/*.rs");
    cases.compile_fail("tests/refused_late/*.rs");
}
