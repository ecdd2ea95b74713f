"""A small transformer (4 layers, grouped-query attention, bf16, random weights): forward,
generation and a step of training with Heist's attention and linear, beside PyTorch's.

python transformer.py [cuda|cpu] [compile]
"""

import sys
import time

import torch
import torch.nn.functional as F

import heist.torch as ht


class Ours:
    """Heist's operations."""

    name = "heist"
    linear = staticmethod(ht.linear)
    grouped = staticmethod(lambda a, b, offs: ht.grouped_mm(a, b, offs=offs))

    @staticmethod
    def attend(q, k, v, causal):
        return ht.flash_attn_func(q, k, v, causal=causal)

    @staticmethod
    def attend_cached(q, k, v, k_cache, v_cache, lengths):
        return ht.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths)

    @staticmethod
    def gated(x, gate, up):
        return ht.linear(x, gate, activation="silu") * ht.linear(x, up)


class Theirs:
    """PyTorch's own."""

    name = "PyTorch"
    linear = staticmethod(F.linear)

    @staticmethod
    def grouped(a, b, offs):
        if hasattr(F, "grouped_mm") and a.dtype == torch.bfloat16 and a.is_cuda:
            return F.grouped_mm(a, b, offs=offs)
        out, begin = a.new_zeros(a.shape[0], b.shape[2]), 0
        for group, end in enumerate(offs.tolist()):
            out[begin:end] = a[begin:end] @ b[group]
            begin = end
        return out

    @staticmethod
    def attend(q, k, v, causal, mask=None):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if q.dtype == torch.float64:
            group = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )
        return out.transpose(1, 2)

    @staticmethod
    def attend_cached(q, k, v, k_cache, v_cache, lengths):
        batch = torch.arange(q.shape[0], device=q.device)
        k_cache[batch, lengths], v_cache[batch, lengths] = k[:, 0], v[:, 0]
        seen = torch.arange(k_cache.shape[1], device=q.device) <= lengths[:, None]
        return Theirs.attend(q, k_cache, v_cache, False, seen[:, None, None])

    @staticmethod
    def gated(x, gate, up):
        return F.silu(F.linear(x, gate)) * F.linear(x, up)


class Growing:
    """Keys and values so far: longer with every token."""

    def __init__(self):
        self.kept = {}

    def attend(self, ops, layer, q, k, v):
        if layer in self.kept:
            k, v = (torch.cat(pair, 1) for pair in zip(self.kept[layer], (k, v)))
        self.kept[layer] = (k, v)
        return ops.attend(q, k, v, q.shape[1] > 1)


class Fixed:
    """Room for keys and values, of which the first `lengths` are there: a step with it is
    the same for every token, so a CUDA graph can have it."""

    def __init__(self, model, batch, room):
        shape = (len(model.layers), batch, room, model.kv_heads, model.head_dim)
        self.k, self.v = (torch.zeros(shape, dtype=model.head.dtype, device=model.head.device) for _ in range(2))
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=model.head.device)

    def attend(self, ops, layer, q, k, v):
        if q.shape[1] == 1:
            return ops.attend_cached(q, k, v, self.k[layer], self.v[layer], self.lengths)
        self.k[layer, :, : k.shape[1]], self.v[layer, :, : v.shape[1]] = k, v
        return ops.attend(q, k, v, True)


