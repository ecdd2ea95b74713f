"""What a model adds to the scores of attention: a soft-cap, ALiBi's slopes, sinks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ._device import UnsupportedError, tensors_only

#: The operands that they are.
_SLOPES, _SINKS = 10, 11
#: The same among those of gradients.
_SLOPES_OF_GRADIENT = 12

#: The arguments of an operation.
SCORES = "Tensor slopes, Tensor sinks, float softcap"


class Scores(NamedTuple):
    """What is added. A tensor without elements is none."""

    slopes: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    softcap: float = 0.0

    def key(self) -> tuple[Any, ...]:
        """What a plan depends on."""
        tables = (None if t is None else (t.shape, t.dtype, t.get_device(), t.stride()) for t in self[:2])
        return *tables, self.softcap

    def tensors(self) -> list[torch.Tensor]:
        """Those that there are."""
        return [t for t in self[:2] if t is not None and t.numel()]

    def check(self, what: str, q: torch.Tensor, k: torch.Tensor, heads: int = 1) -> None:
        """Fails where tables are not what the kernels read; `heads` is the axis of the heads."""
        heads = q.shape[heads]
        for name, table in (("slopes", self.slopes), ("sinks", self.sinks)):
            if table is None or not table.numel():
                continue
            if table.dtype != torch.float32 or table.shape != (heads,) or not table.is_contiguous():
                raise ValueError(
                    f"{what}: {name} are {table.dtype} of {tuple(table.shape)}; float32, one for each of {heads} query heads, are wanted"
                )

    def how(self) -> dict[str, Any]:
        """As a plan takes it."""
        there = [t is not None and t.numel() > 0 for t in self[:2]]
        return {"softcap": self.softcap or None, "alibi": there[0], "sinks": there[1]}

    def addresses(self, behind: int) -> list[int]:
        """Of the operands, behind so many others; none where nothing is added."""
        tables = [0 if t is None else t.data_ptr() for t in self[:2]]
        return [0] * (_SLOPES - behind) + tables if any(tables) else []

    def empty_sums(self, lse: torch.Tensor, heads: int) -> torch.Tensor:
        """The log-sum-exps of rows that see no key; `heads` is the axis of the heads."""
        if self.sinks is None or not self.sinks.numel():
            return lse.fill_(float("-inf"))
        shape = [1] * lse.dim()
        shape[heads] = -1
        return lse.copy_(self.sinks.view(shape).expand_as(lse))

    def slots(self) -> list[int | None]:
        """The operand that each tensor of an operation is."""
        tables = zip(self[:2], (_SLOPES, _SINKS))
        return [slot if table is not None and table.numel() else None for table, slot in tables if table is not None]

    def how_of_gradient(self) -> dict[str, Any]:
        """As a plan of gradients takes it: those of queries, keys and values are the same without sinks."""
        how = self.how()
        return {"softcap": how["softcap"], "alibi": how["alibi"]}

    def slots_of_gradient(self) -> list[int | None]:
        """The operand that slopes are among those of gradients."""
        if self.slopes is None:
            return []
        return [_SLOPES_OF_GRADIENT if self.slopes.numel() else None]


#: Nothing.
PLAIN = Scores()


def scores_of(what: str, q: torch.Tensor, heads: int, softcap: Any, slopes: Any, sinks: Any) -> Scores | None:
    """What the arguments of a function add; None where it is nothing. A row for each sequence is taken where all are
    the same, as ``expand`` makes them."""
    if not softcap and slopes is None and sinks is None:
        return None
    try:
        cap = float(softcap or 0.0)
    except (TypeError, ValueError):
        cap = -1.0
    if not 0.0 <= cap < float("inf"):
        raise ValueError(f"{what}: softcap={softcap!r}; a number above zero is wanted, or 0 for none")
    tables = []
    for name, table in (("alibi_slopes", slopes), ("sinks", sinks)):
        if table is None:
            tables.append(q.new_empty(0, dtype=torch.float32))
            continue
        tensors_only(what, **{name: table})
        if table.dim() == 2 and (table.shape[0] == 1 or table.stride(0) == 0):
            table = table[0]
        if table.shape != (heads,) or table.device != q.device or not table.dtype.is_floating_point:
            raise UnsupportedError(
                f"{what}: {name} is {table.dtype} of {tuple(table.shape)} on {table.device}; one number for each of {heads} query "
                f"heads on {q.device}, the same for all sequences, is supported"
            )
        tables.append(table.to(torch.float32).contiguous())
    return Scores(*tables, cap)
