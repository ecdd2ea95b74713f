"""Attention: forward, decoding, gradients, packed sequences, masks."""

import math

import heist.torch as ht
import torch
import torch.nn.functional as F
from problem import Case, random_of, uniform
from torch.nn.attention import SDPBackend, sdpa_kernel


def dense(q, k, v, causal=False, mask=None):
    """In f32, a head at a time where it is large."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1).float() for t in (k, v))
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return F.scaled_dot_product_attention(q.float(), k, v, is_causal=causal, attn_mask=mask)


def backend(which, causal, gqa):
    def call(q, k, v):
        with sdpa_kernel(which):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

    return call


def peers(causal, gqa):
    return {
        "cudnn": backend(SDPBackend.CUDNN_ATTENTION, causal, gqa),
        "flash": backend(SDPBackend.FLASH_ATTENTION, causal, gqa),
    }


def heads(rng):
    dim = rng.choice([32, 40, 64, 64, 64, 72, 80, 96, 104, 128, 128, 128, 128, 160, 192, 256])
    group = rng.choice([1, 1, 2, 4, 8])
    return dim, group, rng.choice([1, 2, 4, 8, 16]) * group


def attention(rng):
    dim, group, count = heads(rng)
    causal = rng.random() < 0.5
    rows = random_of(rng, 32, 8192, 1)
    keys = rows if causal or rng.random() < 0.6 else random_of(rng, 32, 8192, 1)
    batches = random_of(rng, 1, 64, 1)
    while batches * count * rows * keys * dim > 1 << 39 or batches * count * max(rows, keys) * dim > 1 << 28:
        batches, count = max(1, batches // 2), max(group, count // 2 // group * group)
        if batches == 1 and count == group:
            rows, keys = rows // 2, keys // 2
    return Case(
        "attention", f"B{batches} H{count}/{count // group} {rows}x{keys} D{dim}{' causal' if causal else ''}",
        lambda: (uniform(batches, count, rows, dim), uniform(batches, count // group, keys, dim), uniform(batches, count // group, keys, dim)),
        lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1),
        peers(causal, group > 1), lambda q, k, v: dense(q, k, v, causal), 4 * batches * dim * (count * rows + count // group * keys),
    )  # fmt: skip


def decode(rng):
    dim = rng.choice([64, 96, 128, 128, 128, 192, 256])
    group = rng.choice([1, 2, 3, 4, 5, 7, 8, 8, 16])
    kv = rng.choice([1, 2, 4, 8, 8, 16])
    rows = rng.choice([1, 1, 1, 1, 2, 4, 7])
    keys, batches = random_of(rng, 64, 131072, 1), random_of(rng, 1, 256, 1)
    while batches * kv * keys * dim > 1 << 29:
        batches, keys = max(1, batches // 2), keys - keys // 3
    return Case(
        "decode", f"B{batches} H{kv * group}/{kv} {rows}x{keys} D{dim}",
        lambda: (uniform(batches, kv * group, rows, dim), uniform(batches, kv, keys, dim), uniform(batches, kv, keys, dim)),
        lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, enable_gqa=group > 1),
        peers(False, group > 1), dense, 4 * batches * dim * kv * (group * rows + keys),
    )  # fmt: skip


def with_gradients(forward):
    """A forward and its gradients, as one result."""

    def call(q, k, v, d):
        return torch.cat([g.flatten() for g in torch.autograd.grad(forward(q, k, v), (q, k, v), d)])

    return call


def gradients(rng):
    dim = rng.choice([32, 64, 64, 80, 96, 128, 128])
    group = rng.choice([1, 1, 2, 4])
    count, causal = rng.choice([1, 2, 4, 8]) * group, rng.random() < 0.5
    rows, batches = random_of(rng, 64, 8192, 1), random_of(rng, 1, 32, 1)
    while batches * count * rows * rows * dim > 1 << 37:
        batches, rows = max(1, batches // 2), rows - rows // 4

    def make():
        inputs = (uniform(batches, count, rows, dim), uniform(batches, count // group, rows, dim), uniform(batches, count // group, rows, dim))
        return (*(t.requires_grad_() for t in inputs), uniform(batches, count, rows, dim))

    ours = lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)
    return Case(
        "gradients", f"B{batches} H{count}/{count // group} {rows} D{dim}{' causal' if causal else ''}", make, with_gradients(ours),
        {name: with_gradients(peer) for name, peer in peers(causal, group > 1).items()}, with_gradients(lambda q, k, v: dense(q, k, v, causal)),
        8 * batches * dim * rows * (count + count // group),
    )  # fmt: skip


def changed_gradients(rng):
    """A soft-cap or ALiBi, forward and gradients; the peer is FlexAttention, compiled for each problem."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    dim, group, causal = rng.choice([64, 128]), rng.choice([1, 2, 4]), rng.random() < 0.7
    count, cap = rng.choice([2, 4, 8]) * group, rng.choice([0.0, 0.5, 2.0, 30.0])
    rows, batches = random_of(rng, 128, 4096, 1), random_of(rng, 1, 16, 1)
    while batches * count * rows * rows > 1 << 28:
        batches, rows = max(1, batches // 2), rows - rows // 4
    slopes = 2.0 ** -torch.linspace(1, 8, count, device="cuda")

    def make():
        shapes = ((batches, rows, count, dim), *((batches, rows, count // group, dim),) * 2)
        return (*(uniform(*shape).requires_grad_() for shape in shapes), uniform(*shapes[0]))

    def change(score, b, h, row, key):
        return cap * torch.tanh(score / cap) if cap else score - slopes[h] * (row - key).abs()

    def exact(q, k, v):
        q, k, v = (t.float().transpose(1, 2) for t in (q, k, v))
        k, v = (t.repeat_interleave(group, 1) for t in (k, v))
        place = torch.arange(rows, device="cuda")
        scores = change(q @ k.transpose(-1, -2) * dim**-0.5, None, torch.arange(count, device="cuda")[:, None, None], place[:, None], place)
        if causal:
            scores = scores.masked_fill(place > place[:, None], float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2)

    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    blocks = create_block_mask(lambda b, h, row, key: row >= key, None, None, rows, rows) if causal else None

    def flex(q, k, v):
        given = (t.transpose(1, 2) for t in (q, k, v))
        return compiled(*given, score_mod=change, block_mask=blocks, enable_gqa=group > 1).transpose(1, 2)

    def ours(q, k, v):
        return ht.flash_attn_func(q, k, v, causal=causal, softcap=cap, alibi_slopes=None if cap else slopes)

    return Case(
        "changed", f"B{batches} H{count}/{count // group} {rows} D{dim}{' causal' if causal else ''} {f'soft-cap {cap}' if cap else 'ALiBi'}",
        make, with_gradients(ours), {"flex": with_gradients(flex)}, with_gradients(exact), 8 * batches * dim * rows * (count + count // group),
    )  # fmt: skip


# --- packed sequences, masks, views ---------------------------------------------------------------------


def packed_of(rng):
    """Heads, whether causal, and the lengths of packed sequences."""
    dim, group, count = heads(rng)
    dim = rng.choice([64, 128, dim])
    skew, sequences = rng.choice([0.3, 1.0, 2.0]), random_of(rng, 1, 128, 1)
    mean = random_of(rng, 32, 4096, 1)
    lengths = [max(1, min(16384, int(mean * math.exp(rng.gauss(0, skew))))) for _ in range(sequences)]
    while sum(lengths) > 65536 or sum(n * n for n in lengths) * count * dim > 1 << 39:
        lengths = lengths[: len(lengths) // 2] if len(lengths) > 1 else [lengths[0] // 2]
    return dim, group, count, rng.random() < 0.6, lengths


def each(lengths, causal):
    """A sequence at a time in f32."""

    def right(q, k, v, *_):
        parts = [[t.transpose(0, 1)[None] for t in own] for own in zip(*(t.split(lengths) for t in (q, k, v)))]
        return torch.cat([dense(*own, causal)[0].transpose(0, 1) for own in parts])

    return right


def packed(rng):
    """Sequences of their own lengths, one behind another."""
    dim, group, count, causal, lengths = packed_of(rng)
    total, longest = sum(lengths), max(lengths)

    def make():
        starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
        return uniform(total, count, dim), uniform(total, count // group, dim), uniform(total, count // group, dim), starts

    def flash(q, k, v, starts):
        return torch.ops.aten._flash_attention_forward(q, k, v, starts, starts, longest, longest, 0.0, causal, False)[0]

    return Case(
        "packed", f"{len(lengths)} up to {longest} of {total} H{count}/{count // group} D{dim}{' causal' if causal else ''}", make,
        lambda q, k, v, starts: ht.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=causal), {"flash": flash},
        each(lengths, causal), 4 * total * dim * (count + count // group),
    )  # fmt: skip


def packed_gradients(rng):
    """The same with gradients."""
    from torch.nn.attention.varlen import varlen_attn

    dim, group, count, causal, lengths = packed_of(rng)
    dim, group = rng.choice([64, 128]), 1
    while sum(n * n for n in lengths) * count * dim > 1 << 37:
        lengths = lengths[: len(lengths) // 2] if len(lengths) > 1 else [lengths[0] // 2]
    total, longest = sum(lengths), max(lengths)

    def make():
        starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
        return (*(uniform(total, count, dim).requires_grad_() for _ in range(3)), starts, uniform(total, count, dim))

    def both(forward):
        def call(q, k, v, starts, d):
            return torch.cat([g.flatten() for g in torch.autograd.grad(forward(q, k, v, starts), (q, k, v), d)])

        return call

    return Case(
        "packed_grad", f"{len(lengths)} up to {longest} of {total} H{count} D{dim}{' causal' if causal else ''}", make,
        both(lambda q, k, v, starts: ht.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=causal)),
        {"varlen": both(lambda q, k, v, starts: varlen_attn(q, k, v, starts, starts, longest, longest, window_size=(-1, 0 if causal else -1)))},
        both(each(lengths, causal)), 16 * total * dim * count,
    )  # fmt: skip


def masked(rng):
    """A mask that is data: what is seen, or numbers that are added; for all heads, or each its own."""
    dim, group, count = rng.choice([64, 64, 128, 128, 80]), 1, rng.choice([1, 4, 8, 16])
    rows, batches = random_of(rng, 32, 4096, 8), random_of(rng, 1, 32, 1)
    while batches * count * rows * rows * dim > 1 << 36:
        batches, rows = max(1, batches // 2), rows // 4 * 3 // 8 * 8
    seen, own = rng.random() < 0.5, rng.choice([(1, 1), (batches, 1), (1, count), (batches, count)])

    def make():
        mask = torch.rand(*own, rows, rows, device="cuda") < 0.7
        mask[..., 0] = True
        return (*(uniform(batches, count, rows, dim) for _ in range(3)), mask if seen else torch.randn_like(mask, dtype=torch.bfloat16))

    def backend_of(which):
        def call(q, k, v, mask):
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        return call

    return Case(
        "masked", f"B{batches} H{count} {rows} D{dim} {'seen' if seen else 'added'} {own}", make,
        lambda q, k, v, mask: ht.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        {"cudnn": backend_of(SDPBackend.CUDNN_ATTENTION), "efficient": backend_of(SDPBackend.EFFICIENT_ATTENTION)},
        lambda q, k, v, mask: dense(q, k, v, mask=mask if seen else mask.float()),
        8 * batches * count * dim * rows + own[0] * own[1] * rows * rows * (1 if seen else 2),
    )  # fmt: skip


def window(rng):
    """Keys before a query up to a distance, as models with sliding windows have."""
    dim, group, count = heads(rng)
    rows, batches = random_of(rng, 256, 8192, 1), random_of(rng, 1, 16, 1)
    before = random_of(rng, 64, 4096, 1)
    while batches * count * rows * min(rows, before) * dim > 1 << 38 or batches * count * rows * dim > 1 << 28:
        batches, rows = max(1, batches // 2), rows // 4 * 3
    apart = torch.arange(rows, device="cuda")[:, None] - torch.arange(rows, device="cuda")
    mask = (apart >= 0) & (apart <= before)

    def flash(q, k, v):
        return torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, rows, rows, 0.0, True, False, window_size_left=before, window_size_right=0
        )[0]

    def right(q, k, v):
        return dense(*(t.transpose(1, 2) for t in (q, k, v)), mask=mask).transpose(1, 2)

    return Case(
        "window", f"B{batches} H{count}/{count // group} {rows} D{dim}, {before} before",
        lambda: (uniform(batches, rows, count, dim), uniform(batches, rows, count // group, dim), uniform(batches, rows, count // group, dim)),
        lambda q, k, v: ht.flash_attn_func(q, k, v, causal=True, window_size=(before, 0)), {"flash": flash},
        right, 4 * batches * dim * rows * (count + count // group),
    )  # fmt: skip


def views(rng):
    """Heads as a projection leaves them: views of (batch, rows, 3, heads, elements)."""
    dim, _, _ = heads(rng)
    count, causal = rng.choice([1, 4, 8, 12, 16, 32]), rng.random() < 0.5
    rows, batches = random_of(rng, 16, 8192, 1), random_of(rng, 1, 64, 1)
    while batches * count * rows * rows * dim > 1 << 38 or batches * count * rows * dim > 1 << 27:
        batches, rows = max(1, batches // 2), rows // 4 * 3

    def through(call):
        def of(qkv):
            return call(*(t.transpose(1, 2) for t in qkv.unbind(2)))

        return of

    return Case(
        "views", f"B{batches} H{count} {rows} D{dim}{' causal' if causal else ''}", lambda: (uniform(batches, rows, 3, count, dim),),
        through(lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal)),
        {name: through(peer) for name, peer in peers(causal, False).items()},
        through(lambda q, k, v: dense(q, k, v, causal)), 8 * batches * dim * rows * count,
    )  # fmt: skip


def views_gradients(rng):
    """The same with the gradient of the projection's result."""
    dim, count, causal = rng.choice([64, 64, 80, 128, 128]), rng.choice([4, 8, 12, 16]), rng.random() < 0.7
    rows, batches = random_of(rng, 64, 4096, 1), random_of(rng, 1, 32, 1)
    while batches * count * rows * rows * dim > 1 << 36 or batches * count * rows * dim > 1 << 26:
        batches, rows = max(1, batches // 2), rows // 4 * 3

    def both(call):
        def of(qkv, d):
            out = call(*(t.transpose(1, 2) for t in qkv.unbind(2)))
            return torch.autograd.grad(out.transpose(1, 2), qkv, d)[0]

        return of

    return Case(
        "views_grad", f"B{batches} H{count} {rows} D{dim}{' causal' if causal else ''}",
        lambda: (uniform(batches, rows, 3, count, dim).requires_grad_(), uniform(batches, rows, count, dim)),
        both(lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal)),
        {name: both(peer) for name, peer in peers(causal, False).items()},
        both(lambda q, k, v: dense(q, k, v, causal)), 20 * batches * dim * rows * count,
    )  # fmt: skip
