"""Latent attention in decoding beside what PyTorch has for it.

On a Hopper GPU with PyTorch and the package: ``python bench/kernels/latent.py``. Results are compared with softmax in f64 first.
Medians of 12, in turns, in graphs, with an L2 cache that was overwritten before each. Our keys lie in pages of 64 tokens in any
order; the peers' lie whole. Bytes are those of the keys, once; the bandwidth of a copy counts what it reads and what it writes.
"""

import heist.torch as ht
import torch
import torch.nn.functional as F
from masks import FLUSH, timed
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

DIM, VALUES, PAGE = 576, 512, 64
SCALE = DIM**-0.5
FLEX = torch.compile(flex_attention, dynamic=False)
#: Peers that could not do a shape, and why: they are not asked again.
REFUSED = {}


def graph_of(function):
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(2):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


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
    pages = batch * length // PAGE
    cache = torch.randn(pages, PAGE, 1, DIM, device="cuda", dtype=torch.bfloat16)
    table = torch.randperm(pages, device="cuda").int().view(batch, -1)
    lengths = torch.full((batch,), length, device="cuda", dtype=torch.int32)
    keys = cache[table.long()].view(batch, length, DIM)
    wanted = reference(q[:4], keys[:4])
    ours = lambda: ht.flash_mla_with_kvcache(q, cache, table, lengths, VALUES)[0]
    peers = {
        "products": products(q, keys), "math": scaled_dot_product(q, keys, SDPBackend.MATH), "flash": scaled_dot_product(q, keys, SDPBackend.FLASH_ATTENTION),
        "efficient": scaled_dot_product(q, keys, SDPBackend.EFFICIENT_ATTENTION), "cudnn": scaled_dot_product(q, keys, SDPBackend.CUDNN_ATTENTION),
        "FlexAttention": flex(q, keys),
    }  # fmt: skip
    error, graphs = norm(ours()[:4], wanted), [graph_of(ours)]
    for name in list(peers):
        try:
            if name not in REFUSED and norm(peers[name]()[:4], wanted) > 1e-2:
                REFUSED[name] = "its results are wrong"
        except Exception as why:
            REFUSED[name] = (str(why).splitlines() or [""])[0][:100]
        if name in REFUSED:
            del peers[name]
        else:
            graphs.append(graph_of(peers[name]))
    torch.cuda.synchronize()
    time, *others = timed(*(graph.replay for graph in graphs))
    rate = batch * length * DIM * 2 / time / 1e6
    flops = 2 * batch * heads * queries * length * (DIM + VALUES) / time / 1e6
    best = min(others) if others else float("nan")
    print(
        f"B{batch} H{heads} {queries} of {length}: ours {time:.1f} us, {rate:.2f} TB/s ({rate / copied:.0%} of a copy), {flops:.0f} TFLOP/s, "
        f"error {error:.1e}; our speed over the best peer {best / time:.2f}; "
        + ", ".join(f"{name} {own:.1f}" for name, own in zip(peers, others)),
        flush=True,
    )  # fmt: skip


def copy_rate():
    """TB/s of a copy of 1 GB."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    to = torch.empty_like(source)
    return 2 * source.numel() / timed(lambda: to.copy_(source))[0] / 1e6


if __name__ == "__main__":
    copied = copy_rate()
    print(f"copy {copied:.2f} TB/s, L2 overwritten with {FLUSH.numel() >> 20} MB")
    for shape in (
        (1, 16, 1, 65536), (32, 16, 1, 8192), (128, 16, 1, 4096), (128, 64, 1, 4096), (4, 128, 1, 32768), (128, 128, 1, 4096), (32, 128, 2, 8192),
    ):  # fmt: skip
        compare(*shape, copied)
    print("\n".join(f"{name} can't: {why}" for name, why in REFUSED.items()))
