"""C = A @ B^T with tensor descriptors: made by the host and passed as parameters, or made by the kernel itself."""

import triton
import triton.language as tl
from common import build


@triton.jit
def matmul_host_descriptor(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        sum = tl.dot(a.load([m, k]), b.load([n, k]).T, sum)
    c.store([m, n], sum.to(tl.float16))


@triton.jit
def matmul_device_descriptor(pa, pb, pc, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(pa, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b = tl.make_tensor_descriptor(pb, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c = tl.make_tensor_descriptor(pc, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    sum = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        sum = tl.dot(a.load([m, k]), b.load([n, k]).T, sum)
    c.store([m, n], sum.to(tl.float16))


SIZES = {"BM": 64, "BN": 64, "BK": 64}
for cc in (90, 100):
    tile = "tensordesc<fp16[64, 64]>"
    build("matmul_host_descriptor", matmul_host_descriptor, cc, {"a": tile, "b": tile, "c": tile, "K": "i32"}, SIZES)
    types = {"pa": "*fp16", "pb": "*fp16", "pc": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
    build("matmul_device_descriptor", matmul_device_descriptor, cc, types, SIZES)
