//! The operations: planned by shapes, launched with addresses.

#![allow(unsafe_code)]

use crate::error::{HeistError, bad_word, of_op};
use heist::builder::Feature;
use heist::kernels::attention::{
    Append, BlockMask, Cache, Layout as Heads, Mask, PairElement, PairMask, View, Views,
};
use heist::kernels::gemm::{Epilogue, Gemm, Summing};
use heist::ops::{
    Added, Attention, AttentionBackward, BorrowedStream, ExpertLayer, GroupedGemm, Memory, OpError,
    Operands, SLOTS, Sequences, Slots, WorkspaceMemory,
};
use heist::run::{Device, DeviceName};
use heist::sched::{AnyPolicy, Schedule, Submit, TileSource};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A plan's name, problem, answer and refusal.
type PlanTold = (String, Option<String>, Option<String>, Option<String>);

/// The operations of one device.
#[pyclass(frozen, module = "heist._native")]
pub(crate) struct Ops {
    ops: heist::ops::Ops,
    simulated: bool,
}

#[pymethods]
impl Ops {
    /// Of `gpu:0`, or of a simulated device such as `sim:h200`. The file of the tuner's answers is the
    /// usual one unless given; an empty name is none.
    #[new]
    #[pyo3(signature = (device, answers=None))]
    fn new(py: Python<'_>, device: &str, answers: Option<PathBuf>) -> PyResult<Ops> {
        let name: DeviceName = device.parse().map_err(bad_word)?;
        py.detach(|| {
            let device = Device::open(name).map_err(|error| error.to_string())?;
            let ops = heist::ops::Ops::new(device).map_err(|error| error.to_string())?;
            Ok(match answers {
                None => ops,
                Some(file) => {
                    ops.with_answers(Some(file).filter(|file| !file.as_os_str().is_empty()))
                }
            })
        })
        .map(|ops| Ops {
            ops,
            simulated: matches!(name, DeviceName::Sim(_)),
        })
        .map_err(|why: String| HeistError::new_err(why))
    }

    /// Of each plan its name, and its problem, answer and refusal ([`Plan`]).
    fn plans(&self) -> Vec<PlanTold> {
        let told = self.ops.plans().into_iter();
        told.map(|(name, tuning)| {
            let answer = tuning.answer.map(|answer| answer.to_string());
            (name, tuning.problem, answer, tuning.refusal)
        })
        .collect()
    }

    /// Whether heads of attention may have any multiple of 8 elements: the copy engine fills the last step of 16 with zeros for warpgroups.
    #[getter]
    fn attends_in_eights(&self) -> bool {
        self.ops.target().arch.supports(Feature::Wgmma)
    }

    /// Whether attention reads keys and values in pages, which copies of the hardware bring.
    #[getter]
    fn attends_pages(&self) -> bool {
        self.ops.target().arch.supports(Feature::TensorCopy)
    }

    /// How many plans were made.
    fn __len__(&self) -> usize {
        self.ops.len()
    }

