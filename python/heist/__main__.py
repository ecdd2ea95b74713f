"""``python -m heist`` is the command ``heist``."""

import sys


def main() -> int:
    """Runs the command with this process's arguments; its exit status."""
    import os

    from . import _native, _recorder

    # The command looks for it beside its own file, and here that is Python's.
    recorder = _recorder.library()
    if recorder is not None:
        os.environ.setdefault("HEIST_RECORDER", str(recorder))
    return _native.command(["heist", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
