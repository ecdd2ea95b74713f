//! Why does my kernel die? Rules over PTX without running it.
//!
//! [`check`] takes a module from any compiler, and says what is wrong with it, where and what to
//! do. Each rule works on a control-flow graph with facts about pointers: which memory they may
//! point into, and what they are modulo a power of two. A rule that can prove something reports an
//! error; one that sees only that it may happen reports a warning that says "may" and why. No rule
//! guesses. No finding means that nothing was proven, not that nothing is wrong; the simulator
//! finds mistakes that only a run can show.
//!
//! ```
//! use heist_ptx::{Source, parse};
//! let source = Source::new("k.ptx", "
//!     .version 8.0 .target sm_90 .address_size 64
//!     .visible .entry k() { .shared .align 16 .b8 tile[64]; .reg .b32 %r<5>;
//!         ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [tile+4]; ret; }");
//! let found = heist_check::check(&parse(&source).unwrap());
//! assert_eq!(found[0].code.0, "M007");
//! ```

mod context;
mod explain;
mod facts;
pub mod log;
mod rules;
mod uniform;

pub use explain::{Explanation, explain};

use context::Context;
use facts::Facts;
use flow::{Flow, Globals};
use heist_ptx::analysis as flow;
use heist_ptx::arch::Arch;
use heist_ptx::{Diagnostic, Module};
use uniform::Uniformity;

/// What is wrong with a module, in the order of its text.
///
/// The structural rules ([`heist_ptx::validate`]) are not repeated here.
pub fn check(module: &Module) -> Vec<Diagnostic> {
    let arch = Arch::parse(&module.target.arch);
    let mut found = Vec::new();
    found.extend(arch.and_then(|arch| rules::constant_size(module, arch)));
    let globals = Globals::of(module);
    for function in module.functions() {
        let Some(flow) = Flow::new(&globals, function) else {
            continue;
        };
        let facts = Facts::of(&flow);
        let uniformity = Uniformity::of(&flow);
        let context = Context {
            flow: &flow,
            facts: &facts,
            uniformity: &uniformity,
            arch,
        };
        for rule in rules::ALL {
            rule(&context, &mut found);
        }
    }
    found.sort_by_key(|diagnostic| diagnostic.span.start);
    found
}

/// X011: whether a launch of `entry` with so many bytes of dynamic shared memory
/// needs the opt-in. Only the caller's host code can say whether it is there,
/// so this is a warning; a kernel that is not in the module needs nothing.
pub fn shared_opt_in(module: &Module, entry: &str, dynamic: u32) -> Option<Diagnostic> {
    let function = module.entries().find(|f| f.name.as_str() == entry)?;
    let globals = Globals::of(module);
    let flow = Flow::new(&globals, function)?;
    rules::shared_opt_in(&flow, Arch::parse(&module.target.arch)?, dynamic)
}
