"""What people use today, timed for `heist bench`.

Reads one JSON request a line from standard input and answers each with one JSON
line on standard output. `heist bench` starts it, gives it the inputs as files of
plain little-endian elements, and asks for one sample at a time, so that samples
of ours and of the peers alternate.

    {"op": "hello"}
    {"op": "load", "problem": "...",
     "inputs": {"a": {"path": ..., "dtype": "bf16", "shape": [m, k]}, ...}}
    {"op": "prepare", "problem": "...", "id": "...", "family": "gemm", "peer": "cublas",
     "options": {...}, "output": "where to write the result", "calls": 1}
    {"op": "sample", "id": "...", "launches": 100, "lead": 25}
    {"op": "forget"}

A peer's work is captured once into a graph of `calls` calls: what its Python side
costs is not measured. Before a sample the L2 cache is overwritten; with `launches`
a sample is so many launches back to back instead, after `lead` that do not count.
"""

import json
import os
import sys

# Only answers may reach standard output: libraries print to it at will.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

try:
    import torch
except ImportError as error:
    ANSWERS.write(json.dumps({"error": f"PyTorch is not installed: {error}"}) + "\n")
    sys.exit(0)

import torch.nn.functional as F

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "s32": torch.int32,
    "u32": torch.int32,
    "u8": torch.uint8,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


class Unavailable(Exception):
    """A peer that this machine or this case can't have, with the reason."""


