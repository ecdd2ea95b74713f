"""Launches of the kernels about matrices: tiled products, WMMA, mma.sync, ldmatrix, wgmma."""

from .data import product, spread, transposed
from .numbers import from_e4m3, rounded, to_e4m3, to_e5m2
from .run import Run, kernels


@kernels("nvcc/gemm_tiled")
def gemm_tiled(file):
    a, b = spread(32 * 32, -4, 4), spread(32 * 32, -3, 3, 5)
    c = product(a, transposed(b, 32, 32), 32, 32, 32)
    yield Run("gemm16", grid=(2, 2), block=(16, 16)).input("f32", a).input("f32", b).output("f32", c).value("s32", 32).value("s32", 32)
    a, b = spread(32 * 16, -4, 4), spread(16 * 64, -3, 3, 5)
    c = product(a, transposed(b, 16, 64), 32, 64, 16)
    run = Run("gemm_registers", grid=(2, 1), block=64, smem=2048).input("f32", a).input("f32", b)
    yield run.output("f32", c).value("s32", 64).value("s32", 16)


@kernels("nvcc/wmma")
def wmma(file):
    a, b = spread(16 * 32, -4, 4), spread(16 * 32, -3, 3, 5)
    yield Run("wmma_f16").input("f16", a).input("f16", b).output("f32", product(a, b, 16, 16, 32)).value("s32", 32)
    a, b, c = spread(16 * 32, -4, 4), spread(16 * 8, -3, 3, 5), spread(8 * 32, -9, 9)
    sums = transposed(product(transposed(a, 16, 32), transposed(b, 16, 8), 32, 8, 16), 32, 8)
    yield Run("wmma_f16_shared").input("f16", a).input("f16", b).inout("f16", c, [2 * (x + y) for x, y in zip(c, sums)])
    a, b = spread(8 * 16, -128, 127, 37), spread(32 * 16, -128, 127, 41)
    yield Run("wmma_int8").input("s8", a).input("s8", b).output("s32", product(a, b, 8, 32, 16, 3))
    if file.arch == "sm_75":
        return
    a, b = spread(256, -8, 8), spread(256, -8, 8, 5)
    yield Run("wmma_bf16").input("bf16", a).input("bf16", b).output("f32", product(a, transposed(b, 16, 16), 16, 16, 16, 1))
    a, b, c = spread(128, -8, 8), spread(128, -8, 8, 5), spread(256, -9, 9)
    yield Run("wmma_tf32").input("f32", a).input("f32", b).inout("f32", c, [x + y for x, y in zip(c, product(a, b, 16, 16, 8))])
    a, b = spread(32, -8, 8), spread(32, -8, 8, 5)
    yield Run("wmma_f64").input("f64", a).input("f64", b).output("f64", product(a, b, 8, 8, 4, 0.5))


@kernels("nvcc/mma_sync")
def mma_sync(file):
    a, b, c = spread(256, -4, 4), spread(128, -3, 3, 5), spread(128, -9, 9)
    sums = product(a, b, 16, 8, 16)
    yield Run("mma_f16_f32").input("f16", a).input("f16", b).inout("f32", c, [x + y for x, y in zip(c, sums)])
    yield Run("mma_bf16").input("bf16", a).input("bf16", b).output("f32", [x + 0.5 for x in sums])
    a, b = spread(128, -4, 4), spread(64, -3, 3, 5)
    sums = product(a, b, 16, 8, 8)
    yield Run("mma_f16_f16").input("f16", a).input("f16", b).output("f16", sums)
    # 3 * (1 + 2^-10) lies halfway between two tf32 numbers, and goes away from zero.
    wide = [x * (1 + 2**-10) for x in a]
    yield Run("mma_tf32").input("f32", wide).input("f32", b).output("f32", product([tf32(x) for x in wide], b, 16, 8, 8))
    a, b = spread(512, -128, 127, 37), spread(256, 0, 255, 41)
    yield Run("mma_int8").input("s8", a).input("u8", b).output("s32", product(a, b, 16, 8, 32, -5))
    a, b = spread(32, -8, 8), spread(32, -8, 8, 5)
    yield Run("mma_f64").input("f64", a).input("f64", b).output("f64", product(a, b, 8, 8, 4, 0.25))
    if file.has("wide_f64"):
        a = spread(64, -8, 8)
        yield Run("mma_f64_m16").input("f64", a).input("f64", b).output("f64", product(a, b, 16, 8, 4))


def tf32(value):
    """Nearest, ties away from zero."""
    low, high = rounded(value, "tf32", "rz"), rounded(value, "tf32", "ru" if value > 0 else "rd")
    return high if abs(value - low) >= abs(high - value) else low


@kernels("nvcc/mma_fp8")
def mma_fp8(file):
    a, b = spread(512, -8, 8), spread(256, -4, 4, 5)
    yield Run("mma_e4m3").input("f16", a).input("f16", b).output("f32", product(a, b, 16, 8, 32))
    v = [0.0, 1.0, -1.5, 0.3, 447.0, 500.0, -1000.0, 0.001, 17.0, 18.0, 19.0, 2.0**-9, 2.0**-10, 3e-5, 60000.0, 1e9]
    v = [rounded(x, "f32") for x in v]
    e4m3, e5m2 = ([low | high << 8 for low, high in zip(f[::2], f[1::2])] for f in ([g(x) for x in v] for g in (to_e4m3, to_e5m2)))
    back = [from_e4m3(to_e4m3(x)) for x in v]
    yield Run("fp8_convert", block=8).input("f32", v).output("u16", e4m3).output("u16", e5m2).output("f16", back)


