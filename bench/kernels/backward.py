"""Runs the gradients of `attention_plans` beside PyTorch's cuDNN and flash backends.

    cargo run -p heist-bench --bin attention_plans -- DIR backward
    python3 bench/kernels/backward.py DIR [--set backward|cut|grid] [--beside OTHER] [--rounds N] [--only TEXT] [--runs N]

Every gradient of one key head of full size, or of all of them where that is little, is compared with f64, and so are those of PyTorch's
own products of bf16, which are added up in f32, and of the two backends. Then all are timed in turns, unless `--rounds` is 0.
With `--runs` the deterministic form is run that often, beside other work in every second run, and
its bits are compared on the GPU. `--beside` adds the plans of other folders (`A,B`), of the same set.
"""

import argparse
import json
import os
import statistics

import torch

from attention_plans import Arm, assemble

ATEN = torch.ops.aten


def inputs_of(problem):
    """Queries, keys, values and the gradient of the results; results and log-sum-exps."""
    shape = tuple(problem[name] for name in ("batch", "heads", "queries", "dim"))
    keys = tuple(problem[name] for name in ("batch", "kv_heads", "queries", "dim"))
    generator = torch.Generator("cuda").manual_seed(3)
    random = lambda shape: torch.randn(shape, generator=generator, device="cuda").to(torch.bfloat16)
    q, k, v, d_out = (random(of) for of in (shape, keys, keys, shape))
    wide = (one.repeat_interleave(problem["heads"] // problem["kv_heads"], 1) for one in (k, v))
    out, lse = ATEN._scaled_dot_product_flash_attention(q, *wide, 0.0, problem["causal"], False)[:2]
    # It pads heads of some sizes, and keeps them so.
    out, lse = out[..., : shape[-1]].contiguous(), lse[..., : shape[-2]].contiguous()
    return q, k, v, out, d_out, lse


def flash(q, k, v, out, d_out, lse, causal):
    given = ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
    _, _, cum_q, cum_k, max_q, max_k, seed, offset, _ = given
    back = ATEN._scaled_dot_product_flash_attention_backward
    return lambda: back(d_out, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset)


def cudnn(q, k, v, out, d_out, lse, causal):
    given = ATEN._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
    _, own, cum_q, cum_k, max_q, max_k, seed, offset, _ = given
    back, lse = ATEN._scaled_dot_product_cudnn_attention_backward, lse.view_as(own)
    return lambda: back(d_out, q, k, v, out, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, causal)


def group_of(q, k, v, d_out, causal, dtype):
    """Gradients of some query heads and of the key head that they share."""
    each = [plain(q[h], k, v, d_out[h], causal, dtype) for h in range(q.shape[0])]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    dq, dk, dv = zip(*each)
    return [torch.stack(dq)] + [sum(one.to(wide) for one in many) for many in (dk, dv)]


def plain(q, k, v, d_out, causal, dtype):
    """Gradients of one head by formula, every product in `dtype`."""
    q, k, v, d_out = (one.to(dtype) for one in (q, k, v, d_out))
    scale = q.shape[-1] ** -0.5
    scores = q @ k.T * scale
    if causal:
        rows = torch.arange(q.shape[0], device="cuda")
        scores.masked_fill_(rows[None, :] > rows[:, None], float("-inf"))
    wide = dtype if dtype == torch.float64 else torch.float32
    weights = scores.softmax(-1, dtype=wide).to(dtype)
    del scores
    dv = weights.T @ d_out
    d_weights = d_out @ v.T
    delta = (d_out.to(wide) * (weights @ v).to(wide)).sum(-1, keepdim=True)
    d_scores = (weights * (d_weights - delta)).to(dtype)
    del weights, d_weights
    return d_scores @ k * scale, d_scores.T @ q * scale, dv


def errors(found, right):
    """Of each gradient the relative norm of its error, and the largest."""
    found = [one.double() for one in found]
    norms = [((one - other).norm() / other.norm()).item() for one, other in zip(found, right)]
    most = [(one - other).abs().max().item() for one, other in zip(found, right)]
    return norms, most


def gradients(arm, q, k):
    return [arm.buffers[name].view(torch.bfloat16).view_as(like) for name, like in (("dq", q), ("dk", k), ("dv", k))]


def heads_of(problem, tensors):
    """The part of gradients or operands that is compared: the last key head's, or those of all, one behind the other."""
    group = problem["heads"] // problem["kv_heads"]
    few = problem["batch"] * problem["heads"] * problem["queries"] ** 2 <= 1 << 27
    places = [(b, h) for b in range(problem["batch"]) for h in range(problem["kv_heads"])] if few else [(-1, problem["kv_heads"] - 1)]
    # Queries and their gradient come first, the gradient of results fourth.
    own = lambda at, t, b, h: t[b, h * group : (h + 1) * group] if at in (0, 3) else t[b, h]
    return [[own(at, t, b, h) for at, t in enumerate(tensors)] for b, h in places]


def joined(problem, heads):
    """Gradients of several key heads, each as one tensor."""
    shape = -1, problem["queries"], problem["dim"]
    return [torch.cat([one.reshape(shape) for one in many]) for many in zip(*heads)]


def time_all(work, rounds):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = {name: [] for name in work}
    for turn in range(-2, rounds):
        for name, one in work.items():
            torch.cuda._sleep(200_000)
            start.record()
            one()
            one()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[name].append(start.elapsed_time(end) * 1e3 / 2)
    return {name: statistics.median(samples) for name, samples in times.items()}


def same_bits(arm, q, k, runs):
    """Of how many runs the bits differ from those of the first."""
    arm()
    first = [one.view(torch.int16).clone() for one in gradients(arm, q, k)]
    differing = torch.zeros((), dtype=torch.int64, device="cuda")
    other, stream = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16), torch.cuda.Stream()
    for run in range(runs):
        for name in ("dq", "dk", "dv"):
            arm.buffers[name].fill_(255)
        if run % 2:
            # Takes multiprocessors away for a moment, so that blocks come in other orders.
            with torch.cuda.stream(stream):
                for _ in range(1 + run % 5):
                    other @ other
        arm()
        found = [one.view(torch.int16) for one in gradients(arm, q, k)]
        differing += ~torch.stack([(a == b).all() for a, b in zip(first, found)]).all()
    return differing.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--set", default="backward")
    parser.add_argument("--beside", default="")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    folders = [options.directory] + [other for other in options.beside.split(",") if other]
    read = lambda folder: json.load(open(os.path.join(folder, "plans.json")))
    problems = [(folder, p) for folder in folders for p in read(folder) if p["set"] == options.set and options.only in p["name"]]
    made = {}
    for folder in folders:
        files = sorted({s["ptx"] for at, p in problems if at == folder for a in p["arms"] for s in a["steps"]})
        made[folder] = assemble(folder, files, options.arch)
        print(folder, "registers/spills", " ".join("/".join(map(str, one)) for one in made[folder].values()))
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    for problem in [p for folder, p in problems if folder == folders[0]]:
        q, k, v, out, d_out, lse = inputs_of(problem)
        causal = problem["causal"]
        operands = heads_of(problem, (q, k, v, d_out))
        by_formula = lambda dtype: joined(problem, [group_of(*one, causal, dtype) for one in operands])
        right = by_formula(torch.float64)
        own, own_most = errors(by_formula(torch.bfloat16), right)
        print(f"{problem['name']}   us, TFLOP/s, against cuDNN, relative norm of dQ dK dV, largest error")
        print(f"  {'products of bf16':28s} {'':27s}" + " ".join(f"{n:.2e}" for n in own + own_most))
        work, told, arms = {}, {}, {}
        starts = torch.zeros(1, dtype=torch.int32, device="cuda")
        buffers = {"q": q, "k": k, "v": v, "out": out, "d_out": d_out, "lse": lse, "q_starts": starts, "k_starts": starts}
        for folder, same in problems:
            if same["name"] != problem["name"]:
                continue
            for arm in same["arms"]:
                name = arm["name"] + ("" if folder == folders[0] else f" {folder}")
                arms[name] = work[name] = Arm(folder, arm, buffers)
                work[name]()
                torch.cuda.synchronize()
                found = gradients(work[name], q, k)
                nan = any(not torch.isfinite(g).all().item() for g in found)
                norms, most = errors(joined(problem, heads_of(problem, found)), right)
                within = all(a <= 2 * b for a, b in zip(norms + most, own + own_most))
                told[name] = " ".join(f"{n:.2e}" for n in norms + most) + ("" if within else "  OVER TWICE") + ("  NAN" if nan else "")
        for name, make in (("cudnn", cudnn), ("flash", flash)):
            if options.rounds == 0 or (name == "flash" and problem["heads"] != problem["kv_heads"]):
                continue
            try:
                work[name] = make(q, k, v, out, d_out, lse, causal)
                norms, most = errors(joined(problem, heads_of(problem, work[name]())), right)
                told[name] = " ".join(f"{n:.2e}" for n in norms + most)
            except RuntimeError as failure:
                work.pop(name, None)
                print(f"  {name}: {str(failure).splitlines()[0]}")
        del right
        if options.rounds == 0:
            for name, line in told.items():
                print(f"  {name[:28]:28s} {'':27s}{line}")
        medians = time_all(work, options.rounds) if options.rounds else {}
        for name, time in medians.items():
            rate = 2.5 * problem["flops"] / time / 1e6
            print(f"  {name[:28]:28s} {time:9.1f} {rate:6.1f} {medians.get('cudnn', float('nan')) / time:6.3f}    {told[name]}")
        if options.runs:
            for name, arm in arms.items():
                if name.startswith("deterministic"):
                    print(f"  {name}: {same_bits(arm, q, k, options.runs)} of {options.runs} runs have other bits", flush=True)
        del work, arms, q, k, v, out, d_out, lse
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
