"""Runs the plans of `attention_plans` beside PyTorch's cuDNN and flash backends, or beside two batched products (latent attention).

    cargo run -p heist-bench --bin attention_plans -- DIR SET...
    python3 bench/kernels/attention_plans.py DIR [--beside OTHER] [--rounds N] [--only TEXT]

Every plan is compared with attention in f64 (poisoned outputs, every element); then
all plans of a shape and the peers are timed in turns. A sample is a captured graph of
several calls over inputs that rotate, so that nothing is found in the L2 cache. The
bandwidth of a copy is measured in the same run. `--beside` adds the plans of another
folder, of the same sets. Prints a table for each shape.
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
from torch.nn.attention.bias import causal_lower_right

from driver import CUDA, check, launch

SHARED_ATTRIBUTE = 8
ELEMENTS = {"f16": 6, "bf16": 9, "u8": 0}
SWIZZLES = {"none": 0, "32": 1, "64": 2, "128": 3}
PROMOTIONS = {"none": 0, "64": 1, "128": 2, "256": 3}


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
        return words[words.index("registers") - 1], words[words.index("spill") - 2]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(files, pool.map(one, files)))


FUNCTIONS = {}


def function(path, entry, shared):
    """The kernel of a file, which may have so many bytes of shared memory: plans that share one may want other amounts."""
    handle, most = FUNCTIONS.get((path, entry), (None, 0))
    if handle is None:
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        with open(path, "rb") as file:
            check(CUDA.cuModuleLoadData(ctypes.byref(module), file.read()), path)
        check(CUDA.cuModuleGetFunction(ctypes.byref(handle), module, entry.encode()), entry)
    most = max(most, shared)
    check(CUDA.cuFuncSetAttribute(handle, SHARED_ATTRIBUTE, most), "shared memory")
    FUNCTIONS[path, entry] = handle, most
    return handle


def encode(map, address):
    """The 128 bytes of a tensor map, aligned as the driver wants them."""
    rank = len(map["dims"])
    memory = (ctypes.c_uint8 * 192)()
    start = (ctypes.addressof(memory) + 63) // 64 * 64
    check(
        CUDA.cuTensorMapEncodeTiled(
            ctypes.c_void_p(start),
            ELEMENTS[map["element"]],
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*map["dims"]),
            (ctypes.c_uint64 * max(1, rank - 1))(*map["strides"]),
            (ctypes.c_uint32 * rank)(*map["box"]),
            (ctypes.c_uint32 * rank)(*map["element_strides"]),
            0,
            SWIZZLES[map["swizzle"]],
            PROMOTIONS[map["l2"]],
            0,
        ),
        "a tensor map",
    )
    return memory, start


class Arm:
    """A plan over one set of buffers."""

    def __init__(self, directory, arm, buffers):
        self.buffers, self.steps, self.kept = dict(buffers), [], []
        for buffer in arm["buffers"]:
            if buffer["name"] not in self.buffers:
                memory = torch.empty(buffer["bytes"], dtype=torch.uint8, device="cuda")
                self.buffers[buffer["name"]] = memory.fill_(255)
        for step in arm["steps"]:
            path = os.path.join(directory, step["ptx"] + ".cubin")
            handle = function(path, step["entry"], step["shared"])
            pointers = (ctypes.c_void_p * len(step["params"]))()
            for at, parameter in enumerate(step["params"]):
                pointers[at] = self.parameter(parameter)
            self.steps.append((handle, step, pointers))

    def parameter(self, parameter):
        """Where the value of a parameter is, on the host."""
        if "map" in parameter:
            memory, start = encode(parameter, self.buffers[parameter["map"]].data_ptr())
            self.kept.append(memory)
            return start
        if "hex" in parameter:
            data = bytes.fromhex(parameter["hex"])
        elif "own" in parameter:
            own = torch.frombuffer(bytearray.fromhex(parameter["own"]), dtype=torch.uint8).cuda()
            self.kept.append(own)
            data = own.data_ptr().to_bytes(8, "little")
        else:
            data = self.buffers[parameter["buffer"]].data_ptr().to_bytes(8, "little")
        value = ctypes.create_string_buffer(data, len(data))
        self.kept.append(value)
        return ctypes.addressof(value)

    def __call__(self):
        stream = torch.cuda.current_stream().cuda_stream
        for handle, step, pointers in self.steps:
            launch(handle, step, pointers, stream)


def tiny_scales(problem):
    """The factors of keys and of values, one for each key head."""
    heads = torch.arange(problem["kv_heads"], dtype=torch.float32, device="cuda")
    return 0.5 + heads / 8, 0.75 + heads / 8


def as_tiny(keys):
    """As 8-bit floats, in bytes."""
    return keys.to(torch.float8_e4m3fn).view(torch.uint8)


def of_tiny(keys, scales):
    """The numbers that bytes stand for."""
    return keys.view(torch.float8_e4m3fn).double() * scales.double()[None, :, None, None]


def ours(directory, problem, arm, q, k, v):
    """The buffers of a plan: as the plan's storage has them."""
    batch, queries, keys = problem["batch"], problem["queries"], problem["keys"]
    words = lambda numbers: torch.tensor(numbers, dtype=torch.int64).to(torch.int32).cuda()
    buffers = {"q": q, "k": k, "v": v}
    if arm["cache"] == "latent":
        # Values are the first elements of the keys.
        del buffers["v"]
    if arm["cache"] == "e4m3":
        buffers["k_scale"], buffers["v_scale"] = tiny_scales(problem)
    if arm["ragged"]:
        rows = lambda t: t.transpose(1, 2).reshape(-1, t.shape[1], t.shape[3]).contiguous()
        buffers["q"] = rows(q)
        buffers["q_starts"] = words([queries * n for n in range(batch + 1)])
        buffers["k_starts"] = words([keys * n for n in range(batch + 1)])
        buffers.update({name: rows(buffers[name]) for name in "kv" if name in buffers})
    else:
        buffers["q_starts"] = buffers["k_starts"] = words([0])
    if arm["page"]:
        size, table = arm["page"], words([entry & 0x7FFFFFFF for entry in arm["table"]])
        each = -(-keys // size)
        used = table.view(batch, -1)[:, :each].reshape(-1).long()
        for name in (name for name in "kv" if name in buffers):
            shape = (batch, each * size) + buffers[name].shape[1:]
            whole = torch.zeros(shape, dtype=buffers[name].dtype, device="cuda")
            whole[:, :keys] = buffers[name].view(batch, keys, *buffers[name].shape[1:])
            pages = whole.view(batch * each, size, *whole.shape[2:])
            cache = torch.empty_like(pages)
            cache[used] = pages
            buffers[name] = cache
            del whole, pages
        buffers["pages"] = table
        buffers["k_starts"] = words([keys] * batch)
    return Arm(directory, arm, buffers)


def result(problem, arm, one, dtype):
    batch, heads, queries, dim = (problem[name] for name in ("batch", "heads", "queries", "values"))
    out = one.buffers["out"].view(dtype)
    if arm["ragged"]:
        return out.view(batch, queries, heads, dim).transpose(1, 2)
    return out.view(batch, heads, queries, dim)


def reference(q, k, v, causal):
    """Attention in f64, one sequence at a time."""
    group, out = q.shape[1] // k.shape[1], []
    for n in range(q.shape[0]):
        rows = q[n].double().view(k.shape[1], group, q.shape[2], q.shape[3])
        rows = rows.reshape(k.shape[1], group * q.shape[2], q.shape[3])
        scores = rows @ k[n].double().transpose(1, 2) / q.shape[3] ** 0.5
        if causal and q.shape[2] > 1:
            own = torch.arange(q.shape[2], device="cuda").repeat(group) + k.shape[2] - q.shape[2]
            hidden = torch.arange(k.shape[2], device="cuda")[None, :] > own[:, None]
            scores = scores.masked_fill(hidden, float("-inf"))
        out.append((scores.softmax(-1) @ v[n].double()).view(q.shape[1:3] + v.shape[3:]))
    return torch.stack(out)


def peer(backend, q, k, v, causal):
    mask = causal_lower_right(q.shape[2], k.shape[2]) if causal and q.shape[2] != k.shape[2] else None
    same = causal and q.shape[2] == k.shape[2]

    def work():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=same, enable_gqa=q.shape[1] != k.shape[1])

    return work


