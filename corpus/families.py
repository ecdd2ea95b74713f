#!/usr/bin/env python3
"""Writes kernels of our own families as test files: PTX with a small launch, to be taken apart by `heist-mutants`.

    python3 corpus/families.py target/families [HEIST]       # HEIST is target/debug/heist unless told
    cargo xtask mutate-ptx target/families

What `heist emit --json` says of a launch is written as the comments of a test file. Inputs are random numbers, zeros
where they are indices. Kernels of several launches are left out: a test file has one.
"""

import json
import subprocess
import sys
from pathlib import Path

KERNELS = [
    ("gemm_mma", "sm_80", "gemm m=70 n=72 k=96 variant=mma-64x64"),
    ("gemm_clc", "sm_100a", "gemm m=130 n=136 k=64 variant=mma-64x64 --source clc"),
    ("gemm_clc_cluster", "sm_100a", "gemm m=130 n=136 k=64 variant=mma-64x64 --source clc --cluster 2x1"),
    ("gemm_ticket", "sm_80", "gemm m=130 n=136 k=64 variant=mma-64x64 --source ticket"),
    ("gemm_wgmma", "sm_90a", "gemm m=64 n=64 k=192"),
    ("gemm_wgmma_large", "sm_90a", "gemm m=136 n=264 k=128 variant=wgmma-128x256"),
    ("attention_buffered", "sm_80", "attention batch=1 queries=70 heads=1 dim=64 mask=causal variant=buffered"),
    ("attention_large", "sm_80", "attention batch=1 queries=70 heads=1 dim=64 mask=causal variant=large"),
    ("attention_wgmma", "sm_90a", "attention batch=1 queries=130 heads=1 dim=64 mask=causal variant=wgmma"),
    ("attention_persistent", "sm_90a", "attention batch=1 queries=130 heads=1 dim=64 variant=persistent"),
    ("decode", "sm_90a", "attention batch=1 queries=1 keys=200 heads=2 dim=64 variant=decode"),
]


def argument(one):
    kind = one["kind"]
    if kind == "tensor_map":
        fields = [f"buffer={one['buffer']}", f"type={one['type']}"]
        for ours, theirs in (("dims", "dims"), ("strides", "strides"), ("box", "box"), ("estrides", "element_strides")):
            fields.append(f"{ours}=[{','.join(map(str, one[theirs]))}]")
        for name in ("offset", "swizzle", "interleave", "l2", "fill"):
            fields.append(f"{name}={one[name]}")
        return f"tensormap({', '.join(fields)})"
    if kind == "pointer":
        return f"ptr:{one['buffer']}" + (f"+{one['offset']}" if one["offset"] else "")
    if "contents" in one:
        role = "inout" if kind == "counters" else "in"
        return f"{role}:u8:[{','.join(map(str, one['contents']))}]"
    return f"{one['type']}:{one['value']}"


def buffer(one):
    ty, count = one["type"], one["elements"]
    if one["role"] == "out":
        return f"{one['name']} out:{ty}:{count}"
    floating = ty.startswith(("f", "bf", "e4", "e5"))
    contents = f"rand(1,{count})" if floating else f"zeros({count})"
    return f"{one['name']} {one['role']}:{ty}:{contents}"


def dimensions(one):
    return ",".join(str(one[axis]) for axis in "xyz")


def main():
    folder = Path(sys.argv[1])
    heist = sys.argv[2] if len(sys.argv) > 2 else "target/debug/heist"
    folder.mkdir(parents=True, exist_ok=True)
    for name, arch, words in KERNELS:
        done = subprocess.run([heist, "emit", *words.split(), "--arch", arch, "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{name}: {done.stderr.strip()}")
            continue
        said = json.loads(done.stdout)
        if len(said["steps"]) != 1:
            print(f"{name}: {len(said['steps'])} launches")
            continue
        step = said["steps"][0]
        launch = f"// heist: run {name} entry={step['entry']} grid={dimensions(step['grid'])} block={dimensions(step['block'])}"
        if step["cluster"]:
            launch += f" cluster={dimensions(step['cluster'])}"
        if step["dynamic_shared"]:
            launch += f" smem={step['dynamic_shared']}"
        lines = [launch]
        lines += [f"// heist: buffer {buffer(one)}" for one in said["buffers"]]
        lines += [f"// heist: arg {argument(one)}" for one in step["arguments"]]
        (folder / f"{name}.ptx").write_text("\n".join(lines) + "\n" + step["ptx"])
        print(f"{name}: written")


if __name__ == "__main__":
    main()
