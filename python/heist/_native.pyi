"""The compiled part of the package."""

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

class _Plan:
    name: str
    counters: int
    scratch: int
    flops: float
    def launch(self, *numbers: int) -> None: ...

@final
class GemmPlan(_Plan): ...

@final
class GroupedPlan(_Plan): ...

@final
class AttentionPlan(_Plan): ...

@final
class Ops:
    """The operations of one device."""

    def __init__(self, device: str) -> None: ...
    def __len__(self) -> int: ...
    def gemm(self, m: int, n: int, k: int, **how: Any) -> GemmPlan: ...
    def grouped_gemm(self, groups: int, rows: int, n: int, k: int, **how: Any) -> GroupedPlan: ...
    def attention(
        self, batch: int, queries: int, keys: int, heads: int, kv_heads: int, dim: int, **how: Any
    ) -> AttentionPlan: ...

def check(text: str, name: str) -> list[Finding]: ...
def command(words: list[str]) -> int: ...
def explain(code: str) -> str: ...
def parameters(text: str, name: str, entry: str | None = None) -> list[tuple[str, str, int | None]]: ...
def policies() -> list[tuple[str, str]]: ...
def policy(text: str) -> str: ...
def run(
    text: str,
    name: str,
    entry: str | None,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: list[str | tuple[int, int, str, str]],
    *,
    cluster: tuple[int, int, int] | None = None,
    shared: int = 0,
    device: str = "sim:h200",
    seed: int = 0,
    chaos: bool = False,
    limit_s: float = 60.0,
) -> Report: ...
