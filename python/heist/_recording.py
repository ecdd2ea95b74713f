"""``pytest --heist-record FOLDER``: a launch of each test on this machine's GPU, kept in a file.

The recorder is a library in front of the driver, and has to be there before anything is loaded: pytest
is started once more with it. There, each test asks it for a record of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from heist import _recorder

_REPORT = "HEIST_RECORD_REPORT"


def is_on() -> bool:
    """Whether this process was started with the recorder in front of the driver."""
    return _REPORT in os.environ


def run_with_recorder(config: pytest.Config) -> int:
    """The same run of pytest with the recorder; its exit status."""
    # This process has nothing more to say but errors, and the other one says the rest.
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    if config.getoption("--heist"):
        raise pytest.UsageError("--heist runs kernels on a simulated GPU, and --heist-record keeps what a real one does: choose one")
    if config.getoption("--heist-record-launch") < 1:
        raise pytest.UsageError("--heist-record-launch counts from 1")
    found = _recorder.library()
    if found is None:
        raise pytest.UsageError(
            f"--heist-record needs {_recorder.FILE}, and this installation has none: it is in Heist's wheel for Linux on x86-64, "
            "or build it with `cargo build -p heist-recorder` and say where it is with HEIST_RECORDER"
        )
    before = os.environ.get("LD_PRELOAD")
    with tempfile.TemporaryDirectory(prefix="heist-record-") as folder:
        environment = {
            **os.environ,
            "LD_PRELOAD": f"{found}:{before}" if before else str(found),
            _REPORT: folder,
            # Nothing is recorded until a test asks.
            "HEIST_RECORD_FILE": os.path.join(folder, "none.heist"),
            "HEIST_RECORD_LAUNCH": "0",
        }
        command = [sys.executable, "-m", "pytest", *map(str, config.invocation_params.args)]
        return subprocess.call(command, cwd=config.invocation_params.dir, env=environment)


class Records:
    """The records of a run: one for each test that launches what is asked for."""

    def __init__(self, folder: str, kernel: str | None, launch: int) -> None:
        self._folder = pathlib.Path(folder).resolve()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._asked = (kernel, launch)
        self._names: set[str] = set()
        self._file = self._told = pathlib.Path()
        self._ask = ctypes.CDLL(None).heist_record_next
        self._ask.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64]

    def before(self, test: str) -> None:
        """Asks for the record of a test that is about to run."""
        name = plain = re.sub(r"[^\w.-]+", "_", test).strip("_")
        while name in self._names:
            name = f"{plain}-{len(self._names)}"
        self._names.add(name)
        self._file = self._folder / f"{name}.heist"
        # What an earlier run left there is not this test's.
        self._file.unlink(missing_ok=True)
        self._told = pathlib.Path(tempfile.mkdtemp(dir=os.environ[_REPORT]))
        self._next(self._asked[1])

    def _next(self, launch: int) -> None:
        kernel = self._asked[0]
        words = [os.fsencode(self._told), os.fsencode(self._file), kernel.encode() if kernel else None, launch]
        if self._ask(*words) != 0:
            raise pytest.UsageError("the recorder is loaded, but was not told where to write")

    def after(self) -> dict[str, Any]:
        """What became of it: what was launched, the file, or why there is none."""
        self._next(0)
        report = self._told / "report.jsonl"
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        recorded = [line["recorded"] for line in lines if "recorded" in line]
        refused = [line["refused"] for line in lines if "refused" in line]
        return {
            "kernels": [line["kernel"] for line in lines if "kernel" in line and "shape" in line],
            "file": os.path.relpath(self._file) if recorded else None,
            "kernel": recorded[0]["kernel"] if recorded else None,
            "left_out": recorded[0]["left_out"] if recorded else [],
            "refused": refused[0] if refused else None,
        }


def summary(told: dict[str, dict[str, Any]], kernel: str | None, launch: int) -> list[str]:
    """Lines about all tests, for the end of the run."""
    lines = []
    for test, one in told.items():
        if one["file"]:
            lines.append(f"{test}: `{one['kernel']}` in {one['file']}")
            lines += [f"  left out: {what}" for what in one["left_out"]]
        elif one["refused"]:
            lines.append(f"{test}: {one['refused']}")
        elif one["kernels"]:
            which = f"launch {launch} of `{kernel}`" if kernel else f"launch {launch}"
            names = [name if len(name) <= 60 else name[:57] + "..." for name in one["kernels"]]
            lines.append(f"{test}: no {which}; it launched {', '.join(names)}")
    if any(one["file"] for one in told.values()):
        lines.append("`heist check FILE` replays a record on a simulated GPU, on any machine")
    elif not lines:
        lines.append("no test launched a kernel through the CUDA driver: is there a GPU (`heist doctor`)?")
    return lines
