"""The peers on a shared GPU: PyTorch (cuBLAS, cuDNN, its grouped product) as the batch
beside an interactive product, and while a kernel holds multiprocessors.

`heist share` starts it with the PTX of the kernel that holds and a case as JSON, measured in
the same way as its own rows; the last line of the output is the peer's row as JSON.
"""
import collections
import ctypes
import json
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


def quantile(samples, part):
    ordered = sorted(samples)
    return ordered[max(1, -(-int(part * 1000) * len(ordered) // 1000)) - 1]


def alone(call, rounds=30, burst=4):
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
    return quantile(samples, 0.5)


def held(call, holder, sms, rounds=15):
    stream = torch.cuda.Stream()
    samples = []
    holder.hold(sms)
    with torch.cuda.stream(stream):
        for turn in range(rounds + 1):
            start, end = event(), event()
            start.record()
            call()
            end.record()
            end.synchronize()
            if turn:
                samples.append(start.elapsed_time(end) * 1e3)
    holder.let_go()
    return quantile(samples, 0.5)


def beside(batch, batch_us, interactive, samples=400, period=1.7e-3):
    low, high = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-5)
    depth = int(8000 / batch_us) + 2
    queue, ended = collections.deque(), 0

    def top_up():
        nonlocal ended
        while queue and queue[0].query():
            queue.popleft()
            ended += 1
        with torch.cuda.stream(low):
            while len(queue) < depth:
                batch()
                done = torch.cuda.Event()
                done.record()
                queue.append(done)

    warm = time.perf_counter()
    while time.perf_counter() - warm < 0.06:
        top_up()
    began, before, times = time.perf_counter(), ended, []
    next_one = began
    for _ in range(samples):
        while time.perf_counter() < next_one:
            top_up()
        next_one = time.perf_counter() + period
        with torch.cuda.stream(high):
            start, end = event(), event()
            start.record()
            interactive()
            end.record()
            end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    top_up()
    us = (time.perf_counter() - began) * 1e6 / max(1, ended - before)
    torch.cuda.synchronize()
    return quantile(times, 0.5), quantile(times, 0.99), us


def product(told):
    m, n, k = (int(told.get(name, 256)) for name in "mnk")
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    return "cuBLAS", lambda: torch.mm(a, b.t(), out=out)


def grouped(told):
    rows = [int(row) for row in told["rows"].split(",")]
    n, k = int(told["n"]), int(told["k"])
    a = torch.randn(sum(rows), k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(len(rows), n, k, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor(rows, device="cuda").cumsum(0).to(torch.int32)
    return "torch._grouped_mm", lambda: torch._grouped_mm(a, b.transpose(1, 2), offs=ends)


def attention(told):
    shape = [int(told.get(name, 1)) for name in ("batch", "heads", "queries", "dim")]
    q, k, v = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    causal = told.get("mask") == "causal"

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return "cuDNN", call


FAMILIES = {"gemm": product, "grouped-gemm": grouped, "attention": attention}


def told(words):
    return dict(word.split("=", 1) for word in words)


def main():
    holder, case = Holder(sys.argv[1]), json.loads(sys.argv[2])
    name, batch = FAMILIES[case["kernel"]](told(case["told"]))
    us = alone(batch)
    row = {"name": name, "alone": us, "beside": [], "held": []}
    for interactive in case["interactive"]:
        _, call = product(told(interactive.split(",")))
        row["beside"].extend(beside(batch, us, call, case["samples"]))
    for sms in case["held"]:
        row["held"].append(held(batch, holder, sms))
    print(json.dumps(row))


main()