@kernels("nvcc/ldmatrix")
def ldmatrix(file):
    v = list(range(256))  # 32 rows of 8

    def at(tile, row, column):
        return v[(tile * 8 + row) * 8 + column]

    def plain(tile, lane):
        return at(tile, lane // 4, lane % 4 * 2) | at(tile, lane // 4, lane % 4 * 2 + 1) << 16

    def turned(tile, lane):
        return at(tile, lane % 4 * 2, lane // 4) | at(tile, lane % 4 * 2 + 1, lane // 4) << 16

    out = []
    for lane in range(32):
        r = [plain(0, lane), turned(0, lane), turned(1, lane), *(plain(i, lane) for i in range(4)), turned(3, lane)]
        r.append(plain(0, lane) if file.arch == "sm_75" else turned(0, lane))
        out += [*r, r[3] ^ r[7]]
    yield Run("load_tiles").input("u16", v).output("u32", out)
    if file.arch == "sm_75":
        return
    registers = [(2 * i) | (2 * i + 1) << 16 for i in range(160)]
    tiles = list(range(256)) + [0] * 64
    for lane in range(32):
        low = 256 + 2 * lane
        tiles[256 + lane % 4 * 2 * 8 + lane // 4] = low
        tiles[256 + (lane % 4 * 2 + 1) * 8 + lane // 4] = low + 1
    yield Run("store_tiles").input("u32", registers).output("u16", tiles)


@kernels("nvcc/wgmma")
def wgmma(file):
    a, b = spread(64 * 32, -4, 4), spread(16 * 32, -3, 3, 5)
    yield Run("wgmma_f16", block=128).input("f16", a).input("f16", b).output("f32", product(a, b, 64, 16, 32))
    a, b = spread(64 * 16, -4, 4), spread(8 * 16, -3, 3, 5)
    sums = product(a, b, 64, 8, 16)
    negated = []
    for i, x in enumerate(sums):  # the accumulators of a thread start as 1, 2 in its upper row and 3, 4 in its lower
        row, column = divmod(i, 8)
        negated.append((3 if row % 16 >= 8 else 1) + column % 2 - x)
    yield Run("wgmma_bf16_registers", block=128).input("bf16", a).input("bf16", b).output("f32", negated + sums)
    a, b = spread(64 * 32, -128, 127, 37), spread(8 * 32, -128, 127, 41)
    yield Run("wgmma_int8", block=128).input("s8", a).input("s8", b).output("s32", product(a, b, 64, 8, 32))
    a, b = spread(64 * 8, -8, 8), spread(64, -8, 8, 5)
    yield Run("wgmma_tf32", block=128).input("f32", a).input("f32", b).output("f32", product(a, b, 64, 8, 8))
    a, b = spread(64 * 32, -8, 8), spread(8 * 32, -8, 8, 5)
    bytes = [[to_e4m3(float(x)) for x in v] for v in (a, b)]
    yield Run("wgmma_e4m3", block=128).input("u8", bytes[0]).input("u8", bytes[1]).output("f32", product(a, b, 64, 8, 32))


@kernels("nvcc/gemm_warp_specialised")
def gemm_warp_specialised(file):
    m, n, k = 128, 64, 64
    a, b = spread(m * k, -4, 4), spread(n * k, -3, 3, 5)
    run = Run("gemm", block=384, smem=13312).buffer("a", "in", "f16", a)
    if file.has("transposed"):
        run.buffer("b", "in", "f16", transposed(b, n, k)).tensormap("a", "f16", [k, m], [16, 128], "32").tensormap("b", "f16", [n, k], [64, 16], "128")
    else:
        run.buffer("b", "in", "f16", b).tensormap("a", "f16", [k, m], [16, 128], "32").tensormap("b", "f16", [k, n], [16, 64], "32")
    yield run.output("f32", product(a, b, m, n, k)).value("s32", n).value("s32", k)


def lines_of_128_bytes(matrix, rows):
    """Rows of 64 halves as a tile with the 128-byte swizzle: chunk c of row r stands where chunk c ^ r would."""
    out = [0] * (rows * 64)
    for r in range(rows):
        for c in range(8):
            at = r * 64 + (c ^ r % 8) * 8
            out[at : at + 8] = matrix[r * 64 + c * 8 : r * 64 + c * 8 + 8]
    return out


@kernels("nvcc/tcgen05")
def tcgen05(file):
    a, b = spread(128 * 64, -4, 4), spread(64 * 64, -3, 3, 5)
    shape = 1 << 4 | 64 // 8 << 17 | 128 // 16 << 24
    run = Run("mma_f16", block=128, smem=24576 + 1024)
    run.input("f16", lines_of_128_bytes(a, 128)).input("f16", lines_of_128_bytes(b, 64))
    yield run.output("f32", product(a, b, 128, 64, 64)).value("u32", shape)


@kernels("nvcc/tcgen05_forms")
def tcgen05_forms(file):
    yield "its operands mean nothing: it is there for its spellings"
