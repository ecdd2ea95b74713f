"""Runs the multiplications of `gemm_tiles` beside cuBLAS (groups: torch._grouped_mm; layers of experts:
it and PyTorch's other pieces, as they are and compiled).

    cargo run -p heist-bench --bin gemm_tiles -- DIR [SET]
    python3 bench/kernels/gemm_tiles.py DIR [--rounds N] [--only TEXT] [--best N] [--guard N]

Every arm works on poisoned results and is compared with an f32 product; then all
arms and cuBLAS are timed in turns, each sample a captured graph whose calls rotate
over so many inputs that none is still in L2. Prints a table for each problem, best
first, and writes results.json.
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F

from driver import CUDA, check, launch

SHARED_ATTRIBUTE = 8
ELEMENTS = {"U8": 0, "F16": 6, "F32": 7, "Bf16": 9, "Tf32": 11}
SWIZZLES = {"None": 0, "Bytes32": 1, "Bytes64": 2, "Bytes128": 3}
PROMOTIONS = {"None": 0, "Bytes64": 1, "Bytes128": 2, "Bytes256": 3}


class Map(ctypes.Structure):
    """A tensor map's 128 bytes, at a multiple of 64."""

    _fields_ = [("raw", ctypes.c_uint8 * 256)]

    def encode(self, told, address):
        at = (ctypes.addressof(self) + 63) // 64 * 64
        rank = len(told["dims"])
        check(
            CUDA.cuTensorMapEncodeTiled(
                ctypes.c_void_p(at),
                ELEMENTS[told["element"]],
                rank,
                ctypes.c_void_p(address),
                (ctypes.c_uint64 * rank)(*told["dims"]),
                (ctypes.c_uint64 * rank)(*told["strides"], 0),
                (ctypes.c_uint32 * rank)(*told["box"]),
                (ctypes.c_uint32 * rank)(*[1] * rank),
                0,
                SWIZZLES[told["swizzle"]],
                PROMOTIONS[told["l2"]],
                0,
            ),
            f"tensor map {told}",
        )
        return at


FUNCTIONS = {}


def function(cubin, entry, shared):
    """A kernel that may take so much shared memory."""
    key = (cubin, entry)
    if key not in FUNCTIONS:
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        with open(cubin, "rb") as file:
            image = file.read()
        check(CUDA.cuModuleLoadData(ctypes.byref(module), image), cubin)
        check(CUDA.cuModuleGetFunction(ctypes.byref(handle), module, entry.encode()), entry)
        check(CUDA.cuFuncSetAttribute(handle, SHARED_ATTRIBUTE, shared), "shared memory")
        FUNCTIONS[key] = handle
    return FUNCTIONS[key]


def assemble(directory, files, arch):
    """Assembles all files; for each, registers and spilled bytes, or the complaint."""

    def one(file):
        path = os.path.join(directory, file)
        # What an earlier run has assembled is taken as it is.
        told = path + ".told"
        if not os.path.exists(told) or os.path.getmtime(told) < os.path.getmtime(path):
            run = subprocess.run(
                ["ptxas", "-v", f"-arch={arch}", path, "-o", path + ".cubin"],
                capture_output=True,
                text=True,
            )
            if run.returncode != 0:
                return None, run.stderr.strip()[:300]
            with open(told, "w") as file:
                file.write(run.stderr)
        with open(told) as file:
            words = file.read().replace(",", " ").split()
        return words[words.index("registers") - 1], words[words.index("spill") - 2]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(files, pool.map(one, files)))


