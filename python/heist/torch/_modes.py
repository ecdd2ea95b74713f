"""What the modes of a thread ask of an operation: autocast, forward-mode gradients, the transforms of ``torch.func``."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from ._device import UnsupportedError, no_tangent

#: Whether gradients are recorded at all.
grad_enabled = torch._C.is_grad_enabled if hasattr(torch._C, "is_grad_enabled") else torch.is_grad_enabled

_autocasts = torch._C._is_any_autocast_enabled
_transforms = torch._C._functorch.peek_interpreter_stack

#: Types that autocast converts.
_CASTS = (torch.float16, torch.bfloat16, torch.float32)


def unusual() -> bool:
    """Whether a mode of this thread is on that :func:`prepared` is to look at."""
    return forward_ad._current_level >= 0 or _autocasts()


def prepared(what: str, *tensors: Any) -> tuple[Any, ...]:
    """The factors of a product as autocast, where it is on, converts those of PyTorch's own. Tangents are refused:
    they would be lost without a word."""
    no_tangent(what, *tensors)
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(t if t is None or t.dtype not in _CASTS else t.to(dtype) for t in tensors)


def no_transform(name: str) -> None:
    """Refuses a gradient inside a transform of ``torch.func``, which knows nothing of it."""
    if _transforms() is not None:
        raise UnsupportedError(
            f"{name}: an input wants a gradient inside a transform of torch.func (`grad`, `vjp`, `jacrev`, `vmap`), which is not "
            "supported; use `.backward()` or `torch.autograd.grad`, or PyTorch's own function"
        )
