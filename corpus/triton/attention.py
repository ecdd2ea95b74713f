"""Attention forward with the running softmax, causal or not; one program takes BM queries of one head."""

import triton
import triton.language as tl
from common import build


@triton.jit
def attention(q, k, v, out, lse, scale, length, stride_head, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    at_m = block * BM + tl.arange(0, BM)
    at_n = tl.arange(0, BN)
    at_d = tl.arange(0, D)
    base = head * stride_head
    queries = tl.load(q + base + at_m[:, None] * D + at_d[None, :], mask=at_m[:, None] < length, other=0.0)
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sum = tl.zeros((BM, D), tl.float32)
    last = tl.minimum((block + 1) * BM, length) if CAUSAL else length
    for start in range(0, last, BN):
        here = start + at_n
        keys = tl.load(k + base + here[None, :] * D + at_d[:, None], mask=here[None, :] < length, other=0.0)
        scores = tl.dot(queries, keys) * (scale * 1.4426950408889634)
        scores = tl.where(here[None, :] < length, scores, -float("inf"))
        if CAUSAL:
            scores = tl.where(at_m[:, None] >= here[None, :], scores, -float("inf"))
        larger = tl.maximum(most, tl.max(scores, 1))
        p = tl.exp2(scores - larger[:, None])
        fade = tl.exp2(most - larger)
        total = total * fade + tl.sum(p, 1)
        values = tl.load(v + base + here[:, None] * D + at_d[None, :], mask=here[:, None] < length, other=0.0)
        sum = tl.dot(p.to(values.dtype), values, sum * fade[:, None])
        most = larger
    tl.store(out + base + at_m[:, None] * D + at_d[None, :], (sum / total[:, None]).to(out.dtype.element_ty), mask=at_m[:, None] < length)
    tl.store(lse + head * length + at_m, most + tl.log2(total), mask=at_m < length)


def make(cc, variant, element, bm, bn, d, causal, warps):
    types = {k: f"*{element}" for k in ("q", "k", "v", "out")}
    types |= {"lse": "*fp32", "scale": "fp32", "length": "i32", "stride_head": "i32"}
    build("attention", attention, cc, types, {"BM": bm, "BN": bn, "D": d, "CAUSAL": causal}, variant, warps=warps, stages=2)


for cc in (80, 90, 100):
    make(cc, "causal_d64", "fp16", 64, 64, 64, True, 4)
make(80, "full_d16", "fp16", 16, 16, 16, False, 1)
make(90, "full_d128", "bf16", 128, 128, 128, False, 8)
make(80, "full_d128", "fp16", 128, 128, 128, False, 4)
