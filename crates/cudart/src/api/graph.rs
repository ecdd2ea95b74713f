//! Graphs: nodes, and graphs that are ready to run.

use super::copy::box_of;
use super::launch::Three;
use crate::operation::{Copy, Fill, Host, Operation, Place, Wish};
use crate::perform::submit;
use crate::raw;
use crate::runtime::{Runtime, call};
use crate::status::INVALID_VALUE;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

type Handle = *mut c_void;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphCreate(to: *mut usize, _: c_uint) -> c_int {
    call(|runtime| {
        raw::put(to, runtime.graphs.create());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphDestroy(graph: usize) -> c_int {
    call(|runtime| runtime.graphs.destroy(graph))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphClone(to: *mut usize, graph: usize) -> c_int {
    call(|runtime| {
        raw::put(to, runtime.graphs.copy(graph)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphNodeFindInClone(
    to: *mut usize,
    node: usize,
    copy: usize,
) -> c_int {
    call(|runtime| {
        raw::put(to, runtime.graphs.in_copy(node, copy)?);
        Ok(())
    })
}

/// Adds a node that does what `make` says.
fn add(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    make: impl FnOnce(&mut Runtime) -> Result<Operation, c_int>,
) -> c_int {
    call(|runtime| {
        let operation = make(runtime)?;
        let needs = raw::elements(needs, count);
        raw::put(to, runtime.graphs.add(graph, needs, operation)?);
        Ok(())
    })
}

/// `cudaKernelNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelNode {
    function: *const c_void,
    grid: Three,
    block: Three,
    shared: c_uint,
    arguments: *const *const c_void,
    extra: *const *const c_void,
}

fn kernel(runtime: &Runtime, node: *const KernelNode) -> Result<Operation, c_int> {
    let node = raw::get(node).ok_or(INVALID_VALUE)?;
    Ok(Operation::Launch(Wish {
        function: node.function.addr(),
        grid: node.grid.into(),
        block: node.block.into(),
        cluster: None,
        shared: node.shared as usize,
        cooperative: false,
        early: false,
        arguments: runtime.arguments(node.function, node.arguments)?,
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddKernelNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    node: *const KernelNode,
) -> c_int {
    add(to, graph, needs, count, |runtime| kernel(runtime, node))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphKernelNodeSetParams(node: usize, to: *const KernelNode) -> c_int {
    call(|runtime| {
        let operation = kernel(runtime, to)?;
        runtime.graphs.node(node)?.operation = operation;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphExecKernelNodeSetParams(
    ready: usize,
    node: usize,
    to: *const KernelNode,
) -> c_int {
    call(|runtime| {
        let operation = kernel(runtime, to)?;
        runtime.graphs.replace(ready, node, operation)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddMemcpyNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    copy: *const c_void,
) -> c_int {
    add(to, graph, needs, count, |runtime| {
        box_of(runtime, copy).map(Operation::Copy)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddMemcpyNode1D(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    target: Handle,
    source: *const c_void,
    len: usize,
    kind: c_int,
) -> c_int {
    add(to, graph, needs, count, |_| {
        Ok(Operation::Copy(Copy::row(target, source, len, kind)))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphExecMemcpyNodeSetParams1D(
    ready: usize,
    node: usize,
    target: Handle,
    source: *const c_void,
    len: usize,
    kind: c_int,
) -> c_int {
    call(|runtime| {
        let copy = Operation::Copy(Copy::row(target, source, len, kind));
        runtime.graphs.replace(ready, node, copy)
    })
}

/// `cudaMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FillNode {
    to: Handle,
    pitch: usize,
    value: c_uint,
    /// Bytes of the value: 1, 2 or 4.
    element: c_uint,
    width: usize,
    height: usize,
}

fn fill(node: *const FillNode) -> Result<Operation, c_int> {
    let node = raw::get(node).ok_or(INVALID_VALUE)?;
    let element = node.element as usize;
    if !matches!(element, 1 | 2 | 4) {
        return Err(INVALID_VALUE);
    }
    Ok(Operation::Fill(Fill {
        to: Place::rows(node.to, node.pitch),
        value: node.value.to_le_bytes()[..element].to_vec(),
        size: [node.width * element, node.height.max(1), 1],
        is_signal: false,
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddMemsetNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    node: *const FillNode,
) -> c_int {
    add(to, graph, needs, count, |_| fill(node))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphExecMemsetNodeSetParams(
    ready: usize,
    node: usize,
    to: *const FillNode,
) -> c_int {
    call(|runtime| runtime.graphs.replace(ready, node, fill(to)?))
}

/// `cudaHostNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostNode {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: Handle,
}

fn host(node: *const HostNode) -> Result<Operation, c_int> {
    let node = raw::get(node).ok_or(INVALID_VALUE)?;
    Ok(Operation::Host(Host {
        function: node.function.ok_or(INVALID_VALUE)?,
        data: node.data.expose_provenance(),
    }))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddHostNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    node: *const HostNode,
) -> c_int {
    add(to, graph, needs, count, |_| host(node))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphExecHostNodeSetParams(
    ready: usize,
    node: usize,
    to: *const HostNode,
) -> c_int {
    call(|runtime| runtime.graphs.replace(ready, node, host(to)?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddEmptyNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
) -> c_int {
    add(to, graph, needs, count, |_| Ok(Operation::Nothing))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddEventRecordNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    event: Handle,
) -> c_int {
    add(to, graph, needs, count, |_| {
        Ok(Operation::Record(event.addr()))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddChildGraphNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    child: usize,
) -> c_int {
    add(to, graph, needs, count, |runtime| {
        runtime.graphs.whole(child)
    })
}

/// `cudaMemAllocNodeParams`: the properties of a pool, the rights, the bytes, and the address, which is settled now.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocateNode {
    properties: [u64; 11],
    rights: *const c_void,
    right_count: usize,
    len: usize,
    at: u64,
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddMemAllocNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    node: *mut AllocateNode,
) -> c_int {
    add(to, graph, needs, count, |runtime| {
        let mut wish = raw::get(node).ok_or(INVALID_VALUE)?;
        wish.at = runtime.heap.reserve(wish.len);
        raw::put(node, wish);
        Ok(Operation::Allocate {
            by: "cudaGraphAddMemAllocNode",
            at: wish.at,
            len: wish.len,
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddMemFreeNode(
    to: *mut usize,
    graph: usize,
    needs: *const usize,
    count: usize,
    at: Handle,
) -> c_int {
    add(to, graph, needs, count, |_| Ok(Operation::Free(at as u64)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphAddDependencies(
    graph: usize,
    from: *const usize,
    to: *const usize,
    _: *const c_void,
    count: usize,
) -> c_int {
    call(|runtime| {
        let pairs = raw::elements(from, count).into_iter();
        for (from, to) in pairs.zip(raw::elements(to, count)) {
            runtime.graphs.connect(graph, from, to)?;
        }
        Ok(())
    })
}

/// Gives a list to a program that has room for so many, or tells how many there are.
fn list(to: *mut usize, count: *mut usize, all: &[usize]) {
    let room = match to.is_null() {
        true => all.len(),
        false => raw::get(count).unwrap_or(0).min(all.len()),
    };
    for (at, one) in all.iter().enumerate().take(room) {
        raw::put_at(to, at, *one);
    }
    raw::put(count, room);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphGetNodes(
    graph: usize,
    to: *mut usize,
    count: *mut usize,
) -> c_int {
    call(|runtime| {
        let nodes = runtime.graphs.graph(graph)?.nodes();
        let all: Vec<usize> = nodes.map(|(handle, _)| *handle).collect();
        list(to, count, &all);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphGetRootNodes(
    graph: usize,
    to: *mut usize,
    count: *mut usize,
) -> c_int {
    call(|runtime| {
        let nodes = runtime.graphs.graph(graph)?.nodes();
        let roots = nodes.filter(|(_, node)| node.needs.is_empty());
        let all: Vec<usize> = roots.map(|(handle, _)| *handle).collect();
        list(to, count, &all);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphNodeGetType(node: usize, to: *mut c_int) -> c_int {
    call(|runtime| {
        raw::put(to, runtime.graphs.node(node)?.operation.kind());
        Ok(())
    })
}

const AUTO_FREE: c_ulonglong = 1;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphInstantiate(
    to: *mut usize,
    graph: usize,
    flags: c_ulonglong,
) -> c_int {
    call(|runtime| {
        let frees = flags & AUTO_FREE != 0;
        raw::put(to, runtime.graphs.prepare(graph, frees)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphInstantiateWithFlags(
    to: *mut usize,
    graph: usize,
    flags: c_ulonglong,
) -> c_int {
    cudaGraphInstantiate(to, graph, flags)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphExecDestroy(ready: usize) -> c_int {
    call(|runtime| runtime.graphs.forget(ready))
}

const UPDATE_FAILURE: c_int = 910;

/// `cudaGraphExecUpdateResultInfo` begins with what came of it: 0, or 2 for another shape.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphExecUpdate(
    ready: usize,
    graph: usize,
    result: *mut c_int,
) -> c_int {
    call(|runtime| {
        let done = runtime.graphs.update(ready, graph)?;
        raw::put(result, if done { 0 } else { 2 });
        done.then_some(()).ok_or(UPDATE_FAILURE)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphUpload(_: usize, _: Handle) -> c_int {
    call(|_| Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphLaunch(ready: usize, stream: Handle) -> c_int {
    submit(stream, |runtime| {
        let (operation, places) = runtime.graphs.run(ready)?;
        for place in places {
            runtime.heap.free(place);
        }
        Ok(operation)
    })
}
