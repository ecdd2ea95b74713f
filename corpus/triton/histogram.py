"""Counting: tl.histogram merged by atomics, and atomics of other kinds."""

import triton
import triton.language as tl
from common import build


@triton.jit
def histogram(x, bins, extremes, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0)
    counts = tl.histogram(v, BINS, mask=mask)
    tl.atomic_add(bins + tl.arange(0, BINS), counts, sem="relaxed")
    tl.atomic_max(extremes + v, v * 3 + at, mask=mask)
    tl.atomic_xor(extremes + BINS + v, at, mask=mask, scope="gpu")


@triton.jit
def locks(lock, total, value):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    before = tl.load(total, volatile=True)
    tl.debug_barrier()
    tl.store(total, before + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


for cc in (80, 90, 100):
    build("histogram", histogram, cc, {"x": "*i32", "bins": "*i32", "extremes": "*i32", "n": "i32"}, {"BLOCK": 128, "BINS": 16}, warps=2)
build("locks", locks, 80, {"lock": "*i32", "total": "*i32", "value": "i32"}, {}, warps=1)
