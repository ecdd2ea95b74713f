"""Problems drawn at random from every operation, through PyTorch, beside the best that PyTorch has.

On a GPU with PyTorch and the package: ``python bench/kernels/survey --seed 1 --seconds 240 --only bmm,decode``. No problem is
named in advance: each kind draws its sizes, types and layouts from what models have, so that what is slow where nobody looked shows.

Each call is one of a graph whose calls go through sets of inputs larger than L2 together; ours and each peer's take turns. A line
has our speed over the fastest peer's, the relative norm of our error against f32 or f64 and the peer's own.
"""

import argparse
import math
import random
import time

import attentions
import products
import torch

# Sets of inputs together take at least so many bytes: twice the L2 of an H200.
ROTATED = 120 << 20


KINDS = {
    "mm": products.product, "tf32": products.single, "odd": products.odd, "linear": products.linear, "addmm": products.added,
    "layer": products.layer, "bmm": products.batch, "scaled_mm": products.tiny, "blocks": products.blocks,
    "grouped_mm": products.groups, "experts": products.experts,
    "attention": attentions.attention, "views": attentions.views, "decode": attentions.decode, "packed": attentions.packed,
    "masked": attentions.masked, "window": attentions.window, "gradients": attentions.gradients,
    "changed": attentions.changed_gradients, "packed_grad": attentions.packed_gradients, "views_grad": attentions.views_gradients,
}  # fmt: skip


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
    arms, errors, results, said = {}, {}, {}, {}
    for name, call in {"heist": case.ours, **case.peers}.items():
        try:
            errors[name] = error(call(*sets[0]), right)
            arms[name], results[name] = capture(call, sets)
        except (RuntimeError, NotImplementedError, ValueError) as refused:
            torch.cuda.synchronize()
            said[name] = str(refused).strip().splitlines()[0][:120]
            if name == "heist":
                return f"{case.kind:10} {case.told}: refused: {said[name]}", None
    if len(arms) < 2:
        return f"{case.kind:10} {case.told}: no peer: {said}", None
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
    # A peer that is wrong itself is no measure.
    bound = 1.5 * min(errors[best], 5e-3) + 1e-3 if errors[best] == errors[best] else 8.5e-3
    wrong = "" if errors["heist"] < bound else "  WRONG"
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
