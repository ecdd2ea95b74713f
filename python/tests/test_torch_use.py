"""What `use()` puts in the place of PyTorch's own attention: which calls it takes, and that all others reach PyTorch as they were.

A machine without a GPU has no such calls, so what would be registered is called here, with tensors of the CPU."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

from heist.torch import _hooks
from references import attention, close

F16 = torch.float16
FORWARD, BACKWARD = "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"
EFFICIENT, CUDNN = _hooks._MASKED


@pytest.fixture
def registered(monkeypatch):
    """The functions that take PyTorch's place, by name; PyTorch's own gives back what it was called with."""
    taken = {}
    own = SimpleNamespace(call_boxed=lambda keys, *given, **named: ("PyTorch's own", given, named))
    monkeypatch.setattr(torch.library, "get_kernel", lambda name, key: own, raising=False)
    library = SimpleNamespace(impl=lambda name, function, *more, **named: taken.update({name: function}))
    monkeypatch.setattr(torch.library, "Library", lambda *given: library)
    _hooks._Registration()
    return taken


def qkv(dim=32, rows=12, kv_heads=2):
    return [torch.randn(1, heads, rows, dim, dtype=F16) for heads in (2, kv_heads, kv_heads)]


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_taken_is_right(registered, scale, causal):
    q, k, v = qkv()
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    want, sums = attention(*exact, causal=causal, scale=scale)
    out, lse, _, _, queries, keys, seed, offset, _ = registered[FORWARD](None, q, k, v, 0.0, causal, scale=scale)
    close(out, want.detach())
    close(lse, sums.detach())
    assert (queries, keys) == (12, 12)
    d = torch.randn(*out.shape, dtype=F16)
    want.backward(d.double())
    given = (d, q, k, v, out, lse, None, None, 12, 12, 0.0, causal, seed, offset)
    for found, one in zip(registered[BACKWARD](None, *given, scale=scale), exact):
        close(found, one.grad)


# What is asked for that the kernels do not have: numbers of the call, and the tensors.
LEFT = {
    "a scale of zero": (qkv, {"scale": 0.0}),
    "a scale below zero": (qkv, {"scale": -0.5}),
    "an endless scale": (qkv, {"scale": float("inf")}),
    "dropout": (qkv, {"dropout_p": 0.1}),
    "heads of 40 elements": (lambda: qkv(40), {}),
    "float32": (lambda: [t.float() for t in qkv()], {}),
    "no rows": (lambda: qkv(rows=0), {}),
    "every other element": (lambda: [t[..., ::2] for t in qkv(64)], {}),
}


@pytest.mark.parametrize("tensors, how", LEFT.values(), ids=LEFT)
def test_what_is_left_to_pytorch_reaches_it_as_it_was(registered, tensors, how):
    q, k, v = tensors()
    scale, dropout = how.get("scale"), how.get("dropout_p", 0.0)
    found, given, named = registered[FORWARD](None, q, k, v, dropout, True, False, scale=scale)
    assert found == "PyTorch's own" and given[:3] == (q, k, v) and given[3:] == (dropout, True, False)
    assert named == {"scale": scale}
    lse = torch.zeros(q.shape[:3])
    rest = (q, lse, None, None, 12, 12, dropout, True, None, None)
    found, given, named = registered[BACKWARD](None, q, q, k, v, *rest, scale=scale)
    assert found == "PyTorch's own" and given[4:] == rest and named == {"scale": scale}
    mask = torch.zeros(1, 1, 1, k.shape[2], dtype=q.dtype).expand(1, 2, q.shape[2], -1)
    for name in (EFFICIENT, CUDNN):
        found, given, named = registered[name](None, q, k, v, mask, False, dropout, False, scale=scale)
        assert found == "PyTorch's own" and given[3:] == (mask, False, dropout, False) and named == {"scale": scale}


def test_padding_is_taken_where_no_gradient_may_be_asked_for(registered):
    q, k, v = qkv()
    mask = torch.zeros(1, 1, 1, 12, dtype=F16)
    mask[..., 9:] = float("-inf")
    want, _ = attention(q, k, v, mask=mask, scale=0.3)
    for name, bias in ((EFFICIENT, mask.expand(1, 2, 12, 12)), (CUDNN, mask)):
        close(registered[name](None, q, k, v, bias, False, scale=0.3)[0], want)
        for others in ((None, False), (bias, True), (torch.zeros(1, 2, 12, 12, dtype=F16), False)):
            assert registered[name](None, q, k, v, *others)[0] == "PyTorch's own"
