"""The compiled part of the package."""

import os
from collections.abc import Sequence
from typing import Any, final

__version__: str

class HeistError(RuntimeError):
    """Something that Heist was asked for could not be done."""

class UnsupportedError(HeistError):
    """No kernel does this. The message says what is supported."""

class FindingError(HeistError):
    """The simulated GPU found something wrong. `findings` has all of it."""

    findings: list[Finding]

@final
class Finding:
    """One thing that was found: a rule that was broken, where, and what to do."""

    code: str
    severity: str
    message: str
    file: str
    line: int | None
    notes: list[str]
    helps: list[str]
    instructions: list[str]
    text: str

@final
class Trace:
    """Which block ran what, and when."""

    elapsed_ns: float
    busy: float
    blocks: int
    stolen: int
    def to_html(self) -> str: ...
    def to_svg(self) -> str: ...
    def to_perfetto(self) -> str: ...
    def _repr_html_(self) -> str: ...

@final
class Report:
    """What a run gave."""

    findings: list[Finding]
    printed: str
    elapsed_ns: float | None
    trace: Trace | None
    outputs: list[tuple[int, bytes]]
    @staticmethod
    def done() -> Report: ...

@final
class Module:
    """PTX that is parsed once and launched often."""

    def __init__(self, text: str, name: str) -> None: ...
    def parameters(self, entry: str) -> list[tuple[str, str, int | None]]: ...

def simulate(
    module: Module,
    entry: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    cluster: tuple[int, int, int] | None,
    shared: int,
    parameters: list[bytes | str],
    memory: list[Any],
    how: Any,
) -> tuple[Report, list[bytes | None]]: ...
def simulated(device: str) -> tuple[str, str, int, int, int]: ...

@final
class Kernel:
    """A kernel that was assembled for a GPU."""

    name: str
    parameters: list[tuple[str, str, int | None]]
    def __init__(self, text: str, name: str, entry: str | None, device: int) -> None: ...
    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: list[str | tuple[int, int, str, str]],
        buffers: list[tuple[str, tuple[int, int, str, str]]],
        *,
        cluster: tuple[int, int, int] | None = None,
        shared: int = 0,
        stream: int = 0,
        wait: bool = False,
    ) -> None: ...

@final
class Plan:
    """A planned operation."""

    name: str
    problem: str | None
    answer: str | None
    refusal: str | None
    counters: int
    scratch: int
    flops: float
    def launch(self, addresses: Sequence[int], counters: int, scratch: int, stream: int) -> None: ...

@final
class Ops:
    """The operations of one device."""

    def __init__(self, device: str, answers: str | os.PathLike[str] | None = None) -> None: ...
    @property
    def attends_in_eights(self) -> bool: ...
    @property
    def attends_pages(self) -> bool: ...
    def __len__(self) -> int: ...
    def plans(self) -> list[tuple[str, str | None, str | None, str | None]]: ...
    def gemm(self, m: int, n: int, k: int, **how: Any) -> Plan: ...
    def grouped_gemm(self, groups: int, rows: int, n: int, k: int, **how: Any) -> Plan: ...
    def expert_layer(self, experts: int, tokens: int, per: int, hidden: int, inner: int, **how: Any) -> Plan: ...
    def attention(
        self, batch: int, queries: int, keys: int, heads: int, kv_heads: int, dim: int, **how: Any
    ) -> Plan: ...
    def attention_backward(
        self, batch: int, queries: int, keys: int, heads: int, kv_heads: int, dim: int, **how: Any
    ) -> Plan: ...

def check(text: str, name: str) -> list[Finding]: ...
def command(words: list[str]) -> int: ...
def dispatch(core: str, cuda: str | None, operations: list[tuple[str, str]]) -> None: ...
def dlpack(capsule: object) -> tuple[int, int, str, int, int]: ...
def explain(code: str) -> str: ...
def forget() -> None: ...
def parameters(text: str, name: str, entry: str | None = None) -> list[tuple[str, str, int | None]]: ...
def policies() -> list[tuple[str, str]]: ...
def policy(text: str) -> str: ...
def refuse(why: str) -> None: ...
def remember(
    plan: Plan,
    index: int,
    inputs: list[int | None],
    outputs: list[tuple[list[int], list[int], int, int]],
    constants: list[tuple[int, int]],
) -> None: ...
def remembered() -> int: ...
def run(
    text: str,
    name: str,
    entry: str | None,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: list[str | tuple[int, int, str, str]],
    buffers: list[tuple[str, tuple[int, int, str, str]]],
    *,
    cluster: tuple[int, int, int] | None = None,
    shared: int = 0,
    device: str = "sim:h200",
    seed: int = 0,
    chaos: bool = False,
    limit_s: float = 60.0,
) -> Report: ...
def workspace(index: int, stream: int, counters: tuple[int, int], scratch: tuple[int, int]) -> None: ...
