"""Masks that are data beside FlexAttention, and new keys that a call appends beside none.

On a GPU with PyTorch and the package: ``python bench/kernels/masks.py``. Medians of 12, in turns, with an L2 cache that was
overwritten before each; appending is timed in graphs of ten calls.
"""

import time

import heist.torch as ht
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

FLUSH = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
FLEX = torch.compile(flex_attention, dynamic=False)


def timed(*functions):
    """Microseconds of each."""
    for function in functions:
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    times = [[] for _ in functions]
    for _ in range(12):
        for function, own in zip(functions, times):
            FLUSH.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            function()
            end.record()
            torch.cuda.synchronize()
            own.append(begin.elapsed_time(end) * 1e3)
    return [sorted(own)[len(own) // 2] for own in times]


def compare(name, ours, theirs):
    difference = (ours().transpose(1, 2).float() - theirs().float()).abs().max().item()
    a, b = timed(ours, theirs)
    print(f"{name}: ours {a:.0f} us, FlexAttention {b:.0f} us, our speed over it {b / a:.2f}, largest difference {difference:.4f}")


def masks(batch=4, heads=16, rows=8192, dim=128):
    q, k, v = (torch.randn(batch, rows, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    turned = [t.transpose(1, 2) for t in (q, k, v)]
    for density in (1.0, 0.5, 0.25, 0.1):
        mask = torch.rand(1, 1, rows // 128, rows // 128, device="cuda") <= density
        mask[..., 0] = True
        counts = mask.sum(-1).int()
        order = mask.int().argsort(dim=-1, descending=True, stable=True).int()
        blocks = BlockMask.from_kv_blocks(torch.zeros_like(counts), order, counts, order, BLOCK_SIZE=128)
        compare(
            f"blocks, {density:.0%} seen", lambda: ht.flash_attn_func(q, k, v, block_mask=mask), lambda: FLEX(*turned, block_mask=blocks)
        )
    documents = (torch.arange(rows, device="cuda") // 1000).int()
    blocks = create_block_mask(lambda b, h, i, j: (documents[i] == documents[j]) & (i >= j), 1, 1, rows, rows, device="cuda")
    compare(
        "documents of 1000, causal", lambda: ht.flash_attn_func(q, k, v, causal=True, documents=documents),
        lambda: FLEX(*turned, block_mask=blocks),
    )  # fmt: skip
    blocks = create_block_mask(lambda b, h, i, j: (i >= j) | (j < 2000), 1, 1, rows, rows, device="cuda")
    prefixes = torch.full((batch,), 2000, device="cuda", dtype=torch.int32)
    compare(
        "prefix of 2000, causal", lambda: ht.flash_attn_func(q, k, v, causal=True, prefix_lens=prefixes),
        lambda: FLEX(*turned, block_mask=blocks),
    )  # fmt: skip


def packed(lengths, dim, heads=16):
    """Masks of blocks of packed sequences, beside none."""
    starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
    q, k, v = (torch.randn(sum(lengths), heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    longest = max(lengths)
    where = starts, starts, longest, longest
    for density in (1.0, 0.25):
        mask = torch.rand(len(lengths), 1, -(-longest // 128), -(-longest // 128), device="cuda") <= density
        mask[..., 0] = True
        a, b = timed(
            lambda: ht.flash_attn_varlen_func(q, k, v, *where, causal=True, block_mask=mask),
            lambda: ht.flash_attn_varlen_func(q, k, v, *where, causal=True),
        )  # fmt: skip
        print(f"packed {lengths} D{dim} causal, blocks, {density:.0%} seen: {a:.0f} us, without a mask {b:.0f} us")


def graph_of(function):
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            function()
    return graph


def host_time(function):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(200):
        function()
    took = (time.perf_counter() - begin) / 200 * 1e6
    torch.cuda.synchronize()
    return took


def append(batch, room, page, kind):
    q = torch.randn(batch, 1, 32, 128, device="cuda", dtype=torch.bfloat16)
    new = [torch.randn(batch, 1, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    pages = batch * room // page if page else batch
    caches = [torch.randn(pages, page or room, 8, 128, device="cuda").to(kind) for _ in range(2)]
    table = torch.randperm(pages, device="cuda").int().view(batch, -1) if page else None
    before, after = (torch.full((batch,), room - less, device="cuda", dtype=torch.int32) for less in (1, 0))

    def with_new():
        return ht.flash_attn_with_kvcache(q, *caches, *new, cache_seqlens=before, block_table=table)

    def without():
        return ht.flash_attn_with_kvcache(q, *caches, cache_seqlens=after, block_table=table)

    same = torch.equal(with_new(), without())
    a, b = timed(graph_of(with_new).replay, graph_of(without).replay)
    print(
        f"append B{batch}, {room} keys, pages of {page or room}, {kind}: {a / 10:.1f} us with, {b / 10:.1f} without; "
        f"of the host {host_time(with_new):.0f} and {host_time(without):.0f}; same bits: {same}"
    )


if __name__ == "__main__":
    masks()
    packed([8192, 300, 4000, 17, 1024, 2500], 128)
    packed([2000] * 8, 64)
    for batch, room, page, kind in (
        (1, 1024, 0, torch.bfloat16), (32, 2048, 0, torch.bfloat16), (32, 2048, 64, torch.bfloat16),
        (32, 2048, 64, torch.float8_e4m3fn), (64, 8192, 16, torch.bfloat16),
    ):  # fmt: skip
        append(batch, room, page, kind)
