"""A transformer whose feed-forward is a mixture of experts: every token goes to the best
two of 16, by grouped products whose sizes stay on the device. Beside PyTorch's own
composition (`torch.nn.functional.grouped_mm`): one layer of experts, forward, generation.

python experts.py [cuda|cpu] [compile]
"""

import sys

import torch
import torch.nn.functional as F

from transformer import (
    Ours,
    Theirs,
    Transformer,
    beside,
    captured,
    compare_generation,
    compare_logits,
    error,
    no_further,
    time_forward,
    time_generation,
)


def experts(ops, x, gates, up, down, k=2):
    """A layer: (tokens, dim); nothing waits for the device."""
    tokens, dim = x.shape
    weight, expert = torch.softmax(x.float() @ gates.float().t(), -1).topk(k)
    number, order = expert.flatten().sort(stable=True)
    every = torch.arange(gates.shape[0], device=x.device)
    offs = torch.searchsorted(number, every, right=True).to(torch.int32)
    gate, value = ops.grouped(x[order // k], up, offs).chunk(2, -1)
    out = ops.grouped(F.silu(gate) * value, down, offs)
    out = out * weight.to(x.dtype).flatten()[order][:, None]
    return torch.zeros_like(x).index_add_(0, order // k, out)


class Mixture(Transformer):
    """The same transformer, with experts."""

    count = 16

    def feed_forward(self, dim, new):
        # `new` scales by the last axis, which is the depth of what is multiplied.
        return dict(
            gates=new(self.count, dim), up=new(self.count, 2 * dim, dim).transpose(1, 2).contiguous(),
            down=new(self.count, dim, dim).transpose(1, 2).contiguous(),
        )  # fmt: skip

    def feed(self, ops, layer, x):
        return experts(ops, x.flatten(0, 1), layer["gates"], layer["up"], layer["down"]).view(x.shape)


def main(device="cuda", *how):
    torch.manual_seed(3)
    large = device == "cuda"
    model = Mixture(4, *((2048, 16, 4, 8192) if large else (64, 4, 2, 64)), device)
    tokens = torch.randint(0, model.embedding.shape[0], (4, 1024) if large else (1, 12), device=device)
    x = torch.randn(4096 if large else 12, 2048 if large else 64, device=device).bfloat16()
    layer = [model.layers[0][name] for name in ("gates", "up", "down")]
    with torch.inference_mode():
        exact = experts(Theirs, x.double(), *(w.double() for w in layer))
        no_further("a layer of experts", *(error(experts(ops, x, *layer), exact) for ops in (Ours, Theirs)))
    prompt, count = tokens[:, : 64 if large else 6], 32 if large else 2
    compare_logits(model, tokens)
    compare_generation(model, prompt, count)
    if not large:
        return
    with torch.inference_mode():
        one = lambda ops: lambda: experts(ops, x, *layer)  # noqa: E731
        beside("a layer of experts", {"eager": one, "graph": lambda ops: captured(one(ops))})
    time_forward(model, tokens, "compile" in how)
    time_generation(model, prompt, count)


if __name__ == "__main__":
    main(*sys.argv[1:])
