"""PyTorch's own calls, and those of Hugging Face transformers, with Heist's kernels."""

from __future__ import annotations

from typing import Any

import torch

from ._attention import attend_lse, attend_paired
from ._device import UnsupportedError, wants_gradient
from ._flash import flash_attn_func, flash_attn_varlen_func, scaled_dot_product_attention
from ._gradient import WIDEST, differentiate
from ._library import call
from ._pairs import pairs_of

#: The name under which both know it.
NAME = "heist"

_registered = False


class _Registration:
    """What is in force while PyTorch's flash attention is Heist's."""

    def __init__(self) -> None:
        self.library = torch.library.Library("aten", "IMPL", "CUDA")
        self._forward()
        self._backward()
        for name in _MASKED:
            self._masked(name)

    def _forward(self) -> None:
        name = "_scaled_dot_product_flash_attention"
        original = torch.library.get_kernel(f"aten::{name}", "CUDA")

        def forward(keys: Any, query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False,
                    return_debug_mask: bool = False, *, scale: float | None = None) -> Any:  # fmt: skip
            if _takes(query, key, value, dropout_p, return_debug_mask, scale):
                try:
                    out, lse = call(attend_lse, None, query, key, value, is_causal, -1, -1, scale or 0.0)
                except (UnsupportedError, ValueError):
                    pass
                else:
                    return out, lse, None, None, query.shape[2], key.shape[2], *_no_dropout(query)
            return original.call_boxed(
                keys, query, key, value, dropout_p, is_causal, return_debug_mask, scale=scale
            )

        self.library.impl(name, forward, "CUDA", with_keyset=True, allow_override=True)

    def _backward(self) -> None:
        name = "_scaled_dot_product_flash_attention_backward"
        original = torch.library.get_kernel(f"aten::{name}", "CUDA")

        def backward(keys: Any, grad: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, cum_seq_q: Any,
                     cum_seq_k: Any, max_q: Any, max_k: Any, dropout_p: float, is_causal: bool, seed: Any, offset: Any, *,
                     scale: float | None = None) -> Any:  # fmt: skip
            if _takes(query, key, value, dropout_p, False, scale) and query.shape[-1] <= WIDEST:
                switch = torch.are_deterministic_algorithms_enabled()
                try:
                    return call(differentiate, None, grad, query, key, value, out, lse, is_causal, -1, -1, scale or 0.0, switch)
                except (UnsupportedError, ValueError):
                    pass
            return original.call_boxed(
                keys, grad, query, key, value, out, lse, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed,
                offset, scale=scale,
            )  # fmt: skip

        self.library.impl(name, backward, "CUDA", with_keyset=True, allow_override=True)

    def _masked(self, name: str) -> None:
        """What PyTorch chooses where there is a mask: ours where the mask is the same for all queries, as one of padding is. With
        a number for each query, or for one query, PyTorch's takes less time; and of a call whose gradient may be asked for
        both directions stay PyTorch's."""
        original = torch.library.get_kernel(f"aten::{name}", "CUDA")
        cudnn = "cudnn" in name

        def forward(keys: Any, query: Any, key: Any, value: Any, attn_bias: Any, compute_log_sumexp: bool, *rest: Any,
                    scale: float | None = None) -> Any:  # fmt: skip
            dropout_p, is_causal, debug = (*rest, *(0.0, False, False)[len(rest) :])
            padding = attn_bias is not None and _is_padding(attn_bias)
            taken = padding and query.shape[2] > 1 and not compute_log_sumexp and not is_causal
            if taken and _takes(query, key, value, dropout_p, debug, scale):
                try:
                    pairs = pairs_of("attention", query, key, attn_bias)
                    out, _ = call(attend_paired, None, query, key, value, pairs, False, -1, -1, scale or 0.0)
                except (UnsupportedError, ValueError):
                    return original.call_boxed(keys, query, key, value, attn_bias, compute_log_sumexp, *rest, scale=scale)
                none = query.new_empty((*query.shape[:2], 0), dtype=torch.float32)
                seed, offset, debug = _no_dropout(query)
                if cudnn:
                    return out, none, None, None, query.shape[2], key.shape[2], seed, offset, debug
                return out, none, seed, offset
            return original.call_boxed(keys, query, key, value, attn_bias, compute_log_sumexp, *rest, scale=scale)

        self.library.impl(name, forward, "CUDA", with_keyset=True, allow_override=True)

    def remove(self) -> None:
        """PyTorch's own is in force again."""
        self.library._destroy()


#: What PyTorch calls for attention with a mask.
_MASKED = ("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention")


def _is_padding(mask: torch.Tensor) -> bool:
    """Whether a mask is the same for all queries: one row as the caller wrote it, which cuDNN's function is given, or that row
    expanded, which the efficient one is given."""
    return mask.dim() == 4 and (mask.shape[2] == 1 or mask.stride(2) == 0)