def products(q, k, v):
    """The two products as batched ones, with a softmax between them: what PyTorch has for latent attention."""
    rows, keys, values = q.flatten(1, 2), k[:, 0].transpose(1, 2), v[:, 0]
    return lambda: (torch.bmm(rows, keys) * q.shape[3] ** -0.5).softmax(2).bmm(values).view(q.shape[:3] + v.shape[3:])


def graph_of(work, calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for one in work[:2]:
            one()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in range(calls):
                work[call % len(work)]()
    return graph


def time_all(graphs, calls, rounds):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = {name: [] for name in graphs}
    for turn in range(-2, rounds):
        for name, graph in graphs.items():
            # The GPU is busy until the graph has been launched: what the host takes for that is no time of a call.
            torch.cuda._sleep(100_000)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[name].append(start.elapsed_time(end) * 1e3 / calls)
    return {name: statistics.median(samples) for name, samples in times.items()}


def copy_bandwidth():
    # A kernel that reads and writes: a plain copy may go by way of a copy engine.
    source = torch.empty(1 << 28, dtype=torch.int32, device="cuda").fill_(1)
    target = torch.empty_like(source)
    graph = graph_of([lambda: torch.bitwise_not(source, out=target)], 4)
    return 8 * source.numel() / time_all({"copy": graph}, 4, 10)["copy"] / 1e6


def with_promotions(arms, promotions):
    """Each plan, and the same with other L2 promotions of its tensor maps."""
    for arm in arms:
        yield arm
        for promotion in filter(None, promotions.split(",")):
            other = json.loads(json.dumps(arm))
            other["name"] += f" l2={promotion}"
            for parameter in (p for step in other["steps"] for p in step["params"] if "map" in p):
                parameter["l2"] = promotion
            yield other


def with_whole_launches(arms):
    """Each plan, and where it may overlap the launch before it, the same without."""
    for arm in arms:
        yield arm
        if any(step["overlaps"] for step in arm["steps"]):
            other = json.loads(json.dumps(arm))
            other["name"] += " apart"
            for step in other["steps"]:
                step["overlaps"] = False
            yield other


def read(directory, mark):
    """The plans of a folder, their files as they are found from here."""
    problems = json.load(open(os.path.join(directory, "plans.json")))
    for arm in (arm for problem in problems for arm in problem["arms"]):
        arm["name"] += mark
        for step in arm["steps"]:
            step["ptx"] = os.path.join(directory, step["ptx"])
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--beside", default="", help="a folder whose plans are timed in the same turns")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default="")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--chosen", action="store_true", help="without what was tried besides")
    parser.add_argument("--l2", default="", help="promotions to try besides a map's own: none,64,128")
    parser.add_argument("--apart", action="store_true", help="launches that may overlap the one before also without")
    options = parser.parse_args()
    problems = read(options.directory, "")
    if options.beside:
        others = {(p["set"], p["name"]): p["arms"] for p in read(options.beside, f" {options.beside}")}
        for problem in problems:
            problem["arms"] += others.get((problem["set"], problem["name"]), [])
    problems = [p for p in problems if options.only in p["set"] + ": " + p["name"]]
    if options.chosen:
        kept = ("chosen", "packed", "pages", "e4m3 packed", "e4m3 pages", "e4m3 whole")
        for problem in problems:
            problem["arms"] = [arm for arm in problem["arms"] if arm["name"].startswith(kept)]
    files = sorted({s["ptx"] for p in problems for a in p["arms"] for s in a["steps"]})
    made = assemble(".", files, options.arch)
    copy = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, copy {copy:.2f} TB/s")
    results = []
    for problem in problems:
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[problem["dtype"]]
        q_shape = (problem["batch"], problem["heads"], problem["queries"], problem["dim"])
        k_shape = (problem["batch"], problem["kv_heads"], problem["keys"], problem["dim"])
        sets = max(1, min(24, int(3e8 / problem["bytes"]) + 1))
        calls = max(sets, 4 if problem["bytes"] < 1e9 else 2)
        generator = torch.Generator("cuda").manual_seed(1)
        random = lambda shape: (torch.rand(shape, generator=generator, device="cuda", dtype=torch.float32) * 2 - 1).to(dtype)
        inputs = [(random(q_shape), random(k_shape), random(k_shape)) for _ in range(sets)]
        latent = problem["values"] != problem["dim"]
        if latent:
            inputs = [(q, k, k[..., : problem["values"]]) for q, k, _ in inputs]
        causal = problem["causal"]
        large = problem["heads"] * problem["queries"] * problem["keys"] > 1e9
        if large:
            expected = peer(SDPBackend.FLASH_ATTENTION, *inputs[0], causal)().double()
        else:
            expected = reference(*inputs[0], causal)
        graphs, notes, kept, sizes = {}, {}, [], {}
        tiny, expected_tiny = None, None
        if any(arm["cache"] == "e4m3" for arm in problem["arms"]):
            tiny = [(q, as_tiny(k), as_tiny(v)) for q, k, v in inputs]
            numbers = [of_tiny(one, scales) for one, scales in zip(tiny[0][1:], tiny_scales(problem))]
            expected_tiny = reference(tiny[0][0], *numbers, causal)
            del numbers
        backends = (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION))
        for name, backend in (("products", None),) if latent else backends:
            work = [products(*one) if latent else peer(backend, *one, causal) for one in inputs]
            try:
                found = work[0]().double()
                error = ((found - expected).norm() / expected.norm()).item()
                graphs[name], notes[name] = graph_of(work, calls), f"error {error:.1e}"
            except RuntimeError as failure:
                print(f"  {name}: {str(failure).splitlines()[0]}")
        tried = with_promotions(problem["arms"], options.l2)
        for arm in with_whole_launches(tried) if options.apart else tried:
            name = arm["name"]
            told = [made[step["ptx"]] for step in arm["steps"]]
            if any(registers is None for registers, _ in told):
                print(f"  {name}: {told}")
                continue
            try:
                small = arm["cache"] == "e4m3"
                arms = [ours(".", problem, arm, *one) for one in (tiny if small else inputs)]
                right = expected_tiny if small else expected
                sizes[name] = arm["bytes"]
                arms[0]()
                torch.cuda.synchronize()
                found = result(problem, arm, arms[0], dtype).double()
                error = ((found - right).norm() / right.norm()).item()
                bound = (5e-4 if dtype == torch.float16 else 2.5e-3) * (1.5 if large else 1)
                wrong = "" if error <= bound else "  WRONG"
                # The same bits in another run.
                arms[0].buffers["out"].fill_(255)
                arms[0]()
                again = result(problem, arm, arms[0], dtype).double()
                if not torch.equal(again, found):
                    wrong += "  OTHER BITS"
                used = " ".join("/".join(one) for one in told)
                notes[name] = f"error {error:.1e}{wrong} {arm['plan'].split(': ', 1)[-1]} (regs/spills {used})"
                graphs[name] = graph_of(arms, calls)
                kept.append(arms)
            except RuntimeError as failure:
                print(f"  {name}: {str(failure).splitlines()[0]}")
        medians = time_all(graphs, calls, options.rounds)
        cudnn, flash = (medians.get(name, float("nan")) for name in ("cudnn", "flash"))
        print(f"{problem['set']}: {problem['name']}   us, TB/s, share of copy, TFLOP/s, against cuDNN, against flash")
        for name, time in medians.items():
            rate = sizes.get(name, problem["bytes"]) / time / 1e6
            print(
                f"  {name[:34]:34s} {time:9.2f} {rate:5.2f} {100 * rate / copy:5.1f}% {problem['flops'] / time / 1e6:6.1f} "
                f"{cudnn / time:6.2f} {flash / time:6.2f}  {notes[name]}"
            )
        sys.stdout.flush()
        results.append({"set": problem["set"], "problem": problem["name"], "us": medians, "notes": notes, "bytes": problem["bytes"]})
        del graphs, kept, inputs, expected, tiny, expected_tiny
        torch.cuda.empty_cache()
    out = os.environ.get("JOB_OUT", options.directory)
    json.dump({"copy": copy, "results": results}, open(os.path.join(out, "results.json"), "w"), indent=1)


if __name__ == "__main__":
    main()
