"""Runs the plans of `attention_plans DIR packed`: packed batches of uneven sequences.

    cargo run -p heist-bench --bin attention_plans -- DIR packed
    python3 bench/kernels/packed.py DIR [--rounds N] [--peer NAME]

Every plan is compared with attention in f64, sequence by sequence, on poisoned outputs, and twice: the bits
are the same. Then all plans of a batch are timed in turns, each sample a captured graph over inputs that
rotate. With --peer, a peer alone is run: PyTorch's kernel for packed sequences (`flash`), or its
`varlen_attn` (`varlen`). Peers have processes of their own, since one that fails while a graph is captured
leaves the process useless.
"""

import argparse
import inspect
import json
import os

import torch

from attention_plans import Arm, assemble, graph_of, time_all


def starts_of(lengths):
    total = [0]
    for length in lengths:
        total.append(total[-1] + length)
    return torch.tensor(total, dtype=torch.int32, device="cuda")


def inputs_of(problem, dtype, sets):
    rows, heads, dim = sum(problem["lengths"]), problem["heads"], problem["dim"]
    generator = torch.Generator("cuda").manual_seed(1)
    random = lambda: (torch.rand(rows, heads, dim, generator=generator, device="cuda") * 2 - 1).to(dtype)
    return [[random() for _ in range(3)] for _ in range(sets)]


def reference(problem, q, k, v):
    """In f64, a sequence and a piece of its rows at a time."""
    out, begin = torch.empty_like(q, dtype=torch.float64), 0
    for length in problem["lengths"]:
        rows = slice(begin, begin + length)
        keys, values = (t[rows].double().transpose(0, 1) for t in (k, v))
        for first in range(0, length, 1024):
            last = min(first + 1024, length)
            queries = q[begin + first : begin + last].double().transpose(0, 1)
            scores = queries @ keys.transpose(1, 2) / q.shape[2] ** 0.5
            if problem["causal"]:
                own = torch.arange(first, last, device="cuda")
                hidden = torch.arange(length, device="cuda")[None, :] > own[:, None]
                scores = scores.masked_fill(hidden, float("-inf"))
            out[begin + first : begin + last] = (scores.softmax(-1) @ values).transpose(0, 1)
        begin += length
    return out


def peer_of(name, problem, starts, q, k, v):
    longest, causal = max(problem["lengths"]), problem["causal"]
    if name == "varlen":
        from torch.nn.attention.varlen import varlen_attn

        names = inspect.signature(varlen_attn).parameters
        mask = {"is_causal": causal} if "is_causal" in names else {"window_size": (-1, 0 if causal else -1)}
        return lambda: varlen_attn(q, k, v, starts, starts, longest, longest, **mask)
    return lambda: torch.ops.aten._flash_attention_forward(
        q, k, v, starts, starts, longest, longest, 0.0, causal, False
    )[0]


def line(problem, name, time, note=""):
    print(f"  {time:9.2f} us {problem['flops'] / time / 1e6:6.0f} TFLOP/s  {name:28s} {note}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--peer", default="")
    parser.add_argument("--arch", default="sm_90a")
    options = parser.parse_args()
    problems = json.load(open(os.path.join(options.directory, "plans.json")))
    problems = [p for p in problems if p["set"] == "packed" and options.only in p["name"]]
    files = sorted({s["ptx"] for p in problems for a in p["arms"] for s in a["steps"]})
    made = {} if options.peer else assemble(options.directory, files, options.arch)
    for number, problem in enumerate(problems):
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[problem["dtype"]]
        starts = starts_of(problem["lengths"])
        sets = max(1, min(8, int(2e8 / problem["bytes"]) + 1))
        inputs = inputs_of(problem, dtype, sets)
        shape = f"{len(problem['lengths'])} sequences up to {max(problem['lengths'])}"
        print(f"{number}: {problem['name']}, {shape}")
        if options.peer:
            work = [peer_of(options.peer, problem, starts, *one) for one in inputs]
            medians = time_all({options.peer: graph_of(work, sets)}, sets, options.rounds)
            line(problem, options.peer, medians[options.peer])
            continue
        expected = reference(problem, *inputs[0])
        graphs, notes, kept = {}, {}, []
        for arm in problem["arms"]:
            told = [made[step["ptx"]] for step in arm["steps"]]
            used = " ".join("/".join(map(str, one)) for one in told)
            if any(registers is None for registers, _ in told):
                print(f"  {arm['name']}: {used}")
                continue
            arms = []
            for q, k, v in inputs:
                given = {"q": q, "k": k, "v": v, "q_starts": starts, "k_starts": starts}
                given["out"] = torch.empty_like(q)
                arms.append(Arm(options.directory, arm, given))
            found = []
            for _ in range(2):
                arms[0].buffers["out"].view(torch.uint8).fill_(255)
                arms[0]()
                torch.cuda.synchronize()
                found.append(arms[0].buffers["out"].clone())
            error = ((found[0].double() - expected).norm() / expected.norm()).item()
            wrong = "" if error <= 2.5e-3 else "  WRONG"
            wrong += "" if torch.equal(found[0].view(torch.uint8), found[1].view(torch.uint8)) else "  OTHER BITS"
            notes[arm["name"]] = f"error {error:.1e}{wrong} {arm['plan'].split(': ', 1)[-1]} (regs/spills {used})"
            graphs[arm["name"]] = graph_of(arms, sets)
            kept.append(arms)
        del expected
        for name, time in sorted(time_all(graphs, sets, options.rounds).items(), key=lambda one: one[1]):
            line(problem, name, time, notes[name])
        del graphs, kept, inputs
        torch.cuda.empty_cache()


main()
