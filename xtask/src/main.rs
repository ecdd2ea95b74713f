//! The project's own chores: set-up, tests, golden files.
fn main() {}