def load(tensor):
    dtype = DTYPES[tensor["dtype"]]
    count = 1
    for extent in tensor["shape"]:
        count *= extent
    if count == 0:
        return torch.empty(tensor["shape"], dtype=dtype, device="cuda")
    with open(tensor["path"], "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=dtype, count=count)
    return data.reshape(tensor["shape"]).cuda()


# --- matrix products ---------------------------------------------------------


def gemm_operands(inputs, options):
    """a as m x k and b as k x n, whatever way they are stored."""
    a, b = inputs["a"], inputs["b"]
    return (a.t() if options["layout"][0] == "t" else a), (b.t() if options["layout"][1] == "t" else b)


def powers(left, right):
    """Powers of two of 32 elements, which lie as cuBLAS has them."""
    if not hasattr(torch, "float8_e8m0fnu"):
        raise Unavailable("this PyTorch has no float8_e8m0fnu")
    return left.view(torch.float8_e8m0fnu), right.view(torch.float8_e8m0fnu)


def gemm_in_blocks(a, b, left, right, dtype):
    """With factors of blocks. cuBLAS reads those of B in fours along the depth; `torch._scaled_mm` takes no room for them, and is wrong without it."""
    if not hasattr(F, "ScalingType"):
        raise Unavailable("this PyTorch has no torch.nn.functional.scaled_mm")
    # Ours lie block after block of the depth, and block after block of columns.
    left, right = left.reshape(-1, a.shape[0]).t(), right.reshape((b.shape[1] + 127) // 128, -1)
    right = F.pad(right, (0, -right.shape[1] % 4)).t()
    kinds = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
    return lambda: F.scaled_mm(a, b, left, kinds[0], right, kinds[1], output_dtype=dtype)


def gemm_scaled(a, b, inputs, options):
    """With factors of A and B, as `torch._scaled_mm` takes them."""
    one = torch.ones(1, device="cuda")
    left, right = inputs.get("scale_a", one), inputs.get("scale_b", one)
    dtype = DTYPES[options["dtype"]]
    if options["scales"] == "blocks":
        return gemm_in_blocks(a, b, left, right, dtype)
    left, right = {
        "none": lambda: (left.reshape(()), right.reshape(())),
        "tensor": lambda: (left.reshape(()), right.reshape(())),
        "rows": lambda: (left[:, None], right[None, :]),
        "mx": lambda: powers(left, right),
    }[options["scales"]]()
    fast = options["sums"] == "fast"
    return lambda: torch._scaled_mm(a, b, left, right, out_dtype=dtype, use_fast_accum=fast)


def gemm_cublas(inputs, options):
    a, b = gemm_operands(inputs, options)
    if a.dtype in (DTYPES["e4m3"], DTYPES["e5m2"]):
        return gemm_scaled(a, b, inputs, options)
    if "scale_a" in inputs:
        raise Unavailable("cuBLAS has factors for 8-bit floats alone")
    torch.backends.cuda.matmul.allow_tf32 = True
    dtype = DTYPES[options.get("dtype", "")] if options.get("dtype") else a.dtype
    if dtype != a.dtype:
        return lambda: torch.mm(a, b, out_dtype=dtype)
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device="cuda")
    return lambda: torch.matmul(a, b, out=out)


def gemm_triton(inputs, options):
    a, b = gemm_operands(inputs, options)
    return triton_kernels().matmul(a, b)


# --- grouped matrix products -------------------------------------------------


def grouped_rows(inputs, options):
    """Where each group's rows begin in the matrix of all groups, and how many there are."""
    begin, places = 0, []
    for group, rows in enumerate(inputs["rows"].tolist()):
        places.append((group * options["room"] if options["room"] else begin, rows))
        begin += rows
    return places


def grouped_torch(inputs, options):
    a, b = inputs["a"], inputs["b"]
    if options["room"]:
        raise Unavailable("PyTorch has no product of masked groups")
    ends = torch.cumsum(inputs["rows"], 0, dtype=torch.int32)
    b = b.transpose(1, 2) if options["layout"][1] == "t" else b
    if a.dtype not in (DTYPES["e4m3"], DTYPES["e5m2"]):
        if not hasattr(torch, "_grouped_mm"):
            raise Unavailable("this PyTorch has no _grouped_mm")
        return lambda: torch._grouped_mm(a, b, offs=ends)
    if not hasattr(torch, "_scaled_grouped_mm"):
        raise Unavailable("this PyTorch has no _scaled_grouped_mm")
    if options["scales"] == "blocks":
        raise Unavailable("torch._scaled_grouped_mm has factors of rows and columns alone")
    left, right = inputs.get("scale_a"), inputs.get("scale_b")
    if left is None:
        left, right = torch.ones(a.shape[0], device="cuda"), torch.ones(b.shape[0] * b.shape[2], device="cuda")
    right, fast, dtype = right.view(b.shape[0], -1), options["sums"] == "fast", DTYPES[options["dtype"]]
    return lambda: torch._scaled_grouped_mm(a, b, left, right, offs=ends, out_dtype=dtype, use_fast_accum=fast)


def grouped_scales(inputs, options, group, begin, rows, b):
    """The scales of a group's rows and matrix, as one product has them."""
    if options["scales"] == "none":
        return {}
    left, right = inputs["scale_a"], inputs["scale_b"].view(b.shape[0], -1)[group]
    if options["scales"] == "rows":
        return {"scale_a": left[begin : begin + rows], "scale_b": right}
    deep, room = (b.shape[1] + 127) // 128, options["room"]
    if room:
        left = left.view(-1, deep, room)[group, :, :rows]
    else:
        left = left.view(deep, -1)[:, begin : begin + rows]
    return {"scale_a": left.contiguous(), "scale_b": right}


def grouped_loop(inputs, options):
    a, b = inputs["a"], inputs["b"]
    b = b.transpose(1, 2) if options["layout"][1] == "t" else b
    out = inputs["d"].clone()
    works = []
    for group, (begin, rows) in enumerate(grouped_rows(inputs, options)):
        if rows:
            own = grouped_scales(inputs, options, group, begin, rows, b)
            left, into = a[begin : begin + rows], out[begin : begin + rows]
            works.append(grouped_one(left, b[group], own, options, into))

    def work():
        for one in works:
            one()
        return out

    return work


def grouped_one(a, b, scales, options, into):
    if a.dtype in (DTYPES["e4m3"], DTYPES["e5m2"]):
        multiply = gemm_scaled(a, b, scales, options)
        return lambda: into.copy_(multiply())
    return lambda: torch.matmul(a, b, out=into)


# --- layers of experts -------------------------------------------------------


def gate(pair):
    left, right = pair.chunk(2, dim=-1)
    return F.silu(left) * right


def weigh(rows, slots, weights):
    """The rows of each token's slots, times their weights, added."""
    rows = rows[slots].view(*weights.shape, -1)
    return (rows * weights[..., None]).sum(1).to(rows.dtype)


def experts_torch(compiled):
    """PyTorch's pieces of a layer: gather, product, gate, product, weighed sum. What routing knows (which
    row is whose) is made before."""

    def prepare(inputs, options):
        if not hasattr(torch, "_grouped_mm"):
            raise Unavailable("this PyTorch has no _grouped_mm")
        x, ends = inputs["x"], inputs["shapes"]
        up, down = (inputs[name].transpose(1, 2) for name in ("up", "down"))
        order, per = inputs["order"].long(), options["per"]
        tokens, slots = order // per, torch.argsort(order)
        weights = inputs["weights"].view(-1, per)
        # Without the pieces in f32 between them, as a fused kernel has them.
        gating, weighing = (torch.compile(one, dynamic=False) if compiled else one for one in (gate, weigh))

        def work():
            pair = torch._grouped_mm(x[tokens], up, offs=ends)
            rows = torch._grouped_mm(gating(pair), down, offs=ends)
            return weighing(rows, slots, weights)

        return work

    return prepare


# --- attention ---------------------------------------------------------------


def attention(backend_name):
    def prepare(inputs, options):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = {
            "flash": SDPBackend.FLASH_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION,
        }[backend_name]
        # Ours are batch, head, token, dimension, as here.
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        grouped = q.shape[1] != k.shape[1]
        causal, scale = options["causal"], options.get("scale")

        def work():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped
                )

        return work

    return prepare


