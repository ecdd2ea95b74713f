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


def in_turns(problem):
    """What `heist bench` says of a problem and of our operation for PyTorch, sampled in turns on the same numbers: microseconds of
    both, and how much longer the operation takes, in the median of the rounds."""
    command = [
        sys.executable, "-m", "heist", "bench", *problem.split(), "--through-torch", "--python", sys.executable, "--rounds", "60", "--json",
    ]  # fmt: skip
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ours, *_, through = said["contests"][0]["arms"]
    return ours["ns"][1] / 1e3, through["ns"][1] / 1e3, through["ours_over_this"][1] - 1


def main():
    torch.manual_seed(1)
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    # Small enough that the device keeps up, so that the host alone is timed.
    q, k, v = (make(1, 2, 128, 64) for _ in range(3))
    rows = [make(1, 128, 2, 64) for _ in range(3)]
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
            ("flash_attn_func: heist.torch", lambda: ht.flash_attn_func(*rows, causal=True)),
            ("decoding over a cache", lambda: decode(query, *cache, cache_seqlens=filled)),
            ("  with a new key", lambda: decode(query, *cache, key, key, cache_seqlens=filled)),
            ("decoding over pages", lambda: decode(query, *pages, cache_seqlens=filled, block_table=table)),
            ("  with a new key", lambda: decode(query, *pages, key, key, cache_seqlens=filled, block_table=table)),
            ("torch.empty_like alone", lambda: torch.empty_like(q)),
        ]:
            for _ in range(3):
                call()
            print(f"  {name:30} {host(call):6.2f}", flush=True)
    print("device time on a cold L2, us: `heist bench`, and the operation for PyTorch in the same rounds")
    for problem in [
        "attention batch=4 heads=16 queries=2048 dim=128 dtype=bf16 mask=causal",
        "attention batch=2 heads=16 queries=4096 dim=64 dtype=bf16 mask=full",
        "attention batch=1 heads=8 queries=512 dim=64 dtype=bf16 mask=full",
        "gemm m=4096 n=4096 k=4096 dtype=bf16",
        "gemm m=1024 n=4096 k=1024 dtype=bf16",
    ]:
        bench, through, longer = in_turns(problem)
        print(f"  {problem}: {bench:.1f}, {through:.1f}: {100 * longer:+.1f}%", flush=True)


if __name__ == "__main__":
    main()