def _no_dropout(query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The seed, the offset and the mask of no dropout, which nobody looks at: a kernel that made them zero would take the device
    two microseconds."""
    seed = torch.empty((2,), dtype=torch.uint64, device=query.device)
    unused = torch.empty((), dtype=torch.uint64, device=query.device)
    return seed, unused, torch.empty((0,), dtype=query.dtype, device=query.device)


def _takes(query: Any, key: Any, value: Any, dropout_p: float, debug: bool, scale: float | None) -> bool:
    """Whether the kernels do this call; all others stay PyTorch's."""
    dim = query.shape[-1]
    return (
        dropout_p == 0.0
        and not debug
        # The operations take zero for the usual scale.
        and (scale is None or 0.0 < scale < float("inf"))
        and query.dtype in (torch.float16, torch.bfloat16)
        and 16 <= dim <= 256
        and dim % 16 == 0
        and key.shape == value.shape
        and query.shape[1] % key.shape[1] == 0
        and min(query.numel(), key.numel()) > 0
        and (query.data_ptr() | key.data_ptr() | value.data_ptr()) % 16 == 0
    )


def use() -> None:
    """Makes PyTorch's own flash attention Heist's: ``F.scaled_dot_product_attention`` on
    CUDA tensors, wherever PyTorch chooses flash attention, and its backward; and with a mask
    that is the same for all queries (padding) its forward, where no gradient is asked for.
    What Heist does not do (dropout, other head sizes, gradients of heads above 128 elements
    or with a mask), or does no faster, runs as before.

    >>> heist.torch.use()       # doctest: +SKIP
    >>> heist.torch.restore()   # doctest: +SKIP
    """
    global _registered
    from torch.nn import attention

    if not hasattr(attention, "register_flash_attention_impl") or not hasattr(torch.library, "get_kernel"):
        raise UnsupportedError(
            f"this PyTorch ({torch.__version__}) can't be given another flash attention; 2.11 and later can: "
            "call heist.torch.scaled_dot_product_attention itself"
        )
    if not _registered:
        attention.register_flash_attention_impl(NAME, register_fn=_Registration)
        _registered = True
    attention.activate_flash_attention_impl(NAME)


def restore() -> None:
    """PyTorch's own flash attention is in force again."""
    from torch.nn import attention

    if _registered:
        attention.restore_flash_attention_impl()


def attention_forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as Hugging Face transformers call it: (batch, heads, rows, elements) in,
    (batch, rows, heads, elements) out."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    # One query sees everything before it: that is what its cache holds.
    causal = bool(causal) and query.shape[2] > 1
    window = (-1, -1) if sliding_window is None else (sliding_window - 1, 0)
    if attention_mask is not None:
        attention_mask = attention_mask[..., -key.shape[2] :] if attention_mask.dim() == 2 else attention_mask[..., : key.shape[2]]
        if attention_mask.dim() == 2:
            if wants_gradient(query, key, value):
                # Gradients of packed sequences take less time than those with a mask.
                how = {"dropout_p": dropout, "softmax_scale": scaling, "causal": causal, "window_size": window, "softcap": softcap or 0.0}
                return _packed(query, key, value, attention_mask.bool(), sinks=kwargs.get("s_aux"), **how), None
            attention_mask = attention_mask.bool()[:, None, None]
        else:
            # It hides what a causal mask and a window hide.
            causal, window = False, (-1, -1)
    out = flash_attn_func(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
        dropout_p=dropout, softmax_scale=scaling, causal=causal, window_size=window, softcap=softcap or 0.0,
        sinks=kwargs.get("s_aux"), attn_mask=attention_mask,
    )  # fmt: skip
    return out, None


def _packed(query, key, value, present, **how):
    """A batch of padded sequences: packed, attended, and spread out again."""
    batch, heads, queries, _ = query.shape
    asked = present[:, -queries:]

    def packed(tensor: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        return tensor.transpose(1, 2)[where]

    def starts(where: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(where.sum(1).cumsum(0), (1, 0)).to(torch.int32)

    out = flash_attn_varlen_func(
        packed(query, asked), packed(key, present), packed(value, present), starts(asked), starts(present), queries, key.shape[2], **how
    )
    full = out.new_zeros((batch, queries, heads, value.shape[3]))
    full[asked] = out
    return full


def _mask(batch_size: int, *args: Any, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> Any:
    """Which tokens are there, or None where all are: what :func:`attention_forward` takes."""
    if attention_mask is None or bool(attention_mask.all()):
        return None
    return attention_mask


def register_transformers() -> None:
    """Makes ``attn_implementation="heist"`` known to Hugging Face transformers.

    >>> heist.torch.register_transformers()                                            # doctest: +SKIP
    >>> AutoModelForCausalLM.from_pretrained(.., attn_implementation="heist")          # doctest: +SKIP
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        raise ImportError(
            "transformers with an attention interface is not installed: `pip install 'transformers>=4.53'`"
        ) from error
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, _mask)


__all__ = ["attention_forward", "register_transformers", "restore", "scaled_dot_product_attention", "use"]
