//! The operations: planned by shapes, launched with addresses.

#![allow(unsafe_code)]

use crate::error::{HeistError, bad_word, of_op};
use heist::kernels::attention::{Layout as Heads, Mask};
use heist::kernels::gemm::{Epilogue, Gemm};
use heist::ops::{
    Attention, AttentionOperands, BorrowedStream, GemmOperands, GroupedGemm, GroupedOperands,
    Memory, OpError, Operand, Operands, Plan, Sequences, WorkspaceMemory,
};
use heist::run::{Device, DeviceName};
use heist::sched::{AnyPolicy, Schedule, Source, Submit};
use pyo3::prelude::*;

/// The operations of one device.
#[pyclass(frozen, module = "heist._native")]
pub(crate) struct Ops {
    ops: heist::ops::Ops,
    simulated: bool,
}

#[pymethods]
impl Ops {
    /// Of `gpu:0`, or of a simulated device such as `sim:h200`.
    #[new]
    fn new(py: Python<'_>, device: &str) -> PyResult<Ops> {
        let name: DeviceName = device.parse().map_err(bad_word)?;
        py.detach(|| {
            let device = Device::open(name).map_err(|error| error.to_string())?;
            heist::ops::Ops::new(device).map_err(|error| error.to_string())
        })
        .map(|ops| Ops {
            ops,
            simulated: matches!(name, DeviceName::Sim(_)),
        })
        .map_err(HeistError::new_err)
    }

    /// How many plans were made.
    fn __len__(&self) -> usize {
        self.ops.len()
    }

    /// Plans `D = activation(alpha * A * B + beta * C + bias)`.
    #[pyo3(signature = (m, n, k, *, dtype, out, layout, lda, ldb, ldc, alpha=1.0, beta=0.0, bias=false, activation="none", policy=None))]
    #[expect(clippy::too_many_arguments, reason = "by keyword, from Python")]
    fn gemm(
        &self,
        py: Python<'_>,
        m: u32,
        n: u32,
        k: u32,
        dtype: &str,
        out: &str,
        layout: &str,
        lda: u32,
        ldb: u32,
        ldc: u32,
        alpha: f32,
        beta: f32,
        bias: bool,
        activation: &str,
        policy: Option<&str>,
    ) -> PyResult<GemmPlan> {
        let problem = Gemm {
            m,
            n,
            k,
            input: dtype.parse().map_err(bad_word)?,
            output: out.parse().map_err(bad_word)?,
            layout: layout.parse().map_err(bad_word)?,
            epilogue: Epilogue {
                alpha,
                beta,
                bias,
                activation: activation.parse().map_err(bad_word)?,
            },
            lda,
            ldb,
            ldc,
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.gemm(&problem, schedule.as_ref()));
        self.made(py, plan).map(GemmPlan)
    }

    /// Plans products whose rows are dealt out on the device.
    #[pyo3(signature = (groups, rows, n, k, *, dtype, out, layout, policy=None))]
    #[expect(clippy::too_many_arguments, reason = "by keyword, from Python")]
    fn grouped_gemm(
        &self,
        py: Python<'_>,
        groups: u32,
        rows: u32,
        n: u32,
        k: u32,
        dtype: &str,
        out: &str,
        layout: &str,
        policy: Option<&str>,
    ) -> PyResult<GroupedPlan> {
        let problem = GroupedGemm {
            groups,
            rows,
            n,
            k,
            input: dtype.parse().map_err(bad_word)?,
            output: out.parse().map_err(bad_word)?,
            layout: layout.parse().map_err(bad_word)?,
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.grouped_gemm(&problem, schedule.as_ref()));
        self.made(py, plan).map(GroupedPlan)
    }

    /// Plans attention. `packed` has the rows of all queries and of all keys where
    /// sequences lie one after the other; `queries` and `keys` are then the most.
    /// `paged` has the tokens of a page, the most of a sequence, and how many there are.
    #[pyo3(signature = (batch, queries, keys, heads, kv_heads, dim, *, dtype, rows, packed=None, paged=None, causal=false, window=None, scale=None, policy=None))]
    #[expect(clippy::too_many_arguments, reason = "by keyword, from Python")]
    fn attention(
        &self,
        py: Python<'_>,
        batch: u32,
        queries: u32,
        keys: u32,
        heads: u32,
        kv_heads: u32,
        dim: u32,
        dtype: &str,
        rows: bool,
        packed: Option<(u32, u32)>,
        paged: Option<(u32, u32, u32)>,
        causal: bool,
        window: Option<(u32, u32)>,
        scale: Option<f32>,
        policy: Option<&str>,
    ) -> PyResult<AttentionPlan> {
        let problem = Attention {
            sequences: match (packed, paged) {
                (None, None) => Sequences::Same {
                    batch,
                    queries,
                    keys,
                },
                (None, Some((page, most_pages, pages))) => Sequences::Paged {
                    batch,
                    queries,
                    page,
                    most_pages,
                    pages,
                },
                (Some((query_rows, key_rows)), _) => Sequences::Packed {
                    batch,
                    most_queries: queries,
                    most_keys: keys,
                    query_rows,
                    key_rows,
                },
            },
            heads,
            kv_heads,
            head_dim: dim,
            dtype: dtype.parse().map_err(bad_word)?,
            mask: match (causal, window) {
                (true, _) => Mask::Causal,
                (false, None) => Mask::Full,
                (false, Some((left, right))) => Mask::Window { left, right },
            },
            layout: if rows { Heads::Rows } else { Heads::Heads },
            scale,
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.attention(&problem, schedule.as_ref()));
        self.made(py, plan).map(AttentionPlan)
    }
}

