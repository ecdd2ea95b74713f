"""Latent attention in decoding beside what PyTorch has for it.

On a Hopper GPU with PyTorch and the package: ``python bench/kernels/latent.py``. Results are compared with softmax in f64 first.
Medians of 12, in turns, in graphs of eight calls (of one, where a peer is slow) over caches that take turns, so that none lies in the
L2 cache. Our keys lie in pages of 64 tokens in any order; the peers' lie whole. Bytes are those of the keys, once; the bandwidth of a copy counts what it reads and what it writes.
"""

import heist.torch as ht
import torch
import torch.nn.functional as F
from masks import FLUSH, timed
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

DIM, VALUES, PAGE = 576, 512, 64
SCALE = DIM**-0.5
CALLS = 8
FLEX = torch.compile(flex_attention, dynamic=False)
BACKENDS = "MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"
#: Peers that could not do a shape, and why: they are not asked again.
REFUSED = {}


def graph_of(functions):
    """The functions in turns, `CALLS` calls in all; one where that takes long."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for function in functions:
            function()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    functions[0]()
    end.record()
    torch.cuda.synchronize()
    calls = CALLS if begin.elapsed_time(end) < 3 else 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in range(calls):
            functions[call % len(functions)]()
    return graph, calls


def products(q, keys):
    """The two products as batched ones: every query head is a row."""
    batch, queries, heads, _ = q.shape
    rows, turned = q.view(batch, queries * heads, DIM), keys.transpose(1, 2)
    return lambda: (torch.bmm(rows, turned) * SCALE).softmax(2).bmm(keys[..., :VALUES]).view(batch, queries, heads, VALUES)


def scaled_dot_product(q, keys, backend):
    query, key = q.transpose(1, 2), keys[:, None]

    def work():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(query, key, key[..., :VALUES], scale=SCALE, enable_gqa=True).transpose(1, 2)

    return work


def flex(q, keys):
    query, key = q.transpose(1, 2), keys[:, None]
    return lambda: FLEX(query, key, key[..., :VALUES], scale=SCALE, enable_gqa=True).transpose(1, 2)


def reference(q, keys):
    """In f64, one sequence at a time."""
    outs = []
    for queries, own in zip(q.double(), keys.double()):
        weights = (torch.einsum("qhd,kd->qhk", queries, own) * SCALE).softmax(2)
        outs.append(torch.einsum("qhk,kd->qhd", weights, own[:, :VALUES]))
    return torch.stack(outs)


def norm(found, wanted):
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def compare(batch, heads, queries, length, copied):
    q = torch.randn(batch, queries, heads, DIM, device="cuda", dtype=torch.bfloat16)
    pages, lengths = batch * length // PAGE, torch.full((batch,), length, device="cuda", dtype=torch.int32)
    table = torch.randperm(pages, device="cuda").int().view(batch, -1)
    sets = -(-FLUSH.numel() // (batch * length * DIM * 2))
    caches = [torch.randn(pages, PAGE, 1, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    whole = [cache[table.long()].view(batch, length, DIM) for cache in caches]
    wanted = reference(q[:4], whole[0][:4])
    each = {
        "ours": [lambda cache=cache: ht.flash_mla_with_kvcache(q, cache, table, lengths, VALUES)[0] for cache in caches],
        "products": [products(q, keys) for keys in whole],
        "FlexAttention": [flex(q, keys) for keys in whole],
        **{name.lower(): [scaled_dot_product(q, keys, getattr(SDPBackend, name)) for keys in whole] for name in BACKENDS},
    }
    errors, graphs = {}, {}
    for name in [name for name in each if name not in REFUSED]:
        try:
            errors[name] = norm(each[name][0]()[:4], wanted)
            graphs[name] = graph_of(each[name])
        except Exception as why:
            REFUSED[name] = (str(why).splitlines() or [""])[0][:100]
    assert errors["ours"] < 4e-3, errors
    times = timed(*(graph.replay for graph, _ in graphs.values()))
    times = {name: time / calls for (name, (_, calls)), time in zip(graphs.items(), times)}
    time = times.pop("ours")
    rate = batch * length * DIM * 2 / time / 1e6
    flops = 2 * batch * heads * queries * length * (DIM + VALUES) / time / 1e6
    print(
        f"B{batch} H{heads} {queries} of {length}: ours {time:.1f} us, {rate:.2f} TB/s ({rate / copied:.0%} of a copy), {flops:.0f} TFLOP/s, "
        f"error {errors['ours']:.1e}; our speed over the best peer {min(times.values()) / time:.2f}; "
        + ", ".join(f"{name} {own:.1f} us" for name, own in times.items()),
        flush=True,
    )  # fmt: skip


def copy_rate():
    """TB/s of a copy of 1 GB."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    to = torch.empty_like(source)
    # Not in a graph, where a copy went at two thirds of this.
    return 2 * source.numel() / timed(lambda: to.copy_(source))[0] / 1e6


if __name__ == "__main__":
    copied = copy_rate()
    print(f"copy {copied:.2f} TB/s")
    for shape in (
        (1, 16, 1, 65536), (32, 16, 1, 8192), (128, 16, 1, 4096), (128, 64, 1, 4096), (4, 128, 1, 32768), (128, 128, 1, 4096), (32, 128, 2, 8192),
    ):  # fmt: skip
        compare(*shape, copied)
    print("\n".join(f"{name} can't: {why}" for name, why in REFUSED.items()))
