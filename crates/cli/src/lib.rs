//! The `heist` command: terminal, files and tables. Whatever another program could use is in the
//! `heist` library.
//!
//! * [`command`]: the subcommands, one file each.
//! * `config`: `heist.toml`, the flags that a project always gives.
//! * `fold`: one bug is one finding.
//! * [`render`], [`sarif`]: findings for people and for tools.
//! * [`origin`]: the source line behind a line of PTX.
//! * [`progress`]: how far long work has come, and what was done when it is interrupted.
//! * [`bench`]: our kernels and their peers, side by side.

#[macro_use]
mod say;

mod answer;
pub mod bench;
pub mod command;
mod config;
mod file;
mod fold;
pub mod origin;
pub mod progress;
pub mod render;
pub mod sarif;
mod timeline;
