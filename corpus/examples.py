#!/usr/bin/env python3
"""Runs the CuTe DSL's own examples on simulated GPUs of sm_80, sm_90 and sm_100.

    VENV/bin/python corpus/examples.py FOLDER [--device h200] [--only tutorial] [--seconds 600]

FOLDER is `examples/python/CuTeDSL` of a clone of CUTLASS, of the version that is installed. Every example is executed as it
is, in a process of its own, with the words below on its command line: small problems. Each is right if its own comparison
holds. Prints a line for each; the status is 1 if one was wrong, or if something was found in it that is not a
`CompilerWarning`. It needs PyTorch and, for those that are compiled with `--enable-tvm-ffi`, `apache-tvm-ffi`.
"""

import argparse
import contextlib
import io
import json
import os
import runpy
import shlex
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

ALL, HOPPER_ON, HOPPER, BLACKWELL = ("a100", "h200", "b200"), ("h200", "b200"), ("h200",), ("b200",)

# What is run, by the beginning of its path: on which devices, and with which words, one list for each run. The longest
# beginning counts; without words an example runs once without.
GEMM = "--mnkl 256,128,128,1 --mma_tiler_mn 128,64 --cluster_shape_mn 1,1"
PAIR = "--mnkl 256,128,128,1 --mma_tiler_mn 256,64 --cluster_shape_mn 2,1 --use_2cta_instrs"
SCALED = [f"--mnkl 256,128,512,1 --mma_tiler_mn {tile} --cluster_shape_mn {cluster}" for tile, cluster in (("128,128", "1,1"), ("256,128", "2,1"))]
RUNS = {
    "cute/ampere/kernel/elementwise/elementwise_add": (ALL, ["--M 30 --N 256"]),
    "cute/ampere/kernel/elementwise/elementwise_apply": (ALL, ["--M 64 --N 512 --op add", "--M 128 --N 512 --op mul"]),
    "cute/ampere/kernel/dense_gemm/sgemm": (ALL, ["--mnk 128,128,64", "--mnk 128,256,40 --a_major k --b_major k"]),
    "cute/ampere/kernel/dense_gemm/tensorop_gemm": (ALL, ["--mnkl 128,128,64,1", "--mnkl 128,256,96,1 --a_major k --b_major k"]),
    "cute/ampere/kernel/attention/flash_attention_v2": (
        ALL,
        ["--batch_size 1 --seqlen_q 128 --seqlen_k 160 --num_head 1 --head_dim 64 --m_block_size 64 --n_block_size 64" + causal
         for causal in ("", " --is_causal")],
    ),
    "cute/ampere/kernel/attention/hstu_attention": (
        ALL, ["--batch_size 1 --seqlen_q 128 --seqlen_kv 128 --num_head 1 --head_dim 64 --m_block_size 64 --n_block_size 64"],
    ),
    "cute/ampere/tutorial/elementwise_add_autotune": (ALL, ["--M 64 --N 256"]),
    "cute/hopper/kernel/dense_gemm/dense_gemm_fp8_2xacc": (HOPPER, ["--mnkl 128,128,256,1 --tile_shape_mn 128,128 --cluster_shape_mn 1,1"]),
    "cute/hopper/kernel/dense_gemm/": (
        HOPPER,
        ["--mnkl 128,128,256,1 --tile_shape_mn 128,128 --cluster_shape_mn 1,1",
         "--mnkl 256,256,128,1 --tile_shape_mn 128,128 --cluster_shape_mn 2,1"],
    ),
    "cute/hopper/kernel/grouped_gemm": (
        HOPPER,
        # Once without its benchmark, which passes addresses of tensors that are gone.
        ["--num_groups 2 --problem_sizes_mnkl '(128,128,64,1),(16,128,128,1)' --tile_shape_mn 128,128 --cluster_shape_mn 1,1" + more
         for more in (" --iterations 0", "")],
    ),
    "cute/hopper/kernel/attention": (HOPPER, ["--mma_tile_shape_mn 64,128 --q_shape 1,128,1,64 --k_shape 1,256,1,64 --is_persistent"]),
    "cute/hopper/kernel/cta_norm": (HOPPER_ON, ["--M 8 --N 1024"]),
    "cute/blackwell/kernel/dense_gemm/": (BLACKWELL, [f"{GEMM} --use_tma_store", GEMM, f"{PAIR} --use_tma_store"]),
    "cute/blackwell/kernel/dense_gemm/dense_gemm_alpha": (BLACKWELL, [GEMM, PAIR]),
    "cute/blackwell/kernel/blockscaled_gemm/dense": (BLACKWELL, SCALED),
    "cute/blackwell/kernel/blockscaled_gemm/dense_blockscaled_gemm_persistent.py": (
        BLACKWELL, [*SCALED, f"{SCALED[1]} --a_dtype Float8E4M3FN --b_dtype Float8E5M2 --sf_dtype Float8E8M0FNU --sf_vec_size 32"],
    ),
    "cute/blackwell/kernel/blockwise_gemm/blockwise": (BLACKWELL, ["--mnkl 128,128,256,1 --mma_tiler_mn 128,128 --cluster_shape_mn 1,1"]),
    "cute/blackwell/kernel/blockwise_gemm/": (BLACKWELL, ["--mnkl 128,128,256,2 --mma_tiler_mn 128,128 --cluster_shape_mn 1,1"]),
    "cute/blackwell/kernel/grouped_gemm": (
        BLACKWELL, ["--num_groups 2 --problem_sizes_mnkl '(128,128,64,1),(16,128,128,1)' --mma_tiler_mn 128,64 --cluster_shape_mn 1,1"],
    ),
    "cute/blackwell/kernel/mixed_input_gemm/mixed": (BLACKWELL, ["--mnkl 128,128,128,1 --mma_tiler_mnk 128,128,64 --cluster_shape_mn 1,1"]),
    "cute/blackwell/kernel/mixed_input_gemm/grouped": (BLACKWELL, ["--mnkl 128,128,256,2 --mma_tiler_mnk 128,128,128 --cluster_shape_mn 1,1"]),
    "cute/blackwell/kernel/blockscaled_grouped_gemm/grouped": (
        BLACKWELL, ["--num_groups 2 --problem_sizes_mnkl '(128,128,512,1),(128,128,256,1)' --mma_tiler_mn 128,128 --cluster_shape_mn 1,1"],
    ),
    "cute/blackwell/kernel/attention/mamba2": (BLACKWELL, ["--gbehcdln 2,2,2,2,2,64,128,128"]),
    "cute/blackwell/kernel/attention/mixed_input_fmha/mixed_input_fmha_decode": (BLACKWELL, ["--b 1 --s 256 --h_q 8 --h_k 1"]),
    "cute/blackwell/kernel/attention/fmha/fmha.py": (BLACKWELL, ["--q_shape 1,256,1,64 --k_shape 1,256,1,64 --is_persistent"]),
    "cute/blackwell/kernel/attention/fmha/fmha_bwd": (BLACKWELL, ["--s_q 128 --s_k 128 --h_q 1 --h_k 1 --d 64 --b 1"]),
    "cute/blackwell/kernel/attention/mla": (BLACKWELL, ["--batch_size 1 --seq_len_k 128"]),
    "cute/blackwell/kernel/rmsnorm": (BLACKWELL, ["--M 4 --N 1024 --dtype BFloat16"]),
    "cute/blackwell/tutorial/tutorial_gemm": (BLACKWELL, ["--mnk 256,256,128"]),
    "cute/blackwell/tutorial/tutorial_gemm/nvfp4": (BLACKWELL, ["--mnkl 256,256,512,1"]),
    "cute/blackwell/tutorial/tutorial_tma": (HOPPER_ON, ["--M 256 --N 256"]),
    "dsl_tutorials/": (HOPPER_ON, [""]),
    "dsl_tutorials/fp16": (BLACKWELL, ["--mnk 256,256,128"]),
    "experimental/primitives": (HOPPER, [""]),
    "experimental/primitives/tcgen05": (BLACKWELL, [""]),
    "experimental/primitives/tcgen05/cp_narrow": (BLACKWELL, ["--a-dtype all"]),
    "experimental/primitives/reduction/cluster_tmem": (BLACKWELL, [""]),
    "experimental/primitives/tma/tma_multicast": (BLACKWELL, [""]),
    "experimental/primitives/tutorial/08": (HOPPER, [""]),
    "experimental/primitives/tutorial/10": (BLACKWELL, [""]),
    "experimental/primitives/tutorial/gemm": (BLACKWELL, [""]),
    "experimental/task_scheduling": (BLACKWELL, [""]),
}
# What can't run here, and why.
LEFT_OUT = {
    "cute/blackwell/kernel/distributed": "needs several GPUs",
    "cute/blackwell/kernel/moe": "asks PyTorch's profiler about a GPU",
    "cute_ext": "is compiled by another object of the package, which `heist.cute` does not know",
    "cute/blackwell/tutorial/tutorial_gemm/fp16_gemm_6": "captures a CUDA graph",
    "dsl_tutorials/cooperative_launch": "allocates by CUDA's runtime",
    "dsl_tutorials/launch_completion": "captures a CUDA graph",
    "dsl_tutorials/jax": "needs JAX",
    "dsl_tutorials/tvm_ffi/aot": "writes files for C",
    "dsl_tutorials/tvm_ffi/jit_and_use_in_jax": "needs JAX",
    "dsl_tutorials/export": "writes files for C",
    "dsl_tutorials/ffi": "is built with CMake",
}


