"""Launches of the corpus kernels and their right results, computed here and nowhere near a GPU."""


def header_lines(name: str, facts: dict) -> list:
    """The `// heist:` lines for one corpus file, named `folder/file` without its suffix."""
    return []
