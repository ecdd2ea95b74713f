"""Masks of attention that are data: prefixes, documents, blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ._device import UnsupportedError, tensors_only
from ._scores import Scores

#: The operands that they are, from the first on.
_FIRST = 14

#: The arguments of an operation.
MASKS = "Tensor prefixes, Tensor documents, Tensor block_mask, int block_rows, int block_keys"


class Masked(NamedTuple):
    """What is added to the scores, and masks. A tensor without elements is none."""

    scores: Scores
    prefixes: torch.Tensor
    documents: torch.Tensor
    block_mask: torch.Tensor
    block_rows: int
    block_keys: int
    #: Of packed sequences: how many, and the queries and keys of the longest.
    packed: tuple[int, int, int] | None = None

    def masks(self) -> tuple[torch.Tensor, ...]:
        return self.prefixes, self.documents, self.block_mask

    def key(self) -> tuple[Any, ...]:
        """What a plan depends on."""
        tables = ((t.shape, t.dtype, t.get_device(), t.stride()) for t in self.masks())
        return *self.scores.key(), *tables, self.block_rows, self.block_keys

    def tensors(self) -> list[torch.Tensor]:
        """Those that there are."""
        return [*self.scores.tensors(), *(t for t in self.masks() if t.numel())]

    def check(self, what: str, q: torch.Tensor, k: torch.Tensor) -> None:
        """Fails where tables are not what the kernels read."""
        self.scores.check(what, q, k)
        heads, all_keys = q.shape[1], k.shape[0]
        batch, queries, keys = self.packed or (q.shape[0], q.shape[2], k.shape[2])
        blocks = [-(-length // max(size, 1)) for length, size in ((queries, self.block_rows), (keys, self.block_keys))]
        for name, table, dtype, shapes in (
            ("prefixes", self.prefixes, torch.int32, [(batch,)]),
            ("documents", self.documents, torch.int32, [(all_keys,) if self.packed else (batch, keys)]),
            ("block_mask", self.block_mask, torch.uint8, [(b, h, *blocks) for b in (batch, 1) for h in (heads, 1)]),
        ):
            if table.numel() and (table.dtype != dtype or tuple(table.shape) not in shapes or not table.is_contiguous()):
                raise ValueError(
                    f"{what}: {name} is {table.dtype} of {tuple(table.shape)}; {dtype} of {' or '.join(map(str, shapes))}, contiguous, "
                    "is wanted"
                )

    def how(self) -> dict[str, Any]:
        """As a plan takes it."""
        mask, blocks = self.block_mask, None
        if mask.numel():
            blocks = self.block_rows, self.block_keys, mask.shape[0] > 1, mask.shape[1] > 1
        there = {"prefixes": self.prefixes.numel() > 0, "documents": self.documents.numel() > 0}
        return {**self.scores.how(), **there, "blocks": blocks}

    def addresses(self, behind: int) -> list[int]:
        """Of the operands, behind so many others."""
        before = self.scores.addresses(behind)
        return before + [0] * (_FIRST - behind - len(before)) + [t.data_ptr() for t in self.masks()]

    def empty_sums(self, lse: torch.Tensor, heads: int) -> torch.Tensor:
        """The log-sum-exps of rows that see no key."""
        return self.scores.empty_sums(lse, heads)

    def slots(self) -> list[int | None]:
        """The operand that each tensor of an operation is."""
        masks = (slot if table.numel() else None for slot, table in enumerate(self.masks(), _FIRST))
        return [*self.scores.slots(), *masks]


def masks_of(
    what: str, q: torch.Tensor, k: torch.Tensor, scores: Scores | None, prefixes: Any, documents: Any, block_mask: Any, block_size: Any,
    packed: int | None = None,
) -> Masked | None:  # fmt: skip
    """What the arguments of a function mask, of queries and keys (batch, heads, rows, elements), or of so many packed sequences (rows,
    heads, elements); None where it is nothing."""
    if prefixes is None and documents is None and block_mask is None:
        return None
    given = {"prefix_lens": prefixes, "documents": documents, "block_mask": block_mask}
    tensors_only(what, **{name: table for name, table in given.items() if table is not None})
    batch, keys = (q.shape[0], k.shape[2]) if packed is None else (packed, k.shape[0])
    if prefixes is not None and (prefixes.shape != (batch,) or prefixes.dtype != torch.int32):
        raise ValueError(
            f"{what}: prefix_lens is {prefixes.dtype} of {tuple(prefixes.shape)}; int32, one for each of {batch} sequences, is wanted"
        )
    if documents is not None:
        shapes = [(keys,)] if packed is not None else [(keys,), (1, keys), (batch, keys)]
        if documents.dtype != torch.int32 or tuple(documents.shape) not in shapes:
            raise ValueError(
                f"{what}: documents is {documents.dtype} of {tuple(documents.shape)}; int32, a number for each key, of "
                f"{' or '.join(map(str, shapes))} is wanted"
            )
        documents = (documents if packed is not None else documents.expand(batch, keys)).contiguous()
    rows, width = _sizes(what, block_size)
    if block_mask is not None:
        if block_mask.dtype not in (torch.bool, torch.uint8) or not 2 <= block_mask.dim() <= 4:
            raise ValueError(
                f"{what}: block_mask is {block_mask.dtype} of {tuple(block_mask.shape)}; bool of (batch or 1, heads or 1, blocks of "
                "queries, blocks of keys), or of the last two, is wanted; of a BlockMask of torch.nn.attention.flex_attention give "
                "to_dense() where no block is hidden in part"
            )
        block_mask = block_mask.view(torch.uint8).view((1,) * (4 - block_mask.dim()) + tuple(block_mask.shape)).contiguous()
    none = [q.new_empty(0, dtype=dtype) for dtype in (torch.float32, torch.int32, torch.uint8)]
    own = scores or Scores(none[0], none[0], 0.0)
    for name, table in given.items():
        if table is not None and table.device != q.device:
            raise UnsupportedError(f"{what}: {name} is on {table.device} and the queries are on {q.device}; move it there")
    tables = (none[at] if table is None else table for at, table in ((1, prefixes), (1, documents), (2, block_mask)))
    return Masked(own, *tables, *((rows, width) if block_mask is not None else (0, 0)))


def _sizes(what: str, block_size: Any) -> tuple[int, int]:
    """Queries and keys of a block."""
    try:
        rows, keys = (block_size, block_size) if isinstance(block_size, int) else (int(size) for size in block_size)
    except (TypeError, ValueError):
        rows = keys = 0
    if rows < 1 or keys < 1:
        raise ValueError(f"{what}: block_size={block_size!r}; a number, or two of queries and keys of a block, are wanted")
    return rows, keys
