//! The contents of a log, whatever tool wrote it.

use heist_ptx::Diagnostic;

/// What a log says.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The findings, worst first.
    pub findings: Vec<Diagnostic>,
    /// What each kernel takes, where the log says so.
    pub usage: Vec<KernelUsage>,
}

/// What the assembler said a kernel takes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KernelUsage {
    /// Its name.
    pub kernel: String,
    /// The architecture it was assembled for.
    pub arch: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block, in bytes.
    pub shared: u32,
    /// Bytes of stack of a thread.
    pub stack: u32,
    /// Bytes that a thread spills to its stack.
    pub spill_stores: u32,
    /// Bytes that a thread reads back.
    pub spill_loads: u32,
    /// Barriers used.
    pub barriers: u32,
}
