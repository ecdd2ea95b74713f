"""How long a call takes the host, beside PyTorch's own, and how long the device.

python call_time.py
"""

import time

import torch
import torch.nn.functional as F

import heist.torch as ht


def host(call, calls=200, rounds=30):
    """Microseconds of the host for a call: the best of many rounds, the queue kept short."""
    best = float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - begin)
    return best / calls * 1e6


def device(call, calls=50):
    """Microseconds of the device, in a graph of many calls."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    best = float("inf")
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
    return best / calls * 1e3


def main():
    torch.manual_seed(1)
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    # Small enough that the device keeps up, so that the host alone is timed.
    q, k, v = (make(1, 2, 128, 64) for _ in range(3))
    x, w = make(128, 128), make(128, 128)
    a, b = make(128, 64), make(4, 64, 128)
    offs = torch.tensor([32, 64, 96, 128], device="cuda", dtype=torch.int32)
    op, op_mm = torch.ops.heist.sdpa.default, torch.ops.heist.mm.default
    with torch.inference_mode():
        print("host time of a call, us (best of 30 rounds of 200)")
        for name, call in [
            ("attention: torch.ops.heist", lambda: op(q, k, v, True)),
            ("attention: heist.torch", lambda: ht.scaled_dot_product_attention(q, k, v, is_causal=True)),
            ("attention: PyTorch's SDPA", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
            ("mm: torch.ops.heist", lambda: op_mm(x, w)),
            ("mm: heist.torch", lambda: ht.mm(x, w)),
            ("mm: PyTorch's", lambda: torch.mm(x, w)),
            ("linear: heist.torch", lambda: ht.linear(x, w)),
            ("linear: PyTorch's", lambda: F.linear(x, w)),
            ("grouped_mm: heist.torch", lambda: ht.grouped_mm(a, b, offs=offs)),
            ("torch.empty_like alone", lambda: torch.empty_like(q)),
        ]:
            for _ in range(3):
                call()
            print(f"  {name:30} {host(call):6.2f}", flush=True)
        print("device time of a call, us (best of 10 graphs of 50)")
        for batch, heads, rows, dim in [(4, 16, 2048, 128), (2, 16, 4096, 64), (1, 8, 512, 64)]:
            q, k, v = (make(batch, heads, rows, dim) for _ in range(3))
            for causal in (False, True):
                ours = device(lambda: ht.scaled_dot_product_attention(q, k, v, is_causal=causal))
                theirs = device(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
                print(f"  attention B{batch} H{heads} S{rows} D{dim} causal={causal}: {ours:8.1f}, PyTorch {theirs:8.1f}", flush=True)
        for m, n, depth in [(4096, 4096, 4096), (2048, 14336, 4096)]:
            x, w = make(m, depth), make(n, depth)
            ours, theirs = device(lambda: ht.linear(x, w), 10), device(lambda: F.linear(x, w), 10)
            print(f"  linear {m}x{n}x{depth}: {ours:8.1f}, PyTorch {theirs:8.1f}", flush=True)


if __name__ == "__main__":
    main()