class Transformer:
    """Pre-norm layers, rotary positions, gated feed-forward."""

    def __init__(self, layers, dim, heads, kv_heads, vocabulary, device, dtype=torch.bfloat16):
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        new = lambda *shape: (torch.randn(*shape, device=device) * shape[-1] ** -0.5).to(dtype)  # noqa: E731
        kv = kv_heads * self.head_dim
        self.embedding = torch.randn(vocabulary, dim, device=device).to(dtype)
        self.layers = [
            dict(q=new(dim, dim), k=new(kv, dim), v=new(kv, dim), o=new(dim, dim), **self.feed_forward(dim, new))
            for _ in range(layers)
        ]
        self.head = new(vocabulary, dim)

    def feed_forward(self, dim, new):
        """The weights behind attention."""
        return dict(gate=new(4 * dim, dim), up=new(4 * dim, dim), down=new(dim, 4 * dim))

    def feed(self, ops, layer, x):
        return ops.linear(ops.gated(x, layer["gate"], layer["up"]), layer["down"])

    def weights(self):
        return [self.embedding, self.head, *(w for layer in self.layers for w in layer.values())]

    def double(self):
        """The same weights in float64."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.embedding, other.head = self.embedding.double(), self.head.double()
        other.layers = [{name: w.double() for name, w in layer.items()} for layer in self.layers]
        return other

    def turns(self, first, rows):
        """How far the positions from `first` on (one for each sequence) turn."""
        position = first[:, None] + torch.arange(rows, device=first.device)
        half = self.head_dim // 2
        steps = 10000.0 ** (-torch.arange(half, device=first.device, dtype=torch.float32) / half)
        angle = position[..., None].float() * steps
        return tuple(f(angle)[:, :, None].to(self.head.dtype) for f in (torch.cos, torch.sin))

    def forward(self, ops, tokens, cache=None, first=None):
        """Logits of every token; a cache has keys and values of those before."""
        x = F.embedding(tokens, self.embedding)
        batch, rows, dim = x.shape
        cos, sin = self.turns(torch.zeros(batch, device=x.device) if first is None else first, rows)

        def turned(x):
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

        for number, layer in enumerate(self.layers):
            h = F.rms_norm(x, (dim,))
            q = turned(ops.linear(h, layer["q"]).view(batch, rows, self.heads, -1))
            k = turned(ops.linear(h, layer["k"]).view(batch, rows, self.kv_heads, -1))
            v = ops.linear(h, layer["v"]).view(batch, rows, self.kv_heads, -1)
            attended = ops.attend(q, k, v, rows > 1) if cache is None else cache.attend(ops, number, q, k, v)
            x = x + ops.linear(attended.reshape(batch, rows, dim), layer["o"])
            x = x + self.feed(ops, layer, F.rms_norm(x, (dim,)))
        return ops.linear(F.rms_norm(x, (dim,)), self.head)

    def generate(self, ops, tokens, count):
        """The most likely tokens after these, one by one."""
        cache = Growing()
        logits = self.forward(ops, tokens, cache)
        for _ in range(count):
            last = logits[:, -1].argmax(-1, keepdim=True)
            first = torch.full(tokens.shape[:1], tokens.shape[1], device=tokens.device)
            tokens = torch.cat((tokens, last), 1)
            logits = self.forward(ops, last, cache, first)
        return tokens.cpu()

    def generator(self, ops, tokens, count):
        """The same with a cache of a fixed size; on a GPU every step but the first is a
        replay of a graph. Returns a function that generates."""
        batch, rows = tokens.shape
        cache = Fixed(self, batch, -(-(rows + count) // 64) * 64)
        held = torch.zeros((batch, rows + count + 1), dtype=tokens.dtype, device=tokens.device)
        every = torch.arange(batch, device=tokens.device)

        def begin():
            cache.lengths.zero_()
            held[:, :rows] = tokens
            held[:, rows] = self.forward(ops, tokens, cache)[:, -1].argmax(-1)
            cache.lengths.fill_(rows)

        def step():
            at = cache.lengths.long()
            logits = self.forward(ops, held[every, at][:, None], cache, cache.lengths)
            held[every, at + 1] = logits[:, -1].argmax(-1)
            cache.lengths.add_(1)

        begin()
        step()
        once = captured(step) if tokens.is_cuda else step

        def generated():
            begin()
            for _ in range(count - 1):
                once()
            return held[:, : rows + count].cpu()

        return generated

    def train(self, ops, tokens):
        """The loss of guessing every next token, and the gradients of all weights."""
        for w in self.weights():
            w.requires_grad_()
        logits = self.forward(ops, tokens[:, :-1]).flatten(0, 1)
        kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
        loss = F.cross_entropy(logits.to(kind), tokens[:, 1:].flatten())
        gradients = torch.autograd.grad(loss, self.weights())
        for w in self.weights():
            w.requires_grad_(False)
        return loss.detach(), gradients


def captured(call):
    """A function that replays a CUDA graph of a call that was done before."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay():
        # A graph has addresses: what the call reads and makes must live as long as it.
        graph.replay()
        return call, kept

    return replay


