#!/usr/bin/env python3
"""Runs Triton's own tutorials on simulated GPUs of sm_80, sm_90 and sm_100.

    VENV/bin/python corpus/tutorials.py FOLDER [--device a100] [--only 06] [--whole]

FOLDER is `python/tutorials` of a clone of Triton, of the version that is installed. Every tutorial is executed as it is,
with a smaller problem where the text below says so (`--whole`: with its own), without its benchmark and without cuBLAS, which needs a GPU. Each is
right if its own comparison with PyTorch holds. Prints a line for each; the status is 1 if one was wrong, or if something
was found in it that is not a `CompilerWarning`. It needs `tabulate`, which one tutorial prints with.
"""

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path

DEVICES = ("a100", "h200", "b200")
SECONDS = 900

# What is replaced in a tutorial's text: what needs a GPU or measures it, and sizes. A tuple has spellings of several versions, of which one is there.
# PyTorch's layer norm of 1151 rows on a CPU is itself off by 0.06 in the gradient of the bias, more than the tutorial allows.
BLAS = ("nvidia.cublas.CublasLt(device_workspace)", "nvidia.cublas.CublasLt(cublas_workspace)")
NOT_RUN = "(lambda **_: None)("
LEFT_OUT = {
    "01": [("benchmark.run(", NOT_RUN)],
    "02": [("benchmark.run(", NOT_RUN)],
    "03": [("benchmark.run(", NOT_RUN)],
    "04": [],
    "05": [("bench_layer_norm.run(", NOT_RUN)],
    "06": [],
    "08": [("benchmark_square_matrices.run(", NOT_RUN), ("benchmark_batches.run(", NOT_RUN)],
    "09": [(BLAS, "None")],
    "10": [],
    "11": [],
}
SMALLER = {
    "01": [("size = 98432", "size = 9843")],
    "02": [("torch.randn(1823, 781", "torch.randn(23, 781")],
    "03": [("(512, 512)", "(160, 160)")],
    "05": [("test_layer_norm(1151, 8192", "test_layer_norm(151, 200")],
    "08": [("[1024, 512, 256, 128]", "[256, 128, 128, 128]")],
}
# Where a version has it.
OPTIONAL = {"10": [(BLAS, "None")]}


def load(path, folder, whole):
    """A module of the tutorial's own text, executed but for its `__main__` part."""
    text = path.read_text()
    number = path.name[:2]
    needed = LEFT_OUT[number] + ([] if whole else SMALLER.get(number, []))
    for olds, new in needed + OPTIONAL.get(number, []):
        found = [old for old in ([olds] if isinstance(olds, str) else olds) if old in text]
        if not found and (olds, new) in needed:
            sys.exit(f"{path}: nothing of {olds} is in it: another version's?")
        for old in found:
            text = text.replace(old, new)
    # Triton reads a kernel's source where Python says that it is.
    smaller = Path(folder) / path.name
    smaller.write_text(text)
    module = types.ModuleType("tutorial")
    module.__file__ = str(smaller)
    sys.modules["tutorial"] = module
    exec(compile(text, str(smaller), "exec"), module.__dict__)
    return module


def tested(test, name):
    """The values of a parameter that a tutorial's own test has: 3.6's attention leaves out what does not pass."""
    return next(mark.args[1] for mark in test.pytestmark if mark.args and mark.args[0] == name)


def cases(module, number, device):
    """What a tutorial does beside its text's own lines: names, and functions of the module."""
    import torch

    if number == "06":
        return {
            f"{'causal' if causal else 'full'}{', specialised' if special else ''}{', fp8' if mode == 'fwd' else ''}": (
                lambda it, causal=causal, special=special, mode=mode: it.test_op(
                    1, 2 if mode == "bwd" else 1, 128, 64, causal, special, mode, "triton-fp16" if mode == "bwd" else "triton-fp8"
                )
            )
            for causal in tested(module.test_op, "causal")
            for special in ((False, True) if device == "b200" else (False,))
            for mode in ("bwd", "fwd")
        }
    if number == "09":
        return {"": lambda it: it.validate(256, 256, 128, torch.float16)}
    if number == "10":
        forms = ("mxfp8", "mxfp4", "nvfp4", "mixed")
        return {form: lambda it, form=form: it.validate_block_scaled(128, 256, 512, form) for form in forms}
    if number == "11":
        return {"": lambda it: it.validate(3000)} if device != "a100" else {}
    return {}


def run(path, device, whole):
    """Executes one tutorial; what came of each of its cases."""
    import heist.triton
    import torch

    told = []

    def case(name, do):
        printed = io.StringIO()
        before = len(session.launches)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with contextlib.redirect_stdout(printed):
                    made = do()
                wrong = [line for line in printed.getvalue().splitlines() if "❌" in line]
                outcome = "wrong: " + "; ".join(wrong) if wrong else "right"
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                made = None
                outcome = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
        found = sorted({finding.code for launch in session.launches[before:] for finding in launch.findings})
        whose = sorted({finding.code for launch in session.launches[before:] for finding in launch.from_compiler})
        told.append({"case": name, "outcome": outcome, "launches": len(session.launches) - before, "found": found, "whose": whose})
        return made

    with tempfile.TemporaryDirectory() as folder, heist.triton.simulate(device, raises=False) as session:
        torch.manual_seed(0)
        module = case("", lambda: load(path, folder, whole))
        for name, do in cases(module, path.name[:2], device).items() if module else ():
            case(name, lambda: do(module))
    return [one for one in told if one["launches"] or one["outcome"] != "right"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=DEVICES)
    parser.add_argument("--only", default="")
    parser.add_argument("--whole", action="store_true", help="with the sizes that the tutorials have")
    parser.add_argument("--one", action="store_true", help="in this process, as JSON")
    options = parser.parse_args()
    paths = [path for path in sorted(options.folder.glob("[0-9]*.py")) if path.name[:2] in LEFT_OUT and options.only in path.name]
    if not paths:
        sys.exit(f"{options.folder} has no tutorials: it is `python/tutorials` of a clone of Triton")
    if options.one:
        print(json.dumps(run(paths[0], options.device, options.whole)))
        return
    bad = False
    for path in paths:
        for device in [options.device] if options.device else DEVICES:
            began = time.monotonic()
            command = [sys.executable, __file__, str(options.folder.resolve()), "--one", "--device", device, "--only", path.name]
            command += ["--whole"] * options.whole
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
                lines = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else done.stderr[-2000:]
            except subprocess.TimeoutExpired:
                lines = f"not done in {SECONDS} s"
            if isinstance(lines, str):
                lines = [{"case": "", "outcome": lines, "launches": 0, "found": [], "whose": []}]
            for one in lines:
                bad |= one["outcome"] != "right" or bool(set(one["found"]) - set(one["whose"]))
                name = f"{path.stem} {one['case']}".strip()
                found = ", ".join(one["found"] + [f"{code} of the compiler" for code in one["whose"]]) or "silent"
                print(f"{name} | {device} | {one['outcome']} | {found} | {one['launches']} launches | {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(bad)


if __name__ == "__main__":
    main()
