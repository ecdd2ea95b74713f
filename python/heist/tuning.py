"""Sweeps of the tuner over many processes and machines."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import jobs


@dataclass(frozen=True)
class Swept:
    """What a sweep found."""

    #: The fastest candidate's row: ``candidate``, ``status``, ``timing``, ``facts``.
    best: dict[str, Any]
    #: The row of what is taken without tuning.
    default: dict[str, Any] | None
    #: The newest row of every candidate, refused ones too.
    rows: list[dict[str, Any]]
    #: The command that runs the fastest.
    command: str


def sweep(
    kernel: str,
    problem: Mapping[str, Any],
    *,
    device: str = "gpu",
    executor: Any = None,
    limit: int = 64,
    only: Sequence[str] = (),
    policy: str = "greedy",
    seed: int = 1,
    timeout: float = 60.0,
    batch: int = 4,
    journal: str | os.PathLike[str] | None = None,
    program: Sequence[str] | None = None,
    attempts: int = 4,
) -> Swept:
    """``heist tune`` with its candidates tried by an executor, as :func:`heist.jobs.results` takes one.

    Here the candidates are chosen; ``batch`` of them at a time are a job, which gives their rows; the rows are put together by
    candidate, in ``journal`` where one is named (a sweep that was stopped goes on from it); and the closest race here,
    where the answer is kept. On GPUs, all machines have to have the same kind.

    >>> heist.sweep("gemm", {"m": 64, "n": 64, "k": 64}, device="sim:h200", limit=8).best["candidate"]      # doctest: +SKIP
    """
    question = [kernel, *(f"{name}={value}" for name, value in problem.items())]
    options = {"--device": device, "--policy": policy, "--seed": str(seed), "--timeout": str(timeout)}
    question += [word for option in options.items() for word in option]
    budget = ["--limit", str(limit), *(word for part in only for word in ("--only", part))]
    with tempfile.TemporaryDirectory() as folder:
        path = os.fspath(journal) if journal is not None else os.path.join(folder, "sweep.jsonl")
        here = jobs.Command("tune", *question, *budget, "--journal", path, program=program)
        tried: set[str] = set()
        while planned := here(["--plan"])["planned"]:
            again = tried.intersection(planned)
            if again:
                raise jobs.JobError(f"{path} has lost the rows of {len(again)} candidates; is somebody else writing to it?")
            tried.update(planned)
            batches = [tuple(planned[at : at + batch]) for at in range(0, len(planned), batch)]
            for names, rows in jobs.results(_Trial(question, program), batches, executor, attempts=attempts):
                _keep(path, names, rows)
        found = here()
    return Swept(best=found["best"], default=found["default"], rows=found["rows"], command=found["command"])


class _Trial:
    """Tries some candidates; their rows, in the same order."""

    def __init__(self, question: Sequence[str], program: Sequence[str] | None) -> None:
        self.command = jobs.Command("tune", *question, program=program)

    def __call__(self, candidates: Sequence[str]) -> list[dict[str, Any]]:
        words = [word for candidate in candidates for word in ("--candidate", candidate)]
        return self.command(words)["rows"]


def _keep(path: str, names: Sequence[str], rows: list[dict[str, Any]]) -> None:
    if len(rows) != len(names):
        raise jobs.JobError(f"{len(names)} candidates were tried, and {len(rows)} rows came back: {names}")
    # One write for whole lines, as the command does it.
    with open(path, "ab", buffering=0) as file:
        file.write("".join(json.dumps({"row": row}) + "\n" for row in rows).encode())
