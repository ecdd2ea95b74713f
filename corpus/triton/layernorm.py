"""Layer normalisation of rows, with weight and bias, keeping mean and reciprocal deviation."""

import triton
import triton.language as tl
from common import build


@triton.jit
def layernorm(x, y, weight, bias, mean, rstd, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    v = tl.load(x + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    mu = tl.sum(v, axis=0) / columns
    centred = tl.where(mask, v - mu, 0.0)
    r = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    w = tl.load(weight + at, mask=mask, other=0.0)
    b = tl.load(bias + at, mask=mask, other=0.0)
    tl.store(y + row * columns + at, centred * r * w + b, mask=mask)


TYPES = {"x": "*fp16", "y": "*fp16", "weight": "*fp32", "bias": "*fp32", "mean": "*fp32", "rstd": "*fp32", "columns": "i32", "eps": "fp32"}
for cc in (80, 90, 100):
    build("layernorm", layernorm, cc, TYPES, {"BLOCK": 128}, warps=2)
