"""Gradients, beside those that PyTorch works out in float64."""

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import torch.nn.functional as F

import heist
import heist.torch as ht
from heist.torch._gradient import _gradients_packed_scored
from references import attention, close

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


def heads(*shape, rows, dtype=F16):
    """(batch, heads, rows, elements), lying so or as rows of heads."""
    if not rows:
        return torch.randn(*shape, dtype=dtype)
    batch, count, length, dim = shape
    return torch.randn(batch, length, count, dim, dtype=dtype).transpose(1, 2)


@pytest.mark.parametrize("causal, rows, dtype", [(False, False, F16), (True, True, BF16), (True, False, F16)])
def test_sdpa(causal, rows, dtype):
    inputs = heads(2, 4, 20, 32, rows=rows, dtype=dtype), *(heads(2, 2, 20, 32, rows=rows, dtype=dtype) for _ in range(2))
    compare(
        lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True),
        lambda q, k, v: attention(q, k, v, causal=causal)[0],
        inputs,
    )


@pytest.mark.parametrize("queries, keys", [(8, 20), (20, 8)])
def test_sdpa_counts_causal_masks_from_the_first_key(queries, keys):
    inputs = [torch.randn(1, 2, length, 64, dtype=F16) for length in (queries, keys, keys)]
    compare(
        lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        lambda q, k, v: attention(q, k, v, causal=True, top_left=True, scale=0.3)[0],
        inputs,
    )


@pytest.mark.parametrize("window", [(-1, -1), (4, 2)])
def test_flash_attn_func_the_same_bits_twice(window):
    inputs = [torch.randn(1, length, 2, 64, dtype=BF16) for length in (12, 20, 20)]
    ours = lambda q, k, v: ht.flash_attn_func(q, k, v, window_size=window, deterministic=True)  # noqa: E731
    compare(ours, lambda *given: attention(*(t.transpose(1, 2) for t in given), window=window)[0].transpose(1, 2), inputs)
    bits = []
    for _ in range(2):
        mine = [t.clone().requires_grad_() for t in inputs]
        ours(*mine).sum().backward()
        bits.append([t.grad for t in mine])
    assert all(torch.equal(a, b) for a, b in zip(*bits))


@pytest.mark.parametrize("deterministic", [False, True])
def test_flash_attn_varlen_func(deterministic):
    """Sequences of three lengths, one of them none, and rows behind the last."""
    starts = torch.tensor([0, 5, 5, 22], dtype=torch.int32)
    inputs = [torch.randn(25, 2, 16, dtype=F16) for _ in range(3)]
    mine, exact = [t.clone().requires_grad_() for t in inputs], [t.double().requires_grad_() for t in inputs]
    out = ht.flash_attn_varlen_func(*mine, starts, starts, 17, 17, causal=True, deterministic=deterministic)
    weights = torch.randn(25, 2, 16, dtype=F16)
    out.backward(weights)
    for begin, end in ((0, 5), (5, 22)):
        part = [t[begin:end].transpose(0, 1)[None] for t in exact]
        want = attention(*part, causal=True)[0]
        close(out[begin:end].detach().transpose(0, 1)[None], want.detach())
        want.backward(weights[begin:end].double().transpose(0, 1)[None])
    for found, want in zip(mine, exact):
        close(found.grad, want.grad)
        assert not found.grad[22:].any()


def test_attention_of_nothing():
    q, k = torch.randn(1, 2, 4, 16, dtype=F16, requires_grad=True), torch.randn(1, 2, 0, 16, dtype=F16, requires_grad=True)
    ht.scaled_dot_product_attention(q, k, k).sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q)) and k.grad.shape == k.shape


def test_log_sum_exps_have_no_gradient():
    q, k, v = (torch.randn(1, 8, 2, 16, dtype=F16, requires_grad=True) for _ in range(3))
    out, lse, _ = ht.flash_attn_func(q, k, v, return_attn_probs=True)
    assert out.requires_grad and not lse.requires_grad


def test_a_setting_of_pytorch_asks_for_the_same_bits():
    asked = []
    q, k, v = (torch.randn(1, 2, 8, 16, dtype=F16, requires_grad=True) for _ in range(3))
    from heist.torch import _device

    native = _device.ops_of(-1)
    torch.use_deterministic_algorithms(True)
    try:
        before = len(native)
        ht.scaled_dot_product_attention(q, k, v).sum().backward()
        asked = [key for key in _device.PLANS if key[0] == "attention_backward" and key[-2] is True and key[2][0] == q.shape]
    finally:
        torch.use_deterministic_algorithms(False)
    assert asked and len(native) > before


