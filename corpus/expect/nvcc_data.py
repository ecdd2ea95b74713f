"""Launches of the kernels about calls, control flow, variables, parameters, printing, linking and debug builds."""

import struct

from .data import spread
from .numbers import signed, unsigned
from .run import Run, kernels


@kernels("nvcc/calls")
def calls(file):
    a = [0, 1, -3, 10, 50, -100, 7, 31]
    out = []
    for v in a:
        out += [v * v + 9, (v + 1) * 100 + v, 6 + 4 * v, unsigned(v + 7 if v & 1 else v - 7, 8), 10 * v + 20]
    yield Run("call_direct", block=len(a)).input("s32", a).output("s32", out)
    which = [i % 3 for i in range(32)]
    a = spread(32, -20, 20)
    functions = (lambda x: x * x + 100, lambda x: x - 10, lambda x: max(x, 10))
    yield Run("call_indirect").input("s32", which).input("s32", a).output("s32", [functions[w](v) for w, v in zip(which, a)])
    fibonacci = [0, 1]
    while len(fibonacci) < 12:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    yield Run("call_recursive", block=12).output("u64", fibonacci)
    a = [i * 0.5 for i in range(16)]
    areas = (lambda s: s, lambda s: s * s, lambda s: 3 * s * s)
    yield Run("call_virtual", block=16).input("f32", a).output("f32", [areas[t * 7 % 3](s) for t, s in enumerate(a)])


@kernels("nvcc/data")
def data(file):
    x = [i - 4 for i in range(8)]
    coefficients, masks = (1, -0.5, 0.25, -0.125, 0.0625), (0x0F, 0xF0, 0x3C, 0xC3)
    out = [sum(c * v**i for i, c in enumerate(coefficients)) * 2.5 + masks[t & 3] for t, v in enumerate(x)]
    yield Run("use_constant", block=8).input("f32", x).output("f32", out)
    rows = ((1, 2, 3), (-4, -5, -6))
    out = []
    for t in range(16):
        out += [905 if t & 1 else 706, 2 if t & 1 else 3, 11 + (2 if t & 1 else 19), rows[t & 1][t % 3], 1, t + 1]
    yield Run("use_globals", block=16).output("s32", out)


@kernels("nvcc/control")
def control(file):
    op = [i % 12 - 1 for i in range(48)]
    a = spread(48, -50, 50)
    out = []
    for o, v in zip(op, a):
        results = {
            0: v + 1, 1: v * v, 2: v ^ 0x55, 3: unsigned(v).bit_count() * 7, 4: -v, 5: v << 3, 6: int(v / 3), 7: v | 1, 8: v | 1, 9: ~v,
        }  # fmt: skip
        out.append(results.get(o, -1))
    yield Run("dense_switch", grid=2).input("s32", op).input("s32", a).output("s32", out).value("s32", 48)

    n = 24
    given = spread(n, 0, 99)
    out = []
    for t in range(32):
        window = [given[(t + i) % n] for i in range(16)]
        for i in range(n):
            at = (given[i] + t) & 15
            window[at] = window[(at + 5) & 15] + i
        sum = 0
        for i in range(16):
            sum = sum * 3 + window[(i * t) & 15]
        out.append(signed(sum))
    yield Run("local_array").input("s32", given).output("s32", out).value("s32", n)

    limit = [2 * t + 1 for t in range(32)]
    primes = [p for p in range(2, 70) if all(p % d for d in range(2, p))]
    yield Run("loops").input("s32", limit).output("s32", [sum_of(p < l for p in primes) for l in limit])


def sum_of(flags):
    return sum(map(int, flags))


@kernels("nvcc/print")
def printing(file):
    # The compiler leaves a load behind the trap that an `if` guards.
    yield Run("hello", grid=2, block=4).value("s32", 3).allows("X019")
    good = [5, 0, 7, 12]
    yield Run("checked", block=4).input("s32", good).output("s32", [2 * v for v in good])
    fails = Run("assertion", "checked", block=4, gpu_no="the assertion fails on purpose")
    yield fails.input("s32", [1, 2, -3, 4]).unchecked("s32", [0] * 4).finds("X018")
    yield Run("traps", block=4).input("s32", good).output("s32", [v + 1 for v in good])
    yield Run("trap", "traps", block=4, gpu_no="it traps on purpose").input("s32", [1, 13, 2, 3]).unchecked("s32", [0] * 4).finds("X004")


