"""C = A @ B^T in tiles of many shapes, for tensor cores with a memory of their own: f16, 8-bit floats and integers, four and eight warps."""

import triton
import triton.language as tl
from common import build


@triton.jit
def matmul_tiles(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr):
    at_m = tl.program_id(0) * BM + tl.arange(0, BM)
    at_n = tl.program_id(1) * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    sum = tl.zeros((BM, BN), dtype=OUT)
    for k in range(0, K, BK):
        x = tl.load(a + at_m[:, None] * K + k + at_k[None, :], mask=at_m[:, None] < M, other=0.0)
        y = tl.load(b + at_n[:, None] * K + k + at_k[None, :], mask=at_n[:, None] < N, other=0.0)
        sum = tl.dot(x, y.T, sum, out_dtype=OUT)
    tl.store(c + at_m[:, None] * N + at_n[None, :], sum, mask=(at_m[:, None] < M) & (at_n[None, :] < N))


VARIANTS = [
    ("f16_128x128", "fp16", 128, 128, 64, 4),
    ("f16_128x256", "fp16", 128, 256, 32, 8),
    ("f16_64x32", "fp16", 64, 32, 64, 4),
    ("f16_256x64", "fp16", 256, 64, 32, 8),
    ("bf16_128x64", "bf16", 128, 64, 64, 8),
    ("tf32_128x32", "fp32", 128, 32, 32, 4),
    ("e4m3_128x64", "fp8e4nv", 128, 64, 64, 4),
    ("e5m2_64x64", "fp8e5", 64, 64, 128, 4),
    ("s8_128x64", "i8", 128, 64, 64, 4),
    ("f16_64x64", "fp16", 64, 64, 32, 4),
    ("f16_64x128", "fp16", 64, 128, 64, 4),
    ("f16_128x32", "fp16", 128, 32, 128, 8),
    ("bf16_64x32", "bf16", 64, 32, 128, 4),
    ("bf16_128x128", "bf16", 128, 128, 32, 8),
    ("bf16_256x32", "bf16", 256, 32, 64, 8),
    ("tf32_64x32", "fp32", 64, 32, 64, 4),
    ("tf32_128x64", "fp32", 128, 64, 32, 8),
    ("e4m3_64x32", "fp8e4nv", 64, 32, 128, 4),
    ("e4m3_128x128", "fp8e4nv", 128, 128, 32, 8),
    ("e5m2_128x32", "fp8e5", 128, 32, 64, 4),
    ("e5m2_256x32", "fp8e5", 256, 32, 128, 8),
    ("s8_64x32", "i8", 64, 32, 128, 4),
    ("s8_128x32", "i8", 128, 32, 32, 8),
    ("f16_64x32_one_stage", "fp16", 64, 32, 64, 4, 1),
    ("f16_64x32_four_stages", "fp16", 64, 32, 32, 4, 4),
    ("f16_128x64_four_stages", "fp16", 128, 64, 32, 4, 4),
    ("e4m3_64x32_three_stages", "fp8e4nv", 64, 32, 32, 4, 3),
]
for variant, element, bm, bn, bk, warps, *stages in VARIANTS:
    out = "i32" if element == "i8" else "fp32"
    types = {"a": f"*{element}", "b": f"*{element}", "c": f"*{out}", "M": "i32", "N": "i32", "K": "i32"}
    constants = {"BM": bm, "BN": bn, "BK": bk, "OUT": tl.int32 if element == "i8" else tl.float32}
    build("matmul_tiles", matmul_tiles, 100, types, constants, variant, warps=warps, stages=stages[0] if stages else 2)
