"""Launches of the Triton kernels. Each has two parameters more than its source: scratch memory, and a profiler's."""

import math

from .data import product, spread, transposed
from .numbers import rounded, to_e4m3, to_e5m2
from .run import Run, kernels


def launch(file, entry, grid, name=None):
    shared = file.noted("bytes of shared memory")
    run = Run(name or entry, entry, grid=grid, block=file.noted("threads"), smem=shared or None)
    return run.allows("X011") if shared > 48 * 1024 else run


def scratch(run):
    return run.value("u64", 0).value("u64", 0)


@kernels("triton/vector_add")
def vector_add(file):
    n = 304
    x, y = spread(n, -99, 99), spread(n, -50, 50, 11)
    run = launch(file, "vector_add", 2).input("f32", x).input("f32", y)
    yield scratch(run.output("f32", [a + b for a, b in zip(x, y)]).value("s32", n))


@kernels("triton/softmax")
def softmax(file):
    rows, stride, columns = 3, 64, 48
    x = [v / 4 for v in spread(rows * stride, -12, 12)]
    before, out = [-1.0] * (rows * stride), []
    for r in range(rows):
        row = x[r * stride : r * stride + columns]
        weights = [math.exp(v - max(row)) for v in row]
        out += [rounded(w / sum(weights), "f32") for w in weights] + [-1.0] * (stride - columns)
    run = launch(file, "softmax", rows).inout("f32", before, out, rel="1e-5").input("f32", x)
    yield scratch(run.value("s32", stride).value("s32", columns))


@kernels("triton/matmul")
def matmul(file):
    m, n, k = 64, 64, 64
    a, b = spread(m * k, -4, 4), spread(k * n, -3, 3, 5)
    c = product(a, transposed(b, k, n), m, n, k)
    element = next(e for e in ("f16", "bf16", "tf32") if file.has(e)).replace("tf32", "f32")
    run = launch(file, "matmul", 1).input(element, a).input(element, b).output("f16" if element == "f16" else "f32", c)
    for size in (m, n, k, k, n, n):
        run.value("s32", size)
    yield scratch(run)


