"""Launches of other compilers' kernels on a simulated GPU: the GPU, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _native

# Triton keeps compiled kernels by the number of the device: each simulated GPU has its own.
_FIRST_NUMBER = 0x4E15
_numbers: dict[str, int] = {}


class Gpu:
    """What compilers and their users may know of a simulated GPU."""

    def __init__(self, name: str) -> None:
        device, arch, sms, shared, registers = _native.simulated(name)
        self.device = device
        self.arch = arch
        self.capability = int("".join(c for c in arch.removeprefix("sm_") if c.isdigit()))
        self.sms = sms
        self.shared = shared
        self.registers = registers
        self.number = _numbers.setdefault(device, _FIRST_NUMBER + len(_numbers))

    def properties(self) -> dict[str, Any]:
        return {
            "max_shared_mem": self.shared,
            "max_num_regs": self.registers,
            "multiprocessor_count": self.sms,
            "warpSize": 32,
            "sm_clock_rate": 1_500_000,
            "mem_clock_rate": 2_000_000,
            "mem_bus_width": 4096,
        }


@dataclass
class Launched:
    """One launch: what ran, and what was found in it; apart from that, what the compiler did
    on its own and no source can change."""

    kernel: str
    grid: tuple[int, int, int]
    findings: list[Any]
    from_compiler: list[Any]
    elapsed_ns: float | None
    seconds: float
    printed: str


class CompilerWarning(UserWarning):
    """Something is wrong in a kernel that its source can't be the reason of."""


@dataclass
class How:
    """How a launch is simulated, as the compiled part takes it."""

    device: str
    explore: int | None
    seed: int
    cooperative: bool
    limit_s: float


def finding_error(findings: list[Any]) -> _native.FindingError:
    """All that was found in a launch, as one exception."""
    error = _native.FindingError("\n" + "\n".join(finding.text for finding in findings))
    error.findings = findings
    return error


def folded(findings: list[Any]) -> list[Any]:
    """One finding for each rule and line: a line of source is many instructions."""
    first: dict[Any, Any] = {}
    for finding in findings:
        first.setdefault((finding.code, finding.file, finding.line), finding)
    return list(first.values())