@kernels("nvcc/attributes")
def attributes(file):
    yield Run("bounded", grid=2, block=128).output("s32", [2] * 256)
    yield Run("few_registers", block=64).output("s32", [3 * t for t in range(64)])
    yield Run("clustered", grid=4, cluster=2).output("s32", [1, 0, 3, 2])
    yield Run("sized", grid=2, block=(32, 2), cluster=2).output("s32", ([0] * 32 + [1] * 32) * 2)
    rows, columns, scale, flags = 3, 8, (2.0, 0.5, -1.0), 200
    matrix = struct.pack("<ii3fB3x", rows, columns, *scale, flags)
    values = (1.0, -2.0, 0.25, 8.0)
    cells = spread(rows * columns, -9, 9)
    out = []
    for t in range(columns):
        column = sum(cells[i * columns + t] for i in range(rows))
        out.append(column * scale[t % 3] + values[t & 3] - 3 + 1000 + 5 + 0.5 + flags)
    run = Run("by_value", block=columns).bytes(matrix).input("f32", cells).bytes(struct.pack("<4d", *values)).bytes([0])
    yield run.value("s8", -3).value("s16", 1000).value("s64", 5).value("u8", 1).output("f32", out)
    weighed = sum(b * (i + 1) for i, b in enumerate(matrix[:8]))
    yield Run("constant_parameter", block=6).bytes(matrix).output("s32", [weighed + rows * 1000 + int(scale[t % 3]) for t in range(6)])
    f = [10 * t for t in range(8)]
    run = Run("many_parameters", block=8).value("s32", -7).value("u32", 9).value("f32", 2.75).value("f64", -3.5).value("u8", 200).input("s32", f)
    run.bytes(struct.pack("<ii", 6, -7)).bytes(struct.pack("<4f", 1.5, 0, 0, 2.5)).bytes(struct.pack("<bbb", 1, 2, -3))
    run.bytes(struct.pack("<QQ", 2**40, 4 - 2**40 & 2**64 - 1))
    yield run.output("s32", [-7 + 9 + 2 - 3 + 200 + v - 42 + 4 - 3 + 4 for v in f])
    yield Run("indexed_parameter", block=8).bytes(struct.pack("<4d", 10, 20, 30, 40)).output("s32", [(10, 20, 30, 40)[t * 3 & 3] for t in range(8)])


@kernels("nvcc/linked")
def linked(file):
    if file.has("rdc"):
        yield "refers to functions and variables of another module"
        return
    yield Run("instantiated", file.entry("instantiated"), block=8).output("s32", [8 + 2 * t for t in range(8)])
    out = [4 * t + 7 + (t ^ 0x1F) + 5 * t + t * ((t & 3) + 1) + 3 + t for t in range(8)]
    yield Run("linked", block=8).output("s32", out)


@kernels("nvcc/debug")
def debug(file):
    n = 12
    a, b = spread(2 * n, -4, 4), spread(2 * n, -5, 5, 3)
    points = [list(zip(p[::2], p[1::2])) for p in (a, b)]
    out = []
    for p, q in zip(*points):
        best = max(max(p[0] ** 2 + p[1] ** 2, r[0] ** 2 + r[1] ** 2) for r in points[1])
        out.append(best + p[0] * q[0] + p[1] * q[1])
    yield Run("points", grid=2, block=8).input("f32", a).input("f32", b).output("f32", out).value("s32", n)


@kernels("nvcc/textures")
def textures(file):
    yield "uses textures and surfaces, which the simulated GPU does not have"


@kernels("nvcc/dependent_launch")
def dependent_launch(file):
    a = spread(32, -9, 9)
    yield Run("first").input("s32", a).output("s32", [v + 1 for v in a])
    yield Run("second").input("s32", a).output("s32", [v * 2 * t for t, v in enumerate(a)])
