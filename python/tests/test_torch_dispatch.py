"""Calls that are like one before: the compiled part does them, with the same results and
the same exceptions."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import heist
import heist.torch as ht
from heist import _native
from references import attention, close

F16, BF16, F32, I32 = torch.float16, torch.bfloat16, torch.float32, torch.int32


@pytest.fixture(autouse=True)
def compiled():
    """Only where PyTorch calls the compiled part; with nothing remembered."""
    if ht.dispatch != "compiled":
        pytest.skip(f"PyTorch {torch.__version__} can't call the compiled part: 2.9 and later can")
    _native.forget()


def ask(monkeypatch):
    """Counts what the compiled part asks Python for."""
    asked = []
    remember = _native.remember
    from heist.torch import _library

    class Counting:
        def __getattr__(self, name):
            return getattr(_native, name)

        def remember(self, *given):
            asked.append(given)
            return remember(*given)

    monkeypatch.setattr(_library, "_native", Counting())
    return asked




def step(*room, **more):
    """Attention to a cache that gets one new key for each of two sequences, and what the cache has then."""
    cache = [torch.randn(*room, 1, 64, dtype=F16) for _ in range(2)]
    q, k, v = (torch.randn(2, 1, heads, 64, dtype=F16) for heads in (2, 1, 1))
    lengths = torch.tensor([5, 11], dtype=I32)
    return ht.flash_attn_with_kvcache(q, *cache, k, v, cache_seqlens=lengths, **more), *cache


CALLS = {
    "mm": lambda: ht.mm(torch.randn(8, 16, dtype=F16), torch.randn(16, 24, dtype=F16)),
    "mm of a transposed matrix": lambda: ht.mm(torch.randn(8, 16, dtype=F16), torch.randn(24, 16, dtype=F16).t(), out_dtype=F32),
    "linear": lambda: ht.linear(torch.randn(2, 3, 16, dtype=BF16), torch.randn(8, 16, dtype=BF16), activation="relu"),
    "linear with a bias": lambda: ht.linear(*(torch.randn(*s, dtype=BF16) for s in ((2, 3, 16), (8, 16), (8,)))),
    "grouped_mm": lambda: ht.grouped_mm(
        torch.randn(8, 16, dtype=BF16), torch.randn(2, 16, 8, dtype=BF16), offs=torch.tensor([3, 8], dtype=I32)
    ),
    "attention": lambda: ht.scaled_dot_product_attention(*(torch.randn(1, 2, 8, 16, dtype=F16) for _ in range(3))),
    "causal attention of fewer keys": lambda: ht.scaled_dot_product_attention(
        torch.randn(1, 2, 20, 16, dtype=F16), *(torch.randn(1, 2, 8, 16, dtype=F16) for _ in range(2)), is_causal=True
    ),
    "attention of rows": lambda: ht.flash_attn_func(
        *(torch.randn(1, 8, 2, 16, dtype=F16) for _ in range(3)), causal=True, return_attn_probs=True
    )[:2],
    "packed attention": lambda: ht.flash_attn_varlen_func(
        *(torch.randn(9, 2, 16, dtype=F16) for _ in range(3)), *(torch.tensor([0, 4, 9], dtype=I32),) * 2, 5, 5
    ),
    "paged attention": lambda: ht.flash_attn_with_kvcache(
        torch.randn(2, 1, 2, 64, dtype=F16), *(torch.randn(3, 8, 1, 64, dtype=F16) for _ in range(2)),
        cache_seqlens=torch.tensor([5, 11], dtype=I32), block_table=torch.tensor([[2, 0], [1, 0]], dtype=I32),
    ),
    "new keys in pages": lambda: step(3, 8, block_table=torch.tensor([[2, 0], [1, 0]], dtype=I32)),
    "new keys in a cache": lambda: step(2, 24),
    "a cache": lambda: ht.flash_attn_with_kvcache(
        torch.randn(2, 1, 2, 64, dtype=F16), *(torch.randn(2, 24, 1, 64, dtype=F16) for _ in range(2)),
        cache_seqlens=torch.tensor([5, 11], dtype=I32), causal=True, softmax_scale=0.2, return_softmax_lse=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_is_the_compiled_parts(name, monkeypatch):
    asked = ask(monkeypatch)
    results = []
    for _ in range(3):
        torch.manual_seed(3)
        results.append(CALLS[name]())
    assert len(asked) == 1 and _native.remembered() == 1
    first, *others = ([r] if torch.is_tensor(r) else list(r) for r in results)
    for other in others:
        for a, b in zip(first, other):
            assert torch.equal(a, b) and a.stride() == b.stride() and a.dtype == b.dtype
            assert a.data_ptr() != b.data_ptr()


def test_where_a_matrix_begins_is_told_apart():
    """A view at an odd place has a plan of its own, and so it is remembered; the other one stays."""
    a, w, odd = torch.randn(8, 16, dtype=F16), torch.randn(16, 8, dtype=F16), torch.randn(8 * 16 + 8, dtype=F16)
    views = [a, odd[1 : 1 + 8 * 16].view(8, 16), odd[8:].view(8, 16), odd[2 : 2 + 8 * 16].view(8, 16)]
    for left in (*views, *views):
        close(ht.mm(left, w), left.double() @ w.double(), 1e-2)
        close(ht.mm(w, left), w.double() @ left.double(), 1e-2)
        close(ht.linear(left, w.t()), left.double() @ w.double(), 1e-2)
    assert _native.remembered() == 6


def test_what_a_call_depends_on_is_told_apart():
    """A type, a stride, a number: each is another call."""
    a, b = torch.randn(16, 16, dtype=F16), torch.randn(16, 16, dtype=F16)
    for left, right, out in [
        (a, b, F16), (a, b, F32), (a.t(), b, F16), (a, b.t(), F16), (a.bfloat16(), b.bfloat16(), BF16), (a[:8], b, F16),
    ]:  # fmt: skip
        for _ in range(2):
            close(ht.mm(left, right, out_dtype=out), left.double() @ right.double(), 2e-2)
    assert _native.remembered() == 6
    q, k, v = (torch.randn(1, 2, 8, 16, dtype=F16) for _ in range(3))
    for causal, scale in [(False, None), (True, None), (True, 0.5)]:
        for _ in range(2):
            found = ht.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
            close(found, attention(q, k, v, causal=causal, scale=scale)[0])
    assert _native.remembered() == 9


def test_a_call_that_was_good_and_is_not_any_more():
    """What is checked in every call: the alignment; and what the simulated GPU finds."""
    a, w = torch.randn(8, 16, dtype=F16), torch.randn(2, 16, 8, dtype=F16)
    offs = torch.tensor([4, 8], dtype=I32)
    assert ht.grouped_mm(a, w, offs=offs).shape == (8, 8)
    odd = torch.zeros(2 * 16 * 8 + 8, dtype=F16)[1 : 1 + 2 * 16 * 8].view(2, 16, 8)
    with pytest.raises(ValueError, match="16 bytes"):
        ht.grouped_mm(a, odd, offs=offs)
    bias = torch.ones(9, dtype=F16)
    x, weight = torch.randn(4, 16, dtype=F16), torch.randn(8, 16, dtype=F16)
    want = x.double() @ weight.double().t() + 1
    close(ht.linear(x, weight, bias[:8]), want, 1e-2)
    # A bias that begins at an odd place is copied.
    close(ht.linear(x, weight, bias[1:]), want, 1e-2)
    a, b = torch.randn(8, 16, dtype=BF16), torch.randn(2, 16, 8, dtype=BF16)
    ht.grouped_mm(a, b, offs=torch.tensor([4, 8], dtype=I32))
    with pytest.raises(heist.FindingError) as raised:
        ht.grouped_mm(a, b, offs=torch.tensor([4, 4000], dtype=I32))
    assert raised.value.findings


def test_exceptions_keep_their_type_and_do_not_linger():
    a = torch.randn(8, 16, dtype=F16)
    with pytest.raises(ValueError, match="16 and 8 differ"):
        ht.mm(a, a)
    # PyTorch's own way in says the same, as an exception of C++.
    with pytest.raises(RuntimeError, match="16 and 8 differ"):
        torch.ops.heist.mm(a, a)
    with pytest.raises(heist.UnsupportedError, match="float64"):
        ht.mm(a.double(), a.t().double())
    close(ht.mm(a, a.t()), a.double() @ a.t().double(), 1e-2)


def test_nothing_is_leaked():
    """Tensors that were given and made are let go, in a call that is done and in one that
    is not."""
    a, b = torch.randn(8, 16, dtype=F16), torch.randn(16, 8, dtype=F16)
    if not hasattr(a, "_use_count"):
        pytest.skip(f"PyTorch {torch.__version__} does not count uses")
    for _ in range(3):
        out = ht.mm(a, b)
        with pytest.raises(ValueError):
            ht.mm(a, a)
    fresh = torch.empty(1)
    assert (a._use_count(), b._use_count(), out._use_count()) == (fresh._use_count(),) * 3


def test_threads_share_what_is_remembered():
    a, b = torch.randn(24, 16, dtype=F16), torch.randn(16, 24, dtype=F16)
    want, wrong = ht.mm(a, b), []

    def work():
        for _ in range(5):
            if not torch.equal(ht.mm(a, b), want):
                wrong.append(1)
            try:
                ht.mm(a, a)
                wrong.append(2)
            except ValueError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_captured_launches_have_counters_of_their_own_and_clear_none(monkeypatch):
    """To make them zero is a kernel, which every replay would run."""
    from heist.torch import _device

    zeros, made, launcher = [], torch.zeros, object.__new__(_device.Launcher)
    capturing, stream = [False], SimpleNamespace(synchronize=lambda: None)
    monkeypatch.setattr(_device, "_capturing", lambda: capturing[0])
    monkeypatch.setattr(_device, "_native", SimpleNamespace(workspace=lambda *given: None))
    monkeypatch.setattr(_device.torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(_device.torch, "zeros", lambda count, **how: zeros.append(count) or made(count, dtype=torch.uint8))
    monkeypatch.setattr(_device.torch, "empty", lambda count, **how: made(0, dtype=torch.uint8))
    for name, kind in (("_stocks", dict), ("_counters", dict), ("_scratch", dict), ("_in_graphs", list)):
        monkeypatch.setattr(_device, name, kind())
    launcher.index = 0

    def counters(need):
        launcher.plan = SimpleNamespace(counters=need, scratch=0)
        return launcher.memory(0)[0]

    capturing[0] = True
    assert counters(0) is None and zeros == []
    # Nothing was called outside of a capture: these are cleared by every replay.
    assert counters(512).numel() == 512 and zeros == [512]
    capturing[0] = False
    counters(512)
    made_before, capturing[0] = len(zeros), True
    given = [counters(need) for need in (16, 300, 16)]
    assert len(zeros) == made_before
    places = [(tensor.data_ptr(), tensor.data_ptr() + tensor.numel()) for tensor in given]
    assert all(end <= begin for (_, end), (begin, _) in zip(places, places[1:])), places
    assert [tensor.numel() for tensor in given] == [256, 512, 256]
    # What graphs have stays theirs, also where a stock comes to its end, and what does not fit is made anew.
    assert counters(_device._STOCK_BYTES).numel() == _device._STOCK_BYTES and len(zeros) == made_before + 1
    counters(_device._STOCK_BYTES // 2)
    capturing[0] = False
    counters(512)
    assert len(_device._in_graphs) == 2


def test_another_simulated_gpu_forgets():
    a, b = torch.randn(8, 16, dtype=F16), torch.randn(16, 8, dtype=F16)
    ht.mm(a, b)
    assert _native.remembered() == 1
    try:
        ht.simulate("a100")
        assert _native.remembered() == 0
        close(ht.mm(a, b), a.double() @ b.double(), 1e-2)
    finally:
        ht.simulate()


def test_python_does_it_where_pytorch_is_too_old():
    code = (
        "import torch, heist.torch as ht; from heist import _native\n"
        "a = torch.ones(8, 16, dtype=torch.float16)\n"
        "assert ht.dispatch == 'python', ht.dispatch\n"
        "for _ in range(2): assert float(ht.mm(a, a.t())[0, 0]) == 16\n"
        "assert _native.remembered() == 0\n"
        "try: ht.mm(a, a)\n"
        "except ValueError as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HEIST_DISPATCH": "python"}, capture_output=True, text=True
    )
    assert ran.returncode == 0 and "differ" in ran.stdout, ran.stderr
