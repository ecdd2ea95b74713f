//! Misuse that must not compile, and what the compiler says about it.
//!
//! The expected messages are part of the interface: they are what a user reads.
//! `TRYBUILD=overwrite cargo test -p heist-build --test misuse` writes them anew.

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    // A case that passes makes trybuild build and not only check, so that
    // assertions about constants are evaluated.
    cases.pass("tests/accepted/*.rs");
    cases.compile_fail("tests/refused/*.rs");
}