def train(*shape, dtype=F16):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("shape", [(12,), (1, 12), (8, 12), (8, 1)])
def test_addmm(shape, activation):
    inputs = [torch.randn(*size, dtype=F16) for size in (shape, (8, 16), (16, 12))]
    mine = [tensor.clone().requires_grad_() for tensor in inputs]
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    d = torch.randn(8, 12, dtype=F16)
    for factors in ({}, {"beta": 0.5, "alpha": 2.0}):
        ht.addmm(*mine, **factors, activation=activation).backward(d)
        want = torch.addmm(*exact, **factors)
        (want if activation == "none" else torch.nn.functional.silu(want)).backward(d.double())
    for found, want in zip(mine, exact):
        close(found.grad, want.grad, 3e-2)


@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_mm(transposed):
    a, b = torch.randn(11, 16, dtype=BF16), torch.randn(3, 16, 24, dtype=BF16)
    if transposed:
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    # A group without rows, and rows that no group has.
    offs = torch.tensor([4, 4, 9], dtype=torch.int32)
    mine, exact = [a.clone().requires_grad_(), b.detach().requires_grad_()], [t.double().requires_grad_() for t in (a, b)]
    d = torch.randn(11, 24, dtype=BF16)
    ht.grouped_mm(*mine, offs=offs)[:9].backward(d[:9])
    want = torch.cat([exact[0][s:e] @ exact[1][g] for g, (s, e) in enumerate(((0, 4), (4, 4), (4, 9)))])
    want.backward(d[:9].double())
    for found, expected in zip(mine, exact):
        close(found.grad, expected.grad, 3e-2)
    assert not mine[0].grad[9:].any() and not mine[1].grad[1].any()
    whole, many = torch.randn(3, 5, 16, dtype=BF16), [t.detach().requires_grad_() for t in (b, b.double())]
    ht.grouped_mm(whole, many[0]).sum().backward()
    (whole.double() @ many[1]).sum().backward()
    close(many[0].grad, many[1].grad, 3e-2)


TRAIN = {
    "attention_lse_train": lambda: (*(train(1, 2, 8, 16) for _ in range(3)), True, -1, -1, 0.0, True),
    "attention_paired_train": lambda: (*(train(2, 2, 8, 16) for _ in range(3)), torch.rand(2, 1, 1, 8) > 0.3, False, -1, -1, 0.5),
    "attention_packed_train": lambda: (
        *(train(9, 2, 16) for _ in range(3)), *(torch.tensor([0, 4, 9], dtype=torch.int32),) * 2, 5, 5,
    ),
    "attention_scored_train": lambda: (
        *(train(1, 2, 8, 16) for _ in range(3)), torch.tensor([0.5, 0.25]), torch.randn(2, requires_grad=True), 0.0, True,
    ),
    "attention_packed_scored_train": lambda: (
        *(train(9, 2, 16) for _ in range(3)), *(torch.tensor([0, 4, 9], dtype=torch.int32),) * 2, torch.empty(0),
        torch.randn(2, requires_grad=True), 2.0, 5, 5,
    ),
    "mm_train": lambda: (torch.randn(8, 16, dtype=F16, requires_grad=True), torch.randn(16, 8, dtype=F16, requires_grad=True)),
    "addmm_train": lambda: (
        torch.randn(8, dtype=F16, requires_grad=True), torch.randn(8, 16, dtype=F16, requires_grad=True),
        torch.randn(16, 8, dtype=F16, requires_grad=True), 0.5, 2.0,
    ),
    "grouped_mm_train": lambda: (
        torch.randn(8, 16, dtype=BF16, requires_grad=True), torch.randn(2, 16, 8, dtype=BF16, requires_grad=True),
        torch.tensor([3, 8], dtype=torch.int32),
    ),
    "linear_train": lambda: (torch.randn(3, 16, dtype=F16, requires_grad=True), torch.randn(8, 16, dtype=F16, requires_grad=True)),
    "linear_bias_train": lambda: (
        torch.randn(3, 16, dtype=F16, requires_grad=True), torch.randn(8, 16, dtype=F16), torch.randn(8, dtype=F16, requires_grad=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAIN)
def test_opcheck(name):
    torch.library.opcheck(getattr(torch.ops.heist, name).default, TRAIN[name]())


DIFFERENTIATE = {
    "attention_backward": lambda: (
        *(torch.randn(1, 2, 8, 16, dtype=F16) for _ in range(5)), torch.randn(1, 2, 8), True,
    ),
    "attention_paired_backward": lambda: (
        *(torch.randn(1, 2, 8, 16, dtype=F16) for _ in range(5)), torch.randn(1, 2, 8), torch.randn(1, 1, 8, 8),
    ),
    "attention_packed_backward": lambda: (
        *(torch.randn(9, 2, 16, dtype=F16) for _ in range(5)), torch.randn(2, 9),
        *(torch.tensor([0, 4, 9], dtype=torch.int32),) * 2, 5, 5, False, -1, -1, 0.0, True,
    ),
    "attention_scored_backward": lambda: (
        *(torch.randn(1, 2, 8, 16, dtype=F16) for _ in range(5)), torch.randn(1, 2, 8), torch.tensor([0.5, 0.25]), 0.0, True,
    ),
    "attention_packed_scored_backward": lambda: (
        *(torch.randn(9, 2, 16, dtype=F16) for _ in range(5)), torch.randn(2, 9),
        *(torch.tensor([0, 4, 9], dtype=torch.int32),) * 2, torch.empty(0), 2.0, 5, 5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENTIATE)
def test_opcheck_of_the_backward(name):
    arguments = DIFFERENTIATE[name]()
    torch.library.opcheck(getattr(torch.ops.heist, name).default, arguments)
    torch.library.opcheck(getattr(torch.ops.heist, f"{name}_policy").default, arguments, {"policy": "greedy"})


def test_compile_of_attention():
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)

    def loss(q, k, v, starts):
        attended = ht.scaled_dot_product_attention(q, k, v, is_causal=True)
        flash = ht.flash_attn_func(*(t.transpose(1, 2) for t in (q, k, v)), window_size=(2, 2))
        packed = ht.flash_attn_varlen_func(*(t[0].transpose(0, 1) for t in (q, k, v)), starts, starts, 5, 5)
        return (attended.transpose(1, 2) * flash + packed).float().square().sum()

    inputs = [torch.randn(1, 2, 8, 16, dtype=F16) for _ in range(3)]
    eager, traced = ([t.clone().requires_grad_() for t in inputs] for _ in range(2))
    torch.use_deterministic_algorithms(True)
    try:
        loss(*eager, starts).backward()
        torch.compile(loss, fullgraph=True, backend="aot_eager")(*traced, starts).backward()
    finally:
        torch.use_deterministic_algorithms(False)
    for a, b in zip(eager, traced):
        close(a.grad, b.grad.double(), 1e-2)


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


SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0])


