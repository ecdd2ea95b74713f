"""Launches of the CuTe DSL kernels. Sizes are fixed when they are compiled; pointers are parameters of eight bytes."""

from .data import product, spread
from .run import Run, kernels


@kernels("cute/elementwise")
def elementwise(file):
    count = 20 * 132
    a, b = spread(count, -99, 99), spread(count, -9, 9, 11)
    run = Run("elementwise", file.entry("elementwise"), grid=4, block=128).input("f32", a).input("f32", b)
    yield run.output("f32", [2 * x + y for x, y in zip(a, b)])


@kernels("cute/gemm_mma")
def gemm_mma(file):
    a, b = spread(64 * 96, -4, 4), spread(64 * 96, -3, 3, 5)
    element = "f16" if file.has("f16") else "bf16"
    run = Run("gemm", file.entry("gemm"), block=128, smem=8192).input(element, a).input(element, b)
    yield run.output("f32", product(a, b, 64, 64, 96))


@kernels("cute/gemm_wgmma")
def gemm_wgmma(file):
    blocks = 2 if file.has("multicast") else 1
    m, n, k = 64 * blocks, 64, 128
    a, b = spread(m * k, -4, 4), spread(n * k, -3, 3, 5)
    run = Run("gemm", file.entry("gemm"), grid=blocks, block=128, cluster=blocks if blocks > 1 else None, smem=33792)
    run.buffer("a", "in", "f16", a).buffer("b", "in", "f16", b).tensormap("a", "f16", [k, m], [64, 64], "128")
    run.tensormap("b", "f16", [k, n], [64, 64 // blocks], "128")
    yield run.output("f32", product(a, b, m, n, k)).bytes([0])


@kernels("cute/clc")
def clc(file):
    v = spread(1024, -99, 99)
    multicast = file.has("multicast")
    run = Run("steal", file.entry("steal"), grid=16, block=64, cluster=2 if multicast else None, smem=32).input("f32", v)
    # The compiler moves the decoding above the test; what it decodes from a refusal is then not used.
    yield run.output("f32", [3 * x + 1 for x in v]).allows("L004")