    /// Plans `D = activation(alpha * A * B + beta * C + bias)`, or a batch of such
    /// products; `spread` says what of C is stored, `scales` are the factors of A and B, `fast` sums of 8-bit floats. `anywhere` says whether A, and B, begin at any
    /// element, and not at a multiple of 16 bytes.
    #[pyo3(signature = (m, n, k, *, dtype, out, layout, lda, ldb, ldc, alpha=1.0, beta=0.0, spread="matrix", bias=false, activation="none", batch=1, scales="none", fast=false, anywhere=(false, false), policy=None))]
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
        spread: &str,
        bias: bool,
        activation: &str,
        batch: u32,
        scales: &str,
        fast: bool,
        anywhere: (bool, bool),
        policy: Option<&str>,
    ) -> PyResult<Plan> {
        let (input, output) = (dtype.parse(), out.parse());
        let layout = layout.parse().map_err(bad_word)?;
        let plain = Gemm::new(
            m,
            n,
            k,
            input.map_err(bad_word)?,
            output.map_err(bad_word)?,
            layout,
        );
        let problem = Gemm {
            epilogue: Epilogue {
                alpha,
                beta,
                spread: spread.parse().map_err(bad_word)?,
                bias,
                activation: activation.parse().map_err(bad_word)?,
            },
            lda,
            ldb,
            ldc,
            batch,
            scales: scales.parse().map_err(bad_word)?,
            sums: if fast { Summing::Fast } else { Summing::Levels },
            anywhere: anywhere.into(),
            ..plain
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.gemm(&problem, schedule.as_ref()));
        self.made(py, plan)
    }

    /// Plans products whose rows are dealt out on the device. `masked` is the number of rows that each
    /// group is expected to use, where all have room for as many; `scales` are the factors of A and B,
    /// `fast` sums of 8-bit floats.
    #[pyo3(signature = (groups, rows, n, k, *, dtype, out, layout, masked=None, scales="none", fast=false, policy=None))]
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
        masked: Option<u32>,
        scales: &str,
        fast: bool,
        policy: Option<&str>,
    ) -> PyResult<Plan> {
        let problem = GroupedGemm {
            groups,
            rows,
            n,
            k,
            input: dtype.parse().map_err(bad_word)?,
            output: out.parse().map_err(bad_word)?,
            layout: layout.parse().map_err(bad_word)?,
            masked,
            scales: scales.parse().map_err(bad_word)?,
            sums: if fast { Summing::Fast } else { Summing::Levels },
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.grouped_gemm(&problem, schedule.as_ref()));
        self.made(py, plan)
    }

    /// Plans a layer of experts, whose tokens are routed on the device.
    #[pyo3(signature = (experts, tokens, per, hidden, inner, *, dtype, policy=None))]
    #[expect(clippy::too_many_arguments, reason = "by keyword, from Python")]
    fn expert_layer(
        &self,
        py: Python<'_>,
        experts: u32,
        tokens: u32,
        per: u32,
        hidden: u32,
        inner: u32,
        dtype: &str,
        policy: Option<&str>,
    ) -> PyResult<Plan> {
        let layer = ExpertLayer {
            experts,
            tokens,
            per,
            hidden,
            inner,
            dtype: dtype.parse().map_err(bad_word)?,
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.expert_layer(&layer, schedule.as_ref()));
        self.made(py, plan)
    }

    /// Plans attention. `packed` has the rows of all queries and of all keys where
    /// sequences lie one after the other; `queries` and `keys` are then the most.
    /// `paged` has the tokens of a page, the most of a sequence, and how many there are. `cache` is the
    /// type of keys and values: `same`, or `e4m3`; `value_dim` is the elements of a value's head, where they
    /// are fewer than of a key's. `append` has the new keys and values of a sequence, and whether they have the cache's
    /// type; `blocks` the queries and keys of a block of a mask, and whether sequences and heads have masks of their own;
    /// `pairs` the type of a mask of pairs, as PyTorch numbers it, and its elements from one sequence, head and query to the next;
    /// `views` those from one sequence, row and head to the next, of queries, keys and values that are parts of larger tensors.
    #[pyo3(signature = (batch, queries, keys, heads, kv_heads, dim, *, dtype, rows, packed=None, paged=None, causal=false, window=None, scale=None, cache="same", value_dim=None, softcap=None, alibi=false, sinks=false, append=None, prefixes=false, documents=false, blocks=None, pairs=None, views=None, policy=None))]
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
        cache: &str,
        value_dim: Option<u32>,
        softcap: Option<f32>,
        alibi: bool,
        sinks: bool,
        append: Option<(u32, bool)>,
        prefixes: bool,
        documents: bool,
        blocks: Option<(u32, u32, bool, bool)>,
        pairs: Option<(u8, [u32; 3])>,
        views: Option<[[u64; 3]; 3]>,
        policy: Option<&str>,
    ) -> PyResult<Plan> {
        let problem = Attention {
            sequences: sequences(batch, queries, keys, packed, paged),
            heads,
            kv_heads,
            head_dim: dim,
            value_dim,
            dtype: dtype.parse().map_err(bad_word)?,
            cache: cache.parse().map_err(bad_word)?,
            append: append.map(|(rows, in_cache_type)| Append {
                rows,
                in_cache_type,
            }),
            mask: mask(causal, window),
            layout: if rows { Heads::Rows } else { Heads::Heads },
            views: views.map(views_of),
            scale,
            added: Added {
                softcap,
                alibi,
                sinks,
                prefixes,
                documents,
                blocks: blocks.map(|(rows, keys, by_sequence, by_head)| BlockMask {
                    rows,
                    keys,
                    by_sequence,
                    by_head,
                }),
                pairs: pairs.map(pair_mask).transpose()?,
            },
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.attention(&problem, schedule.as_ref()));
        self.made(py, plan)
    }

    /// Plans the gradients of attention.
    #[pyo3(signature = (batch, queries, keys, heads, kv_heads, dim, *, dtype, rows, packed=None, causal=false, window=None, scale=None, deterministic=false, softcap=None, alibi=false, pairs=None, views=None, policy=None))]
    #[expect(clippy::too_many_arguments, reason = "by keyword, from Python")]
    fn attention_backward(
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
        causal: bool,
        window: Option<(u32, u32)>,
        scale: Option<f32>,
        deterministic: bool,
        softcap: Option<f32>,
        alibi: bool,
        pairs: Option<(u8, [u32; 3])>,
        views: Option<[[u64; 3]; 3]>,
        policy: Option<&str>,
    ) -> PyResult<Plan> {
        let problem = AttentionBackward {
            attention: Attention {
                sequences: sequences(batch, queries, keys, packed, None),
                heads,
                kv_heads,
                head_dim: dim,
                value_dim: None,
                dtype: dtype.parse().map_err(bad_word)?,
                cache: Cache::Same,
                append: None,
                mask: mask(causal, window),
                layout: if rows { Heads::Rows } else { Heads::Heads },
                views: views.map(views_of),
                scale,
                added: Added {
                    softcap,
                    alibi,
                    pairs: pairs.map(pair_mask).transpose()?,
                    ..Added::default()
                },
            },
            deterministic,
        };
        let schedule = self.schedule(policy)?;
        let plan = py.detach(|| self.ops.attention_backward(&problem, schedule.as_ref()));
        self.made(py, plan)
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
        let source = TileSource::auto(self.ops.target().arch, &policy, true).source;
        let mut schedule = Schedule::new(source).submit(Submit::Late);
        schedule.policy = policy;
        Ok(Some(schedule))
    }

    fn made<O: Operands>(
        &self,
        py: Python<'_>,
        plan: Result<heist::ops::Plan<O>, OpError>,
    ) -> PyResult<Plan> {
        let plan = plan.map_err(|error| of_op(py, error))?;
        Ok(Plan {
            plan: plan.by_slot(),
            simulated: self.simulated,
        })
    }
}

