#!/usr/bin/env python3
"""Runs our own kernels on random problems, on simulated GPUs of sm_80, sm_90 and sm_100.

    python3 corpus/shapes.py [--problems N] [--seed S] [--at-a-time N] [HEIST]    # HEIST is target/debug/heist unless told

Each result must be right, and the checker must say nothing. Problems that no kernel of a device takes are counted
apart, with what is said of them. The status is 1 if a result was wrong or something was found.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

DEVICES = ("a100", "h200", "b200")
SCHEDULES = ([], [], ["--policy", "max-steals(2)"], ["--source", "ticket", "--policy", "first-half"])


def gemm(dice, device):
    words = {"m": dice.randint(1, 300), "n": dice.randint(1, 300), "k": dice.randint(1, 400)}
    if dice.random() < 0.6:
        words.update({name: -(-size // 16) * 16 for name, size in words.items()})
    words["dtype"] = dice.choice(("bf16", "f16", "tf32", "e4m3", "e5m2"))
    words["layout"] = dice.choice(("nn", "nt", "tn", "tt"))
    words["out"] = dice.choice(("bf16", "f16", "f32"))
    words["batch"] = dice.choice((1, 1, 2))
    words["activation"] = dice.choice(("none", "relu", "gelu", "silu"))
    words["bias"] = dice.choice(("true", "false"))
    if words["dtype"].startswith("e"):
        words["layout"] = "nt"
        words["scales"] = dice.choice(("none", "tensor", "rows", "blocks", "mx"))
    return words


def grouped_gemm(dice, device):
    rows = [dice.choice((0, dice.randint(1, 40), dice.randint(1, 200))) for _ in range(dice.randint(1, 6))]
    words = {"rows": ",".join(map(str, rows)), "n": 8 * dice.randint(1, 40), "k": 8 * dice.randint(1, 40)}
    words["dtype"] = dice.choice(("bf16", "f16", "e4m3"))
    words["layout"] = "nt" if words["dtype"] == "e4m3" else dice.choice(("nn", "nt"))
    return words


def sequences(dice):
    words = {"heads": dice.choice((1, 2, 4)), "dim": dice.choice((32, 64, 128))}
    words["kv-heads"] = dice.choice((1, words["heads"]))
    words["dtype"] = dice.choice(("f16", "bf16"))
    words["mask"] = dice.choice(("full", "causal", "window(50,10)"))
    words["layout"] = dice.choice(("heads", "rows"))
    if dice.random() < 0.3:
        words["lengths"] = ",".join(str(dice.randint(1, 200)) for _ in range(dice.randint(1, 3)))
    else:
        words.update({"batch": dice.randint(1, 2), "queries": dice.randint(1, 200), "keys": dice.randint(1, 300)})
    return words


def attention(dice, device):
    words = sequences(dice)
    words["alibi"] = dice.choice(("true", "false"))
    words["sinks"] = dice.choice(("true", "false"))
    if dice.random() < 0.3:
        words["softcap"] = 20
    return words


def decode(dice, device):
    words = {"batch": dice.randint(1, 3), "heads": 8, "kv-heads": dice.choice((1, 2, 8)), "queries": dice.randint(1, 3)}
    return {**words, "keys": dice.randint(1, 900), "dim": dice.choice((64, 128)), "mask": "causal"}


def attention_backward(dice, device):
    return {**sequences(dice), "deterministic": dice.choice(("true", "false"))}


def experts(dice, device):
    slots = [2 * dice.randint(0, 30) for _ in range(dice.randint(2, 5))]
    return {"rows": ",".join(map(str, slots)), "hidden": 64 * dice.randint(1, 3), "inner": 64 * dice.randint(1, 3)}


FAMILIES = {
    "gemm": (gemm, 5),
    "grouped-gemm": (grouped_gemm, 3),
    "attention": (attention, 4),
    "attention-backward": (attention_backward, 2),
    "experts": (experts, 1),
}


def problem(seed):
    """A kernel, where it runs and what it is asked, as words of `heist run`."""
    dice = random.Random(seed)
    device = dice.choice(DEVICES)
    name = dice.choices(list(FAMILIES), [weight for _, weight in FAMILIES.values()])[0]
    draw = decode if name == "attention" and dice.random() < 0.3 else FAMILIES[name][0]
    words = [f"{key}={value}" for key, value in draw(dice, device).items()]
    return [name, *words, f"seed={seed}", *dice.choice(SCHEDULES), "--device", f"sim:{device}"]


def run(heist, words):
    """`silent`, `refused`, or `failed`, and what was said."""
    done = subprocess.run([heist, "run", *words, "--json"], capture_output=True, text=True)
    try:
        told = json.loads(done.stdout)
        if done.returncode == 2:
            return "refused", told["error"]
        found = [one["code"] for step in told["steps"] for one in step["diagnostics"]]
        silent = done.returncode == 0 and told["right"] and not found
    except (ValueError, KeyError):
        return "failed", f"status {done.returncode}: {done.stderr.strip()}"
    return ("silent", "") if silent else ("failed", f"right: {told['right']}, found: {', '.join(found) or 'nothing'}")


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--problems", type=int, default=300)
    asked.add_argument("--seed", type=int, default=1, help="of the first problem")
    asked.add_argument("--at-a-time", type=int, default=2)
    asked.add_argument("heist", nargs="?", default="target/debug/heist")
    asked = asked.parse_args()
    counts, reasons = Counter(), Counter()
    problems = [problem(seed) for seed in range(asked.seed, asked.seed + asked.problems)]
    with ThreadPoolExecutor(asked.at_a_time) as pool:
        for words, (fate, told) in zip(problems, pool.map(lambda words: run(asked.heist, words), problems)):
            counts[words[-1].removeprefix("sim:"), words[0], fate] += 1
            if fate == "failed":
                print(f"{' '.join(words)}: {told}", flush=True)
            if fate == "refused":
                reasons[told[:160]] += 1
    for reason, count in reasons.most_common():
        print(f"refused, {count}: {reason}")
    for (device, family, fate), count in sorted(counts.items()):
        print(f"{device} {family}: {count} {fate}")
    total = Counter()
    for (_, _, fate), count in counts.items():
        total[fate] += count
    print(f"{total['silent']} right and silent, {total['failed']} not, {total['refused']} that no kernel takes")
    return int(total["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
