"""C = A @ B^T by a resident grid: each program walks the tiles with a stride, the loops flattened into one."""

import triton
import triton.language as tl
from common import build


@triton.jit
def matmul_persistent(a, b, c, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * columns
    at_k = tl.arange(0, BK)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        at_m = tile // columns * BM + tl.arange(0, BM)
        at_n = tile % columns * BN + tl.arange(0, BN)
        sum = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            x = tl.load(a + at_m[:, None] * K + k + at_k[None, :], mask=at_m[:, None] < M, other=0.0)
            y = tl.load(b + at_n[None, :] * K + k + at_k[:, None], mask=at_n[None, :] < N, other=0.0)
            sum = tl.dot(x, y, sum)
        tl.store(c + at_m[:, None] * N + at_n[None, :], sum, mask=(at_m[:, None] < M) & (at_n[None, :] < N))


for cc in (80, 90, 100):
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    build("matmul_persistent", matmul_persistent, cc, types, {"PROGRAMS": 2, "BM": 64, "BN": 32, "BK": 32}, stages=2)
