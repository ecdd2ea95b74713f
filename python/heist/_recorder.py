"""Where the recorder is: the library that ``heist record`` and ``pytest --heist-record`` put in front of the driver."""

from __future__ import annotations

import os
import pathlib

FILE = "libheist_recorder.so"


def library() -> pathlib.Path | None:
    """The recorder: as the environment says, or as it came with this package."""
    named = os.environ.get("HEIST_RECORDER")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name(FILE)
    return path.resolve() if path.is_file() else None
