//! The outcome of a launch, the same on every device.
//!
//! ```
//! use heist_launch::{Buffer, BufferRef, Outcome};
//!
//! let sums = Buffer::from_slice(&[3.0f32, 7.0]);
//! let outcome = Outcome { outputs: vec![(BufferRef::from("sums"), sums)], trace: None };
//! assert_eq!(outcome.output("sums").and_then(|b| b.to_vec::<f32>()), Some(vec![3.0, 7.0]));
//! assert!(outcome.output("other").is_none());
//! ```

use crate::argument::BufferRef;
use crate::buffer::Buffer;
use crate::trace::Trace;

/// The buffers after a run, and its trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The buffers that are read back ([`crate::Role::is_read_back`]), in slot order.
    pub outputs: Vec<(BufferRef, Buffer)>,
    /// What ran where and when, if the device recorded it.
    pub trace: Option<Trace>,
}

impl Outcome {
    /// The buffer that an argument brought, or that has a name.
    pub fn output(&self, name: impl Into<BufferRef>) -> Option<&Buffer> {
        let name = name.into();
        self.outputs
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, buffer)| buffer)
    }
}
