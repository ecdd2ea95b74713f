"""The gradients of attention as operations, and how autograd comes to them."""

from __future__ import annotations

import torch

from ._device import DTYPES, PLANS, Launcher, UnsupportedError, device_of, one_device, ops_of, placed
from ._layout import check, check_starts, dense, empty, fits, mostly_rows, of_one, where_they_lie, window_of
from ._library import Gradient, call, define, once, remember
from ._pairs import PAIRS, Paired
from ._scores import PLAIN, Scores

#: The widest head whose gradients can be had.
WIDEST = 128

#: Arguments of all operations of attention.
QKV = "Tensor query, Tensor key, Tensor value"
HOW = "bool causal=False, int left=-1, int right=-1, float scale=0.0"
#: What the backward takes besides.
_SWITCH = "bool deterministic=False"


def check_heads(what: str, q: torch.Tensor, v: torch.Tensor) -> None:
    """Refuses heads of which no gradient can be had."""
    if v.shape[-1] != q.shape[-1]:
        raise UnsupportedError(
            f"{what}: heads of {q.shape[-1]} elements of keys and {v.shape[-1]} of values; gradients can be had where both have as "
            "many: pad the values, or call it under `torch.no_grad()`"
        )
    if q.shape[-1] > WIDEST:
        raise UnsupportedError(
            f"{what}: heads of {q.shape[-1]} elements; gradients can be had of heads up to {WIDEST}: call it under "
            "`torch.no_grad()`, or use PyTorch's own"
        )


def _check_results(what, d_out, q, v, out, lse, sums):
    """Fails where results, their gradient or the log-sum-exps are not those of the queries;
    `sums` is the shape that the last have."""
    check_heads(what, q, v)
    for name, tensor in (("the gradient", d_out), ("out", out)):
        if tensor.shape != q.shape or tensor.dtype != q.dtype:
            raise ValueError(f"{what}: {name} is {tensor.dtype} of {tuple(tensor.shape)}, and the query {q.dtype} of {tuple(q.shape)}")
    if lse.shape != sums or lse.dtype != torch.float32:
        raise ValueError(f"{what}: lse is {lse.dtype} of {tuple(lse.shape)}; float32 of {tuple(sums)} is wanted")


def _key(what, *given):
    return what, *((t.shape, t.stride(), t.dtype, t.get_device()) if isinstance(t, torch.Tensor) else t for t in given)


# --- Sequences that are all alike -------------------------------------------


def _backward(
    d_out, q, k, v, out, lse, causal=False, left=-1, right=-1, scale=0.0, deterministic=False, policy="", pairs=None, scores=PLAIN
):
    """The gradients of query, key and value, (batch, heads, rows, elements)."""
    given = q, k, v, out, d_out, lse
    q, k, v, out, d_out = placed(q, k, v, out, d_out)
    key = _key("attention_backward", d_out, q, k, v, out, lse, pairs, *scores.key(), causal, left, right, scale, deterministic, policy)
    found = PLANS.get(key)
    if found is None:
        found = PLANS[key] = _plan(d_out, q, k, v, out, lse, causal, left, right, scale, deterministic, policy, pairs, scores)
    launcher, rows, keep = found
    gradients = [empty(tensor, rows) for tensor in (q, k, v)]
    if launcher is None:
        return tuple(gradient.zero_() for gradient in gradients)
    own = [tensor if kept else dense(tensor, rows) for tensor, kept in zip((q, k, v, out, d_out), keep)]
    own.append(lse.contiguous())
    tables = _tables(pairs, scores)
    launcher(*(t.data_ptr() for t in own), 0, 0, *(t.data_ptr() for t in gradients), *tables)
    if all(a is b for a, b in zip(own, given)):
        slots = [11] if pairs is not None else scores.slots_of_gradient()
        remember(launcher, [4, 0, 1, 2, 3, 5, *slots], list(zip(gradients, (8, 9, 10))))
    return tuple(gradients)


