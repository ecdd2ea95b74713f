"""tcgen05.mma.ws: results of 32, 64 and 128 rows by 64 columns, which stand in lanes and columns as the pictures of the book show them."""

from .file import File, listing
from .tensor_memory import DEPTH, ENCODE, idesc, kernel, operand, run
from .warpgroup import ints, product

N = 64
# Columns of tensor memory, and which row and column of the result a cell holds.
WIDTH = {128: 64, 64: 32, 32: 16}


def held(m, lane, column):
    return lane % m, column + WIDTH[m] * (lane // m)


def case(f, entry, name, m, kind, ab, d="f32", swizzles=(None, None), accumulate=True):
    depth, width = DEPTH[kind], WIDTH[m]
    a, b = ints(name + "a", m, depth), ints(name + "b", depth, N)
    # Sums that are there before, where there are few.
    c = ints(name + "c", 128, width, -9, 9) if m == 32 else [[0] * width] * 128
    whole = product(a, b)
    result = []
    for lane in range(128):
        for column in range(width):
            row, at = held(m, lane, column)
            result.append(ENCODE[d](whole[row][at] + (c[lane][column] if accumulate else 0)))
    aw, da = operand(a, ab, "k", swizzles[0])
    bw, db = operand([list(line) for line in zip(*b)], ab, "k", swizzles[1])
    given = [ENCODE[d](v) for line in c for v in line]
    run(f, name, entry,
        [f"in:{listing('u32', aw)}", f"u32:{len(aw)}", f"u64:0x{da:016x}", f"in:{listing('u32', bw)}", f"u32:{len(bw)}", f"u64:0x{db:016x}",
         f"in:{listing(d, given)}", f"u32:0x{idesc(m, N, ab, ab, d):08x}", f"u32:{int(accumulate)}", f"out:{d}:{len(result)}"],
        [f"9 {listing(d, result)}"])


def files():
    f = File("tcgen05/product_ws", "tcgen05.mma.ws: where results of 32, 64 and 128 rows stand.", target="sm_100a", version="8.6")
    for m, kind, ab, d in ((128, "f16", "f16", "f32"), (64, "f16", "bf16", "f32"), (32, "f16", "f16", "f32"), (32, "i8", "s8", "s32"), (64, "f8f6f4", "e4m3", "f32"), (64, "tf32", "tf32", "f32")):
        name = f"{ab}_{m}"
        kernel(f, name, WIDTH[m], kind)
        f.blocks[-1] = f.blocks[-1].replace("tcgen05.mma.cta_group", "tcgen05.mma.ws.cta_group")
        case(f, name, "adds", m, kind, ab, d, swizzles=(32, 128))
        if m == 32 and kind == "f16":
            case(f, name, "replaces", m, kind, ab, d, accumulate=False)
    yield f
