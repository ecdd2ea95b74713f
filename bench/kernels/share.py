"""The peers on a shared GPU: PyTorch (cuBLAS, cuDNN, its grouped product) as the batch
beside an interactive product, and while a kernel holds multiprocessors.

`heist share` starts it with the PTX of the kernel that holds and a case as JSON. It says the
peer's name, and then measures what it is asked for, a line of JSON each, in turns with the rows
of `heist share` and in the same way, on numbers of the same distribution: how fast a GPU can
multiply depends on its temperature and on its operands.
"""
import collections
import ctypes
import json
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

cuda = ctypes.CDLL("libcuda.so.1")


def check(status, what):
    if status != 0:
        raise RuntimeError(f"{what}: driver error {status}")


class Holder:
    def __init__(self, ptx):
        torch.zeros(1, device="cuda")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(module), open(ptx, "rb").read() + b"\0"), "load")
        check(cuda.cuModuleGetFunction(ctypes.byref(self.function), module, b"hold"), "function")
        self.shared = 227 * 1024
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), "shared memory")
        self.leave = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.stream = torch.cuda.Stream(priority=-5)
        self.copies = torch.cuda.Stream()

    def hold(self, sms):
        self.leave.zero_()
        torch.cuda.synchronize()
        if sms == 0:
            return
        pointer = ctypes.c_uint64(self.leave.data_ptr())
        args = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(pointer), ctypes.c_void_p))
        check(cuda.cuLaunchKernel(self.function, sms, 1, 1, 32, 1, 1, self.shared,
                                  ctypes.c_void_p(self.stream.cuda_stream), args, None), "launch")
        time.sleep(0.002)

    def let_go(self):
        one = torch.ones(1, dtype=torch.int32).pin_memory()
        with torch.cuda.stream(self.copies):
            self.leave.copy_(one, non_blocking=True)
        torch.cuda.synchronize()


def event():
    return torch.cuda.Event(enable_timing=True)


def alone(call, rounds, burst=4):
    samples = []
    for turn in range(rounds + 1):
        start, end = event(), event()
        start.record()
        for _ in range(burst):
            call()
        end.record()
        end.synchronize()
        if turn:
            samples.append(start.elapsed_time(end) * 1e3 / burst)
    return samples


def held(call, holder, sms, rounds):
    holder.hold(sms)
    with torch.cuda.stream(torch.cuda.Stream()):
        samples = alone(call, rounds, burst=1)
    holder.let_go()
    return samples


def beside(batch, batch_us, interactive, after, queued_us):
    """`after`: seconds from each launch of the interactive product to the next; the first of them is not counted."""
    low, high = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-5)
    depth = math.ceil(queued_us / batch_us) + 1
    queue, ends = collections.deque(), []

    def top_up():
        while queue and queue[0].query():
            ends.append(queue.popleft())
        with torch.cuda.stream(low):
            while len(queue) < depth:
                batch()
                done = event()
                done.record()
                queue.append(done)

    # A stream's first launch takes its time, and the batch's in that moment.
    with torch.cuda.stream(high):
        interactive()
    high.synchronize()
    warm = time.perf_counter()
    while time.perf_counter() - warm < 0.06:
        top_up()
    ends.clear()
    times, next_one = [], time.perf_counter()
    for gap in after:
        while time.perf_counter() < next_one:
            top_up()
        next_one = time.perf_counter() + gap
        with torch.cuda.stream(high):
            start, end = event(), event()
            start.record()
            interactive()
            end.record()
            end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    top_up()
    torch.cuda.synchronize()
    return seen(times[1:], ends)


def seen(times, ends):
    """Of the visits' times and the ends of the batch's launches: a few short visits may be over
    before two launches of a long batch have ended."""
    watched = ends[0].elapsed_time(ends[-1]) * 1e3 if ends else 0
    return {"samples": times, "watched": watched, "ended": max(len(ends) - 1, 0)}


def uniform(dtype, *shape):
    return torch.rand(*shape, device="cuda").mul_(2).sub_(1).to(dtype)


def product(told):
    m, n, k, dtype = told.numbers("m", "n", "k") + [told.dtype()]
    a, b = uniform(dtype, m, k), uniform(dtype, n, k)
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    return "cuBLAS", lambda: torch.mm(a, b.t(), out=out)


def grouped(told):
    rows = [int(row) for run in told.word("rows").split(",")
            for row, _, count in [run.partition("*")] for _ in range(int(count or 1))]
    n, k, dtype = told.numbers("n", "k") + [told.dtype()]
    a, b = uniform(dtype, sum(rows), k), uniform(dtype, len(rows), n, k)
    ends = torch.tensor(rows, device="cuda").cumsum(0).to(torch.int32)
    return "torch._grouped_mm", lambda: torch._grouped_mm(a, b.transpose(1, 2), offs=ends)


def attention(told):
    batch, heads, kv, queries, keys, dim = told.numbers(
        "batch", "heads", "kv-heads", "queries", "keys", "dim")
    mask, dtype = told.word("mask"), told.dtype()
    if mask not in ("full", "causal"):
        raise ValueError(f"PyTorch's row has no mask={mask}")
    if kv not in (0, heads) or keys not in (0, queries):
        raise ValueError("PyTorch's row has as many key heads and keys as queries")
    q, k, v = (uniform(dtype, batch, heads, queries, dim) for _ in range(3))

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")

    return "cuDNN", call


FAMILIES = {"gemm": product, "grouped-gemm": grouped, "attention": attention}


class Told:
    """A kernel's settings. An unusual one that the peer's call has no place for is an error."""

    OURS = {"variant", "config", "seed"}

    def __init__(self, told):
        self.all, self.unusual = told["all"], set(told["unusual"]) - Told.OURS

    def word(self, name):
        self.unusual.discard(name)
        return self.all[name]

    def numbers(self, *names):
        return [int(self.word(name)) for name in names]

    def dtype(self):
        name = self.word("dtype")
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(name)
        if dtype is None:
            raise ValueError(f"PyTorch's row has no dtype={name}")
        return dtype


def measured(family, told):
    """A peer's name and its call."""
    told = Told(told)
    if told.all.get("out", "") in ("", told.all["dtype"]):
        told.unusual.discard("out")
    found = family(told)
    if told.unusual:
        name = min(told.unusual)
        raise ValueError(f"PyTorch's row has no {name}={told.all[name]}")
    return found


def say(answer):
    print(json.dumps(answer), flush=True)


def main():
    holder, case = Holder(sys.argv[1]), json.loads(sys.argv[2])
    family = FAMILIES.get(case["kernel"])
    if family is None:
        raise ValueError(f"PyTorch has no row for {case['kernel']}")
    name, batch = measured(family, case["told"])
    interactive = [measured(product, told)[1] for told in case["interactive"]]
    say({"name": name})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["what"] == "alone":
            say(alone(batch, asked["rounds"]))
        elif asked["what"] == "held":
            say(held(batch, holder, asked["sms"], asked["rounds"]))
        else:
            call = interactive[asked["interactive"]]
            say(beside(batch, asked["batch_us"], call, asked["after"], asked["queued_us"]))


if __name__ == "__main__":
    main()