def _tables(pairs, scores):
    """The addresses of what scores are changed with, behind the gradients; none where there is nothing."""
    if pairs is not None:
        return (pairs.data_ptr(),)
    return (0, scores.slopes.data_ptr()) if scores.slopes is not None and scores.slopes.numel() else ()


def _plan(d_out, q, k, v, out, lse, causal, left, right, scale, deterministic, policy, pairs, scores):
    what = "attention backward"
    check(what, q, k, v, 1, 2)
    _check_results(what, d_out, q, v, out, lse, q.shape[:3])
    scores.check(what, q, k)
    mask = None if pairs is None else Paired(pairs)
    if mask is not None:
        mask.check(what, q, k)
    index = device_of(what, q, k, v, d_out, out, lse, *(() if pairs is None else (pairs,)), *scores.tensors())
    rows = mostly_rows(q, k, v)
    if q.numel() == 0 or k.numel() == 0:
        return None, rows, None
    batch, heads, queries, dim = q.shape
    plan, keep = where_they_lie(
        rows, (q, k, v),
        lambda views: ops_of(index).attention_backward(
            batch, queries, k.shape[2], heads, k.shape[1], dim, dtype=DTYPES[q.dtype], rows=rows, causal=causal,
            window=window_of(left, right), scale=scale or None, deterministic=deterministic, policy=policy or None,
            pairs=None if mask is None else mask.how()["pairs"], views=views, **scores.how_of_gradient(),
        ),
    )  # fmt: skip
    keep += [fits(tensor, rows) for tensor in (out, d_out)]
    return Launcher(index, plan), rows, keep


def _like(d_out, q, k, v, out, lse, *how):
    one_device("attention backward", q, k, v, d_out, out, lse)
    check("attention backward", q, k, v, 1, 2)
    _check_results("attention backward", d_out, q, v, out, lse, q.shape[:3])
    rows = mostly_rows(q, k, v)
    return tuple(empty(tensor, rows) for tensor in (q, k, v))


_RESULTS = "(Tensor, Tensor, Tensor)"
differentiate = define(
    "attention_backward", f"Tensor grad, {QKV}, Tensor out, Tensor lse, {HOW}, {_SWITCH}", _RESULTS, _backward, _like
)


def _backward_paired(
    d_out, q, k, v, out, lse, pairs, causal=False, left=-1, right=-1, scale=0.0, deterministic=False, policy=""
):
    return _backward(d_out, q, k, v, out, lse, causal, left, right, scale, deterministic, policy, pairs)


def _like_paired(d_out, q, k, v, out, lse, pairs, *how):
    one_device("attention backward", q, pairs)
    Paired(pairs).check("attention backward", q, k)
    return _like(d_out, q, k, v, out, lse)


differentiate_paired = define(
    "attention_paired_backward", f"Tensor grad, {QKV}, Tensor out, Tensor lse, {PAIRS}, {HOW}, {_SWITCH}", _RESULTS, _backward_paired,
    _like_paired,
)  # fmt: skip


def _backward_scored(
    d_out, q, k, v, out, lse, slopes, softcap, causal=False, left=-1, right=-1, scale=0.0, deterministic=False, policy=""
):
    scores = Scores(slopes, None, softcap)
    return _backward(d_out, q, k, v, out, lse, causal, left, right, scale, deterministic, policy, scores=scores)


def _like_scored(d_out, q, k, v, out, lse, slopes, softcap, *how):
    one_device("attention backward", q, slopes)
    Scores(slopes, None, softcap).check("attention backward", q, k)
    return _like(d_out, q, k, v, out, lse)


#: What changes scores and has a part in the gradients of queries, keys and values: sinks are in the log-sum-exps.
_SCORES = "Tensor slopes, float softcap"
differentiate_scored = define(
    "attention_scored_backward", f"Tensor grad, {QKV}, Tensor out, Tensor lse, {_SCORES}, {HOW}, {_SWITCH}", _RESULTS, _backward_scored,
    _like_scored,
)  # fmt: skip


