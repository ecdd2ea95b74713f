"""Row and column reductions, argmax, a cumulative sum, and a sort, over one tile."""

import triton
import triton.language as tl
from common import build


@triton.jit
def reduction(x, row_sums, column_max, best, sums, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r = tl.arange(0, ROWS)
    c = tl.arange(0, COLUMNS)
    v = tl.load(x + r[:, None] * COLUMNS + c[None, :])
    tl.store(row_sums + r, tl.sum(v, axis=1))
    tl.store(column_max + c, tl.max(v, axis=0))
    tl.store(best + r, tl.argmax(v, axis=1))
    tl.store(sums + r[:, None] * COLUMNS + c[None, :], tl.cumsum(v, axis=1))


@triton.jit
def sorting(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.sort(tl.load(x + at)))


for cc in (80, 90, 100):
    types = {"x": "*fp32", "row_sums": "*fp32", "column_max": "*fp32", "best": "*i32", "sums": "*fp32"}
    build("reduction", reduction, cc, types, {"ROWS": 16, "COLUMNS": 32}, warps=2)
build("sorting", sorting, 80, {"x": "*i32", "out": "*i32"}, {"N": 64}, warps=1)