@kernels("triton/attention")
def attention(file):
    d = 128 if file.has("full_d128") else 16 if file.has("full_d16") else 64
    length = {128: 16, 64: 48, 16: 32}[d]
    if file.has("cc100"):
        length = 112  # More than a tile of keys, so that tensor memory is used again.
    causal = file.has("causal_d64")
    element = "bf16" if "bf16" in file.body else "f16"
    scale = 1 / 8
    q, k, v = ([x / 4 for x in spread(length * d, -4, 4, step)] for step in (7, 5, 11))
    out, lse = [], []
    for i in range(length):
        last = i + 1 if causal else length
        scores = [scale * sum(q[i * d + x] * k[j * d + x] for x in range(d)) for j in range(last)]
        most = max(scores)
        weights = [math.exp(s - most) for s in scores]
        total = sum(weights)
        out += [rounded(sum(w * v[j * d + x] for j, w in enumerate(weights)) / total, element) for x in range(d)]
        lse.append(rounded((most + math.log(total)) * math.log2(math.e), "f32"))
    block = {128: 128, 64: 64, 16: 16}[d]
    run = launch(file, "attention", (-(-length // block), 1))
    run.input(element, q).input(element, k).input(element, v)
    run.output(element, out, abs="0.02" if element == "bf16" else "0.004").output("f32", lse, abs="1e-3")
    yield scratch(run.value("f32", scale).value("s32", length).value("s32", length * d))


@kernels("triton/layernorm")
def layernorm(file):
    rows, columns, eps = 2, 96, 2.0**-10
    x = [v / 8 for v in spread(rows * columns, -40, 40)]
    weight, bias = [1 + v / 16 for v in spread(columns, -4, 4)], [v / 8 for v in spread(columns, -8, 8, 3)]
    y, means, deviations = [], [], []
    for r in range(rows):
        row = x[r * columns : (r + 1) * columns]
        mean = sum(row) / columns
        deviation = 1 / math.sqrt(sum((v - mean) ** 2 for v in row) / columns + eps)
        means.append(rounded(mean, "f32"))
        deviations.append(rounded(deviation, "f32"))
        y += [rounded((v - mean) * deviation * w + b, "f16") for v, w, b in zip(row, weight, bias)]
    run = launch(file, "layernorm", rows).input("f16", x).output("f16", y, abs="2e-3").input("f32", weight).input("f32", bias)
    run.output("f32", means, rel="1e-5", abs="1e-6").output("f32", deviations, rel="1e-5")
    yield scratch(run.value("s32", columns).value("f32", eps))


@kernels("triton/histogram")
def histogram(file):
    n, bins = 208, 16
    x = spread(n, 0, bins - 1, 5)
    most, folded = [0] * bins, [0] * bins
    for at, v in enumerate(x):
        most[v] = max(most[v], v * 3 + at)
        folded[v] ^= at
    run = launch(file, "histogram", 2).input("s32", x).inout("s32", [0] * bins, [x.count(b) for b in range(bins)])
    yield scratch(run.inout("s32", [0] * (2 * bins), most + folded).value("s32", n))


@kernels("triton/locks")
def locks(file):
    yield scratch(launch(file, "locks", 4).inout("s32", [0], [0]).inout("s32", [3], [67]).value("s32", 16))


@kernels("triton/reduction")
def reduction(file):
    rows, columns = 16, 32
    x = spread(rows * columns, -99, 99, 31)
    lines = [x[r * columns : (r + 1) * columns] for r in range(rows)]
    sums = [sum(line[: c + 1]) for line in lines for c in range(columns)]
    run = launch(file, "reduction", 1).input("f32", x).output("f32", [sum(line) for line in lines])
    run.output("f32", [max(line[c] for line in lines) for c in range(columns)])
    yield scratch(run.output("s32", [line.index(max(line)) for line in lines]).output("f32", sums))


@kernels("triton/sorting")
def sorting(file):
    x = spread(64, -500, 500, 77)
    yield scratch(launch(file, "sorting", 1).input("s32", x).output("s32", sorted(x)))


@kernels("triton/matmul_host_descriptor")
def matmul_host_descriptor(file):
    m, n, k = 64, 64, 128
    a, b = spread(m * k, -4, 4), spread(n * k, -3, 3, 5)
    run = launch(file, "matmul_host_descriptor", (1, 1)).buffer("a", "in", "f16", a).buffer("b", "in", "f16", b)
    run.buffer("c", "out", "f16", m * n, product(a, b, m, n, k))
    for name, rows, columns in (("a", m, k), ("b", n, k), ("c", m, n)):
        run.tensormap(name, "f16", [columns, rows], [64, 64], "128").value("s32", rows).value("s32", columns).value("s64", columns).value("s64", 1)
    if "tcgen05." in file.body:
        # A tile is copied over the slot that the address of tensor memory was read from, without a proxy fence.
        run.allows("A006")
    yield scratch(run.value("s32", k))


@kernels("triton/matmul_device_descriptor")
def matmul_device_descriptor(file):
    m, n, k = 64, 64, 128
    a, b = spread(m * k, -4, 4), spread(n * k, -3, 3, 5)
    run = launch(file, "matmul_device_descriptor", (1, 1)).input("f16", a).input("f16", b).output("f16", product(a, b, m, n, k))
    run.value("s32", m).value("s32", n).value("s32", k)
    scratch_bytes = [0] * file.noted("bytes of scratch a block")
    yield run.opaque("u8", scratch_bytes, "tensor maps, whose format is the driver's").value("u64", 0)


@kernels("triton/matmul_persistent")
def matmul_persistent(file):
    m, n, k = 64, 96, 64
    a, b = spread(m * k, -4, 4), spread(n * k, -3, 3, 5)
    run = launch(file, "matmul_persistent", 2).input("f16", a).input("f16", b).output("f32", product(a, b, m, n, k))
    yield scratch(run.value("s32", m).value("s32", n).value("s32", k))


@kernels("triton/matmul_tiles")
def matmul_tiles(file):
    element = next(e for e in ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8") if f".{e}_" in file.name)
    # Less than a tile, so that the lists stay short; what is outside is masked.
    m, n, k = 48, 32, 128
    a, b = spread(m * k, -4, 4), spread(n * k, -3, 3, 5)
    run = launch(file, "matmul_tiles", (1, 1))
    for matrix in (a, b):
        if element in ("e4m3", "e5m2"):
            run.input("u8", [(to_e4m3 if element == "e4m3" else to_e5m2)(v) for v in matrix])
        else:
            run.input("f32" if element == "tf32" else element, matrix)
    run.output("s32" if element == "s8" else "f32", product(a, b, m, n, k))
    yield scratch(run.value("s32", m).value("s32", n).value("s32", k))


@kernels("triton/matmul_scaled")
def matmul_scaled(file):
    format = next(e for e in ("e4m3", "e5m2", "e2m1") if file.has(e))
    m, n, k = 128, 32 if format == "e5m2" else 64, 128
    # Numbers that all formats have, and scales of a half, one and two.
    a, b = ([v if abs(v) != 5 else 0 for v in spread(count * k, -4, 4, step)] for count, step in ((m, 7), (n, 5)))
    sa, sb = spread(m * k // 32, -1, 1, 7), spread(n * k // 32, -1, 1, 5)
    def scaled(matrix, scales):
        return [v * 2.0 ** scales[i // 32] for i, v in enumerate(matrix)]
    run = launch(file, "matmul_scaled", (1, 1))
    small = {0: 0, 1: 2, 2: 4, 3: 5, 4: 6}
    e2m1 = lambda v: small[abs(v)] | (8 if v < 0 else 0)
    for matrix in (a, b):
        if format == "e2m1":
            codes = [e2m1(v) for v in matrix]
            run.input("u8", [low | high << 4 for low, high in zip(codes[::2], codes[1::2])])
        else:
            run.input("u8", [(to_e4m3 if format == "e4m3" else to_e5m2)(v) for v in matrix])
    run.output("f32", product(scaled(a, sa), scaled(b, sb), m, n, k))
    for scales in (sa, sb):
        run.input("u8", [127 + v for v in scales])
    if format != "e5m2":
        # Half of a register that the compiler leaves unset is packed with the scales, and never looked at.
        run.allows("M013")
    yield scratch(run.value("s32", m).value("s32", n).value("s32", k))
