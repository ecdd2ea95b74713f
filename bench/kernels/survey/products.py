"""Products: of matrices, in batches, in groups, layers with their gradients, experts."""

import math

import heist.torch as ht
import torch
import torch.nn.functional as F
from problem import Case, random_of, stored, uniform


def product(rng):
    dtype = rng.choice([torch.bfloat16, torch.bfloat16, torch.float16])
    m, n, k = random_of(rng, 1, 8192, 1), random_of(rng, 64, 16384, 8), random_of(rng, 64, 16384, 8)
    m = m // 8 * 8 if m > 64 else m
    ways = rng.choice(["nn", "nt", "nt", "tn", "tt"]) if m % 8 == 0 else rng.choice(["nn", "nt"])
    return Case(
        "mm", f"{m} {n} {k} {ways} {dtype}",
        lambda: (stored(m, k, ways[0] == "t", dtype), stored(k, n, ways[1] == "t", dtype)),
        ht.mm, {"cublas": torch.mm}, lambda a, b: a.float() @ b.float(), 2 * (m * k + k * n + m * n),
    )  # fmt: skip


def single(rng):
    """tf32."""
    m, n, k = (random_of(rng, 16, 6144, 8) for _ in range(3))
    ways = rng.choice(["nn", "nt", "nn", "nt", "tn", "tt"])
    return Case(
        "tf32", f"{m} {n} {k} {ways}",
        lambda: (stored(m, k, ways[0] == "t", torch.float32), stored(k, n, ways[1] == "t", torch.float32)),
        ht.mm, {"cublas": torch.mm}, lambda a, b: (a.double() @ b.double()).float(), 4 * (m * k + k * n + m * n),
    )  # fmt: skip


def linear(rng):
    m, n, k = random_of(rng, 1, 8192, 1), random_of(rng, 128, 16384, 8), random_of(rng, 128, 16384, 8)
    act = rng.choice(["none", "relu", "gelu", "silu"])
    theirs = {"none": lambda y: y, "relu": F.relu, "gelu": lambda y: F.gelu(y, approximate="tanh"), "silu": F.silu}[act]
    return Case(
        "linear", f"{m} {n} {k} {act}", lambda: (uniform(m, k), uniform(n, k), uniform(n)),
        lambda x, w, b: ht.linear(x, w, b, activation=act), {"cublas": lambda x, w, b: theirs(F.linear(x, w, b))},
        lambda x, w, b: theirs(F.linear(x.float(), w.float(), b.float())), 2 * (m * k + k * n + m * n),
    )  # fmt: skip


def batch(rng):
    dtype = rng.choice([torch.bfloat16, torch.float16])
    count = random_of(rng, 2, 256, 1)
    m, n, k = (random_of(rng, 16, 4096, 8) for _ in range(3))
    while count * (m * k + k * n + m * n) > 1 << 29 or count * m * n * k > 1 << 39:
        m, n, k = (random_of(rng, 16, 4096, 8) for _ in range(3))
    ways = rng.choice(["nn", "nt", "tn"])
    return Case(
        "bmm", f"{count} x {m} {n} {k} {ways} {dtype}",
        lambda: (stored(m, k, ways[0] == "t", dtype, (count,)), stored(k, n, ways[1] == "t", dtype, (count,))),
        ht.bmm, {"cublas": torch.bmm}, lambda a, b: a.float() @ b.float(), 2 * count * (m * k + k * n + m * n),
    )  # fmt: skip


