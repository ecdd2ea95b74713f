"""Compiles a Triton kernel for a compute capability without a GPU and leaves the PTX in the folder named on the command line."""

import os
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ARCH = {80: "sm_80", 86: "sm_86", 89: "sm_89", 90: "sm_90a", 100: "sm_100a", 120: "sm_120a"}


def build(name, kernel, cc, types, constants, variant=None, warps=4, stages=3, aligned=True):
    """`types` maps the run-time parameters to their types, in order; pointers and integers are taken as multiples of 16."""
    signature = {**types, **{key: "constexpr" for key in constants}}
    order = {key: i for i, key in enumerate(kernel.arg_names)}
    signature = {key: signature[key] for key in kernel.arg_names}
    attributes = {}
    if aligned:
        attributes = {(order[k],): [["tt.divisibility", 16]] for k, t in types.items() if t.startswith("*") or t == "i32"}
    source = ASTSource(kernel, signature, {(order[k],): v for k, v in constants.items()}, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", cc, 32), options={"num_warps": warps, "num_stages": stages})
    file = ".".join([name, f"cc{cc}"] + ([variant] if variant else []) + ["ptx"])
    with open(os.path.join(sys.argv[1], file), "w") as out:
        out.write(made.asm["ptx"])
    facts = made.metadata
    print(f"MADE {file} {ARCH[cc]} Triton {triton.__version__}")
    print(f"NOTE {file} {facts.num_warps * 32} threads, {facts.shared} bytes of shared memory, {facts.global_scratch_size} bytes of scratch a block")