# --- Packed sequences ---------------------------------------------------------


def _backward_packed(
    d_out, q, k, v, out, lse, q_starts, k_starts, most_queries, most_keys, causal=False, left=-1, right=-1, scale=0.0,
    deterministic=False, policy="", scores=PLAIN,
):  # fmt: skip
    """The same for (rows of all sequences, heads, elements). Rows that are in no sequence
    have a gradient of zero."""
    q, k, v, out, d_out = placed(q, k, v, out, d_out)
    key = _key(
        "attention_packed_backward", d_out, q, k, v, out, lse, q_starts, k_starts, most_queries, most_keys, causal, left,
        right, scale, deterministic, policy, *scores.key(),
    )  # fmt: skip
    found = PLANS.get(key)
    if found is None:
        found = PLANS[key] = _plan_packed(
            d_out, q, k, v, out, lse, q_starts, k_starts, most_queries, most_keys, causal, left, right, scale, deterministic, policy,
            scores,
        )  # fmt: skip
    launcher, keep = found
    gradients = [torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v)]
    if launcher is not None:
        own = [tensor if kept else tensor.contiguous() for tensor, kept in zip((q, k, v), keep)]
        own += [tensor.contiguous() for tensor in (out, d_out, lse, q_starts, k_starts)]
        launcher(*(t.data_ptr() for t in own), *(t.data_ptr() for t in gradients), *_tables(None, scores))
    return tuple(gradients)


def _plan_packed(
    d_out, q, k, v, out, lse, q_starts, k_starts, most_queries, most_keys, causal, left, right, scale, deterministic, policy, scores
):
    what = "packed attention backward"
    check(what, q, k, v, 1, None)
    _check_results(what, d_out, q, v, out, lse, (q.shape[1], q.shape[0]))
    check_starts(what, q_starts, k_starts)
    scores.check(what, q, k)
    index = device_of(what, q, k, v, d_out, out, lse, q_starts, k_starts, *scores.tensors())
    sequences = q_starts.numel() - 1
    if q.numel() == 0 or k.numel() == 0 or sequences == 0:
        return None, None
    plan, keep = where_they_lie(
        True, [of_one(tensor) for tensor in (q, k, v)],
        lambda views: ops_of(index).attention_backward(
            sequences, min(most_queries, q.shape[0]), min(most_keys, k.shape[0]), q.shape[1], k.shape[1], q.shape[2],
            dtype=DTYPES[q.dtype], rows=True, packed=(q.shape[0], k.shape[0]), causal=causal, window=window_of(left, right),
            scale=scale or None, deterministic=deterministic, policy=policy or None, views=views,
            **scores.how_of_gradient(),
        ),
    )  # fmt: skip
    return Launcher(index, plan), keep


def _like_packed(d_out, q, k, v, out, lse, q_starts, k_starts, *how):
    what = "packed attention backward"
    one_device(what, q, k, v, d_out, out, lse, q_starts, k_starts)
    check(what, q, k, v, 1, None)
    _check_results(what, d_out, q, v, out, lse, (q.shape[1], q.shape[0]))
    return tuple(torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v))


differentiate_packed = define(
    "attention_packed_backward",
    f"Tensor grad, {QKV}, Tensor out, Tensor lse, Tensor q_starts, Tensor k_starts, int most_queries, int most_keys, "
    f"{HOW}, {_SWITCH}",
    _RESULTS, _backward_packed, _like_packed,
)  # fmt: skip


def _backward_packed_scored(
    d_out, q, k, v, out, lse, q_starts, k_starts, slopes, softcap, most_queries, most_keys, causal=False, left=-1, right=-1, scale=0.0,
    deterministic=False, policy="",
):  # fmt: skip
    return _backward_packed(
        d_out, q, k, v, out, lse, q_starts, k_starts, most_queries, most_keys, causal, left, right, scale, deterministic, policy,
        Scores(slopes, None, softcap),
    )  # fmt: skip