NOTHING = {"outcome": "", "launches": 0, "kernels": 0, "found": [], "whose": [], "texts": [], "simulated": 0}


def of(table, path):
    """The entry of the longest beginning of a path."""
    found = [key for key in table if path.startswith(key)]
    return table[max(found, key=len)] if found else None


def of_each_code(findings):
    """The first two texts of each code."""
    seen = {}
    for finding in findings:
        seen.setdefault(finding.code, []).append(finding.text)
    return (text for texts in seen.values() for text in dict.fromkeys(texts[:2]))


def scaled_product(a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
    """`torch._scaled_mm` for operands with a scale for each 16 or 32 elements, which PyTorch has on GPUs alone."""
    import torch

    def scaled(rows, scales):
        # Scales lie in tiles of 128 rows and 4 columns, of which 32 rows follow each other 16 bytes apart.
        if rows.dtype == torch.float4_e2m1fn_x2:
            values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
            pairs = rows.contiguous().view(torch.uint8)
            four = torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(-2).long()
            numbers = values[four & 7] * torch.where(four > 7, -1.0, 1.0)
        else:
            numbers = rows.to(torch.float64)
        group = 16 if scales.dtype == torch.float8_e4m3fn else 32
        high, wide = -(-numbers.shape[0] // 128), -(-numbers.shape[1] // (4 * group))
        tiles = scales.to(torch.float32).to(torch.float64).view(high, wide, 32, 4, 4).transpose(2, 3)
        plain = tiles.reshape(high, wide, 128, 4).permute(0, 2, 1, 3).reshape(high * 128, wide * 4)
        return numbers * plain.repeat_interleave(group, dim=1)[: numbers.shape[0], : numbers.shape[1]]

    return (scaled(a, scale_a) @ scaled(b.t(), scale_b).t()).to(out_dtype)


def run(root, path, device, words):
    """Executes one example in this process; what came of it."""
    import heist.cute
    import torch

    torch._scaled_mm = scaled_product
    sys.argv = [str(path), *shlex.split(words)]
    sys.path[:0] = [str(path.parent), str(root), str(root.parent)]
    os.chdir(path.parent)
    printed, outcome = io.StringIO(), "right"
    with heist.cute.simulate(device, raises=False) as session, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with contextlib.redirect_stdout(printed):
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            outcome = "right" if end.code in (None, 0) else f"left with {end.code}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            lines = str(error).strip().splitlines() or [""]
            outcome = f"{type(error).__name__}: {' '.join(lines)[:300]}"
    launches = session.launches
    told = {
        "outcome": outcome,
        "launches": len(launches),
        "kernels": len({launch.kernel for launch in launches}),
        "found": sorted({finding.code for launch in launches for finding in launch.findings}),
        "whose": sorted({finding.code for launch in launches for finding in launch.from_compiler}),
        "texts": list(of_each_code(finding for launch in launches for finding in launch.findings)),
        "simulated": sum(launch.seconds for launch in launches),
    }
    return told


def in_its_process(root, path, device, words, seconds):
    """The same in a fork of this process, which has imported everything."""
    with tempfile.TemporaryFile("w+") as told, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.dup2(errors.fileno(), 2)
            os.dup2(errors.fileno(), 1)
            told.write(json.dumps(run(root, path, device, words)))
            told.flush()
            os._exit(0)
        began = time.monotonic()
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() - began > seconds:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return NOTHING | {"outcome": f"not done in {seconds} s"}
            time.sleep(0.2)
        for file in (told, errors):
            file.seek(0)
        text = told.read()
        return json.loads(text) if text else NOTHING | {"outcome": " ".join(errors.read().splitlines()[-3:])[-400:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=ALL)
    parser.add_argument("--only", default="", help="a part of the path")
    parser.add_argument("--seconds", type=int, default=900, help="for each")
    parser.add_argument("--part", default="1/1", help="one of so many parts")
    parser.add_argument("--texts", action="store_true", help="what was found, in full: the first two of each rule")
    options = parser.parse_args()
    root = options.folder.resolve()
    paths = [path for path in sorted(root.rglob("*.py")) if "__main__" in path.read_text() and options.only in str(path.relative_to(root))]
    if not paths:
        sys.exit(f"{root} has no examples: it is `examples/python/CuTeDSL` of a clone of CUTLASS")
    part, parts = map(int, options.part.split("/"))
    import cutlass.cute  # noqa: F401 - for those that are forked
    import torch  # noqa: F401

    import heist.cute  # noqa: F401

    bad, count, silent = False, 0, 0
    for path in paths[part - 1 :: parts]:
        name = str(path.relative_to(root))
        asked, why = of(RUNS, name), of(LEFT_OUT, name)
        if why or asked is None:
            print(f"{name} | not run: {why or 'no words for it'}", flush=True)
            continue
        for device, words in ((device, words) for device in asked[0] for words in asked[1]):
            if options.device not in (None, device):
                continue
            began = time.monotonic()
            one = in_its_process(root, path, device, words, options.seconds)
            own = set(one["found"]) - set(one["whose"])
            bad |= one["outcome"] != "right" or bool(own)
            count += one["launches"] > 0
            silent += one["outcome"] == "right" and one["launches"] > 0 and not one["found"] and not one["whose"]
            found = ", ".join(one["found"] + [f"{code} of the compiler" for code in one["whose"]]) or "silent"
            print(
                f"{name} {words} | {device} | {one['outcome']} | {found} | {one['launches']} launches | "
                f"{time.monotonic() - began:.0f} s, {one['simulated']:.0f} of them simulated",
                flush=True,
            )
            if options.texts:
                print("\n".join(one["texts"]))
    print(f"{count} runs with launches, {silent} of them right and silent")
    sys.exit(bad)


if __name__ == "__main__":
    main()