def attention_backward(backend_name):
    """The backward operator alone, with the results and log-sum-exps that ours has."""

    def prepare(inputs, options):
        q, k, v, out, d_out = (inputs[name] for name in ("q", "k", "v", "out", "d_out"))
        causal, scale = options["causal"], options.get("scale")
        aten = torch.ops.aten
        # The forward operator says what the backward one wants besides.
        if backend_name == "flash":
            _, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_flash_attention(
                q, k, v, 0.0, causal, False, scale=scale
            )
            lse = inputs["lse"].view_as(lse)
            return lambda: aten._scaled_dot_product_flash_attention_backward(
                d_out, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset, scale=scale
            )[0]
        _, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=scale
        )
        lse = inputs["lse"].view_as(lse)
        return lambda: aten._scaled_dot_product_cudnn_attention_backward(
            d_out, q, k, v, out, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, causal, scale=scale
        )[0]

    return prepare


# --- our own operations, as PyTorch calls them --------------------------------


def ours():
    try:
        import heist.torch
    except ImportError as error:
        raise Unavailable(f"the package heist is not installed for this Python: {error}") from error
    return heist.torch


def gemm_ours(inputs, options):
    a, b = gemm_operands(inputs, options)
    multiply, dtype = ours().mm, DTYPES[options["dtype"]]
    if "scale_a" in inputs or a.dtype.itemsize == 1:
        raise Unavailable("products with factors are not timed through PyTorch")
    torch.backends.cuda.matmul.allow_tf32 = True
    return (lambda: multiply(a, b)) if dtype == a.dtype else (lambda: multiply(a, b, out_dtype=dtype))


def grouped_ours(inputs, options):
    a, b = inputs["a"], inputs["b"]
    if options["room"] or a.dtype.itemsize == 1:
        raise Unavailable("masked groups, and groups of 8-bit floats, are not timed through PyTorch")
    ends = torch.cumsum(inputs["rows"], 0, dtype=torch.int32)
    b = b.transpose(1, 2) if options["layout"][1] == "t" else b
    multiply = ours().grouped_mm
    return lambda: multiply(a, b, offs=ends)


def attention_ours(inputs, options):
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    attend = ours().scaled_dot_product_attention
    grouped = q.shape[1] != k.shape[1]
    return lambda: attend(q, k, v, is_causal=options["causal"], scale=options.get("scale"), enable_gqa=grouped)


