//! How far the parser goes.

/// What the parser will not go beyond.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of source.
    pub bytes: usize,
    /// Nesting of scopes, initialisers, and constant expressions.
    pub depth: u32,
    /// Errors, after which it gives up.
    pub errors: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes: 256 << 20,
            depth: 128,
            errors: 50,
        }
    }
}
