"""The same bits in every run: the deterministic backward of attention, and decoding.

On a GPU with PyTorch and the package: ``python bench/kernels/same_bits.py [RUNS]``, 1000 unless given. Memory that results are put into
is overwritten between runs, and other work runs beside every other one, so that blocks come in other orders.
"""

import sys

import heist.torch as ht
import torch

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
BF16 = torch.bfloat16


def random(*shape, dtype=BF16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def beside(stream, a):
    """Takes multiprocessors away for a moment."""
    with torch.cuda.stream(stream):
        for _ in range(2):
            a @ a


def same(name, work):
    """Says how many of the runs differ from the first."""
    first = [one.clone() for one in work()]
    differing = torch.zeros((), device="cuda", dtype=torch.int64)
    stream, other = torch.cuda.Stream(), random(1024, 1024)
    for run in range(RUNS):
        if run % 2:
            beside(stream, other)
        # What the allocator gives next is not what the last run left there.
        spoilt = [torch.full_like(one, float("nan")) for one in first]
        del spoilt
        found = work()
        bits = lambda one: one.view(torch.int16 if one.element_size() == 2 else torch.int32)
        alike = torch.stack([(bits(a) == bits(b)).all() for a, b in zip(first, found)]).all()
        differing += ~alike
    finite = all(one.isfinite().all().item() for one in first)
    print(f"{name}: {differing.item()} of {RUNS} runs have other bits; finite: {finite}", flush=True)
    return differing.item() == 0 and finite


def backward(batch, heads, kv_heads, rows, dim, causal, deterministic=True):
    q, k, v = (random(batch, rows, own, dim).requires_grad_() for own in (heads, kv_heads, kv_heads))
    out = ht.flash_attn_func(q, k, v, causal=causal, deterministic=deterministic)
    gradient = random(*out.shape)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def packed(lengths, heads, dim):
    total = sum(lengths)
    q, k, v = (random(total, heads, dim).requires_grad_() for _ in range(3))
    starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
    longest = max(lengths)
    out = ht.flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, causal=True, deterministic=True)
    gradient = random(*out.shape)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def decode(batch, heads, kv_heads, keys, page):
    q = random(batch, 1, heads, 128)
    pages = batch * keys // page
    cache = [random(pages, page, kv_heads, 128) for _ in range(2)]
    table = torch.randperm(pages, device="cuda").int().view(batch, -1)
    lengths = torch.randint(keys // 2, keys + 1, (batch,), device="cuda", dtype=torch.int32)
    return lambda: [ht.flash_attn_with_kvcache(q, *cache, cache_seqlens=lengths, block_table=table)]


def latent(batch, heads, keys):
    q, cache = random(batch, 1, heads, 576), random(batch * keys // 64, 64, 1, 576)
    table = torch.randperm(batch * keys // 64, device="cuda").int().view(batch, -1)
    lengths = torch.randint(keys // 2, keys + 1, (batch,), device="cuda", dtype=torch.int32)
    return lambda: ht.flash_mla_with_kvcache(q, cache, table, lengths, 512)


if __name__ == "__main__":
    works = {
        "backward B2 H8 S1024 D64": backward(2, 8, 8, 1024, 64, False),
        "backward B2 H16/4 S2048 D128 causal": backward(2, 16, 4, 2048, 128, True),
        "backward B1 H4 S1000 D96 causal": backward(1, 4, 4, 1000, 96, True),
        "backward packed 1 to 1500, H8 D128 causal": packed([1500, 17, 300, 1, 900, 64], 8, 128),
        "decode B1 H32/8 8192 keys": decode(1, 32, 8, 8192, 16),
        "decode B16 H32/8 4096 keys": decode(16, 32, 8, 4096, 64),
        "decode B3 H32/1 30000 keys": decode(3, 32, 1, 32768, 256),
        "latent B2 H16 8192 keys": latent(2, 16, 8192),
        "latent B16 H128 1024 keys": latent(16, 128, 1024),
    }
    right = [same(name, work) for name, work in works.items()]
    # Sums in any order differ now and then: the comparison can fail.
    same("backward B2 H8 S1024 D64, not deterministic", backward(2, 8, 8, 1024, 64, False, deterministic=False))
    sys.exit(0 if all(right) else 1)
