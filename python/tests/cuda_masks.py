"""Masks with a number for each query and key, on a real GPU."""

import torch
import torch.nn.functional as F

import heist
import heist.torch as ht
from references import attention, close

BF16 = torch.bfloat16


def randn(*shape, dtype=BF16):
    return torch.randn(*shape, dtype=dtype, device="cuda")


def seen(*shape):
    mask = torch.rand(shape, device="cuda") > 0.5
    mask[..., 0] = True
    return mask


def masks_of_pairs():
    """Every kind of mask, prefill and decoding, beside PyTorch's own; rows that see nothing are zeros."""
    for batch, heads, kv, queries, keys, dim in [
        (2, 8, 8, 256, 256, 64), (1, 4, 2, 1000, 1000, 128), (3, 8, 2, 1, 333, 64), (2, 4, 4, 77, 130, 80), (1, 2, 2, 300, 300, 256),
    ]:  # fmt: skip
        q, k, v = randn(batch, heads, queries, dim), randn(batch, kv, keys, dim), randn(batch, kv, keys, dim)
        padding = torch.arange(keys, device="cuda") >= torch.arange(batch, device="cuda")[:, None, None, None] * 31
        for mask in (
            seen(queries, keys), padding, seen(batch, heads, queries, keys), randn(heads, queries, keys), randn(1, 1, queries, keys + 3)[..., :keys],
            randn(batch, 1, 1, keys, dtype=torch.float32),
        ):  # fmt: skip
            ours = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=heads != kv)
            close(ours, attention(q, k, v, mask=mask)[0], 1.5e-2)
    q, k, v = (randn(1, 2, 128, 64) for _ in range(3))
    mask = seen(128, 128)
    mask[5] = False
    out = ht.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert not out[:, :, 5].any() and out.isfinite().all()


def gradients_with_masks():
    """Beside PyTorch's own in float64, of every kind of mask; of queries that see nothing they are zeros."""
    for heads, kv, queries, keys, dim in [(4, 4, 200, 200, 64), (4, 2, 130, 333, 128), (2, 2, 64, 64, 80)]:
        q, k, v = randn(2, heads, queries, dim), randn(2, kv, keys, dim), randn(2, kv, keys, dim)
        hidden = seen(2, 1, queries, keys)
        hidden[:, :, 3] = False
        for mask in (hidden, seen(2, 1, 1, keys), randn(heads, queries, keys), randn(queries, keys, dtype=torch.float32)):
            results = []
            for attend, kind in ((ht.scaled_dot_product_attention, BF16), (F.scaled_dot_product_attention, torch.float64)):
                own = [t.to(kind, copy=True).requires_grad_() for t in (q, k, v)]
                given = mask if mask.dtype == torch.bool or kind == BF16 else mask.double()
                attend(*own, attn_mask=given, enable_gqa=heads != kv).square().sum().backward()
                results.append([t.grad for t in own])
            for found, want in zip(*results):
                close(found, want, 3e-2)
            assert mask is not hidden or not results[0][0][:, :, 3].any()


def the_hook_with_masks():
    """PyTorch's own call with a mask: ours where it is one of padding and no gradient is wanted, else PyTorch's."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (randn(2, 8, 192, 64) for _ in range(3))
    mask, numbers = seen(2, 1, 1, 192), randn(192, 192)
    for backend in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(backend):
            for given in (mask, numbers):
                theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=given)
                ops = ht._device.ops_of(0)
                ht.use()
                try:
                    before = len(ops), len(ht._device.PLANS)
                    with torch.no_grad():
                        ours = F.scaled_dot_product_attention(q, k, v, attn_mask=given)
                    wanting = q.clone().requires_grad_()
                    F.scaled_dot_product_attention(wanting, k, v, attn_mask=given).sum().backward()
                finally:
                    ht.restore()
                # PyTorch's own is as good for masks that differ from query to query.
                assert (len(ht._device.PLANS) > before[1]) == (given is mask), (backend, before, len(ops))
                assert given is mask or torch.equal(ours, theirs)
                exact = attention(q, k, v, mask=given)[0]
                close(ours, exact, 1.5e-2)
                close(theirs, exact, 1.5e-2)
                assert wanting.grad.isfinite().all()
                assert torch.equal(F.scaled_dot_product_attention(q, k, v, attn_mask=given), theirs)
                ht._device.PLANS.clear()
                heist._native.forget()


CHECKS = [masks_of_pairs, gradients_with_masks, the_hook_with_masks]