def _like_packed_scored(d_out, q, k, v, out, lse, q_starts, k_starts, slopes, softcap, *how):
    one_device("packed attention backward", q, slopes)
    Scores(slopes, None, softcap).check("packed attention backward", q, k)
    return _like_packed(d_out, q, k, v, out, lse, q_starts, k_starts)


differentiate_packed_scored = define(
    "attention_packed_scored_backward",
    f"Tensor grad, {QKV}, Tensor out, Tensor lse, Tensor q_starts, Tensor k_starts, {_SCORES}, int most_queries, int most_keys, "
    f"{HOW}, {_SWITCH}",
    _RESULTS, _backward_packed_scored, _like_packed_scored,
)  # fmt: skip


# --- Autograd -------------------------------------------------------------------


def _keep(ctx, inputs, output):
    """What the backward needs: the inputs, the results and the log-sum-exps, of which there
    is no gradient."""
    tensors = [given for given in inputs if isinstance(given, torch.Tensor)]
    ctx.save_for_backward(*tensors[:3], *output, *tensors[3:])
    ctx.how = inputs[len(tensors) :]
    ctx.mark_non_differentiable(output[1])


@once("attention")
def _gradients(ctx, d_out, _):
    return (*call(differentiate, None, d_out, *ctx.saved_tensors, *ctx.how), *(None,) * 5)


@once("attention")
def _gradients_paired(ctx, d_out, _):
    return (*call(differentiate_paired, None, d_out, *ctx.saved_tensors, *ctx.how), *(None,) * 6)


@once("attention")
def _gradients_packed(ctx, d_out, _):
    return (*call(differentiate_packed, None, d_out, *ctx.saved_tensors, *ctx.how), *(None,) * 9)


def _of_sinks(sinks, lse, out, d_out, heads, there=None):
    """The gradient of the scores of no key. Such a score has a weight and no value, so that all it gets is what its weight takes from the
    others; `heads` is the axis of the heads of the log-sum-exps. Where rows are not `there`, results were never written."""
    # (batch, heads, rows) of sequences that are alike, (heads, rows) of packed ones, whose results have rows before heads.
    delta = (out.float() * d_out.float()).sum(-1)
    delta = delta if heads else delta.t()
    taken = (sinks[:, None] - lse).exp() * delta
    if there is not None:
        taken = taken.where(there, 0.0)
    return -taken.transpose(heads, 0).flatten(1).sum(1)


@once("attention")
def _gradients_scored(ctx, d_out, _):
    q, k, v, out, lse, slopes, sinks = ctx.saved_tensors
    softcap, *how = ctx.how
    own = call(differentiate_scored, None, d_out, q, k, v, out, lse, slopes, softcap, *how)
    of_sinks = _of_sinks(sinks, lse, out, d_out, 1) if ctx.needs_input_grad[4] else None
    return (*own, None, of_sinks, *(None,) * 6)


@once("attention")
def _gradients_packed_scored(ctx, d_out, _):
    q, k, v, out, lse, q_starts, k_starts, slopes, sinks = ctx.saved_tensors
    softcap, *how = ctx.how
    own = call(differentiate_packed_scored, None, d_out, q, k, v, out, lse, q_starts, k_starts, slopes, softcap, *how)
    of_sinks = None
    if ctx.needs_input_grad[6]:
        row = torch.arange(q.shape[0], device=q.device)
        of_sinks = _of_sinks(sinks, lse, out, d_out, 0, (row >= q_starts[0]) & (row < q_starts[-1]))
    return (*own, None, None, None, of_sinks, *(None,) * 8)


GRADIENT = Gradient(_keep, _gradients, _SWITCH)
GRADIENT_SCORED = Gradient(_keep, _gradients_scored, _SWITCH)
GRADIENT_PACKED_SCORED = Gradient(_keep, _gradients_packed_scored, _SWITCH)
GRADIENT_PAIRED = Gradient(_keep, _gradients_paired, _SWITCH)
GRADIENT_PACKED = Gradient(_keep, _gradients_packed, _SWITCH)
