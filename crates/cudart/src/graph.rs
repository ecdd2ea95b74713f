//! Graphs of operations, and streams that are captured into them.

use crate::operation::Operation;
use crate::status::INVALID_VALUE;
use std::collections::{BTreeSet, HashMap};
use std::ffi::c_int;

const CAPTURE_UNSUPPORTED: c_int = 900;
const CAPTURE_INVALIDATED: c_int = 901;
const CAPTURE_MERGE: c_int = 902;
const CAPTURE_UNMATCHED: c_int = 903;
const CAPTURE_UNJOINED: c_int = 904;
const CAPTURE_ISOLATION: c_int = 905;
const CAPTURED_EVENT: c_int = 907;
/// Streams without a handle of their own: the default one, and `cudaStreamLegacy`.
const LEGACY: [usize; 2] = [0, 1];

/// The first handle of a graph or a node: they are never dereferenced.
const HANDLES: usize = 0x10_0000;

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) operation: Operation,
    /// The nodes that come before it.
    pub(crate) needs: Vec<usize>,
    /// The node that it is a copy of, in a cloned graph.
    original: usize,
}

/// Nodes by their handles, in the order in which they were added.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    nodes: Vec<(usize, Node)>,
}

impl Graph {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &(usize, Node)> {
        self.nodes.iter()
    }

    fn node(&self, handle: usize) -> Option<&Node> {
        let found = self.nodes.iter().find(|(one, _)| *one == handle);
        found.map(|(_, node)| node)
    }

    /// The nodes in an order in which each comes after those that it needs; none where they need
    /// each other in a circle.
    fn order(&self) -> Option<Vec<&(usize, Node)>> {
        let mut done = BTreeSet::new();
        let mut order = Vec::new();
        while order.len() < self.nodes.len() {
            let next = self.nodes.iter().find(|(handle, node)| {
                !done.contains(handle) && node.needs.iter().all(|one| done.contains(one))
            })?;
            done.insert(next.0);
            order.push(next);
        }
        Some(order)
    }

    /// Some nodes and all that come before them.
    fn before(&self, last: &[usize]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = last.to_vec();
        while let Some(handle) = open.pop() {
            if found.insert(handle) {
                open.extend(self.node(handle).into_iter().flat_map(|node| &node.needs));
            }
        }
        found
    }
}

/// A graph that is ready to run: its operations in order, by their nodes.
#[derive(Clone)]
pub(crate) struct Ready {
    nodes: Vec<(usize, Operation)>,
    /// Memory that an earlier run has left is freed when it runs again.
    frees: bool,
}

/// A stream that is being captured.
struct Capture {
    graph: usize,
    /// The nodes that the next one comes after.
    last: Vec<usize>,
    /// The stream with which the capture began.
    origin: bool,
    broken: bool,
}

/// All graphs, and the streams that are captured.
#[derive(Default)]
pub(crate) struct Graphs {
    made: usize,
    graphs: HashMap<usize, Graph>,
    ready: HashMap<usize, Ready>,
    captures: HashMap<usize, Capture>,
    /// Events of captured streams: the graph, and the nodes before them.
    events: HashMap<usize, (usize, Vec<usize>)>,
}

impl Graphs {
    fn handle(&mut self) -> usize {
        self.made += 1;
        HANDLES + self.made
    }

    pub(crate) fn create(&mut self) -> usize {
        let handle = self.handle();
        self.graphs.insert(handle, Graph::default());
        handle
    }

