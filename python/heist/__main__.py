"""``python -m heist`` is the command ``heist``."""

import sys


def main() -> int:
    """Runs the command with this process's arguments; its exit status."""
    from . import _native

    return _native.command(["heist", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
