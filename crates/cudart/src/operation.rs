//! What streams and graphs do: launches, copies, fills, calls of the host.
//!
//! An operation runs at once, unless its stream is being captured: then it becomes a node of a graph.

use heist_launch::Dim3;
use std::ffi::{c_int, c_void};

pub(crate) const HOST_TO_DEVICE: c_int = 1;
pub(crate) const DEVICE_TO_HOST: c_int = 2;
pub(crate) const DEVICE_TO_DEVICE: c_int = 3;
pub(crate) const ANY: c_int = 4;

/// Where a box of bytes begins, and how far apart its rows and planes are.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) pitch: usize,
    pub(crate) plane: usize,
}

impl Place {
    pub(crate) fn row(at: *const c_void) -> Place {
        Place::rows(at, 0)
    }

    pub(crate) fn rows(at: *const c_void, pitch: usize) -> Place {
        Place {
            at: at as u64,
            pitch,
            plane: 0,
        }
    }

    /// Where a row of a plane begins.
    pub(crate) fn of(&self, row: usize, plane: usize) -> u64 {
        let inside = row * self.pitch + plane * self.plane;
        self.at.wrapping_add(inside as u64)
    }
}

/// A copy of a box.
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) to: Place,
    pub(crate) from: Place,
    /// Bytes of a row, rows, planes.
    pub(crate) size: [usize; 3],
    /// `cudaMemcpyKind`.
    pub(crate) kind: c_int,
}

impl Copy {
    /// A copy of one row.
    pub(crate) fn row(to: *mut c_void, from: *const c_void, len: usize, kind: c_int) -> Copy {
        Copy {
            to: Place::row(to),
            from: Place::row(from),
            size: [len, 1, 1],
            kind,
        }
    }
}

/// A fill of a box with one value.
#[derive(Clone)]
pub(crate) struct Fill {
    pub(crate) to: Place,
    /// The bytes that are repeated.
    pub(crate) value: Vec<u8>,
    /// Bytes of a row, rows, planes.
    pub(crate) size: [usize; 3],
    /// Whether it tells the host how far a stream is: the host may look at it at any time.
    pub(crate) is_signal: bool,
}

/// A launch as the program asks for it.
#[derive(Clone, PartialEq)]
pub(crate) struct Wish {
    /// The host's function that stands for the kernel.
    pub(crate) function: usize,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) cluster: Option<Dim3>,
    pub(crate) shared: usize,
    pub(crate) cooperative: bool,
    /// Whether it may begin before the launch in front of it has ended.
    pub(crate) early: bool,
    /// The bytes of each argument.
    pub(crate) arguments: Vec<Vec<u8>>,
}

/// A function of the program, and what it is called with.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

#[derive(Clone)]
pub(crate) enum Operation {
    /// An empty node.
    Nothing,
    Launch(Wish),
    Copy(Copy),
    Fill(Fill),
    Host(Host),
    /// Notes the time in an event.
    Record(usize),
    /// Gives memory its bytes, at an address that was settled before.
    Allocate {
        /// The call that asked for it.
        by: &'static str,
        at: u64,
        len: usize,
    },
    Free(u64),
    /// A graph inside of a graph, in the order of its nodes.
    Graph(Vec<Operation>),
}

impl Operation {
    /// `cudaGraphNodeType`.
    pub(crate) fn kind(&self) -> c_int {
        match self {
            Operation::Launch(_) => 0,
            Operation::Copy(_) => 1,
            Operation::Fill(_) => 2,
            Operation::Host(_) => 3,
            Operation::Graph(_) => 4,
            Operation::Nothing => 5,
            Operation::Record(_) => 7,
            Operation::Allocate { .. } => 10,
            Operation::Free(_) => 11,
        }
    }
}
