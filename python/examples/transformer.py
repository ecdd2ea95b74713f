"""A small transformer (4 layers, grouped-query attention, bf16, random weights): forward
and generation with Heist's attention and linear, beside PyTorch's; and a layer of a
mixture of experts.

python transformer.py [cuda|cpu]
"""

import sys
import time

import torch
import torch.nn.functional as F

import heist.torch as ht


class Ours:
    """Heist's operations."""

    linear = staticmethod(ht.linear)

    @staticmethod
    def attend(q, k, v, causal):
        return ht.flash_attn_func(q, k, v, causal=causal)

    @staticmethod
    def gated(x, gate, up):
        return ht.linear(x, gate, activation="silu") * ht.linear(x, up)

    grouped = staticmethod(lambda a, b, offs: ht.grouped_mm(a, b, offs=offs))


class Theirs:
    """PyTorch's own."""

    linear = staticmethod(F.linear)

    @staticmethod
    def attend(q, k, v, causal):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if q.dtype == torch.float64:
            group = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)

    @staticmethod
    def gated(x, gate, up):
        return F.silu(F.linear(x, gate)) * F.linear(x, up)

    @staticmethod
    def grouped(a, b, offs):
        if hasattr(F, "grouped_mm") and a.dtype == torch.bfloat16 and a.is_cuda:
            return F.grouped_mm(a, b, offs=offs)
        out, begin = a.new_zeros(a.shape[0], b.shape[2]), 0
        for group, end in enumerate(offs.tolist()):
            out[begin:end] = a[begin:end] @ b[group]
            begin = end
        return out


class Transformer:
    """Pre-norm layers, rotary positions, gated feed-forward."""

    def __init__(self, layers, dim, heads, kv_heads, vocabulary, device, dtype=torch.bfloat16):
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        new = lambda *shape: (torch.randn(*shape, device=device) * shape[-1] ** -0.5).to(dtype)  # noqa: E731
        kv = kv_heads * self.head_dim
        self.embedding = torch.randn(vocabulary, dim, device=device).to(dtype)
        self.layers = [
            dict(q=new(dim, dim), k=new(kv, dim), v=new(kv, dim), o=new(dim, dim), gate=new(4 * dim, dim),
                 up=new(4 * dim, dim), down=new(dim, 4 * dim))
            for _ in range(layers)
        ]  # fmt: skip
        self.head = new(vocabulary, dim)

    def double(self):
        """The same weights in float64."""
        other = object.__new__(Transformer)
        other.__dict__.update(self.__dict__)
        other.embedding, other.head = self.embedding.double(), self.head.double()
        other.layers = [{name: w.double() for name, w in layer.items()} for layer in self.layers]
        return other

    def rotated(self, x, first):
        position = torch.arange(first, first + x.shape[1], device=x.device, dtype=torch.float32)
        half = self.head_dim // 2
        angle = position[:, None] * 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        cos, sin = (f(angle)[None, :, None].to(x.dtype) for f in (torch.cos, torch.sin))
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def forward(self, ops, tokens, caches=None, first=0):
        """Logits of every token; `caches` hold keys and values of those before."""
        x = F.embedding(tokens, self.embedding)
        batch, rows, dim = x.shape
        for number, layer in enumerate(self.layers):
            h = F.rms_norm(x, (dim,))
            q = self.rotated(ops.linear(h, layer["q"]).view(batch, rows, self.heads, -1), first)
            k = self.rotated(ops.linear(h, layer["k"]).view(batch, rows, self.kv_heads, -1), first)
            v = ops.linear(h, layer["v"]).view(batch, rows, self.kv_heads, -1)
            if caches is not None:
                if caches[number] is not None:
                    k, v = (torch.cat(pair, 1) for pair in zip(caches[number], (k, v)))
                caches[number] = (k, v)
            attended = ops.attend(q, k, v, rows > 1)
            x = x + ops.linear(attended.reshape(batch, rows, dim), layer["o"])
            h = F.rms_norm(x, (dim,))
            x = x + ops.linear(ops.gated(h, layer["gate"], layer["up"]), layer["down"])
        return ops.linear(F.rms_norm(x, (dim,)), self.head)

    def generate(self, ops, tokens, count):
        """The most likely tokens after these, one by one."""
        caches = [None] * len(self.layers)
        logits = self.forward(ops, tokens, caches)
        for _ in range(count):
            last = logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat((tokens, last), 1)
            logits = self.forward(ops, last, caches, tokens.shape[1] - 1)
        return tokens


def experts(ops, x, gates, up, down, k=2):
    """A layer of a mixture of experts: every token goes to the best `k`."""
    weight, expert = torch.softmax(x.float() @ gates.float().t(), -1).topk(k)
    order = expert.flatten().argsort(stable=True)
    offs = torch.bincount(expert.flatten(), minlength=gates.shape[0]).cumsum(0).to(torch.int32)
    rows = x.repeat_interleave(k, 0)[order]
    hidden = F.silu(ops.grouped(rows, up, offs))
    out = ops.grouped(hidden, down, offs)
    back = torch.empty_like(out)
    back[order] = out
    return (back.view(-1, k, x.shape[1]) * weight[..., None].to(x.dtype)).sum(1)


def timed(device, call, calls):
    """Milliseconds of a call: the median."""
    times = []
    for _ in range(calls):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2] * 1e3


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


@torch.inference_mode()
def main(device="cuda"):
    torch.manual_seed(3)
    large = device == "cuda"
    model = Transformer(4, *((2048, 16, 4, 8192) if large else (64, 4, 2, 64)), device)
    tokens = torch.randint(0, model.embedding.shape[0], (2, 1024) if large else (1, 12), device=device)
    exact = model.double().forward(Theirs, tokens)
    ours, theirs = (error(model.forward(ops, tokens), exact) for ops in (Ours, Theirs))
    print(f"forward: error against float64: {ours:.2e}, PyTorch's {theirs:.2e}")
    assert ours <= 1.2 * theirs + 1e-3, "our logits are further off than PyTorch's"
    begin, count = tokens[:, :64 if large else 6], 32 if large else 2
    same = (model.generate(Ours, begin, count) == model.generate(Theirs, begin, count)).float().mean()
    print(f"generation: {100 * float(same):.0f}% of tokens are the same")
    dim, hidden, number, rows = (1024, 2048, 16, 4096) if large else (16, 32, 4, 10)
    new = lambda *shape: (torch.randn(*shape, device=device) * shape[1] ** -0.5).bfloat16()  # noqa: E731
    x, gates, up, down = (
        torch.randn(rows, dim, device=device).bfloat16(), new(number, dim), new(number, dim, hidden), new(number, hidden, dim),
    )  # fmt: skip
    exact = experts(Theirs, *(t.double() for t in (x, gates, up, down)))
    ours, theirs = (error(experts(ops, x, gates, up, down), exact) for ops in (Ours, Theirs))
    print(f"experts: error against float64: {ours:.2e}, PyTorch's {theirs:.2e}")
    assert ours <= 1.2 * theirs + 1e-3, "our experts are further off than PyTorch's"
    if not large:
        return
    for name, call, calls in [
        ("forward", lambda ops: model.forward(ops, tokens), 20),
        ("32 tokens", lambda ops: model.generate(ops, begin, count), 3),
        ("experts", lambda ops: experts(ops, x, gates, up, down), 20),
    ]:
        for ops in (Ours, Theirs):
            call(ops)
        print(f"{name}: {timed(device, lambda: call(Ours), calls):.2f} ms, PyTorch {timed(device, lambda: call(Theirs), calls):.2f} ms", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