@pytest.mark.parametrize("softcap, alibi, sinks", [(1.0, False, False), (0.0, False, True), (2.0, False, True), (0.0, True, True)])
@pytest.mark.parametrize("window", [(-1, -1), (9, 0)], ids=str)
def test_gradients_through_changed_scores(softcap, alibi, sinks, window):
    q, k, v = (torch.randn(2, 40, heads, 32).to(torch.bfloat16).requires_grad_() for heads in (4, 2, 2))
    own = torch.randn(4).requires_grad_() if sinks else None
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    exact_sinks = own.detach().double().requires_grad_() if sinks else None
    slopes, causal = SLOPES if alibi else None, window == (-1, -1)
    how = {"causal": causal, "window_size": window, "softcap": softcap, "alibi_slopes": slopes, "sinks": own}
    out = ht.flash_attn_func(q, k, v, softmax_scale=0.3, **how)
    expected, _ = attention(
        *(t.transpose(1, 2) for t in exact), causal=causal, window=window, scale=0.3, softcap=softcap, slopes=slopes, sinks=exact_sinks
    )
    expected = expected.transpose(1, 2)
    close(out.detach(), expected.detach())
    seed = torch.randn(out.shape).to(torch.bfloat16)
    out.backward(seed, retain_graph=True)
    expected.backward(seed.double())
    for one, other in zip((q, k, v, own), (*exact, exact_sinks)):
        if one is not None:
            close(one.grad, other.grad)
    # Once more by the compiled part, which remembers the first call.
    first = [t.grad for t in (q, k, v)]
    again = torch.autograd.grad(out, (q, k, v), seed)
    for one, other in zip(again, first):
        close(one, other.double())


@pytest.mark.parametrize("softcap, slopes", [(1.5, None), (0.0, SLOPES)], ids=["soft-cap", "slopes"])
def test_gradients_of_packed_sequences_through_changed_scores(softcap, slopes):
    lengths = [17, 0, 30]
    q, k, v = (torch.randn(47, heads, 32).to(torch.bfloat16).requires_grad_() for heads in (4, 2, 2))
    own = torch.randn(4).requires_grad_()
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    exact_sinks = own.detach().double().requires_grad_()
    starts = torch.tensor([0, 17, 17, 47], dtype=torch.int32)
    how = {"causal": True, "softcap": softcap, "sinks": own}
    out = ht.flash_attn_varlen_func(q, k, v, starts, starts, 30, 30, alibi_slopes=slopes, **how)
    parts = zip(*(t.split(lengths) for t in exact))
    each = [
        attention(*(t.transpose(0, 1)[None] for t in part), slopes=slopes, **(how | {"sinks": exact_sinks}))[0][0].transpose(0, 1)
        for part in parts
    ]
    expected = torch.cat(each)
    close(out.detach(), expected.detach())
    seed = torch.randn(out.shape).to(torch.bfloat16)
    out.backward(seed)
    expected.backward(seed.double())
    for one, other in zip((q, k, v, own), (*exact, exact_sinks)):
        close(one.grad, other.grad)


