"""C = (A * SA) @ (B * SB)^T with a scale factor for every 32 elements along K, which are powers of two: mxfp8 and mxfp4."""

import triton
import triton.language as tl
from common import build


@triton.jit
def matmul_scaled(a, b, c, sa, sb, M, N, K, FORMAT: tl.constexpr, PACK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    at_m = tl.program_id(0) * BM + tl.arange(0, BM)
    at_n = tl.program_id(1) * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK // PACK)
    at_s = tl.arange(0, BK // 32)
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + at_m[:, None] * (K // PACK) + k // PACK + at_k[None, :])
        y = tl.load(b + at_n[:, None] * (K // PACK) + k // PACK + at_k[None, :])
        u = tl.load(sa + at_m[:, None] * (K // 32) + k // 32 + at_s[None, :])
        v = tl.load(sb + at_n[:, None] * (K // 32) + k // 32 + at_s[None, :])
        sum = tl.dot_scaled(x, u, FORMAT, y.T, v, FORMAT, sum)
    tl.store(c + at_m[:, None] * N + at_n[None, :], sum)


for variant, format, element, pack, bm, bn, bk in (
    ("e4m3", "e4m3", "fp8e4nv", 1, 128, 64, 128),
    ("e5m2", "e5m2", "fp8e5", 1, 128, 32, 128),
    ("e2m1", "e2m1", "u8", 2, 128, 64, 128),
):
    types = {"a": f"*{element}", "b": f"*{element}", "c": "*fp32", "sa": "*u8", "sb": "*u8", "M": "i32", "N": "i32", "K": "i32"}
    constants = {"FORMAT": format, "PACK": pack, "BM": bm, "BN": bn, "BK": bk}
    build("matmul_scaled", matmul_scaled, 100, types, constants, variant, stages=2)
