"""Layers of experts: tokens go through the gated MLPs that a router chose for them."""

from __future__ import annotations

from typing import Any

import torch

from ._device import DTYPES, PLANS, Launcher, UnsupportedError, aligned, device_of, no_gradient, one_device, ops_of, tensors_only, traced
from ._library import call, define, remember


def _check(x, up, down, weights, order, ends):
    """Fails where shapes and types do not fit each other; tokens, experts of each, elements of a token and between."""
    what = "fused_experts"
    if x.dim() != 2 or up.dim() != 3 or down.dim() != 3 or weights.dim() != 2:
        raise ValueError(
            f"{what}: hidden_states is {tuple(x.shape)}, w1 {tuple(up.shape)}, w2 {tuple(down.shape)}, topk_weights {tuple(weights.shape)}; "
            "(tokens, hidden), (experts, 2 * inner, hidden), (experts, hidden, inner) and (tokens, experts of each) are wanted"
        )
    (tokens, hidden), (experts, both, _), per = x.shape, up.shape, weights.shape[1]
    inner = down.shape[2]
    if up.shape != (experts, 2 * inner, hidden) or down.shape != (experts, hidden, inner):
        raise ValueError(
            f"{what}: tokens of {hidden} elements, w1 {tuple(up.shape)} and w2 {tuple(down.shape)}; (experts, 2 * inner, hidden) and "
            "(experts, hidden, inner) are wanted"
        )
    for name, tensor in (("hidden_states", x), ("w1", up), ("w2", down)):
        if tensor.dtype not in (torch.float16, torch.bfloat16) or tensor.dtype != x.dtype:
            raise UnsupportedError(
                f"{what}: {name} is {tensor.dtype}; float16 and bfloat16, the same for all three, are supported: convert with "
                "`.to(torch.bfloat16)`"
            )
        if not tensor.is_contiguous():
            raise ValueError(f"{what}: {name} must lie row after row without gaps: pass `{name}.contiguous()`")
    slots = tokens * per
    for name, tensor, dtype, shape in (
        ("topk_weights", weights, torch.float32, (tokens, per)), ("order", order, torch.int32, (slots,)),
        ("ends", ends, torch.int32, (experts,)),
    ):  # fmt: skip
        if tensor.dtype != dtype or tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(f"{what}: {name} is {tensor.dtype} of {tuple(tensor.shape)}; contiguous {dtype} of {shape} is wanted")
    return tokens, per, hidden, inner


def _layer(x, up, down, weights, order, ends, policy=""):
    given = (x, up, down, weights, order, ends)
    key = ("experts", *((t.shape, t.stride(), t.dtype, t.get_device()) for t in given), policy)
    launcher = PLANS.get(key)
    if launcher is None:
        what = "fused_experts"
        tokens, per, hidden, inner = _check(*given)
        index = device_of(what, *given)
        if not tokens * per * hidden * inner:
            return torch.zeros_like(x)
        plan = ops_of(index).expert_layer(up.shape[0], tokens, per, hidden, inner, dtype=DTYPES[x.dtype], policy=policy or None)
        launcher = PLANS[key] = Launcher(index, plan)
    aligned("fused_experts", hidden_states=x, w1=up, w2=down)
    out = torch.empty_like(x)
    launcher(*(tensor.data_ptr() for tensor in given), out.data_ptr())
    remember(launcher, [0, 1, 2, 3, 4, 5], [(out, 6)])
    return out


def _like_layer(x, up, down, weights, order, ends):
    one_device("fused_experts", x, up, down, weights, order, ends)
    _check(x, up, down, weights, order, ends)
    return torch.empty_like(x)


_experts = define(
    "expert_layer", "Tensor x, Tensor up, Tensor down, Tensor weights, Tensor order, Tensor ends", "Tensor", _layer, _like_layer
)


def fused_experts(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    *,
    policy: Any = None,
) -> torch.Tensor:
    """A layer of experts: each token (tokens, hidden) goes through the experts in its row of ``topk_ids``, and their
    results are added, times ``topk_weights``. An expert is ``silu(x @ gate.T) * (x @ up.T) @ w2.T``; ``w1`` (experts, 2 * inner,
    hidden) has the gate's rows, then those of the other, ``w2`` is (experts, hidden, inner).

    Rows are gathered, gated, weighed and added inside of two to four launches; which tokens go where is sorted by PyTorch on the device, and
    nothing waits for it. Every id is one of an expert's: on a GPU they are trusted. There is no backward.

    >>> x, w1, w2 = (torch.ones(*shape, dtype=torch.bfloat16) for shape in ((4, 64), (2, 128, 64), (2, 64, 64)))
    >>> ids = torch.tensor([[0], [1], [1], [0]])
    >>> fused_experts(x, w1, w2, torch.ones(4, 1), ids).shape
    torch.Size([4, 64])
    """
    what = "fused_experts"
    tensors_only(what, hidden_states=hidden_states, w1=w1, w2=w2, topk_weights=topk_weights, topk_ids=topk_ids)
    no_gradient(what, hidden_states, w1, w2, topk_weights)
    if topk_ids.shape != topk_weights.shape or topk_ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"{what}: topk_ids is {topk_ids.dtype} of {tuple(topk_ids.shape)}; int32 or int64 of {tuple(topk_weights.shape)}, as "
            "topk_weights, is wanted"
        )
    if w1.dim() != 3:
        raise ValueError(f"{what}: w1 is {tuple(w1.shape)}; (experts, 2 * inner, hidden) is wanted")
    experts = torch.arange(w1.shape[0], device=topk_ids.device, dtype=topk_ids.dtype)
    if topk_ids.device.type == "cpu" and not traced() and topk_ids.numel():
        least, most = int(topk_ids.min()), int(topk_ids.max())
        if least < 0 or most >= w1.shape[0]:
            raise ValueError(f"{what}: topk_ids has {least if least < 0 else most}, and there are {w1.shape[0]} experts from 0 on")
    chosen, order = topk_ids.flatten().sort(stable=True)
    ends = torch.searchsorted(chosen, experts, right=True, out_int32=True)
    return call(_experts, policy, hidden_states, w1, w2, topk_weights.float().contiguous(), order.int(), ends)
