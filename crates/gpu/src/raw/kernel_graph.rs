//! Graphs of one kernel, whose parameters are set before a launch.

use super::{
    CUfunction, CUgraph, CUgraphExec, CUstream, MOST_PARAMETERS, check, graph_destroy,
    graph_exec_destroy, graph_instantiate, graph_launch, parameter_list, sys,
};
use crate::status::Status;
use heist_launch::Launch;
use std::ffi::{c_int, c_void};
use std::ptr;

/// What a graph runs: the launch has no cluster of its own.
#[derive(Clone, Copy)]
pub(crate) struct GraphKernel<'a> {
    pub(crate) function: CUfunction,
    pub(crate) launch: &'a Launch,
    /// The bytes of all parameters in one piece, each at its offset.
    pub(crate) parameters: &'a [u8],
    pub(crate) offsets: &'a [usize],
}

impl GraphKernel<'_> {
    /// As the driver takes it; it points into `list`, which points to the parameters.
    fn node(&self, list: &mut [*mut c_void; MOST_PARAMETERS]) -> sys::KernelNodeParams {
        *list = parameter_list(self.parameters, self.offsets);
        let Launch { grid, block, .. } = self.launch;
        sys::KernelNodeParams {
            func: self.function,
            gridDimX: grid.x,
            gridDimY: grid.y,
            gridDimZ: grid.z,
            blockDimX: block.x,
            blockDimY: block.y,
            blockDimZ: block.z,
            sharedMemBytes: self.launch.dynamic_shared,
            kernelParams: list.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        }
    }
}

/// A graph with one kernel, ready to launch. It is given back by [`KernelGraph::destroy`].
pub(crate) struct KernelGraph {
    graph: CUgraph,
    node: sys::CUgraphNode,
    exec: CUgraphExec,
}

// SAFETY: handles are opaque, and whoever has the graph uses it from one thread at a time.
unsafe impl Send for KernelGraph {}

impl KernelGraph {
    /// Of a kernel, with the priority of the stream that it is for: a graph's kernels have their
    /// own. A graph that another thread captures meanwhile is not disturbed.
    pub(crate) fn new(kernel: GraphKernel<'_>, stream: CUstream) -> Result<KernelGraph, Status> {
        let mut mode = sys::CU_STREAM_CAPTURE_MODE_RELAXED;
        call!(cuThreadExchangeStreamCaptureMode(&mut mode))?;
        let made = KernelGraph::make(kernel, stream);
        call!(cuThreadExchangeStreamCaptureMode(&mut mode))?;
        made
    }

    fn make(kernel: GraphKernel<'_>, stream: CUstream) -> Result<KernelGraph, Status> {
        let mut priority: c_int = 0;
        call!(cuStreamGetPriority(stream, &mut priority))?;
        let mut graph = ptr::null_mut();
        call!(cuGraphCreate(&mut graph, 0))?;
        let instantiated =
            add(graph, kernel, priority).and_then(|node| Ok((node, graph_instantiate(graph)?)));
        match instantiated {
            Ok((node, exec)) => Ok(KernelGraph { graph, node, exec }),
            Err(status) => {
                // What went wrong first is what is reported.
                let _ = graph_destroy(graph);
                Err(status)
            }
        }
    }

    /// Sets the parameters of launches from now on; those before keep theirs.
    pub(crate) fn set(&mut self, kernel: GraphKernel<'_>) -> Result<(), Status> {
        let mut list = [ptr::null_mut(); MOST_PARAMETERS];
        let node = kernel.node(&mut list);
        call!(cuGraphExecKernelNodeSetParams_v2(
            self.exec, self.node, &node
        ))
    }

    pub(crate) fn launch(&mut self, stream: CUstream) -> Result<(), Status> {
        graph_launch(self.exec, stream)
    }

    /// Gives it back; launches that are under way go on.
    pub(crate) fn destroy(self) {
        // Nothing can be done about a failure, and nothing depends on it.
        let _ = graph_exec_destroy(self.exec);
        let _ = graph_destroy(self.graph);
    }
}

fn add(
    graph: CUgraph,
    kernel: GraphKernel<'_>,
    priority: c_int,
) -> Result<sys::CUgraphNode, Status> {
    let mut list = [ptr::null_mut(); MOST_PARAMETERS];
    let params = kernel.node(&mut list);
    let mut node = ptr::null_mut();
    call!(cuGraphAddKernelNode_v2(
        &mut node,
        graph,
        ptr::null(),
        0,
        &params
    ))?;
    if priority != 0 {
        let value = sys::CUlaunchAttributeValue::new([priority]);
        let attribute = sys::of_launch::PRIORITY;
        call!(cuGraphKernelNodeSetAttribute(node, attribute, &value))?;
    }
    Ok(node)
}

/// A number of the stream's that no other stream of the process has, not even one with the same
/// handle after it.
pub(crate) fn stream_id(stream: CUstream) -> Result<u64, Status> {
    let mut id = 0;
    call!(cuStreamGetId(stream, &mut id))?;
    Ok(id)
}

/// Whether the stream is one of a green context: a part of the GPU's multiprocessors.
pub(crate) fn stream_is_green(stream: CUstream) -> Result<bool, Status> {
    let mut context = ptr::null_mut();
    call!(cuStreamGetGreenCtx(stream, &mut context))?;
    Ok(!context.is_null())
}