def timed(call, calls=20):
    """Milliseconds of a call on a GPU, with the wait for it: the median."""
    for _ in range(3):
        call()
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2] * 1e3


def beside(name, ways, calls=20):
    """Prints how long each way takes with either, and the best of each."""
    best = {}
    for how, make in ways.items():
        for ops in (Ours, Theirs):
            ms = timed(make(ops), calls)
            best[ops.name] = min(ms, best.get(ops.name, ms))
            print(f"  {name}, {how}, {ops.name}: {ms:.3f} ms", flush=True)
    print(f"{name}: {best['heist']:.3f} ms, PyTorch's best {best['PyTorch']:.3f} ms ({best['PyTorch'] / best['heist']:.2f} of ours)", flush=True)


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


def no_further(what, ours, theirs):
    print(f"{what}: error against float64: {ours:.2e}, PyTorch's {theirs:.2e}", flush=True)
    assert ours <= 1.2 * theirs + 1e-3, f"{what}: ours is further off than PyTorch's"


@torch.inference_mode()
def compare_logits(model, tokens):
    """Logits of all tokens beside PyTorch's."""
    exact = model.double().forward(Theirs, tokens)
    no_further("forward", *(error(model.forward(ops, tokens), exact) for ops in (Ours, Theirs)))


@torch.inference_mode()
def compare_generation(model, prompt, count):
    """Generated tokens beside PyTorch's."""
    theirs = model.generate(Theirs, prompt, count)
    for how, ours in (("growing", model.generate(Ours, prompt, count)), ("fixed", model.generator(Ours, prompt, count)())):
        same = (ours == theirs).float().mean()
        print(f"generation with a {how} cache: {100 * float(same):.0f}% of tokens are the same", flush=True)


def compare_training(model, tokens):
    """Gradients of all weights beside PyTorch's."""
    loss, exact = model.double().train(Theirs, tokens)
    flat = lambda gradients: torch.cat([g.flatten().double() for g in gradients])  # noqa: E731
    exact = flat(exact)
    found = {}
    for ops in (Ours, Theirs):
        own, gradients = model.train(ops, tokens)
        assert abs(float(own) - float(loss)) < 0.02 * float(loss)
        found[ops] = error(flat(gradients), exact)
    no_further("training", found[Ours], found[Theirs])


@torch.inference_mode()
def time_forward(model, tokens, compiles):
    """Logits of all tokens, end to end."""
    def forward(ops):
        return lambda: model.forward(ops, tokens)

    ways = {"eager": forward, "graph": lambda ops: captured(forward(ops))}
    if compiles:
        ways["compiled"] = lambda ops: torch.compile(forward(ops), fullgraph=True)
    beside("forward", ways)


@torch.inference_mode()
def time_generation(model, prompt, count):
    """Tokens one by one, end to end."""
    ways = {
        "eager": lambda ops: lambda: model.generate(ops, prompt, count),
        "graph": lambda ops: model.generator(ops, prompt, count),
    }
    beside(f"{count} tokens", ways, 5)


def main(device="cuda", *how):
    torch.manual_seed(3)
    large = device == "cuda"
    model = Transformer(4, *((2048, 16, 4, 8192) if large else (64, 4, 2, 64)), device)
    tokens = torch.randint(0, model.embedding.shape[0], (2, 1024) if large else (1, 12), device=device)
    prompt, count = tokens[:, : 64 if large else 6], 32 if large else 2
    compare_logits(model, tokens)
    compare_training(model, tokens)
    compare_generation(model, prompt, count)
    if large:
        time_forward(model, tokens, "compile" in how)
        step = lambda ops: lambda: model.train(ops, tokens)  # noqa: E731
        beside("training", {"eager": step, "graph": lambda ops: captured(step(ops))}, 10)
        time_generation(model, prompt, count)


if __name__ == "__main__":
    main(*sys.argv[1:])
