"""Masks of attention with a number for each query and key, as PyTorch's ``attn_mask``."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ._device import UnsupportedError, tensors_only
from ._scores import Scores

#: The operand that it is.
_SLOT = 17

#: The argument of an operation.
PAIRS = "Tensor pairs"

#: Types that a mask has, as PyTorch numbers them.
_TYPES = {torch.bool: 11, torch.float16: 5, torch.bfloat16: 15, torch.float32: 6}


class Paired(NamedTuple):
    """A mask (batch or 1, heads or 1, queries or 1, keys), whose keys follow each other, and what is added to the scores before it."""

    mask: torch.Tensor
    scores: Scores = Scores()

    def key(self) -> tuple[Any, ...]:
        """What a plan depends on."""
        mask = self.mask
        return *self.scores.key(), mask.shape, mask.stride(), mask.dtype, mask.get_device()

    def tensors(self) -> list[torch.Tensor]:
        """Those that there are."""
        return [*self.scores.tensors(), self.mask]

    def _strides(self) -> tuple[int, ...]:
        """From one sequence, head and query to the next; zero where all have the same."""
        return tuple(0 if size == 1 else stride for size, stride in zip(self.mask.shape[:3], self.mask.stride()))

    def check(self, what: str, q: torch.Tensor, k: torch.Tensor) -> None:
        """Fails where the mask is not what the kernels read."""
        self.scores.check(what, q, k)
        mask = self.mask
        if mask.dtype not in _TYPES:
            raise UnsupportedError(
                f"{what}: a mask of {mask.dtype}; bool, which is True for keys that are seen, and float16, bfloat16 and float32, which "
                "are added to the scores, are supported"
            )
        wanted = *q.shape[:3], k.shape[2]
        if mask.dim() != 4 or not _broadcasts(mask.shape[:3], wanted[:3]) or mask.shape[3] != wanted[3]:
            raise ValueError(f"{what}: the mask is {tuple(mask.shape)}; (batch or 1, heads or 1, queries or 1, keys) of {wanted} is wanted")
        if mask.stride(3) != 1 and mask.shape[3] > 1:
            raise ValueError(f"{what}: the keys of the mask are {mask.stride(3)} apart, and must follow each other: pass `.contiguous()`")
        if any(stride >= 2**32 for stride in self._strides()):
            raise UnsupportedError(f"{what}: a mask with strides {mask.stride()}; strides below 2^32 are supported: split the batch")

    def how(self) -> dict[str, Any]:
        """As a plan takes it."""
        return {**self.scores.how(), "pairs": (_TYPES[self.mask.dtype], self._strides())}

    def addresses(self, behind: int) -> list[int]:
        """Of the operands, behind so many others."""
        before = self.scores.addresses(behind)
        return before + [0] * (_SLOT - behind - len(before)) + [self.mask.data_ptr()]

    def empty_sums(self, lse: torch.Tensor, heads: int) -> torch.Tensor:
        """The log-sum-exps of rows that see no key."""
        return self.scores.empty_sums(lse, heads)

    def slots(self) -> list[int | None]:
        """The operand that each tensor of an operation is."""
        return [_SLOT, *self.scores.slots()]


def _broadcasts(own: Any, wanted: Any) -> bool:
    return all(size in (1, full) for size, full in zip(own, wanted))


def pairs_of(what: str, q: torch.Tensor, k: torch.Tensor, mask: Any) -> torch.Tensor:
    """A mask as the operations take it, of one that broadcasts to (batch, heads, queries, keys). One that is the same for all
    sequences, heads or queries is not repeated."""
    tensors_only(what, attn_mask=mask)
    wanted = *q.shape[:3], k.shape[2]
    if mask.dim() > 4 or not _broadcasts(mask.shape[::-1], wanted[::-1]):
        raise ValueError(
            f"{what}: attn_mask is {tuple(mask.shape)}, which does not broadcast to (batch, heads, queries, keys) {tuple(wanted)}"
        )
    if mask.dtype not in _TYPES:
        raise UnsupportedError(
            f"{what}: attn_mask is {mask.dtype}; bool, which is True for keys that are seen, and float16, bfloat16 and float32, which are "
            "added to the scores, are supported"
        )
    if mask.device != q.device:
        raise ValueError(f"{what}: attn_mask is on {mask.device} and the query on {q.device}; move it with `.to(..)`")
    if mask.dim() < 4:
        mask = mask[(None,) * (4 - mask.dim())]
    keys = wanted[3]
    if mask.shape[3] != keys:
        mask = mask.expand(*mask.shape[:3], keys)
    return mask if mask.stride(3) == 1 or keys < 2 else mask.contiguous()


def of_batches(mask: Any, lead: tuple[int, ...]) -> Any:
    """A mask for queries whose axes in front of the heads are made one."""
    if not isinstance(mask, torch.Tensor) or mask.dim() <= 3:
        return mask
    return mask.expand(*lead, *mask.shape[-3:]).flatten(0, len(lead) - 1)
