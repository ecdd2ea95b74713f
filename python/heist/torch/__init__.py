"""Heist's kernels for PyTorch.

CUDA tensors run on their own device, in torch's context, on its current stream and
with memory of its allocator. CPU tensors run on a simulated GPU (:func:`simulate`
says which), and what it finds wrong raises :class:`heist.FindingError`.

>>> import torch, heist.torch as ht
>>> q = k = v = torch.ones(1, 2, 32, 16, dtype=torch.float16)
>>> ht.scaled_dot_product_attention(q, k, v).shape
torch.Size([1, 2, 32, 16])

Every operation takes ``policy``, text or a :class:`heist.Policy`: when a block asks
for another tile. All are registered with ``torch.library``, so ``torch.compile``
takes them. Unsupported arguments raise :class:`heist.UnsupportedError`, which says what is
supported.
"""

from ._flash import (
    flash_attn_func,
    flash_attn_varlen_func,
    flash_mla_with_kvcache,
    scaled_dot_product_attention,
)
from ._cache import flash_attn_with_kvcache
from ._qkv import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from ._batches import bmm, scaled_mm
from ._device import Tuned, answers, empty_cache, simulate, tuned
from ._experts import fused_experts
from ._hooks import register_transformers, restore, use
from ._library import install
from ._products import addmm, grouped_mm, linear, mm
from ._scaled_groups import scaled_grouped_mm

#: What PyTorch calls for an operation that it has called before: the ``compiled`` part,
#: or ``python``.
dispatch = install()

__all__ = [
    "Tuned",
    "addmm",
    "answers",
    "bmm",
    "empty_cache",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "flash_mla_with_kvcache",
    "fused_experts",
    "grouped_mm",
    "linear",
    "mm",
    "register_transformers",
    "restore",
    "scaled_dot_product_attention",
    "scaled_grouped_mm",
    "scaled_mm",
    "simulate",
    "tuned",
    "use",
]
