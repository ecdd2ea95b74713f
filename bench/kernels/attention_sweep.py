"""Runs the attention configurations of `attention_sweep` beside PyTorch's backends.

    cargo run -p heist-bench --bin attention_sweep -- DIR [SET]
    python3 bench/kernels/attention_sweep.py DIR [--rounds N] [--only TEXT]

Every configuration is compared with a reference (f64 math for short sequences,
the flash backend for long ones); then all of them and the peers are timed in
turns, each sample a captured graph on an overwritten L2 cache. A graph of a short
problem is 20 calls over buffers that rotate. Prints a table for each problem, best
first, and writes results.json beside it.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CUDA = ctypes.CDLL("libcuda.so.1")
SHARED_ATTRIBUTE = 8


def check(code, what):
    if code != 0:
        name = ctypes.c_char_p()
        CUDA.cuGetErrorString(code, ctypes.byref(name))
        raise RuntimeError(f"{what}: {name.value.decode() if name.value else code}")


class Function:
    """A kernel with the shared memory that its launches ask for."""

    def __init__(self, cubin, entry, shared):
        module, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        with open(cubin, "rb") as file:
            image = file.read()
        check(CUDA.cuModuleLoadData(ctypes.byref(module), image), cubin)
        check(
            CUDA.cuModuleGetFunction(ctypes.byref(self.handle), module, entry.encode()), entry
        )
        check(CUDA.cuFuncSetAttribute(self.handle, SHARED_ATTRIBUTE, shared), "shared memory")

    def resident(self, threads, shared):
        blocks = ctypes.c_int()
        CUDA.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(blocks), self.handle, threads, ctypes.c_size_t(shared)
        )
        return blocks.value


def assemble(directory, files, arch):
    """Assembles all files; for each, registers and spilled bytes, or the complaint."""

    def one(file):
        path = os.path.join(directory, file)
        run = subprocess.run(
            ["ptxas", "-v", f"-arch={arch}", path, "-o", path + ".cubin"],
            capture_output=True,
            text=True,
        )
        if run.returncode != 0:
            return None, run.stderr.strip()[:300]
        words = run.stderr.replace(",", " ").split()
        registers = words[words.index("registers") - 1]
        spills = words[words.index("spill") - 2]
        return registers, spills

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(files, pool.map(one, files)))


class Arm:
    """One configuration over one set of inputs."""

    def __init__(self, directory, arm, inputs):
        self.buffers = dict(inputs)
        for buffer in arm["buffers"]:
            if buffer["name"] in self.buffers:
                continue
            data = bytes.fromhex(buffer["data"]) if buffer["data"] else None
            self.buffers[buffer["name"]] = (
                torch.frombuffer(bytearray(data), dtype=torch.uint8).cuda()
                if data
                else torch.empty(buffer["bytes"], dtype=torch.uint8, device="cuda").fill_(255)
            )
        self.own, self.steps = [], []
        for step in arm["steps"]:
            cubin = os.path.join(directory, step["ptx"] + ".cubin")
            function = Function(cubin, step["entry"], step["shared"])
            values = []
            for parameter in step["params"]:
                if "buffer" in parameter:
                    address = self.buffers[parameter["buffer"]].data_ptr()
                    values.append(ctypes.c_uint64(address))
                elif "own" in parameter:
                    data = bytearray.fromhex(parameter["own"])
                    self.own.append(torch.frombuffer(data, dtype=torch.uint8).cuda())
                    values.append(ctypes.c_uint64(self.own[-1].data_ptr()))
                else:
                    kind = {4: ctypes.c_uint32, 8: ctypes.c_uint64}[parameter["size"]]
                    values.append(kind(parameter["bits"]))
            pointers = (ctypes.c_void_p * len(values))(
                *[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
            )
            self.steps.append((function, step, values, pointers))

    def __call__(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for function, step, _, pointers in self.steps:
            check(
                CUDA.cuLaunchKernel(
                    function.handle, *step["grid"], *step["block"], step["shared"], stream, pointers, None
                ),
                step["entry"],
            )

    def resident(self):
        function, step, _, _ = self.steps[0]
        threads = step["block"][0] * step["block"][1] * step["block"][2]
        return function.resident(threads, step["shared"])


def peer(backend, q, k, v, causal):
    def work():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return work


def graph_of(work, calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for one in work:
            one()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in range(calls):
                work[call % len(work)]()
    return graph.replay


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--out", default=None)
    options = parser.parse_args()
    problems = json.load(open(os.path.join(options.directory, "sweep.json")))
    problems = [problem for problem in problems if options.only in problem["name"]]
    files = sorted(
        {step["ptx"] for problem in problems for arm in problem["arms"] for step in arm["steps"]}
    )
    made = assemble(options.directory, files, options.arch)
    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    results = []
    for problem in problems:
        shape = (problem["batch"], problem["heads"], problem["length"], problem["dim"])
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[problem["dtype"]]
        small = problem["flops"] < 2e10
        calls = 20 if small else 1
        sets = []
        for number in range(4 if small else 1):
            generator = torch.Generator("cuda").manual_seed(number)
            make = lambda: (
                torch.rand(shape, generator=generator, device="cuda") * 2 - 1
            ).to(dtype)
            sets.append((make(), make(), make()))
        q, k, v = sets[0]
        causal = problem["causal"]
        if problem["length"] <= 1024 and problem["batch"] * problem["heads"] <= 64:
            reference = F.scaled_dot_product_attention(
                q.double(), k.double(), v.double(), is_causal=causal
            )
        else:
            reference = peer(SDPBackend.FLASH_ATTENTION, q, k, v, causal)().double()
        work, notes, kept = {}, {}, []
        for name, backend in (
            ("torch flash", SDPBackend.FLASH_ATTENTION),
            ("torch cudnn", SDPBackend.CUDNN_ATTENTION),
        ):
            peers = [peer(backend, *inputs, causal) for inputs in sets]
            try:
                work[name], notes[name] = graph_of(peers, calls), ""
            except RuntimeError as failure:
                print(f"{name}: {str(failure).splitlines()[0]}")
        for arm in problem["arms"]:
            name = arm["name"]
            told = [made[step["ptx"]] for step in arm["steps"]]
            if any(registers is None for registers, _ in told):
                print(f"{name}: {told}")
                continue
            try:
                ours = [Arm(options.directory, arm, dict(zip("qkv", inputs))) for inputs in sets]
                for one in ours:
                    one()
                torch.cuda.synchronize()
                out = ours[0].buffers["out"].view(dtype).reshape(shape)
                error = ((out.double() - reference).norm() / reference.norm()).item()
                registers, spills = told[0]
                notes[name] = (
                    f"error {error:.1e}  {registers} registers, {spills} spilled, "
                    f"{ours[0].resident()} resident"
                )
                if not error < 5e-3:
                    notes[name] += "  WRONG"
                work[name] = graph_of(ours, calls)
                # A graph does not own what its kernels work on.
                kept.append(ours)
            except RuntimeError as failure:
                print(f"{name}: {str(failure).splitlines()[0]}")
                torch.cuda.synchronize()
        times = {name: [] for name in work}
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for turn in range(-2, options.rounds):
            for name, one in work.items():
                flush.fill_(turn & 127)
                start.record()
                one()
                end.record()
                end.synchronize()
                if turn >= 0:
                    times[name].append(start.elapsed_time(end) * 1e3 / calls)
        medians = {name: statistics.median(samples) for name, samples in times.items()}
        nothing = float("nan")
        flash, cudnn = medians.get("torch flash", nothing), medians.get("torch cudnn", nothing)
        print(f"\n{problem['name']}   (us, TFLOP/s, speed against flash, against cudnn)")
        for name, time in sorted(medians.items(), key=lambda item: item[1]):
            rate = problem["flops"] / time / 1e6
            print(
                f"  {time:9.2f} {rate:7.1f} {flash / time:6.3f} {cudnn / time:6.3f}  {name:75s} {notes[name]}"
            )
        sys.stdout.flush()
        results.append({"problem": problem["name"], "us": medians, "notes": notes})
    out = options.out or os.path.join(options.directory, "results.json")
    json.dump(results, open(out, "w"), indent=1)


main()