PEERS = {
    ("gemm", "heist.torch"): gemm_ours,
    ("grouped-gemm", "heist.torch"): grouped_ours,
    ("attention", "heist.torch"): attention_ours,
    ("gemm", "cublas"): gemm_cublas,
    ("gemm", "triton"): gemm_triton,
    ("grouped-gemm", "torch"): grouped_torch,
    ("grouped-gemm", "cublas-loop"): grouped_loop,
    ("experts", "torch"): experts_torch(False),
    ("experts", "torch-compiled"): experts_torch(True),
    ("attention", "flash"): attention("flash"),
    ("attention", "cudnn"): attention("cudnn"),
    ("attention", "efficient"): attention("efficient"),
    ("attention-backward", "flash"): attention_backward("flash"),
    ("attention-backward", "cudnn"): attention_backward("cudnn"),
}


_TRITON = None


def triton_kernels():
    """The Triton kernels, from the file beside this one."""
    global _TRITON
    if _TRITON is None:
        try:
            import triton  # noqa: F401
        except ImportError as error:
            raise Unavailable(f"Triton is not installed: {error}") from error
        import importlib.util

        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers_triton.py")
        spec = importlib.util.spec_from_file_location("peers_triton", path)
        _TRITON = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_TRITON)
    return _TRITON


# --- measuring ---------------------------------------------------------------


class Prepared:
    def __init__(self, request, inputs):
        make = PEERS.get((request["family"], request["peer"]))
        if make is None:
            raise Unavailable(f"no peer {request['peer']} for {request['family']}")
        # The graph reads tensors that nobody else holds.
        self.work = work = make(inputs, {**request["options"], "dtype": request["dtype"]})
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                result = work()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        if result.dtype != DTYPES[request["dtype"]]:
            raise Unavailable(f"its results are {result.dtype}, and {request['dtype']} was asked for")
        write(result, request["output"])
        self.calls = max(1, request.get("calls", 1))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(self.calls):
                self.result = work()

    def sample(self, launches, lead):
        """One launch on a cold cache, or so many back to back after some that do not count. As ours are: in a stream of its own
        and with events that are there. One that is made in between takes the host so long that a short call waits for it."""
        start, end, stream = timing()
        with torch.cuda.stream(stream):
            if launches is None:
                flush().zero_()
            for _ in range(lead):
                self.graph.replay()
            start.record()
            for _ in range(launches or 1):
                self.graph.replay()
            end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e6 / self.calls / (launches or 1)


def write(tensor, path):
    raw = tensor.contiguous().view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
    with open(path, "wb") as file:
        file.write(raw.cpu().numpy().tobytes())


_TIMING = None


def timing():
    """Two events, recorded once before so that they exist, and a stream."""
    global _TIMING
    if _TIMING is None:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for event in events:
            event.record()
        _TIMING = (*events, torch.cuda.Stream())
    return _TIMING


_FLUSH = None


def flush():
    global _FLUSH
    if _FLUSH is None:
        l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)
        _FLUSH = torch.empty(max(2 * l2, 32 << 20), dtype=torch.uint8, device="cuda")
    return _FLUSH


def hello():
    if not torch.cuda.is_available():
        return {"error": f"PyTorch {torch.__version__} sees no GPU"}
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    try:
        import triton

        versions["triton"] = triton.__version__
    except ImportError:
        versions["triton"] = None
    return {"device": torch.cuda.get_device_name(0), "versions": versions}


def answer(request, loaded, prepared):
    op = request["op"]
    if op == "hello":
        return hello()
    if op == "load":
        loaded[request["problem"]] = {name: load(tensor) for name, tensor in request["inputs"].items()}
        return {"ok": True}
    if op == "prepare":
        prepared[request["id"]] = Prepared(request, loaded[request["problem"]])
        return {"ok": True}
    if op == "sample":
        return {"ns": prepared[request["id"]].sample(request.get("launches"), request.get("lead", 0))}
    if op == "forget":
        loaded.clear()
        prepared.clear()
        torch.cuda.empty_cache()
        return {"ok": True}
    raise ValueError(f"unknown request {op!r}")


def main():
    loaded, prepared = {}, {}
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            reply = answer(json.loads(line), loaded, prepared)
        except Unavailable as reason:
            reply = {"unavailable": str(reason)}
        except Exception as error:  # A peer that can't do a case says so, and the next goes on.
            reply = {"unavailable": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        ANSWERS.write(json.dumps(reply) + "\n")


main()
