"""What is right, in float64."""

import torch


def attention(q, k, v, *, causal=False, top_left=False, window=(-1, -1), scale=None, softcap=0.0, slopes=None, sinks=None, mask=None):
    """(batch, heads, rows, elements); masks count from the last key unless `top_left`. Slopes and sinks have a
    number for each query head; a mask broadcasts to the scores, True for a key that is seen, or a number to be added."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(-1, -2) * scale
    queries, keys = scores.shape[-2:]
    own = torch.arange(queries, device=q.device)[:, None] + (0 if top_left else keys - queries)
    key = torch.arange(keys, device=q.device)[None, :]
    seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
    left, right = window
    if causal:
        seen &= key <= own
    if left >= 0:
        seen &= key >= own - left
    if right >= 0:
        seen &= key <= own + right
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        scores = scores - slopes.double()[:, None, None] * (key - own).abs()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.double()
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.double()[None, :, None, None].expand(*scores.shape[:3], 1)), -1)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)[..., :keys]
    return weights @ v, torch.logsumexp(scores, -1)


def close(found, expected, bound=2e-2):
    """Relative to the largest element."""
    assert found.shape == expected.shape
    error = (found.double() - expected).abs().max()
    size = expected.abs().max().clamp(min=1e-9)
    assert error / size <= bound, f"off by {error / size:.2e} of the largest element"


def grouped(a, b, offs):
    """Rows of each group times its matrix."""
    out = torch.zeros(a.shape[0], b.shape[2], dtype=torch.float64, device=a.device)
    begin = 0
    for group, end in enumerate(offs.tolist()):
        out[begin:end] = a[begin:end].double() @ b[group].double()
        begin = end
    return out


def opchecks(arguments):
    """The checks of ``torch.library.opcheck`` that these arguments allow."""
    checks = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    if any(t.is_floating_point() and t.dtype.itemsize == 1 for t in arguments if isinstance(t, torch.Tensor)):
        # It multiplies copies of the arguments, and PyTorch has no product of 8-bit floats on the CPU.
        checks.remove("test_schema")
    return checks
