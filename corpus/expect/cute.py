"""Launches of the CuTe DSL kernels. Sizes are fixed when they are compiled; pointers are parameters of eight bytes."""

import re

from .data import product, spread, transposed
from .numbers import to_e4m3, to_e5m2
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


@kernels("cute/gemm_tcgen05")
def gemm_tcgen05(file):
    variant = file.parts[1]
    pair = variant.startswith("pair_")
    elements, sizes, majors = re.fullmatch(r"(?:pair_)?([a-z0-9_]+?)_(\d+x\d+x\d+)_?(kmn|mnk|mn)?.*", variant).groups()
    elements, (m, n, depth), blocks = elements.split("_"), map(int, sizes.split("x")), 2 if pair else 1
    elements, k = (elements * 2)[:2], 3 * depth
    # Two numbers in every fifth row of A, so that the lists stay short.
    unsigned = elements[0] == "u8"
    a = [0] * (m * k)
    for i in range(0, m, 5):
        for step in (7, 13):
            a[i * k + i * step % k] = 1 + i % 3 if unsigned or i % 2 else -2
    b = spread(n * k, 0 if unsigned else -3, 3, 5)
    # Copies are as wide as the swizzle, and bring what one block has of the operands.
    encoded = {"e4m3": ("u8", to_e4m3), "e5m2": ("u8", to_e5m2), "tf32": ("f32", int), "u8": ("u8", int)}
    size = {"f16": 2, "bf16": 2, "tf32": 4}
    maps, bytes = [], 0
    run = Run("gemm", file.entry("gemm"), grid=blocks, block=128, cluster=blocks if pair else None)
    for name, values, rows, element, crosswise in zip("ab", (a, b), (m, n), elements, (majors in ("mn", "mnk"), majors in ("mn", "kmn"))):
        ty, code = encoded.get(element, (element, int))
        dims, box = ([rows, k], [rows // blocks, depth]) if crosswise else ([k, rows], [depth, rows // blocks])
        width = min(128, box[0] * size.get(element, 1))
        bytes += box[0] * box[1] * size.get(element, 1)
        run.buffer(name, "in", ty, [code(v) for v in (transposed(values, rows, k) if crosswise else values)])
        maps.append((name, "u8" if ty == "s8" else ty, dims, [width // size.get(element, 1), box[1]], str(width)))
    run.line += f" smem={1024 + 2 * bytes}"
    if 1024 + 2 * bytes > 48 * 1024:
        run.allows("X011")
    for described in maps:
        run.tensormap(*described)
    run.output("s32" if elements[0] in ("s8", "u8") else "f32", product(a, b, m, n, k))
    # The operation: nothing is negated, and no lane of the result is left out.
    yield run.bytes([0] * (64 if pair else 32))


@kernels("cute/clc")
def clc(file):
    v = spread(1024, -99, 99)
    multicast = file.has("multicast")
    run = Run("steal", file.entry("steal"), grid=16, block=64, cluster=2 if multicast else None, smem=32).input("f32", v)
    # The compiler moves the decoding above the test; what it decodes from a refusal is then not used.
    yield run.output("f32", [3 * x + 1 for x in v]).allows("L004")