def tiny(rng):
    """8-bit floats, with a factor for each tensor, or for each row and column."""
    m, n, k = random_of(rng, 16, 8192, 16), random_of(rng, 128, 16384, 16), random_of(rng, 128, 16384, 16)
    rows, fast = rng.random() < 0.5, rng.random() < 0.7
    e4m3 = torch.float8_e4m3fn

    def make():
        factors = (torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")) if rows else tuple(torch.rand((), device="cuda") for _ in "ab")
        return (uniform(m, k, dtype=e4m3), uniform(n, k, dtype=e4m3).t(), *factors)

    return Case(
        "scaled_mm", f"{m} {n} {k} {'rows' if rows else 'tensor'} {'fast' if fast else 'levels'}", make,
        lambda a, b, s, t: ht.scaled_mm(a, b, s, t, use_fast_accum=fast),
        {"cublas": lambda a, b, s, t: torch._scaled_mm(a, b, s, t, out_dtype=torch.bfloat16, use_fast_accum=fast)},
        lambda a, b, s, t: (a.float() @ b.float()) * s * t, m * k + k * n + 2 * m * n,
    )  # fmt: skip


def groups(rng):
    count = random_of(rng, 2, 160, 1)
    total = random_of(rng, count, 32768, 1)
    n, k = random_of(rng, 256, 8192, 64), random_of(rng, 256, 8192, 64)
    while count * n * k > 1 << 31:
        n, k = random_of(rng, 256, 8192, 64), random_of(rng, 256, 8192, 64)
    skew = rng.choice([0.0, 0.5, 1.5])
    weights = [math.exp(rng.gauss(0, skew)) for _ in range(count)]
    ends = [int(round(total * sum(weights[: i + 1]) / sum(weights))) for i in range(count)]

    def right(a, b, offs):
        parts, begin = [], 0
        for group, end in enumerate(ends):
            parts.append(a[begin:end].float() @ b[group].float())
            begin = end
        return torch.cat(parts)

    return Case(
        "grouped_mm", f"{count} of {total} rows, skew {skew}, {n} {k}",
        lambda: (uniform(ends[-1], k), uniform(count, n, k).transpose(1, 2), torch.tensor(ends, device="cuda", dtype=torch.int32)),
        lambda a, b, offs: ht.grouped_mm(a, b, offs=offs), {"torch": lambda a, b, offs: torch._grouped_mm(a, b, offs=offs)},
        right, 2 * (ends[-1] * (n + k) + count * n * k),
    )  # fmt: skip


def part(rows, columns, turned, dtype, begin):
    """A view inside of a larger matrix, whose rows begin at any element."""
    whole = stored(rows + 3, columns + 8 + begin, turned, dtype)
    return whole[:rows, begin : begin + columns]


def odd(rng):
    """Any number of rows, columns and depth, and views inside of larger matrices: strides that no tensor map takes."""
    dtype = rng.choice([torch.bfloat16, torch.float16, torch.float32])
    m, n, k = random_of(rng, 1, 6144, 1), random_of(rng, 16, 8192, 1), random_of(rng, 16, 8192, 1)
    ways, inside = rng.choice(["nn", "nt", "tn", "tt"]), rng.choice([None, None, 0, 1, 4])

    def make():
        if inside is None:
            return stored(m, k, ways[0] == "t", dtype), stored(k, n, ways[1] == "t", dtype)
        return part(m, k, ways[0] == "t", dtype, inside), part(k, n, ways[1] == "t", dtype, inside)

    return Case(
        "odd", f"{m} {n} {k} {ways} {dtype}{'' if inside is None else f' inside, at {inside}'}", make,
        ht.mm, {"cublas": torch.mm}, lambda a, b: (a.double() @ b.double()).float(), dtype.itemsize * (m * k + k * n + m * n),
    )  # fmt: skip


def added(rng):
    """`addmm`: a matrix, a row or a column that is added, with factors."""
    dtype = rng.choice([torch.bfloat16, torch.float16])
    m, n, k = random_of(rng, 1, 8192, 1), random_of(rng, 64, 8192, 8), random_of(rng, 64, 8192, 8)
    of, ways = rng.choice([(m, n), (m, n), (n,), (m, 1)]), rng.choice(["n", "t"])
    alpha, beta = rng.choice([(1.0, 1.0), (1.0, 1.0), (0.5, 2.0)])
    return Case(
        "addmm", f"{m} {n} {k} n{ways} {dtype} + {' x '.join(map(str, of))} {alpha} {beta}",
        lambda: (uniform(*of, dtype=dtype), uniform(m, k, dtype=dtype), stored(k, n, ways == "t", dtype)),
        lambda c, a, b: ht.addmm(c, a, b, alpha=alpha, beta=beta), {"cublas": lambda c, a, b: torch.addmm(c, a, b, alpha=alpha, beta=beta)},
        lambda c, a, b: beta * c.float() + alpha * (a.float() @ b.float()), 2 * (m * k + k * n + 2 * m * n),
    )  # fmt: skip


def layer(rng):
    """A linear layer and its gradients."""
    dtype = rng.choice([torch.bfloat16, torch.float16])
    m, n, k = random_of(rng, 16, 16384, 8), random_of(rng, 128, 8192, 8), random_of(rng, 128, 8192, 8)
    act = rng.choice(["none", "none", "relu", "gelu", "silu"])
    theirs = {"none": lambda y: y, "relu": F.relu, "gelu": lambda y: F.gelu(y, approximate="tanh"), "silu": F.silu}[act]

    def make():
        return (*(t.requires_grad_() for t in (uniform(m, k, dtype=dtype), uniform(n, k, dtype=dtype), uniform(n, dtype=dtype))),
                uniform(m, n, dtype=dtype))  # fmt: skip

    def both(forward):
        def call(x, w, b, d):
            return torch.cat([g.flatten() for g in torch.autograd.grad(forward(x, w, b), (x, w, b), d)])

        return call

    return Case(
        "layer", f"{m} {n} {k} {act} {dtype}", make, both(lambda x, w, b: ht.linear(x, w, b, activation=act)),
        {"cublas": both(lambda x, w, b: theirs(F.linear(x, w, b)))},
        both(lambda x, w, b: theirs(F.linear(x.float(), w.float(), b.float()))), 4 * (m * k + k * n + m * n),
    )  # fmt: skip


def blocks(rng):
    """8-bit floats with a factor for each row and 128 of the depth, and for each block of 128 x 128."""
    m, n, k = random_of(rng, 16, 8192, 16), random_of(rng, 128, 16384, 128), random_of(rng, 128, 16384, 128)
    e4m3, deep = torch.float8_e4m3fn, k // 128

    def make():
        # Those of B have room for a multiple of four along the depth, which cuBLAS reads.
        left, right = torch.rand(deep, m, device="cuda").t(), torch.rand(n // 128, -(-deep // 4) * 4, device="cuda").t()
        return uniform(m, k, dtype=e4m3), uniform(n, k, dtype=e4m3).t(), left, right

    def right(a, b, s, t):
        t = t[:deep].repeat_interleave(128, 0).repeat_interleave(128, 1)
        return (a.float() * s.repeat_interleave(128, 1)) @ (b.float() * t)

    def cublas(a, b, s, t):
        # Not torch._scaled_mm, which takes no such room, and is wrong without it.
        kinds = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
        return F.scaled_mm(a, b, s, kinds[0], t, kinds[1], output_dtype=torch.bfloat16)

    return Case("blocks", f"{m} {n} {k}", make, ht.scaled_mm, {"cublas": cublas}, right, m * k + k * n + 2 * m * n)


def experts(rng):
    """A layer of experts, beside PyTorch's pieces of it; which token goes where is sorted inside of both."""
    count = rng.choice([4, 8, 16, 32, 64, 128, 256])
    per = rng.choice([1, 2, 4, 6, 8])
    per = min(per, count)
    tokens, hidden, inner = random_of(rng, 1, 16384, 1), random_of(rng, 512, 7168, 128), random_of(rng, 256, 8192, 128)
    while count * hidden * inner > 1 << 30:
        hidden, inner = random_of(rng, 512, 7168, 128), random_of(rng, 256, 8192, 128)
    while tokens * per * hidden * inner > 1 << 39:
        tokens //= 2
    favour = torch.tensor([math.exp(rng.gauss(0, 1.0)) for _ in range(count)], device="cuda")

    def make():
        ids = torch.multinomial(favour.expand(tokens, count), per)
        return (uniform(tokens, hidden), uniform(count, 2 * inner, hidden), uniform(count, hidden, inner),
                torch.softmax(torch.rand(tokens, per, device="cuda"), -1), ids)  # fmt: skip

    def pieces(x, w1, w2, weights, ids):
        chosen, order = ids.flatten().sort(stable=True)
        ends = torch.searchsorted(chosen, torch.arange(count, device="cuda"), right=True, out_int32=True)
        pair = torch._grouped_mm(x[order // per], w1.transpose(1, 2), offs=ends)
        left, right = pair.chunk(2, dim=-1)
        rows = torch._grouped_mm(F.silu(left) * right, w2.transpose(1, 2), offs=ends) * weights.flatten()[order, None].bfloat16()
        return torch.zeros_like(x).index_add_(0, order // per, rows)

    def right(x, w1, w2, weights, ids):
        out = torch.zeros(tokens, hidden, device="cuda")
        for expert in range(count):
            token, slot = (ids == expert).nonzero(as_tuple=True)
            left, right = (x[token].float() @ w1[expert].float().t()).chunk(2, dim=-1)
            out.index_add_(0, token, (F.silu(left) * right) @ w2[expert].float().t() * weights[token, slot, None])
        return out

    return Case(
        "experts", f"{tokens} tokens, {per} of {count}, {hidden} {inner}", make, ht.fused_experts, {"pieces": pieces},
        right, 2 * (3 * count * inner * hidden + 2 * tokens * hidden),
    )  # fmt: skip