def test_rows_in_no_sequence_have_no_part_in_the_gradient_of_sinks():
    """Results and log-sum-exps of such rows are never written."""
    q, k, v, out, d_out = (torch.randn(12, 2, 16, dtype=F16) for _ in range(5))
    lse, starts, sinks = torch.randn(2, 12), torch.tensor([0, 4, 9], dtype=torch.int32), torch.randn(2)
    out[9:], lse[:, 9:] = float("nan"), float("nan")
    saved = q, k, v, out, lse, starts, starts, torch.empty(0), sinks
    ctx = types.SimpleNamespace(saved_tensors=saved, how=(0.0, 6, 6), needs_input_grad=[True] * 8)
    found = _gradients_packed_scored(ctx, d_out, None)[6]
    delta = (out[:9].double() * d_out[:9].double()).sum(-1).t()
    close(found, -((sinks.double()[:, None] - lse[:, :9].double()).exp() * delta).sum(1))


TWICE = {
    "mm": (ht.mm, torch.mm, ((6, 16), (16, 8))),
    "addmm": (ht.addmm, torch.addmm, ((8,), (6, 16), (16, 8))),
    "linear": (ht.linear, F.linear, ((2, 3, 16), (8, 16), (8,))),
    "bmm": (ht.bmm, torch.bmm, ((2, 6, 16), (2, 16, 8))),
    "grouped_mm": (
        lambda a, b: ht.grouped_mm(a, b, offs=torch.tensor([3, 8], dtype=torch.int32)),
        lambda a, b: torch.cat((a[:3] @ b[0], a[3:] @ b[1])), ((8, 16), (2, 16, 8)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("ours, theirs, shapes", TWICE.values(), ids=TWICE)
def test_products_are_differentiated_twice(ours, theirs, shapes):
    inputs = [torch.randn(*shape, dtype=BF16) for shape in shapes]
    found = []
    for function, given in ((ours, inputs), (theirs, [t.double() for t in inputs])):
        given = [t.requires_grad_() for t in given]
        # A penalty of gradients, which no gradient that comes in makes differentiable.
        once = torch.autograd.grad(function(*given).sum() + function(*given).square().sum(), given, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in once), given))
    for own, exact in zip(*found):
        close(own, exact, 5e-2)


@pytest.mark.parametrize("squared", [False, True])
def test_attention_is_not_differentiated_twice(squared):
    q, k, v = (torch.randn(1, 2, 4, 16, dtype=F16, requires_grad=True) for _ in range(3))
    starts = torch.tensor([0, 2], dtype=torch.int32)
    for out in (
        ht.scaled_dot_product_attention(q, k, v),
        ht.flash_attn_func(q, k, v, softcap=2.0, sinks=torch.zeros(4, requires_grad=True)),
        ht.flash_attn_varlen_func(q[0], k[0], v[0], starts, starts, 2, 2),
        ht.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(4, 4, dtype=torch.bool)),
    ):
        d_q, *_ = torch.autograd.grad((out.square() if squared else out).sum(), (q, k, v), create_graph=True)
        with pytest.raises(heist.UnsupportedError, match="can't be differentiated again"):
            torch.autograd.grad(d_q.sum() + q.sum(), q, allow_unused=True)


@pytest.mark.parametrize("name", ["attention", "of packed sequences", "of rows", "grouped_mm"])
def test_gradients_that_begin_anywhere(name):
    """As one does that is a part of the gradient of a concatenation."""
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)
    function, shapes = {
        "attention": (ht.scaled_dot_product_attention, ((1, 2, 8, 16),) * 3),
        "of rows": (ht.flash_attn_func, ((1, 8, 2, 16),) * 3),
        "of packed sequences": (lambda q, k, v: ht.flash_attn_varlen_func(q, k, v, starts, starts, 5, 5), ((8, 2, 16),) * 3),
        "grouped_mm": (lambda a, b: ht.grouped_mm(a, b, offs=starts[1:]), ((8, 16), (2, 16, 8))),
    }[name]
    inputs = [torch.randn(*shape, dtype=BF16, requires_grad=True) for shape in shapes]
    out = function(*inputs)
    weights = torch.randn(out.numel() + 1, dtype=BF16)
    want = torch.autograd.grad(out, inputs, weights[1:].clone().view(out.shape), retain_graph=True)
    found = torch.autograd.grad(torch.cat((torch.zeros(1, dtype=BF16), out.flatten())), inputs, weights)
    for own, other in zip(found, want):
        close(own, other.double(), 1e-2)
