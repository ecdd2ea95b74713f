//! Launches that come again, by graphs of one kernel: to set a graph's parameters and launch it
//! takes the host two thirds of the time of a launch, and a third where they are the same.
//!
//! * Launches of one graph run one after the other, so each stream has its own.
//! * What is captured into a caller's graph is launched as others are, and becomes a kernel of it.
//! * A thread that finds another at work launches as others are: nobody waits here.
//! * A graph's kernels run where its maker's context does, so a stream of a green context, which
//!   has a part of the multiprocessors, does without.

use crate::raw::{self, GraphKernel, KernelGraph};
use crate::status::Status;
use crate::stream::BorrowedStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};

/// Launches in a stream before it gets a graph: to make and destroy one takes as long as so many
/// launches save.
const PLAIN: u32 = 24;

/// Streams that a launch has graphs for; further ones do without.
const MOST_STREAMS: usize = 8;

/// Graphs of a process, each of which takes 113 KiB of the GPU's memory; further launches do without.
const MOST_GRAPHS: usize = 256;

/// Those that there are.
static GRAPHS: AtomicUsize = AtomicUsize::new(0);

/// The graphs of a launch.
#[derive(Default)]
pub(crate) struct Relaunch {
    streams: Mutex<Vec<(u64, Seen)>>,
}

/// What is known of a launch in a stream.
enum Seen {
    /// So many launches, one at a time.
    Plain(u32),
    /// Its graph, and the parameters that the graph has.
    Graph(KernelGraph, Vec<u8>),
    /// There can't be a graph.
    Never,
}

/// Whether graphs are wanted. Tools that look at launches may not look into graphs: the
/// recorder does not.
fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let plain = std::env::var_os("HEIST_LAUNCH").is_some_and(|how| how == "plain");
        !plain && std::env::var_os("HEIST_RECORD_FILE").is_none()
    })
}

impl Relaunch {
    /// Launches by the stream's graph. None where it has none: the launch is to be made as
    /// others are.
    pub(crate) fn launch(
        &self,
        kernel: GraphKernel<'_>,
        stream: BorrowedStream,
    ) -> Option<Result<(), Status>> {
        if kernel.launch.cluster.is_some() || !wanted() {
            return None;
        }
        let handle = raw::borrowed_stream(stream.0);
        // Where the driver can't say, it is captured.
        if !matches!(raw::stream_is_capturing(handle), Ok(false)) {
            return None;
        }
        let id = raw::stream_id(handle).ok()?;
        let mut streams = match self.streams.try_lock() {
            Ok(streams) => streams,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let Some((_, seen)) = streams.iter_mut().find(|(known, _)| *known == id) else {
            if streams.len() < MOST_STREAMS {
                streams.push((id, Seen::Plain(1)));
            }
            return None;
        };
        match seen {
            Seen::Plain(count) if *count < PLAIN => {
                *count += 1;
                None
            }
            Seen::Plain(_) => {
                *seen = Seen::of(kernel, handle);
                seen.launch(kernel, handle)
            }
            Seen::Graph(..) => seen.launch(kernel, handle),
            Seen::Never => None,
        }
    }

    /// How many streams have a graph.
    pub(crate) fn graphs(&self) -> usize {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let graphs = streams
            .iter()
            .filter(|(_, seen)| matches!(seen, Seen::Graph(..)));
        graphs.count()
    }

    /// The graphs, to be destroyed.
    pub(crate) fn take(&mut self) -> Vec<KernelGraph> {
        let streams = self
            .streams
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let graphs = streams.drain(..).filter_map(|(_, seen)| match seen {
            Seen::Graph(graph, _) => Some(graph),
            Seen::Plain(_) | Seen::Never => None,
        });
        let graphs: Vec<KernelGraph> = graphs.collect();
        GRAPHS.fetch_sub(graphs.len(), Ordering::Relaxed);
        graphs
    }
}

impl Seen {
    fn of(kernel: GraphKernel<'_>, stream: raw::CUstream) -> Seen {
        if !matches!(raw::stream_is_green(stream), Ok(false)) {
            return Seen::Never;
        }
        if GRAPHS.fetch_add(1, Ordering::Relaxed) < MOST_GRAPHS
            && let Ok(graph) = KernelGraph::new(kernel, stream)
        {
            return Seen::Graph(graph, kernel.parameters.to_vec());
        }
        GRAPHS.fetch_sub(1, Ordering::Relaxed);
        Seen::Never
    }

    fn launch(
        &mut self,
        kernel: GraphKernel<'_>,
        stream: raw::CUstream,
    ) -> Option<Result<(), Status>> {
        let Seen::Graph(graph, has) = self else {
            return None;
        };
        if has != kernel.parameters {
            if let Err(status) = graph.set(kernel) {
                return Some(Err(status));
            }
            has.copy_from_slice(kernel.parameters);
        }
        Some(graph.launch(stream))
    }
}