    pub(crate) fn graph(&self, handle: usize) -> Result<&Graph, c_int> {
        self.graphs.get(&handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn destroy(&mut self, handle: usize) -> Result<(), c_int> {
        let gone = self.graphs.remove(&handle);
        gone.map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// Adds a node; its handle.
    pub(crate) fn add(
        &mut self,
        graph: usize,
        needs: Vec<usize>,
        operation: Operation,
    ) -> Result<usize, c_int> {
        let handle = self.handle();
        let graph = self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        if needs.iter().any(|&one| graph.node(one).is_none()) {
            return Err(INVALID_VALUE);
        }
        let node = Node {
            operation,
            needs,
            original: handle,
        };
        graph.nodes.push((handle, node));
        Ok(handle)
    }

    /// A node of whichever graph has it.
    pub(crate) fn node(&mut self, handle: usize) -> Result<&mut Node, c_int> {
        let all = self.graphs.values_mut().flat_map(|graph| &mut graph.nodes);
        let found = all.into_iter().find(|(one, _)| *one == handle);
        found.map(|(_, node)| node).ok_or(INVALID_VALUE)
    }

    /// Lets one node come after another.
    pub(crate) fn connect(&mut self, graph: usize, from: usize, to: usize) -> Result<(), c_int> {
        let graph = self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        if graph.node(from).is_none() {
            return Err(INVALID_VALUE);
        }
        let found = graph.nodes.iter_mut().find(|(one, _)| *one == to);
        let (_, node) = found.ok_or(INVALID_VALUE)?;
        node.needs.push(from);
        Ok(())
    }

    /// A copy of a graph, whose nodes have handles of their own.
    pub(crate) fn copy(&mut self, of: usize) -> Result<usize, c_int> {
        let mut graph = self.graph(of)?.clone();
        let mut new = HashMap::new();
        for (handle, node) in &mut graph.nodes {
            node.original = *handle;
            let copied = self.handle();
            new.insert(*handle, copied);
            *handle = copied;
        }
        for (_, node) in &mut graph.nodes {
            for need in &mut node.needs {
                *need = new.get(need).copied().unwrap_or(*need);
            }
        }
        let handle = self.handle();
        self.graphs.insert(handle, graph);
        Ok(handle)
    }

    /// The node of a copied graph that stands for one of the original.
    pub(crate) fn in_copy(&self, node: usize, copy: usize) -> Result<usize, c_int> {
        let mut nodes = self.graph(copy)?.nodes();
        let found = nodes.find(|(_, one)| one.original == node);
        found.map(|(handle, _)| *handle).ok_or(INVALID_VALUE)
    }

    /// A graph's operations in order, as one.
    pub(crate) fn whole(&self, graph: usize) -> Result<Operation, c_int> {
        let order = self.graph(graph)?.order().ok_or(INVALID_VALUE)?;
        let all = order.into_iter().map(|(_, node)| node.operation.clone());
        Ok(Operation::Graph(all.collect()))
    }

    /// Makes a graph ready to run; its handle.
    pub(crate) fn prepare(&mut self, graph: usize, frees: bool) -> Result<usize, c_int> {
        let order = self.graph(graph)?.order().ok_or(INVALID_VALUE)?;
        let nodes = order.into_iter();
        let nodes = nodes.map(|(handle, node)| (*handle, node.operation.clone()));
        let ready = Ready {
            nodes: nodes.collect(),
            frees,
        };
        let handle = self.handle();
        self.ready.insert(handle, ready);
        Ok(handle)
    }

    pub(crate) fn forget(&mut self, ready: usize) -> Result<(), c_int> {
        let gone = self.ready.remove(&ready);
        gone.map(|_| ()).ok_or(INVALID_VALUE)
    }

    /// Takes the operations of another graph of the same shape; false where the shapes differ.
    pub(crate) fn update(&mut self, ready: usize, graph: usize) -> Result<bool, c_int> {
        let order = self.graph(graph)?.order().ok_or(INVALID_VALUE)?;
        let new: Vec<Operation> = order
            .into_iter()
            .map(|(_, node)| node.operation.clone())
            .collect();
        let ready = self.ready.get_mut(&ready).ok_or(INVALID_VALUE)?;
        let kinds = ready.nodes.iter().map(|(_, one)| one.kind());
        if !kinds.eq(new.iter().map(Operation::kind)) {
            return Ok(false);
        }
        for ((_, old), new) in ready.nodes.iter_mut().zip(new) {
            *old = new;
        }
        Ok(true)
    }

    /// Changes what a node does in a graph that is ready.
    pub(crate) fn replace(
        &mut self,
        ready: usize,
        node: usize,
        operation: Operation,
    ) -> Result<(), c_int> {
        let ready = self.ready.get_mut(&ready).ok_or(INVALID_VALUE)?;
        let found = ready.nodes.iter_mut().find(|(one, _)| *one == node);
        let (_, old) = found.ok_or(INVALID_VALUE)?;
        if old.kind() != operation.kind() {
            return Err(INVALID_VALUE);
        }
        *old = operation;
        Ok(())
    }

    /// What a run of a graph does, and the memory that it frees before.
    pub(crate) fn run(&self, ready: usize) -> Result<(Operation, Vec<u64>), c_int> {
        let ready = self.ready.get(&ready).ok_or(INVALID_VALUE)?;
        let all: Vec<Operation> = ready.nodes.iter().map(|(_, one)| one.clone()).collect();
        let places = all.iter().filter_map(|one| match one {
            Operation::Allocate { at, .. } if ready.frees => Some(*at),
            _ => None,
        });
        let places = places.collect();
        Ok((Operation::Graph(all), places))
    }

    /// Begins the capture of a stream into a graph.
    pub(crate) fn begin(
        &mut self,
        stream: usize,
        graph: usize,
        last: Vec<usize>,
    ) -> Result<(), c_int> {
        if LEGACY.contains(&stream) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if self.captures.contains_key(&stream) {
            return Err(INVALID_VALUE);
        }
        let capture = Capture {
            graph,
            last,
            origin: true,
            broken: false,
        };
        self.captures.insert(stream, capture);
        Ok(())
    }

    /// Ends the capture that began with a stream; its graph.
    pub(crate) fn end(&mut self, stream: usize) -> Result<usize, c_int> {
        let found = self.captures.get(&stream).ok_or(INVALID_VALUE)?;
        if !found.origin {
            return Err(CAPTURE_UNMATCHED);
        }
        let (graph, broken) = (found.graph, found.broken);
        let joined = self.graph(graph)?.before(&found.last);
        let others = self.captures.values().filter(|one| one.graph == graph);
        let mut tips = others.flat_map(|one| &one.last);
        let unjoined = tips.any(|tip| !joined.contains(tip));
        self.captures.retain(|_, one| one.graph != graph);
        self.events.retain(|_, (of, _)| *of != graph);
        match (broken, unjoined) {
            (true, _) => Err(CAPTURE_INVALIDATED),
            (_, true) => Err(CAPTURE_UNJOINED),
            _ => Ok(graph),
        }
    }

    /// Adds an operation to the graph of a captured stream; gives it back for any other.
    pub(crate) fn capture(
        &mut self,
        stream: usize,
        operation: Operation,
    ) -> Result<Option<Operation>, c_int> {
        let Some(capture) = self.captures.get(&stream) else {
            return Ok(Some(operation));
        };
        if capture.broken {
            return Err(CAPTURE_INVALIDATED);
        }
        let node = self.add(capture.graph, capture.last.clone(), operation)?;
        if let Some(capture) = self.captures.get_mut(&stream) {
            capture.last = vec![node];
        }
        Ok(None)
    }

    /// The graph of a captured stream, and whether the capture is still good.
    pub(crate) fn capturing(&self, stream: usize) -> Option<(usize, bool)> {
        let capture = self.captures.get(&stream)?;
        Some((capture.graph, !capture.broken))
    }

    /// Notes an event of a stream; whether that stream is captured.
    pub(crate) fn mark(&mut self, event: usize, stream: usize) -> bool {
        match self.captures.get(&stream) {
            Some(capture) => {
                let place = (capture.graph, capture.last.clone());
                self.events.insert(event, place);
                true
            }
            None => {
                self.events.remove(&event);
                false
            }
        }
    }

    /// Lets a stream wait for an event, which takes it into the event's capture.
    pub(crate) fn wait(&mut self, stream: usize, event: usize) -> Result<(), c_int> {
        match (self.events.get(&event), self.captures.get_mut(&stream)) {
            (None, None) => {}
            (None, Some(_)) => return Err(CAPTURE_ISOLATION),
            (Some((graph, nodes)), Some(capture)) => {
                if capture.graph != *graph {
                    return Err(CAPTURE_MERGE);
                }
                capture.last.extend(nodes);
            }
            (Some((graph, nodes)), None) => {
                let joined = Capture {
                    graph: *graph,
                    last: nodes.clone(),
                    origin: false,
                    broken: false,
                };
                self.captures.insert(stream, joined);
            }
        }
        Ok(())
    }

    /// A host that waits for a captured stream, or for all of them, spoils the capture.
    pub(crate) fn wait_by_host(&mut self, stream: Option<usize>) -> Result<(), c_int> {
        let mut spoilt = false;
        for (one, capture) in &mut self.captures {
            if stream.is_none_or(|stream| stream == *one) {
                capture.broken = true;
                spoilt = true;
            }
        }
        match spoilt {
            true => Err(CAPTURE_UNSUPPORTED),
            false => Ok(()),
        }
    }

    /// A captured event has no time, and nobody can wait for it.
    pub(crate) fn outside(&self, event: usize) -> Result<(), c_int> {
        match self.events.contains_key(&event) {
            true => Err(CAPTURED_EVENT),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: usize) -> Operation {
        Operation::Record(event)
    }

    /// The events that a graph records, in order.
    fn events(graphs: &Graphs, graph: usize) -> Vec<usize> {
        let Ok(Operation::Graph(all)) = graphs.whole(graph) else {
            return Vec::new();
        };
        let event = |one: &Operation| match one {
            Operation::Record(event) => Some(*event),
            _ => None,
        };
        all.iter().filter_map(event).collect()
    }

    #[test]
    fn nodes_run_after_what_they_need() {
        let mut graphs = Graphs::default();
        let graph = graphs.create();
        let last = graphs.add(graph, Vec::new(), record(3)).unwrap();
        let first = graphs.add(graph, Vec::new(), record(1)).unwrap();
        let middle = graphs.add(graph, vec![first], record(2)).unwrap();
        graphs.connect(graph, middle, last).unwrap();
        assert_eq!(events(&graphs, graph), [1, 2, 3]);
        let copy = graphs.copy(graph).unwrap();
        assert_eq!(events(&graphs, copy), [1, 2, 3]);
        assert_ne!(graphs.in_copy(first, copy), Ok(first));
        assert!(graphs.add(copy, vec![first], record(4)).is_err());
        graphs.connect(graph, last, first).unwrap();
        assert!(graphs.whole(graph).is_err());
    }

    #[test]
    fn streams_are_captured_with_those_that_wait_for_them() {
        let mut graphs = Graphs::default();
        let graph = graphs.create();
        assert_eq!(graphs.begin(0, graph, Vec::new()), Err(CAPTURE_UNSUPPORTED));
        graphs.begin(10, graph, Vec::new()).unwrap();
        assert!(graphs.capture(10, record(1)).unwrap().is_none());
        assert!(graphs.capture(11, record(9)).unwrap().is_some());
        assert!(graphs.mark(7, 10));
        graphs.wait(11, 7).unwrap();
        assert!(graphs.capture(11, record(2)).unwrap().is_none());
        assert_eq!(graphs.outside(7), Err(CAPTURED_EVENT));
        assert!(graphs.mark(8, 11));
        graphs.wait(10, 8).unwrap();
        assert!(graphs.capture(10, record(3)).unwrap().is_none());
        assert_eq!(graphs.end(11), Err(CAPTURE_UNMATCHED));
        assert_eq!(graphs.end(10), Ok(graph));
        assert_eq!(events(&graphs, graph), [1, 2, 3]);
        assert_eq!(graphs.capturing(11), None);
    }

    #[test]
    fn a_capture_that_is_not_joined_or_waited_for_by_the_host_is_refused() {
        let mut graphs = Graphs::default();
        let graph = graphs.create();
        graphs.begin(10, graph, Vec::new()).unwrap();
        assert!(graphs.mark(7, 10));
        graphs.wait(11, 7).unwrap();
        assert!(graphs.capture(11, record(2)).unwrap().is_none());
        assert_eq!(graphs.end(10), Err(CAPTURE_UNJOINED));
        let graph = graphs.create();
        graphs.begin(10, graph, Vec::new()).unwrap();
        assert_eq!(graphs.wait_by_host(Some(12)), Ok(()));
        assert_eq!(graphs.wait_by_host(None), Err(CAPTURE_UNSUPPORTED));
        assert!(graphs.capture(10, record(1)).is_err());
        assert_eq!(graphs.end(10), Err(CAPTURE_INVALIDATED));
    }
}
