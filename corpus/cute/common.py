"""Compiles a CuTe DSL launcher for an architecture without a GPU and leaves the PTX in the folder named on the command line."""

import os
import re
import sys
from importlib.metadata import version

import cutlass.cute as cute


def build(name, launcher, arch, arguments, variant=None):
    made = cute.compile(launcher, *arguments, options=f"--gpu-arch {arch} --keep-ptx --dump-dir {sys.argv[1]}")
    text = made.__ptx__.rstrip("\0")
    file = ".".join([name, arch] + ([variant] if variant else []) + ["ptx"])
    with open(os.path.join(sys.argv[1], file), "w") as out:
        out.write(text)
    print(f"MADE {file} {arch} CuTe DSL {version('nvidia-cutlass-dsl')}")
