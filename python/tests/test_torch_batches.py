"""Products of batches, and of 8-bit floats with scales."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import heist
import heist.torch as ht
from references import close, opchecks

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.mark.parametrize("a_t, b_t", [(False, False), (True, False), (False, True), (True, True)])
def test_bmm(a_t, b_t):
    a = torch.randn(3, 24, 16, dtype=BF16) if not a_t else torch.randn(3, 16, 24, dtype=BF16).transpose(1, 2)
    b = torch.randn(3, 16, 8, dtype=BF16) if not b_t else torch.randn(3, 8, 16, dtype=BF16).transpose(1, 2)
    for _ in range(2):
        close(ht.bmm(a, b), a.double() @ b.double())
    mine = [t.clone().requires_grad_() for t in (a, b)]
    exact = [t.double().requires_grad_() for t in (a, b)]
    ht.bmm(*mine).backward(torch.ones(3, 24, 8, dtype=BF16))
    torch.bmm(*exact).sum().backward()
    for found, want in zip(mine, exact):
        close(found.grad, want.grad)


@pytest.mark.parametrize("m, n, k", [(5, 77, 19), (24, 9, 16), (7, 16, 33)])
def test_bmm_of_rows_that_begin_anywhere(m, n, k):
    for a, b in [
        (torch.randn(3, m, k, dtype=BF16), torch.randn(3, n, k, dtype=BF16).transpose(1, 2)),
        (torch.randn(3, k, m, dtype=BF16).transpose(1, 2), torch.randn(3, k, n, dtype=BF16)),
    ]:
        for _ in range(2):
            close(ht.bmm(a, b), a.double() @ b.double())


def test_bmm_of_tf32_is_asked_for():
    a, b = torch.randn(2, 8, 18), torch.randn(2, 18, 12)
    across = torch.randn(2, 18, 8).transpose(1, 2)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        close(ht.bmm(a, b), a.double() @ b.double(), 5e-3)
        close(ht.bmm(across, b), across.double() @ b.double(), 5e-3)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_bmm_of_other_strides_and_of_nothing():
    a, b = torch.randn(16, 3, 24, dtype=F16).transpose(0, 1), torch.randn(3, 24, 16, dtype=F16)[:, :, 4:12]
    close(ht.bmm(a, b, out_dtype=F32), a.double() @ b.double(), 1e-3)
    assert torch.equal(ht.bmm(torch.empty(2, 3, 0, dtype=F16), torch.empty(2, 0, 8, dtype=F16)), torch.zeros(2, 3, 8, dtype=F16))
    assert ht.bmm(torch.empty(0, 3, 16, dtype=F16), torch.empty(0, 16, 8, dtype=F16)).shape == (0, 3, 8)


def scales(kind, m, n, k):
    blocks = (-(-k // 128), -(-n // 128))
    a, b = {"tensor": ((), ()), "rows": ((m, 1), (1, n)), "blocks": ((m, blocks[0]), blocks)}[kind]
    return torch.rand(a) + 0.5, torch.rand(b) + 0.5


def spread(scale, shape):
    """A scale for each element."""
    for axis in range(scale.dim()):
        if scale.shape[axis] not in (1, shape[axis]):
            scale = scale.repeat_interleave(128, axis).narrow(axis, 0, shape[axis])
    return scale.double().expand(shape)


def in_groups(a=None, b=None, scale_a=None, scale_b=None, offs=(3, 6), **how):
    a = torch.ones(6, 32).to(E4M3) if a is None else a
    b = torch.ones(2, 16, 32).to(E4M3).transpose(1, 2) if b is None else b
    scale_a = torch.ones(6) if scale_a is None else scale_a
    scale_b = torch.ones(2, 16) if scale_b is None else scale_b
    offs = torch.tensor(offs, dtype=torch.int32) if isinstance(offs, tuple) else offs
    return ht.scaled_grouped_mm(a, b, scale_a, scale_b, offs=offs, **how)


@pytest.mark.parametrize("kind", ["rows", "blocks"])
@pytest.mark.parametrize("rows, room", [([5, 0, 1, 8], None), ([5, 0, 1, 8], 8)])
def test_scaled_grouped_mm(kind, rows, room):
    groups, n, k = len(rows), 24, 144
    deep = -(-k // 128)
    outer = (sum(rows),) if room is None else (groups, room)
    a = torch.randn(*outer, k).to(E4M3)
    b = torch.randn(groups, n, k).to(E4M3).transpose(1, 2)
    of_a, of_b = ((), (n,)) if kind == "rows" else ((deep,), (deep, 1))
    scale_a, scale_b = torch.rand(*outer, *of_a) + 0.5, torch.rand(groups, *of_b) + 0.5
    numbers = torch.tensor(rows, dtype=torch.int32)
    told = {"offs": numbers.cumsum(0, dtype=torch.int32)} if room is None else {"counts": numbers, "expected": 2}
    spread = lambda scale: scale[..., None] if kind == "rows" else scale.repeat_interleave(128, -1)[..., :k]
    left = a.double() * spread(scale_a)
    right = b.double() * (scale_b[:, None] if kind == "rows" else scale_b.repeat_interleave(128, 1)[:, :k])
    # Scales that lie as the kernel reads them need no copy.
    turned = [t.transpose(-2, -1).contiguous().transpose(-2, -1) if kind == "blocks" else t for t in (scale_a, scale_b)]
    for one, other in ((scale_a, scale_b), turned, turned):
        found = ht.scaled_grouped_mm(a, b, one, other, **told)
        begin = 0
        for group, count in enumerate(rows):
            own = slice(begin, begin + count) if room is None else (group, slice(count))
            if count:
                close(found[own], left[own] @ right[group])
            begin += count
    if room is None and kind == "rows":
        whole = ht.scaled_grouped_mm(a, b, scale_a, scale_b, out_dtype=F32, use_fast_accum=True, **told)
        close(whole[:5], left[:5] @ right[0])


@pytest.mark.parametrize("kind", ["tensor", "rows", "blocks"])
@pytest.mark.parametrize("dtype, bias", [(E4M3, False), (E5M2, True)])
def test_scaled_mm(kind, dtype, bias):
    m, n, k = 24, 144, 160
    a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype).t()
    scale_a, scale_b = scales(kind, m, n, k)
    added = torch.randn(n, dtype=BF16) if bias else None
    want = (a.double() * spread(scale_a, a.shape)) @ (b.double() * spread(scale_b, b.shape))
    for _ in range(2):
        found = ht.scaled_mm(a, b, scale_a, scale_b, added)
        assert found.dtype == BF16
        close(found, want if added is None else want + added.double())
    if kind == "tensor":
        close(ht.scaled_mm(a, b, scale_a, scale_b, out_dtype=F32, use_fast_accum=True), want)
    if kind == "blocks":
        # As cuBLAS wants them: with room for four blocks of the depth, as rows and as what lies between columns.
        roomy = torch.full((2, 4), torch.nan)
        roomy[:, :2] = scale_b.t()
        for same in (roomy.t(), roomy.t()[:2]):
            assert torch.equal(ht.scaled_mm(a, b, scale_a, same, added), found)


MORE = {
    "bmm": lambda: (torch.randn(2, 8, 16, dtype=F16), torch.randn(2, 16, 8, dtype=F16)),
    "bmm_train": lambda: (torch.randn(2, 8, 16, dtype=F16, requires_grad=True), torch.randn(2, 16, 8, dtype=F16)),
    "scaled_mm": lambda: (torch.randn(16, 32).to(E4M3), torch.randn(16, 32).to(E4M3).t(), torch.ones(()), torch.ones(())),
    "scaled_grouped_mm": lambda: (
        torch.randn(6, 32).to(E4M3), torch.randn(2, 16, 32).to(E4M3).transpose(1, 2), torch.ones(6), torch.ones(2, 16),
        torch.tensor([2, 6], dtype=torch.int32),
    ),
    "scaled_mm_bias": lambda: (
        torch.randn(16, 32).to(E4M3), torch.randn(16, 32).to(E4M3).t(), torch.ones(16, 1), torch.ones(1, 16), torch.ones(16, dtype=BF16),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_opcheck(name):
    arguments = MORE[name]()
    torch.library.opcheck(getattr(torch.ops.heist, name).default, arguments, test_utils=opchecks(arguments))


one = torch.ones(())
BAD = [
    ("bmm of matrices", lambda: ht.bmm(torch.ones(8, 16, dtype=F16), torch.ones(16, 8, dtype=F16)), ValueError, "has three"),
    ("bmm of other batches", lambda: ht.bmm(torch.ones(2, 8, 16, dtype=F16), torch.ones(3, 16, 8, dtype=F16)), ValueError, "the batches"),
    ("bmm of two types", lambda: ht.bmm(torch.ones(2, 8, 16, dtype=F16), torch.ones(2, 16, 8, dtype=BF16)), ValueError, "convert one"),
    ("bmm of int32", lambda: ht.bmm(*(torch.ones(2, 8, 8, dtype=torch.int32),) * 2), heist.UnsupportedError, "int32"),
    ("scaled_mm of bfloat16", lambda: ht.scaled_mm(*(torch.ones(16, 16, dtype=BF16),) * 2, one, one), heist.UnsupportedError, "use mm"),
    ("scaled_mm of two types", lambda: ht.scaled_mm(torch.ones(16, 16).to(E4M3), torch.ones(16, 16).to(E5M2).t(), one, one), heist.UnsupportedError, "of one type"),
    ("scaled_mm of rows", lambda: ht.scaled_mm(*(torch.ones(16, 32).to(E4M3), torch.ones(32, 16).to(E4M3)), one, one), ValueError, "column after column"),
    ("scaled_mm with half scales", lambda: ht.scaled_mm(torch.ones(16, 16).to(E4M3), torch.ones(16, 16).to(E4M3).t(), one.half(), one), ValueError, "float32"),
    ("scaled_mm with other scales", lambda: ht.scaled_mm(torch.ones(16, 16).to(E4M3), torch.ones(16, 16).to(E4M3).t(), torch.ones(7), one), ValueError, "one number each"),
    ("scaled_mm with a long bias", lambda: ht.scaled_mm(torch.ones(16, 16).to(E4M3), torch.ones(16, 16).to(E4M3).t(), one, one, torch.ones(9)), ValueError, "bias"),
    ("scaled_mm into float8", lambda: ht.scaled_mm(torch.ones(16, 16).to(E4M3), torch.ones(16, 16).to(E4M3).t(), one, one, out_dtype=E4M3), heist.UnsupportedError, "a result of"),
    ("scaled_mm of odd rows", lambda: ht.scaled_mm(torch.ones(16, 17).to(E4M3), torch.ones(16, 17).to(E4M3).t(), one, one), heist.UnsupportedError, "16"),
    ("groups of bfloat16", lambda: in_groups(a=torch.ones(6, 32, dtype=BF16)), heist.UnsupportedError, "use grouped_mm"),
    ("groups of rows", lambda: in_groups(b=torch.ones(2, 32, 16).to(E4M3)), ValueError, "column after column"),
    ("groups without offs", lambda: in_groups(offs=None), ValueError, "say with offs"),
    ("groups with counts", lambda: in_groups(counts=torch.ones(2, dtype=torch.int32)), ValueError, "leave out counts"),
    ("masked groups without counts", lambda: in_groups(a=torch.ones(2, 3, 32).to(E4M3)), ValueError, "say with counts"),
    ("groups with wide offs", lambda: in_groups(offs=torch.tensor([3, 6])), ValueError, "int32"),
    ("groups with other scales", lambda: in_groups(scale_a=torch.ones(6, 2)), ValueError, "for blocks of 128"),
    ("groups with half scales", lambda: in_groups(scale_a=torch.ones(6).half()), ValueError, "float32"),
    ("groups of which so many are expected", lambda: in_groups(expected=3), ValueError, "masked groups"),
    ("groups of odd rows", lambda: in_groups(a=torch.ones(6, 24).to(E4M3), b=torch.ones(2, 16, 24).to(E4M3).transpose(1, 2)), heist.UnsupportedError, "pad k"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, words", [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_refused_with_cause_and_remedy(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value), str(raised.value)
