"""Each program turns one row into its softmax."""

import triton
import triton.language as tl
from common import build


@triton.jit
def softmax(out, x, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + at, v / tl.sum(v, axis=0), mask=at < columns)


for cc in (80, 90, 100):
    build("softmax", softmax, cc, {"out": "*fp32", "x": "*fp32", "stride": "i32", "columns": "i32"}, {"BLOCK": 128}, warps=4 if cc == 80 else 2)