impl Ops {
    /// The schedule for a policy, as text: dynamic, since a policy decides about
    /// blocks that go on with another tile.
    fn schedule(&self, policy: Option<&str>) -> PyResult<Option<Schedule>> {
        let Some(text) = policy else {
            return Ok(None);
        };
        let policy: AnyPolicy = text.parse().map_err(bad_word)?;
        let source = Source::auto(self.ops.target().arch, &policy, true).source;
        let mut schedule = Schedule::new(source).submit(Submit::Late);
        schedule.policy = policy;
        Ok(Some(schedule))
    }

    fn made<O>(&self, py: Python<'_>, plan: Result<Plan<O>, OpError>) -> PyResult<Made<O>> {
        let plan = plan.map_err(|error| of_op(py, error))?;
        Ok(Made {
            plan,
            simulated: self.simulated,
        })
    }
}

/// A plan with what Python needs to know of it.
struct Made<O> {
    plan: Plan<O>,
    simulated: bool,
}

impl<O: Operands> Made<O> {
    /// The memory of an operand by its address. Tensors are checked against the
    /// shapes that the plan was made for before they come here, so they have the
    /// bytes that it asks for.
    fn memory<'m>(&self, slot: usize, address: u64) -> Memory<'m> {
        let bytes = self
            .plan
            .operands()
            .get(slot)
            .map_or(0, |o: &Operand| o.bytes);
        if self.simulated {
            // SAFETY: the Python side passes the address of a tensor that has the
            // shape of this plan and that the caller holds until the call is over.
            unsafe { Memory::at_host(address, bytes) }
        } else {
            Memory::at_device(address, bytes)
        }
    }

    /// The same, where zero means that it is not given.
    fn optional<'m>(&self, slot: usize, address: u64) -> Option<Memory<'m>> {
        (address != 0).then(|| self.memory(slot, address))
    }

    fn launch(
        &self,
        py: Python<'_>,
        operands: &O,
        counters: u64,
        scratch: u64,
        stream: u64,
    ) -> PyResult<()>
    where
        O: Sync,
    {
        let need = self.plan.workspace();
        let workspace = WorkspaceMemory {
            counters: Memory::at_device(counters, need.counters),
            scratch: Memory::at_device(scratch, need.scratch),
        };
        let launch = || {
            self.plan
                .launch(operands, workspace, BorrowedStream(stream))
        };
        let launched = if self.simulated {
            py.detach(launch)
        } else {
            // A few microseconds: to let go of the interpreter would take longer.
            launch()
        };
        launched.map_err(|error| of_op(py, error))
    }
}

/// What every kind of plan has.
macro_rules! plan {
    ($(#[$doc:meta])* $name:ident, $operands:ident, [$($slot:literal $field:ident: $how:ident),*]) => {
        $(#[$doc])*
        #[pyclass(frozen, module = "heist._native")]
        pub(crate) struct $name(Made<$operands<'static>>);

        #[pymethods]
        impl $name {
            /// What was planned, in words.
            #[getter]
            fn name(&self) -> &str {
                self.0.plan.name()
            }

            /// Bytes of counters: zero before the first launch.
            #[getter]
            fn counters(&self) -> u64 {
                self.0.plan.workspace().counters
            }

            /// Bytes of scratch memory.
            #[getter]
            fn scratch(&self) -> u64 {
                self.0.plan.workspace().scratch
            }

            /// Floating-point operations.
            #[getter]
            fn flops(&self) -> f64 {
                self.0.plan.work().flops
            }

            /// Launches it with addresses, on the stream with this handle.
            #[expect(clippy::too_many_arguments, reason = "numbers are the fastest that Python passes")]
            fn launch(
                &self,
                py: Python<'_>,
                $($field: u64,)*
                counters: u64,
                scratch: u64,
                stream: u64,
            ) -> PyResult<()> {
                let operands = $operands { $($field: self.0.$how($slot, $field)),* };
                self.0.launch(py, &operands, counters, scratch, stream)
            }

            fn __repr__(&self) -> String {
                format!("<{}>", self.0.plan.name())
            }
        }
    };
}

plan! {
    /// A planned product.
    GemmPlan, GemmOperands, [0 a: memory, 1 b: memory, 2 c: optional, 3 d: memory, 4 bias: optional]
}
plan! {
    /// Planned products of groups.
    GroupedPlan, GroupedOperands, [0 a: memory, 1 b: memory, 2 d: memory, 3 ends: memory]
}
plan! {
    /// Planned attention.
    AttentionPlan, AttentionOperands, [0 q: memory, 1 k: memory, 2 v: memory, 3 out: memory, 4 lse: optional, 5 q_starts: optional, 6 k_starts: optional, 7 pages: optional]
}
