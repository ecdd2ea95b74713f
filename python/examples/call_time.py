"""How long a call takes the host, beside PyTorch's own, and how long the device.

python call_time.py
"""

import json
import subprocess
import sys
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


def device(call, rounds=60):
    """Microseconds of the device, the median, as `heist bench` measures: warm clocks, and an
    L2 that holds nothing of ours."""
    # As much as it overwrites: the pause decides about clocks.
    other = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda")
    times, begun = [], time.perf_counter()
    while len(times) < rounds:
        other.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        if time.perf_counter() - begun > 0.5:
            times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times)[rounds // 2]


def bench(*problem):
    """What `heist bench` says of a problem, in microseconds."""
    command = [sys.executable, "-m", "heist", "bench", *problem, "--no-peers", "--rounds", "60", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return said["contests"][0]["arms"][0]["ns"][1] / 1e3


def main():
    torch.manual_seed(1)
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    # As `heist bench` has them: what numbers are made of decides about power, and so about clocks.
    even = lambda *shape: (torch.rand(*shape, device="cuda") * 2 - 1).bfloat16()  # noqa: E731
    # Small enough that the device keeps up, so that the host alone is timed.
    q, k, v = (make(1, 2, 128, 64) for _ in range(3))
    x, w = make(128, 128), make(128, 128)
    a, b = make(128, 64), make(4, 64, 128)
    offs = torch.tensor([32, 64, 96, 128], device="cuda", dtype=torch.int32)
    query, key = make(2, 1, 8, 64), make(2, 1, 2, 64)
    cache, pages = [make(2, 128, 2, 64) for _ in range(2)], [make(8, 32, 2, 64) for _ in range(2)]
    filled = torch.tensor([5, 99], device="cuda", dtype=torch.int32)
    table = torch.tensor([[6, 0, 2, 1], [5, 7, 3, 4]], device="cuda", dtype=torch.int32)
    decode = ht.flash_attn_with_kvcache
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
            ("grouped_mm: PyTorch's", lambda: torch._grouped_mm(a, b, offs=offs)),
            ("decoding over a cache", lambda: decode(query, *cache, cache_seqlens=filled)),
            ("  with a new key", lambda: decode(query, *cache, key, key, cache_seqlens=filled)),
            ("decoding over pages", lambda: decode(query, *pages, cache_seqlens=filled, block_table=table)),
            ("  with a new key", lambda: decode(query, *pages, key, key, cache_seqlens=filled, block_table=table)),
            ("torch.empty_like alone", lambda: torch.empty_like(q)),
        ]:
            for _ in range(3):
                call()
            print(f"  {name:30} {host(call):6.2f}", flush=True)
        print("device time of a call on a cold L2, us, before and after `heist bench` of the same")
        for batch, heads, rows, dim, mask in [(4, 16, 2048, 128, "causal"), (2, 16, 4096, 64, "full"), (1, 8, 512, 64, "full")]:
            q, k, v = (even(batch, heads, rows, dim) for _ in range(3))
            call = lambda: ht.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")  # noqa: B023, E731
            problem = f"attention batch={batch} heads={heads} queries={rows} dim={dim} dtype=bf16 mask={mask}"
            beside(problem, call)
        for m, n, depth in [(4096, 4096, 4096), (1024, 4096, 1024)]:
            x, w = even(m, depth), even(n, depth)
            beside(f"gemm m={m} n={n} k={depth} dtype=bf16", lambda: ht.linear(x, w))  # noqa: B023


def beside(problem, call):
    first, other, last = device(call), bench(*problem.split()), device(call)
    print(f"  {problem}: {first:.1f}, {last:.1f}; bench {other:.1f}: {100 * ((first + last) / 2 / other - 1):+.1f}%", flush=True)


if __name__ == "__main__":
    main()
