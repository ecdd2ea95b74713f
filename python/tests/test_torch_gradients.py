"""Gradients, beside those that PyTorch works out in float64."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import torch.nn.functional as F

import heist.torch as ht
from references import close

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def compare(ours, theirs, inputs, bound=2e-2):
    """Runs both, the second in float64, and compares results and the gradients of a sum
    with random weights."""
    mine = [t.clone().requires_grad_() for t in inputs]
    exact = [t.double().requires_grad_() for t in inputs]
    out, want = ours(*mine), theirs(*exact)
    close(out.detach(), want.detach(), bound)
    weights = torch.randn_like(want)
    out.backward(weights.to(out.dtype))
    want.backward(weights)
    for found, right in zip(mine, exact):
        assert found.grad.dtype == found.dtype
        close(found.grad, right.grad, bound)


@pytest.mark.parametrize("a_t, b_t", [(False, False), (True, False), (False, True), (True, True)])
def test_mm(a_t, b_t):
    a = torch.randn(24, 16, dtype=BF16) if not a_t else torch.randn(16, 24, dtype=BF16).t()
    b = torch.randn(16, 8, dtype=BF16) if not b_t else torch.randn(8, 16, dtype=BF16).t()
    compare(ht.mm, torch.mm, (a, b))


def test_mm_with_results_in_float32():
    a, b = torch.randn(8, 16, dtype=F16), torch.randn(16, 24, dtype=F16)
    compare(lambda a, b: ht.mm(a, b, out_dtype=F32), torch.mm, (a, b))


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(activation, bias):
    then = {
        "none": lambda x: x, "relu": F.relu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    }[activation]  # fmt: skip
    inputs = [torch.randn(2, 5, 16, dtype=BF16), torch.randn(24, 16, dtype=BF16), torch.randn(24, dtype=BF16)]
    inputs = inputs if bias else inputs[:2]
    compare(lambda *given: ht.linear(*given, activation=activation), lambda *given: then(F.linear(*given)), inputs)


def test_only_what_is_wanted():
    """Gradients of one input alone, and of a sum, whose gradient is one number everywhere."""
    x, w = torch.randn(8, 16, dtype=BF16), torch.randn(24, 16, dtype=BF16).requires_grad_()
    ht.linear(x, w).sum().backward()
    assert x.grad is None
    close(w.grad, x.double().sum(0).expand(24, 16))
    with torch.no_grad():
        assert not ht.linear(x, w).requires_grad
    assert not ht.linear(x, w.detach()).requires_grad


TRAIN = {
    "mm_train": lambda: (torch.randn(8, 16, dtype=F16, requires_grad=True), torch.randn(16, 8, dtype=F16, requires_grad=True)),
    "linear_train": lambda: (torch.randn(3, 16, dtype=F16, requires_grad=True), torch.randn(8, 16, dtype=F16, requires_grad=True)),
    "linear_bias_train": lambda: (
        torch.randn(3, 16, dtype=F16, requires_grad=True), torch.randn(8, 16, dtype=F16), torch.randn(8, dtype=F16, requires_grad=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAIN)
def test_opcheck(name):
    torch.library.opcheck(getattr(torch.ops.heist, name).default, TRAIN[name]())


def test_compile():
    def loss(x, w, b):
        return (ht.linear(x, w, b, activation="silu") ** 2).sum()

    inputs = [torch.randn(8, 16, dtype=BF16), torch.randn(24, 16, dtype=BF16), torch.randn(24, dtype=BF16)]
    eager = [t.clone().requires_grad_() for t in inputs]
    traced = [t.clone().requires_grad_() for t in inputs]
    loss(*eager).backward()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(*traced).backward()
    for a, b in zip(eager, traced):
        assert torch.equal(a.grad, b.grad)
