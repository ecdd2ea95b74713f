"""The Python programs that pages show are run, each with what its page supposes to be there.

`SUPPOSED` says that by a line of the program: names and files that are there before it, other words that make it
small or take it from a GPU to the simulated one, and modules without which it is skipped."""

import pathlib
import re
import subprocess
import sys

import pytest
from texts import ADD

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = ["README.md", "docs/python.md", "docs/tuning.md", "docs/your-kernels.md", "python/README.md"]

NUMBERS = """
import numpy, torch
x, y, out = torch.ones(1000), torch.ones(1000), torch.empty(1000)
n, grid = 1000, (1,)
"""
TRITON = NUMBERS + "from triton_kernels import add_kernel as kernel\n"
CUTE = """
import torch
import cute_kernels
from cutlass.cute.runtime import from_dlpack
a, b, c = torch.ones(256), torch.ones(256), torch.empty(256)
launch = cute_kernels.add
"""

#: A line of the program: (what stands before it, words and their replacements, modules that it needs).
SUPPOSED = {
    "q, k, v = (torch.randn(2, 16, 4096, 128": (
        "", {"2, 16, 4096, 128": "1, 2, 64, 64", 'device="cuda"': 'device="cpu"'}, ["torch"]),
    "q, k, v = (torch.randn(2, 8, 256, 64": (
        "", {"2, 8, 256, 64": "1, 2, 64, 64", 'device="cuda"': 'device="cpu"'}, ["torch"]),
    "q, k, v = (torch.randn(1, 4, 64, 64": ("", {}, ["torch"]),
    "ht.register_transformers()": ("import heist.torch as ht", {}, ["torch", "transformers"]),
    "import heist.triton\n": (TRITON, {}, ["torch", "triton"]),
    "import heist.triton, heist.cute": (TRITON + CUTE, {}, ["torch", "triton", "cutlass.cute"]),
    "import heist.cute\n": (CUTE, {}, ["torch", "cutlass.cute"]),
    'report = heist.run("kernel.ptx"': ("", {}, ["numpy"]),
    'kernel = heist.Kernel("kernel.ptx")': ("import heist, torch\nx = torch.ones(64, device='cuda')", {}, ["a GPU"]),
    'emitted = heist.Emitted("gemm.json")': (
        "import heist, numpy\n"
        "a, b = (numpy.ones(shape, dtype=numpy.float16) for shape in ((300, 104), (104, 200)))\n"
        "d = numpy.empty((300, 200), dtype=numpy.float32)", {}, ["numpy"]),
    "import heist, ray, dask.distributed as dask": ("", {}, ["ray", "dask.distributed", "a GPU"]),
    "search = heist.jobs.Command(": (
        "import heist\nfrom concurrent.futures import ThreadPoolExecutor\nclient = ThreadPoolExecutor(2)",
        {"range(1000)": "range(3)", '"--block", "128"': '"--block", "128", "--arg", "inout:f32:[0*128]", "--arg", "u32:128"'},
        []),
    "for plan in ht.tuned():": (
        "import torch, heist.torch as ht\nbatch = torch.ones(16, 16, dtype=torch.float16)\n"
        "model = lambda batch: ht.mm(batch, batch)", {}, ["torch"]),
    "ptx, _ = cuda.compile_ptx(add": (
        "import heist, numpy\nfrom numba import cuda\nx, y, out = (numpy.ones(1000, numpy.float32) for _ in range(3))\n"
        "def add(x, y, out):\n    i = cuda.grid(1)\n    if i < out.size: out[i] = x[i] + y[i]", {}, ["numba_cuda"]),
    "nvrtc = cupy.cuda.nvrtc": (
        "import cupy, heist, numpy\nfrom test_other_compilers import SOURCE\nmodule = cupy.RawModule(code=SOURCE)\n"
        "x, y = (numpy.ones(1000, numpy.float32) for _ in range(2))", {}, ["cupy"]),
}  # fmt: skip


def programs():
    """Every program of every page: where it stands, its text, and the line by which it is known."""
    for page in PAGES:
        text = (ROOT / page).read_text() if (ROOT / page).exists() else ""
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            known = [line for line in SUPPOSED if line in found[1]]
            place = f"{page}:{text.count(chr(10), 0, found.start()) + 1}"
            yield pytest.param(found[1], known, id=place)


def is_there(module):
    if module == "a GPU":
        import torch

        return torch.cuda.is_available()
    try:
        __import__(module)
    except ImportError:
        return False
    return True


@pytest.mark.parametrize(("program", "known"), list(programs()))
def test_a_program_of_a_page_runs(program, known, tmp_path, monkeypatch):
    assert len(known) == 1, f"what does this program suppose? {known}"
    before, small, needs = SUPPOSED[known[0]]
    for module in needs:
        if not is_there(module):
            pytest.skip(f"it needs {module}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEIST_TUNED", "")
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))
    # The kernel adds one to the elements of an array.
    fixed = ADD.replace(", .param .f32 more", "").replace("ld.param.f32 %f1, [more]", "mov.f32 %f1, 0f3F800000")
    (tmp_path / "kernel.ptx").write_text(fixed)
    if "gemm.json" in program:
        command = re.search(r"# heist (emit .*?) > gemm.json", program)[1].split()
        done = subprocess.run([sys.executable, "-m", "heist", *command], capture_output=True, text=True, check=True)
        (tmp_path / "gemm.json").write_text(done.stdout)
    for words, instead in small.items():
        assert words in program, words
        program = program.replace(words, instead)
    # A file, since compilers ask for the source of functions.
    script = tmp_path / "program.py"
    script.write_text(f"{before}\n{program}")
    names = {"__name__": "program", "__file__": str(script)}
    try:
        exec(compile(script.read_text(), str(script), "exec"), names)
    finally:
        if "heist.torch" in sys.modules:
            sys.modules["heist.torch"].restore()


def test_every_supposition_is_needed():
    if not all((ROOT / page).exists() for page in PAGES):
        pytest.skip("the pages are not beside the package")
    shown = {line for program in programs() for line in program.values[1]}
    assert shown == set(SUPPOSED)