class Arm:
    """One way to multiply over one set of inputs."""

    def __init__(self, directory, arm, buffers, own=None):
        self.buffers = dict(buffers)
        for buffer in arm["buffers"]:
            if buffer["name"] not in self.buffers:
                size = max(buffer["bytes"], 16)
                self.buffers[buffer["name"]] = torch.full(
                    (size,), 255, dtype=torch.uint8, device="cuda"
                )
        self.kept, self.steps = [], []
        for step in arm["steps"]:
            handle = function(
                os.path.join(directory, step["ptx"] + ".cubin"), step["entry"], step["shared"]
            )
            pointers = (ctypes.c_void_p * len(step["params"]))()
            for at, parameter in enumerate(step["params"]):
                if "map" in parameter:
                    told = parameter["map"]
                    value = Map()
                    pointers[at] = value.encode(told, self.address(told["buffer"]))
                else:
                    if "buffer" in parameter:
                        value = ctypes.c_uint64(self.address(parameter["buffer"]))
                    elif "own" in parameter:
                        data = bytearray.fromhex(parameter["own"])
                        data = memory = torch.frombuffer(data, dtype=torch.uint8).cuda()
                        if own:
                            memory = own(data.numel())
                            memory.inside.copy_(data)
                        self.kept.append(memory)
                        value = ctypes.c_uint64(memory.data_ptr())
                    else:
                        kind = {4: ctypes.c_uint32, 8: ctypes.c_uint64}[parameter["size"]]
                        value = kind(parameter["bits"])
                    pointers[at] = ctypes.addressof(value)
                self.kept.append(value)
            self.steps.append((handle, step, pointers))

    def address(self, name):
        name = name.strip("`$")
        return self.buffers[name].data_ptr() if name in self.buffers else 0

    def __call__(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for handle, step, pointers in self.steps:
            launch(handle, step, pointers, stream)


def apart(arms):
    """Each arm, and where it may overlap the launch before it, the same without; the same with one of two steps that may."""
    for arm in arms:
        yield arm
        overlapping = [number for number, step in enumerate(arm["steps"]) if step["overlaps"]]
        for kept in ([], *([number] for number in overlapping if len(overlapping) > 1)):
            if overlapping:
                steps = [dict(step, overlaps=number in kept) for number, step in enumerate(arm["steps"])]
                name = "apart" if not kept else f"overlap={kept[0]}"
                yield dict(arm, name=f"{arm['name']} {name}", steps=steps)


def kernels(work):
    """The names of the kernels that some work runs."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        work()
        torch.cuda.synchronize()
    return "".join(f" {event.name[:90]}" for event in profile.events() if "Sync" not in event.name)


def graph_of(work, calls):
    """A captured graph of calls. Its stream waits for what made the inputs: a result may lie
    where a temporary of theirs lay, and kernels that still read it would read the result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for one in work:
            one()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in range(calls):
                work[call % len(work)]()
    return graph.replay


DTYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


def inputs(problem, number, zeros=False):
    """Operands, A with m and B with n rows however they are stored, and a result; of `zeros` nothing in the multipliers changes, so that
    power is not what limits the clock."""
    m, n, k = (problem[name] for name in "mnk")
    dtype, out = DTYPES[problem["input"]], DTYPES[problem["output"]]
    generator = torch.Generator("cuda").manual_seed(number)

    def make(*shape):
        drawn = torch.rand(shape, generator=generator, device="cuda", dtype=torch.float32)
        return (torch.zeros_like(drawn) if zeros else drawn * 2 - 1).to(dtype)

    # Always m x k and n x k: what is stored the other way is a view.
    left, right = problem.get("layout", "nt")
    several = (problem["batch"],) if problem.get("batch", 1) > 1 else ()
    a = make(*several, m, k) if left == "n" else make(*several, k, m).mT
    b = make(*several, n, k) if right == "t" else make(*several, k, n).mT
    return a, b, torch.empty(*several, m, n, dtype=out, device="cuda")


def scales_of(problem):
    """Factors of A and B, as they lie in memory: none, one, one a row, or one a block."""
    m, n, k = (problem[name] for name in "mnk")
    blocks = lambda extent: (extent + 127) // 128
    shapes = {
        "none": None,
        "tensor": [(1,), (1,)],
        "rows": [(m,), (n,)],
        "blocks": [(blocks(k), m), (blocks(n), blocks(k))],
    }[problem.get("scales", "none")]
    return shapes and [torch.rand(shape, device="cuda") + 0.5 for shape in shapes]


def scaled(problem, a, b, scales):
    """A and B in f32, times their factors."""
    a, b = a.float(), b.float()
    if not scales:
        return a, b
    left, right = scales
    if problem["scales"] == "blocks":
        left = left.t().repeat_interleave(128, 1)[:, : a.shape[1]]
        right = right.repeat_interleave(128, 0).repeat_interleave(128, 1)
        right = right[: b.shape[0], : b.shape[1]]
    else:
        left, right = left[:, None], right[:, None]
    return a * left, b * right


def in_blocks(a, b, left, right, dtype):
    """A product with scales of blocks by cuBLAS, which reads those of B in fours along the depth: torch._scaled_mm takes no room for them, and is wrong without it."""
    right = F.pad(right, (0, -right.shape[-1] % 4)).t()
    kinds = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
    return lambda: F.scaled_mm(a, b.t(), left, kinds[0], right, kinds[1], output_dtype=dtype)


def peer_of(problem, a, b, d, scales):
    """The same by cuBLAS, or by what PyTorch has for 8-bit floats."""
    if not scales:
        return lambda: torch.matmul(a, b.mT, out=d)
    left, right = scales
    if problem["scales"] == "blocks":
        return in_blocks(a, b, left.t(), right, d.dtype)
    left, right = {
        "tensor": lambda: (left.reshape(()), right.reshape(())),
        "rows": lambda: (left[:, None], right[None, :]),
    }[problem["scales"]]()
    fast = problem["sums"] == "fast"
    return lambda: torch._scaled_mm(
        a, b.t(), left, right, out_dtype=d.dtype, use_fast_accum=fast
    )


def measure(problem, options, made, flush):
    m, n, k = (problem[name] for name in "mnk")
    bytes_ = DTYPES[problem["input"]].itemsize
    size = (bytes_ * (m * k + n * k) + max(bytes_, 2) * m * n) * problem.get("batch", 1)
    # Those that come again all fit L2 together: where one set lies there is a matter of luck.
    fitting = min(options.sets, int(30e6 / size))
    count = max(1, fitting if options.hot else min(16, math.ceil(160e6 / size)))
    sets = [inputs(problem, number, options.zeros) for number in range(count)]
    calls = options.hot or count
    a, b, d = sets[0]
    torch.backends.cuda.matmul.allow_tf32 = False
    scales = scales_of(problem)
    named = dict(zip(("scale_a", "scale_b"), scales or []))
    left, right = scaled(problem, a, b, scales)
    reference = left @ right.mT
    del left, right
    torch.backends.cuda.matmul.allow_tf32 = True
    norm = reference.norm()
    work, notes, kept = {}, {}, []
    peers = [peer_of(problem, a, b, d, scales) for a, b, d in sets]
    try:
        found = peers[0]()
        error = (found.float() - reference).norm().item() / max(norm.item(), 1e-30)
        work["cuBLAS"], notes["cuBLAS"] = graph_of(peers, calls), f"{error:.1e}"
        notes["cuBLAS"] += kernels(peers[0]) if options.names else ""
    except RuntimeError as failure:
        print(f"no peer for {problem['name']}: {str(failure).splitlines()[0][:150]}")
    slow = {}
    if options.triton and problem["input"] in ("bf16", "f16"):
        from peers_triton import matmul

        tuned = [matmul(a, b.t()) for a, b, _ in sets]
        error = (tuned[0]().float() - reference).norm().item() / max(norm.item(), 1e-30)
        slow["Triton"], notes["Triton"] = graph_of(tuned, calls), f"{error:.1e}"
    for arm in problem["arms"]:
        name = arm["name"]
        told = [made[step["ptx"]] for step in arm["steps"]]
        if any(registers is None for registers, _ in told):
            print(f"{name}: {told}")
            continue
        try:
            shared, ours = {}, []
            for a, b, d in sets:
                d.view(torch.uint8).fill_(255)
                one = Arm(options.directory, arm, {"a": a, "b": b, "d": d, **named, **shared})
                # One workspace does for calls that follow each other.
                shared = {x: one.buffers[x] for x in one.buffers if x in ("partial", "a_anew", "b_anew")}
                ours.append(one)
            for one in ours:
                one()
            torch.cuda.synchronize()
            d = sets[0][2]
            bits, differ = None, 0
            for number in range(options.again):
                d.view(torch.uint8).fill_(255)
                ours[0]()
                torch.cuda.synchronize()
                bits = d.clone() if bits is None else bits
                differ += not torch.equal(bits.view(torch.uint8), d.view(torch.uint8))
                left = d.isnan()
                if left.any():
                    rows, cols = left.any(1).nonzero().flatten(), left.any(0).nonzero().flatten()
                    print(
                        f"LEFT OUT {problem['name']} {name}, launch {number}: {left.sum().item()} elements, "
                        f"rows {rows[0].item()} to {rows[-1].item()}, columns {cols[0].item()} to {cols[-1].item()}"
                    )
            if differ:
                print(f"OTHER BITS {problem['name']} {name}: {differ} of {options.again} launches")
            error = (d.float() - reference).norm().item() / max(norm.item(), 1e-30)
            first = d.clone()
            ours[0]()
            torch.cuda.synchronize()
            same = torch.equal(first.view(torch.uint8), d.view(torch.uint8))
            registers, spills = told[0]
            notes[name] = f"{error:.1e} {registers}r" + (f" SPILLS {spills}" if spills != "0" else "")
            if not error < options.error or not same:
                print(f"WRONG {problem['name']} {name}: error {error}, same {same}")
                continue
            work[name] = graph_of(ours, calls)
            # A graph does not own what its kernels work on.
            kept.append(ours)
        except RuntimeError as failure:
            print(f"{name}: {str(failure).splitlines()[0]}")
            torch.cuda.synchronize()
    same = lambda one, other: torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
    if not all(map(same, sets[0], inputs(problem, 0, options.zeros)[:2])):
        print(f"DAMAGED INPUTS {problem['name']}: its figures say nothing")
    del reference
    if options.sustained:
        return sustained(work, options.rounds, calls, options.sustained, notes), notes
    # The same operands again and again: what fits L2 is there. Triton has turns of its own: after a call that takes
    # twenty times as long whoever is next runs at a lower clock (256 x 256 x 65536: 30 us instead of 26).
    cache = None if options.hot else flush
    return timed(work, options.rounds, calls, cache) | timed(slow, options.rounds, calls, cache), notes


BAND, MARK = 1 << 20, 0x5A


class Guarded:
    """A buffer between two bands that nobody may write."""

    def __init__(self, size):
        self.size = (size + 255) // 256 * 256
        self.all = torch.full((self.size + 2 * BAND,), MARK, dtype=torch.uint8, device="cuda")
        self.inside = self.all[BAND : BAND + size]

    def data_ptr(self):
        return self.inside.data_ptr()

    def intact(self):
        ends = self.all[:BAND], self.all[BAND + self.inside.numel() :]
        return all(bool((end == MARK).all()) for end in ends)


def guard(problem, options, made):
    """Launches every arm with bands around each buffer, workspace and tile counters too, and
    tells what was written that should not have been: bands, or inputs."""
    told, launches = [], 0
    for arm in problem["arms"]:
        # As they lie in memory.
        given = {name: one if one.is_contiguous() else one.t() for name, one in zip("abd", inputs(problem, 0))}
        given |= zip(("scale_a", "scale_b"), scales_of(problem) or [])
        read = given.keys() - {"d"}
        sizes = {buffer["name"]: buffer["bytes"] for buffer in arm["buffers"]}
        sizes |= {name: tensor.nbytes for name, tensor in given.items()}
        buffers = {name: Guarded(size or 16) for name, size in sizes.items()}
        for name in read:
            buffers[name].inside.copy_(given[name].view(torch.uint8).flatten())
        one = Arm(options.directory, arm, buffers, own=Guarded)
        for number in range(options.guard):
            for name in sizes.keys() - read:
                buffers[name].inside.fill_(255)
            one()
            torch.cuda.synchronize()
            launches += 1
            owned = {f"own {at}": own for at, own in enumerate(one.kept) if isinstance(own, Guarded)}
            told += [
                f"BAND of {name} written: {arm['name']}, launch {number}"
                for name, buffer in (buffers | owned).items()
                if not buffer.intact()
            ]
            told += [
                f"INPUT {name} written: {arm['name']}, launch {number}"
                for name in read
                if not torch.equal(buffers[name].inside, given[name].view(torch.uint8).flatten())
            ]
            result = buffers["d"].inside.view(given["d"].dtype)
            if result.isnan().any():
                told.append(f"LEFT OUT: {arm['name']}, launch {number}")
    print(f"guarded {problem['name']}: {launches} launches, {len(told)} complaints", *told, sep="\n  ")


def measure_groups(problem, options, made, flush):
    rows, n, k = problem["rows"], problem["n"], problem["k"]
    total, groups = sum(rows), len(rows)
    generator = torch.Generator("cuda").manual_seed(1)
    make = lambda *shape: (
        torch.rand(shape, generator=generator, device="cuda", dtype=torch.float32) * 2 - 1
    ).to(torch.bfloat16)
    a, b = make(total, k), make(groups, n, k)
    if options.zeros:
        a.zero_(), b.zero_()
    d = torch.empty(total, n, dtype=torch.bfloat16, device="cuda")
    ends = torch.cumsum(torch.tensor(rows, dtype=torch.int32, device="cuda"), 0, dtype=torch.int32)
    work, notes, kept = {}, {}, []
    peer = lambda: torch._grouped_mm(a, b.transpose(1, 2), offs=ends)
    reference = torch.empty(total, n, dtype=torch.float32, device="cuda")
    begin = 0
    for group, count in enumerate(rows):
        reference[begin : begin + count] = a[begin : begin + count].double() @ b[group].double().t()
        begin += count
    norm = reference.norm()
    wrong = lambda found: (found.float() - reference).norm().item() / max(norm.item(), 1e-30)
    work["cuBLAS"], notes["cuBLAS"] = graph_of([peer], 1), f"{wrong(peer()):.1e}"
    for arm in problem["arms"]:
        name = arm["name"]
        told = [made[step["ptx"]] for step in arm["steps"]]
        d.view(torch.uint8).fill_(255)
        zeros = torch.zeros(1 << 16, dtype=torch.uint8, device="cuda")
        buffers = {"a": a, "b": b, "d": d, "shapes": ends, "places": zeros, "record": zeros}
        try:
            one = Arm(options.directory, arm, buffers)
            one()
            torch.cuda.synchronize()
            error = wrong(d)
            first, differ = d.clone(), 0
            for _ in range(options.again):
                d.view(torch.uint8).fill_(255)
                one()
                differ += not torch.equal(first.view(torch.uint8), d.view(torch.uint8))
        except RuntimeError as failure:
            print(f"{name}: {str(failure).splitlines()[0]}")
            continue
        registers, spills = told[0]
        notes[name] = f"{error:.1e} {registers}r" + (f" SPILLS {spills}" if spills != "0" else "")
        if differ:
            print(f"OTHER BITS {problem['name']} {name}: {differ} of {options.again} launches")
        if not error < 4e-3 or differ:
            print(f"WRONG {problem['name']} {name}: error {error}")
            continue
        work[name] = graph_of([one], 1)
        kept.append(one)
    del reference
    if options.sustained:
        return sustained(work, options.rounds, 1, options.sustained, notes), notes
    return timed(work, options.rounds, 1, flush), notes


def scaled_reference(left, right, rows, begins):
    """The product of each group in f64, one after the other."""
    return [left[begin : begin + count] @ right(group) for group, (begin, count) in enumerate(zip(begins, rows))]


def measure_scaled_groups(problem, options, made, flush):
    """Groups of e4m3 with scales, against f64; beside torch._scaled_grouped_mm (which has factors of rows and columns
    alone) and a loop of torch._scaled_mm."""
    rows, room, n, k, kind = (problem[name] for name in ("rows", "room", "n", "k", "scales"))
    groups, deep, wide = len(rows), -(-k // 128), -(-n // 128)
    total = groups * room if room else sum(rows)
    begins = [group * room if room else sum(rows[:group]) for group in range(groups)]
    generator = torch.Generator("cuda").manual_seed(1)
    rand = lambda *shape: torch.rand(shape, generator=generator, device="cuda")
    a, b = ((rand(*shape) * 2 - 1).to(torch.float8_e4m3fn) for shape in ((total, k), (groups, n, k)))
    per = {"rows": ((total,), (groups, n)), "blocks": ((total, deep), (groups, wide, deep))}[kind]
    of_a, of_b = rand(*per[0]) + 0.5, rand(*per[1]) + 0.5
    used = torch.zeros(total, dtype=torch.bool, device="cuda")
    for begin, count in zip(begins, rows):
        used[begin : begin + count] = True
    # What nobody uses must not matter.
    a.view(torch.uint8)[~used] = 255
    of_a[~used] = math.nan
    spread = lambda scale: scale[..., None].double() if kind == "rows" else scale.double().repeat_interleave(128, -1)[..., :k]
    left = a.double() * spread(of_a)

    def right(group):
        scale = spread(of_b[group])
        return (b[group].double() * (scale if kind == "rows" else scale.repeat_interleave(128, 0)[:n])).t()

    want = torch.cat(scaled_reference(left, right, rows, begins))
    del left
    # As the kernel reads them.
    if kind == "blocks":
        lies = of_a.view(groups, room, deep).transpose(1, 2) if room else of_a.t()
    else:
        lies = of_a
    lies = lies.contiguous()
    numbers = torch.tensor(rows, dtype=torch.int32, device="cuda")
    ends = torch.cumsum(numbers, 0, dtype=torch.int32)
    work, notes, kept = {}, {}, []

    def single(begin, count, group):
        own, other, bf16 = a[begin : begin + count], b[group], torch.bfloat16
        scale = of_a[begin : begin + count]
        if kind == "blocks":
            return in_blocks(own, other, scale.t().contiguous().t(), of_b[group], bf16)
        return lambda: torch._scaled_mm(own, other.t(), scale[:, None], of_b[group][None, :], out_dtype=bf16)

    parts = [single(*part) for part in zip(begins, rows, range(groups)) if part[1]]

    def loop():
        for part in parts:
            to = part()
        return to

    peers = {"loop of torch._scaled_mm": loop}
    if not room:
        plain, flat = rand(total) + 0.5, rand(groups, n) + 0.5
        peers["torch._scaled_grouped_mm (rows)"] = lambda: torch._scaled_grouped_mm(
            a, b.transpose(1, 2), plain, flat, offs=ends, out_dtype=torch.bfloat16
        )
    for name, peer in peers.items():
        try:
            work[name], notes[name] = graph_of([peer], 1), ""
        except RuntimeError as failure:
            print(f"{name}: {str(failure).splitlines()[0][:120]}")
    d = torch.empty(total, n, dtype=torch.bfloat16, device="cuda")
    for arm in problem["arms"]:
        name = arm["name"]
        told = [made[step["ptx"]] for step in arm["steps"]]
        zeros = torch.zeros(1 << 16, dtype=torch.uint8, device="cuda")
        buffers = {
            "a": a, "b": b, "d": d, "shapes": numbers if room else ends, "places": zeros, "record": zeros, "scale_a": lies,
            "scale_b": of_b,
        }  # fmt: skip
        d.fill_(-77.0)
        one = Arm(options.directory, arm, buffers)
        one()
        torch.cuda.synchronize()
        error = ((d[used].double() - want).norm() / want.norm()).item()
        notes[name] = f"{error:.1e} {told[0][0]}r"
        if not error < options.error or not (d[~used] == -77.0).all():
            print(f"WRONG {problem['name']} {name}: error {error}")
            continue
        first, differ = d.clone(), 0
        for _ in range(options.again):
            d.fill_(-77.0)
            one()
            differ += not torch.equal(d.view(torch.int16), first.view(torch.int16))
        if differ:
            print(f"OTHER BITS {problem['name']} {name}: {differ} of {options.again} launches")
        work[name] = graph_of([one], 1)
        kept.append(one)
    medians = timed(work, options.rounds, 1, flush)
    # The best of the peers is the one to compare with.
    peer = min((name for name in peers if name in medians), key=medians.get)
    medians["cuBLAS"], notes["cuBLAS"] = medians[peer], f"({peer})"
    return medians, notes


def expert_pieces(compiled):
    """The gate, and the weighed sum of each token's slots."""

    def gate(pair):
        left, right = pair.chunk(2, dim=-1)
        return torch.nn.functional.silu(left) * right

    def weigh(rows, slots, weights):
        rows = rows[slots].view(*weights.shape, -1)
        return (rows * weights[..., None]).sum(1).to(rows.dtype)

    return [torch.compile(one, dynamic=False) if compiled else one for one in (gate, weigh)]


def expert_reference(x, up, down, order, ends, weights, per):
    """In f64, rounded where something is stored."""
    slots = torch.zeros(order.numel(), x.shape[1], dtype=torch.float64, device="cuda")
    begin, gate = 0, torch.nn.functional.silu
    for expert, end in enumerate(ends.tolist()):
        own = order[begin:end]
        begin = end
        rows = x[own // per].double()
        left, right = (rows @ up[expert].double().t()).chunk(2, dim=-1)
        inner = (gate(left) * right).to(x.dtype).double()
        rows = weights.view(-1)[own, None].double() * (inner @ down[expert].double().t())
        slots[own] = rows.to(x.dtype).double()
    return slots.view(-1, per, x.shape[1]).sum(1)


def measure_experts(problem, options, made, flush):
    rows, per, hidden, inner = (problem[name] for name in ("rows", "per", "hidden", "inner"))
    total, experts = sum(rows), len(rows)
    generator = torch.Generator("cuda").manual_seed(1)
    make = lambda scale, *shape: (
        (torch.rand(shape, generator=generator, device="cuda", dtype=torch.float32) * 2 - 1) * scale
    ).to(torch.bfloat16)
    x = make(1, total // per, hidden)
    up, down = make(hidden**-0.5, experts, 2 * inner, hidden), make(inner**-0.5, experts, hidden, inner)
    order = torch.randperm(total, generator=generator, device="cuda")
    weights = torch.rand(total // per, per, generator=generator, device="cuda")
    ends = torch.cumsum(torch.tensor(rows, dtype=torch.int32, device="cuda"), 0, dtype=torch.int32)
    d = torch.empty(total // per, hidden, dtype=torch.bfloat16, device="cuda")
    reference = expert_reference(x, up, down, order, ends, weights, per)
    wrong = lambda found: ((found.double() - reference).norm() / reference.norm()).item()
    work, notes, kept = {}, {}, []
    tokens, slots = order // per, torch.argsort(order)
    torch._dynamo.reset()
    for name, compiled in (("cuBLAS", True), ("eager", False)):
        gate, weigh = expert_pieces(compiled)

        def peer(gate=gate, weigh=weigh):
            pair = torch._grouped_mm(x[tokens], up.transpose(1, 2), offs=ends)
            return weigh(torch._grouped_mm(gate(pair), down.transpose(1, 2), offs=ends), slots, weights)

        error = wrong(peer())
        work[name], notes[name] = graph_of([peer], 1), f"{error:.1e}"
    given = {
        "x": x, "up": up, "down": down, "order": order.to(torch.int32), "weights": weights,
        "shapes": ends, "d": d,
    }
    for arm in problem["arms"]:
        name = arm["name"]
        told = [made[step["ptx"]] for step in arm["steps"]]
        if any(registers is None for registers, _ in told):
            print(f"{name}: {told}")
            continue
        d.view(torch.uint8).fill_(255)
        try:
            one = Arm(options.directory, arm, given)
            one()
            torch.cuda.synchronize()
            first = d.clone()
            same = True
            for _ in range(options.again):
                d.view(torch.uint8).fill_(255)
                one()
                torch.cuda.synchronize()
                same = same and torch.equal(first.view(torch.uint8), d.view(torch.uint8))
        except RuntimeError as failure:
            print(f"{name}: {str(failure).splitlines()[0]}")
            continue
        error = wrong(d)
        notes[name] = f"{error:.1e} {'+'.join(registers for registers, _ in told)}r"
        if not error < options.error or not same:
            print(f"WRONG {problem['name']} {name}: error {error}, same {same}")
            continue
        work[name] = graph_of([one], 1)
        kept.append(one)
    del reference
    medians = timed(work, options.rounds, 1, flush)
    print(f"PyTorch compiled {medians['cuBLAS']:.2f} us, as it is {medians['eager']:.2f} us")
    return medians, notes


class Meter:
    """The GPU's counter of energy, its clock, and whether power is what limits that."""

    POWER_CAP = 4

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self.library.nvmlInit_v2()
        self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def joules(self):
        value = ctypes.c_ulonglong()
        self.library.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value))
        return value.value / 1e3

    def clock(self):
        """Megahertz, and whether power limits them."""
        value, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        self.library.nvmlDeviceGetClockInfo(self.device, 1, ctypes.byref(value))
        self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.device, ctypes.byref(reasons))
        return value.value, bool(reasons.value & self.POWER_CAP)


def sustained(work, rounds, calls, milliseconds, notes):
    """Back to back, so long a sample: at full power. Notes the clock, and energy where samples are long enough for its counter."""
    times = {name: [] for name in work}
    meter, used, clocks = Meter(), {name: [] for name in work}, {name: [] for name in work}
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    once = timed(work, 1, calls, None)
    for _ in range(rounds):
        for name, one in work.items():
            count = max(1, round(milliseconds * 1e3 / (once[name] * calls)))
            start.record()
            before, began = meter.joules(), time.time()
            for _ in range(count):
                one()
            end.record()
            while not end.query():
                clocks[name].append(meter.clock())
                time.sleep(0.002)
            used[name].append((meter.joules() - before, time.time() - began))
            times[name].append(start.elapsed_time(end) * 1e3 / calls / count)
    for name in work:
        mean = statistics.mean(clock for clock, _ in clocks[name])
        capped = statistics.mean(capped for _, capped in clocks[name])
        notes[name] += f" {mean:.0f} MHz, limited by power {capped:.0%}"
        if milliseconds >= 200:
            joules, seconds = (sum(part) for part in zip(*used[name]))
            notes[name] += f", {joules / seconds:.0f} W, {joules / seconds * statistics.median(times[name]) / 1e3:.1f} mJ"
    return {name: statistics.median(samples) for name, samples in times.items()}


def timed(work, rounds, calls, flush):
    times = {name: [] for name in work}
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for turn in range(-2, rounds):
        for name, one in work.items():
            if flush is not None:
                flush.fill_(turn & 127)
            start.record()
            one()
            end.record()
            end.synchronize()
            if turn >= 0:
                times[name].append(start.elapsed_time(end) * 1e3 / calls)
    return {name: statistics.median(samples) for name, samples in times.items()}


def summary(results):
    """How the first arm of each problem (what is chosen, in sets that begin with it) stands beside each peer."""
    for peer in ("cuBLAS", "Triton"):
        ratios = {}
        for result in results:
            ours = [us for name, us in result["us"].items() if name not in ("cuBLAS", "Triton", "eager") and "torch._" not in name]
            if ours and peer in result["us"]:
                ratios[result["name"]] = result["us"][peer] / ours[0]
        if ratios:
            mean = statistics.geometric_mean(ratios.values())
            worst = sorted((ratio, name) for name, ratio in ratios.items())[:6]
            behind = sum(ratio < 0.95 for ratio in ratios.values())
            print(f"{len(ratios)} beside {peer}: {mean:.3f}, below 0.95: {behind}; worst", ", ".join(f"{name} {ratio:.3f}" for ratio, name in worst))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", type=int, default=0, help="launches on poisoned results, besides")
    parser.add_argument("--guard", type=int, default=0, help="launches between bands, instead of timing")
    parser.add_argument("--error", type=float, default=4e-3, help="relative norm that is still right")
    parser.add_argument("--sweep", default="sweep.json")
    parser.add_argument("--best", type=int, default=6)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--out", default=None)
    parser.add_argument("--plans", default=None, help="a file to which a line is added for each plan, for gemm_fit")
    parser.add_argument("--apart", type=int, default=0, help="the first so many plans also without overlap")
    parser.add_argument("--sustained", type=float, default=0, help="milliseconds of calls back to back a sample, instead of cold ones")
    parser.add_argument("--hot", type=int, default=0, help="calls in a sample, over the same operands")
    parser.add_argument("--sets", type=int, default=1, help="with --hot: so many sets of operands, as far as L2 has room for all")
    parser.add_argument("--zeros", action="store_true", help="operands are zeros, which take little power")
    parser.add_argument("--names", action="store_true", help="tell which kernels the peer runs")
    parser.add_argument("--triton", action="store_true", help="Triton as a second peer, tuned for each shape")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which to stop")
    options = parser.parse_args()
    began = time.time()
    problems = json.load(open(os.path.join(options.directory, options.sweep)))
    problems = [problem for problem in problems if options.only in problem["name"]]
    for problem in problems:
        arms = problem["arms"]
        problem["arms"] = [*apart(arms[: options.apart]), *arms[options.apart :]]
    files = sorted(
        {step["ptx"] for problem in problems for arm in problem["arms"] for step in arm["steps"]}
    )
    made = assemble(options.directory, files, options.arch)
    print(f"{len(files)} kernels assembled in {time.time() - began:.1f} s")
    for file, (registers, spills) in made.items():
        if registers is None or spills != "0":
            print(file, registers, spills)
    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    results = []
    out = options.out or os.path.join(options.directory, "results.json")
    for problem in problems:
        if time.time() - began > options.limit:
            print("out of time")
            break
        experts = "per" in problem
        grouped = "rows" in problem
        if options.guard and not grouped:
            guard(problem, options, made)
            torch.cuda.empty_cache()
            continue
        take = measure_experts if experts else measure_groups if grouped else measure
        if "scales" in problem and grouped:
            take = measure_scaled_groups
        medians, notes = take(problem, options, made, flush)
        peer = medians.get("cuBLAS", math.nan)
        # A layer of experts multiplies three matrices of one size.
        n, k = (3 * problem["inner"], problem["hidden"]) if experts else (problem["n"], problem["k"])
        m = sum(problem["rows"]) if grouped else problem["m"]
        times = len(problem["rows"]) if grouped else 1
        flops, size = 2 * m * n * k, 2 * (m * k + times * n * k + m * n)
        print(f"{problem['name']}  cuBLAS {peer:.2f} us {notes.get('cuBLAS', '')}", end="")
        print(f"  {flops / peer / 1e6:.0f} TFLOP/s {size / peer / 1e3:.0f} GB/s")
        ranked = sorted((time, name) for name, time in medians.items() if name != "cuBLAS")
        for time_, name in ranked[: options.best]:
            speed = f"{flops / time_ / 1e6:5.0f}"
            print(f"  {time_:9.2f} {peer / time_:6.3f} {speed}  {name:36s} {notes[name]}")
        sys.stdout.flush()
        results.append({"name": problem["name"], "problem": [m, n, k], "us": medians, "notes": notes})
        json.dump(results, open(out, "w"))
        if options.plans and not grouped and problem["input"] == "bf16":
            told = f"{m} {n} {k} {problem.get('layout', 'nt')}"
            with open(options.plans, "a") as file:
                file.writelines(
                    f"{told} {name} {us:.3f} {peer:.3f}\n" for name, us in medians.items() if name != "cuBLAS" and " " not in name
                )
        torch.cuda.empty_cache()
    summary(results)
    print(f"{time.time() - began:.0f} s")


main()