/// Which sequences attention is over, by the numbers that Python has.
fn sequences(
    batch: u32,
    queries: u32,
    keys: u32,
    packed: Option<(u32, u32)>,
    paged: Option<(u32, u32, u32)>,
) -> Sequences {
    match (packed, paged) {
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
    }
}

/// Elements from one sequence, row and head to the next, of queries, keys and values.
fn views_of(strides: [[u64; 3]; 3]) -> Views {
    let [q, k, v] = strides.map(|[batch, row, head]| View { batch, row, head });
    Views { q, k, v }
}

/// A mask of pairs, of a type as PyTorch numbers it.
fn pair_mask((dtype, strides): (u8, [u32; 3])) -> PyResult<PairMask> {
    let element = match dtype {
        5 => PairElement::F16,
        6 => PairElement::F32,
        11 => PairElement::Seen,
        15 => PairElement::Bf16,
        other => {
            let why =
                format!("type {other} of a mask: bool, float16, bfloat16 and float32 are known");
            return Err(PyValueError::new_err(why));
        }
    };
    Ok(PairMask { element, strides })
}

fn mask(causal: bool, window: Option<(u32, u32)>) -> Mask {
    match (causal, window) {
        (true, _) => Mask::Causal,
        (false, None) => Mask::Full,
        (false, Some((left, right))) => Mask::Window { left, right },
    }
}

/// A planned operation.
#[pyclass(frozen, module = "heist._native")]
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) plan: heist::ops::Plan<Slots<'static>>,
    simulated: bool,
}

#[pymethods]
impl Plan {
    /// What was planned, in words.
    #[getter]
    fn name(&self) -> &str {
        self.plan.name()
    }

    /// The problem as `heist tune` takes it, where the tuner's answer was looked up.
    #[getter]
    fn problem(&self) -> Option<&str> {
        self.plan.tuning().problem.as_deref()
    }

    /// The answer that was taken: tiles and schedule.
    #[getter]
    fn answer(&self) -> Option<String> {
        let answer = self.plan.tuning().answer.as_ref();
        answer.map(ToString::to_string)
    }

    /// Why an answer, or the file of answers, was not taken.
    #[getter]
    fn refusal(&self) -> Option<&str> {
        self.plan.tuning().refusal.as_deref()
    }

    /// Bytes of counters: zero before the first launch.
    #[getter]
    fn counters(&self) -> u64 {
        self.plan.workspace().counters
    }

    /// Bytes of scratch memory.
    #[getter]
    fn scratch(&self) -> u64 {
        self.plan.workspace().scratch
    }

    /// Floating-point operations.
    #[getter]
    fn flops(&self) -> f64 {
        self.plan.work().flops
    }

    /// Launches it on the stream with this handle, with the addresses of its operands;
    /// zero for one that is left out.
    fn launch(
        &self,
        py: Python<'_>,
        addresses: Vec<u64>,
        counters: u64,
        scratch: u64,
        stream: u64,
    ) -> PyResult<()> {
        if addresses.len() > SLOTS {
            let why = format!("{} operands; there are at most {SLOTS}", addresses.len());
            return Err(PyValueError::new_err(why));
        }
        let mut operands = Slots::default();
        for (slot, address) in addresses.into_iter().enumerate() {
            if address != 0 {
                operands.0[slot] = Some(self.memory(slot, address));
            }
        }
        let need = self.plan.workspace();
        let workspace = WorkspaceMemory {
            counters: Memory::at_device(counters, need.counters),
            scratch: Memory::at_device(scratch, need.scratch),
        };
        py.detach(|| {
            self.plan
                .launch(&operands, workspace, BorrowedStream(stream))
        })
        .map_err(|error| of_op(py, error))
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.plan.name())
    }
}

impl Plan {
    /// The memory of an operand by its address. Tensors are checked against the
    /// shapes that the plan was made for before they come here, so they have the
    /// bytes that it asks for.
    pub(crate) fn memory<'m>(&self, slot: usize, address: u64) -> Memory<'m> {
        let bytes = self.plan.operands().get(slot).map_or(0, |o| o.bytes);
        if self.simulated {
            // SAFETY: the address is that of a tensor that has the shape of this plan
            // and that the caller holds until the call is over.
            unsafe { Memory::at_host(address, bytes) }
        } else {
            Memory::at_device(address, bytes)
        }
    }
}
