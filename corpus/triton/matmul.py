"""C = A @ B, row-major, 64x64 tiles in grouped order, loads masked in K; f16, bf16 and tf32 inputs."""

import triton
import triton.language as tl
from common import build


@triton.jit
def matmul(a, b, c, M, N, K, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    per_group = GROUP * columns
    first = tile // per_group * GROUP
    height = min(rows - first, GROUP)
    m = first + tile % per_group % height
    n = tile % per_group // height
    at_m = m * BM + tl.arange(0, BM)
    at_n = n * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    pa = a + at_m[:, None] * stride_a + at_k[None, :]
    pb = b + at_k[:, None] * stride_b + at_n[None, :]
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = K - k * BK
        x = tl.load(pa, mask=at_k[None, :] < left, other=0.0)
        y = tl.load(pb, mask=at_k[:, None] < left, other=0.0)
        sum = tl.dot(x, y, sum)
        pa += BK
        pb += BK * stride_b
    pc = c + at_m[:, None] * stride_c + at_n[None, :]
    tl.store(pc, sum.to(c.dtype.element_ty), mask=(at_m[:, None] < M) & (at_n[None, :] < N))


SIZES = {k: "i32" for k in ("M", "N", "K", "stride_a", "stride_b", "stride_c")}
for cc in (80, 90, 100):
    for variant, element, out in (("f16", "fp16", "fp16"), ("bf16", "bf16", "fp32"), ("tf32", "fp32", "fp32")):
        types = {"a": f"*{element}", "b": f"*{element}", "c": f"*{out}", **SIZES}
        build("matmul", matmul, cc, types, {"BM": 64, "BN": 64, "BK": 32, "GROUP": 4}, variant)
