"""Problems drawn at random from every operation, through PyTorch, beside the best that PyTorch has.

On a GPU with PyTorch and the package: ``python bench/kernels/survey.py --seed 1 --seconds 240 --only bmm,decode``. No problem is
named in advance: each kind draws its sizes, types and layouts from what models have, so that what is slow where nobody looked shows.

Each call is one of a graph whose calls go through sets of inputs larger than L2 together; ours and each peer's take turns. A line
has our speed over the fastest peer's, the relative norm of our error against f32 or f64 and the peer's own.
"""

import argparse
import math
import random
import time

import heist.torch as ht
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# Sets of inputs together take at least so many bytes: twice the L2 of an H200.
ROTATED = 120 << 20


class Case:
    """A problem: how to make its inputs, our call, the peers' calls by name, and what is right."""

    def __init__(self, kind, told, make, ours, peers, right, bytes_of):
        self.kind, self.told, self.make, self.ours, self.peers = kind, told, make, ours, peers
        self.right, self.bytes = right, bytes_of


def random_of(rng, least, most, step):
    """A size whose logarithm is even between two bounds."""
    size = math.exp(rng.uniform(math.log(least), math.log(most)))
    return max(least, int(size) // step * step)


def uniform(*shape, dtype=torch.bfloat16):
    return (torch.rand(*shape, device="cuda") * 2 - 1).to(dtype)


def stored(rows, columns, turned, dtype, batch=()):
    """A matrix that lies row after row, or column after column."""
    return uniform(*batch, columns, rows, dtype=dtype).transpose(-1, -2) if turned else uniform(*batch, rows, columns, dtype=dtype)


# --- products -------------------------------------------------------------------------------------------


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
    ways = rng.choice(["nn", "nt"])
    return Case(
        "tf32", f"{m} {n} {k} {ways}", lambda: (uniform(m, k, dtype=torch.float32), stored(k, n, ways[1] == "t", torch.float32)),
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


# --- attention ------------------------------------------------------------------------------------------


def dense(q, k, v, causal=False, mask=None):
    """In f32, a head at a time where it is large."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, dim=1).float() for t in (k, v))
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return F.scaled_dot_product_attention(q.float(), k, v, is_causal=causal, attn_mask=mask)


def backend(which, causal, gqa):
    def call(q, k, v):
        with sdpa_kernel(which):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

    return call


def peers(causal, gqa):
    return {
        "cudnn": backend(SDPBackend.CUDNN_ATTENTION, causal, gqa),
        "flash": backend(SDPBackend.FLASH_ATTENTION, causal, gqa),
    }


def heads(rng):
    dim = rng.choice([32, 64, 64, 64, 80, 96, 128, 128, 128, 128, 160, 192, 256])
    group = rng.choice([1, 1, 2, 4, 8])
    return dim, group, rng.choice([1, 2, 4, 8, 16]) * group


def attention(rng):
    dim, group, count = heads(rng)
    causal = rng.random() < 0.5
    rows = random_of(rng, 32, 8192, 1)
    keys = rows if causal or rng.random() < 0.6 else random_of(rng, 32, 8192, 1)
    batches = random_of(rng, 1, 64, 1)
    while batches * count * rows * keys * dim > 1 << 39 or batches * count * max(rows, keys) * dim > 1 << 28:
        batches, count = max(1, batches // 2), max(group, count // 2 // group * group)
        if batches == 1 and count == group:
            rows, keys = rows // 2, keys // 2
    return Case(
        "attention", f"B{batches} H{count}/{count // group} {rows}x{keys} D{dim}{' causal' if causal else ''}",
        lambda: (uniform(batches, count, rows, dim), uniform(batches, count // group, keys, dim), uniform(batches, count // group, keys, dim)),
        lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1),
        peers(causal, group > 1), lambda q, k, v: dense(q, k, v, causal), 4 * batches * dim * (count * rows + count // group * keys),
    )  # fmt: skip


def decode(rng):
    dim = rng.choice([64, 96, 128, 128, 128, 192, 256])
    group = rng.choice([1, 2, 3, 4, 5, 7, 8, 8, 16])
    kv = rng.choice([1, 2, 4, 8, 8, 16])
    rows = rng.choice([1, 1, 1, 1, 2, 4, 7])
    keys, batches = random_of(rng, 64, 131072, 1), random_of(rng, 1, 256, 1)
    while batches * kv * keys * dim > 1 << 29:
        batches, keys = max(1, batches // 2), keys - keys // 3
    return Case(
        "decode", f"B{batches} H{kv * group}/{kv} {rows}x{keys} D{dim}",
        lambda: (uniform(batches, kv * group, rows, dim), uniform(batches, kv, keys, dim), uniform(batches, kv, keys, dim)),
        lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, enable_gqa=group > 1),
        peers(False, group > 1), dense, 4 * batches * dim * kv * (group * rows + keys),
    )  # fmt: skip


def gradients(rng):
    dim = rng.choice([32, 64, 64, 80, 96, 128, 128])
    group = rng.choice([1, 1, 2, 4])
    count, causal = rng.choice([1, 2, 4, 8]) * group, rng.random() < 0.5
    rows, batches = random_of(rng, 64, 8192, 1), random_of(rng, 1, 32, 1)
    while batches * count * rows * rows * dim > 1 << 37:
        batches, rows = max(1, batches // 2), rows - rows // 4

    def make():
        inputs = (uniform(batches, count, rows, dim), uniform(batches, count // group, rows, dim), uniform(batches, count // group, rows, dim))
        return (*(t.requires_grad_() for t in inputs), uniform(batches, count, rows, dim))

    def both(forward):
        def call(q, k, v, d):
            return torch.cat([g.flatten() for g in torch.autograd.grad(forward(q, k, v), (q, k, v), d)])

        return call

    ours = lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)
    return Case(
        "gradients", f"B{batches} H{count}/{count // group} {rows} D{dim}{' causal' if causal else ''}", make, both(ours),
        {name: both(peer) for name, peer in peers(causal, group > 1).items()}, both(lambda q, k, v: dense(q, k, v, causal)),
        8 * batches * dim * rows * (count + count // group),
    )  # fmt: skip


KINDS = {
    "mm": product, "tf32": single, "linear": linear, "bmm": batch, "scaled_mm": tiny, "grouped_mm": groups,
    "attention": attention, "decode": decode, "gradients": gradients,
}  # fmt: skip


# --- measured -------------------------------------------------------------------------------------------


def capture(call, sets):
    """A graph of one call for each set, after the calls that plan and assemble; and the result of the first set, which replays write."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for inputs in sets[:2]:
            call(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = call(*sets[0])
        for inputs in sets[1:]:
            call(*inputs)
    result.detach().fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return graph, result


def sample(graph, replays, calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / (replays * calls)


def error(result, right):
    result, right = result.detach().float(), right.detach().float()
    return ((result - right).norm() / right.norm()).item()


def measure(case, rounds):
    sets = [case.make() for _ in range(max(2, min(24, math.ceil(ROTATED / case.bytes))))]
    right = case.right(*sets[0])
    arms, errors, results = {}, {}, {}
    for name, call in {"heist": case.ours, **case.peers}.items():
        try:
            errors[name] = error(call(*sets[0]), right)
            arms[name], results[name] = capture(call, sets)
        except (RuntimeError, NotImplementedError, ValueError) as refused:
            torch.cuda.synchronize()
            if name == "heist":
                return f"{case.kind:10} {case.told}: refused: {str(refused).splitlines()[0]}", None
    if len(arms) < 2:
        return f"{case.kind:10} {case.told}: no peer", None
    once = {name: sample(graph, 1, len(sets)) for name, graph in arms.items()}
    replays = {name: max(1, min(50, int(1500 / (time * len(sets))))) for name, time in once.items()}
    times = {name: [] for name in arms}
    for turn in range(rounds):
        order = list(arms) if turn % 2 else list(arms)[::-1]
        for name in order:
            times[name].append(sample(arms[name], replays[name], len(sets)))
    medians = {name: sorted(own)[rounds // 2] for name, own in times.items()}
    # Whatever a graph keeps between launches must be as it was.
    errors["heist"] = max(errors["heist"], error(results["heist"], right), key=lambda e: (e != e, e))
    best = min((name for name in medians if name != "heist"), key=medians.get)
    ratio = medians[best] / medians["heist"]
    wrong = "" if errors["heist"] < 1.5 * errors[best] + 1e-3 else "  WRONG"
    others = ", ".join(f"{name} {time:.1f}" for name, time in medians.items() if name != "heist")
    line = f"{case.kind:10} {case.told}: {medians['heist']:.1f} us ({others})  {ratio:.3f}  error {errors['heist']:.1e} ({errors[best]:.1e}){wrong}"
    return line, ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=240.0, help="when to begin no further problem")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, with commas between")
    parser.add_argument("--rounds", type=int, default=7)
    told = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    kinds = told.only.split(",")
    drawn = {kind: random.Random(f"{kind} {told.seed}") for kind in kinds}
    torch.manual_seed(told.seed)
    begun, ratios = time.monotonic(), {kind: [] for kind in kinds}
    while time.monotonic() - begun < told.seconds:
        for kind in kinds:
            case = KINDS[kind](drawn[kind])
            try:
                line, ratio = measure(case, told.rounds)
            except torch.cuda.OutOfMemoryError:
                line, ratio = f"{kind:10} {case.told}: more memory than there is", None
            torch.cuda.empty_cache()
            print(line, flush=True)
            if ratio is not None:
                ratios[kind].append(ratio)
    for kind, own in ratios.items():
        if own:
            mean = math.exp(sum(map(math.log, own)) / len(own))
            print(f"{kind}: {len(own)} problems, {mean:.3f} in the mean, {min(own):.3f} at worst, {sum(r < 0.95 for r in own)} below 0.95")


if __name__ == "__main__":
    main()
