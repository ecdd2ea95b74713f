"""What `docs/gallery.md` shows of Triton, Gluon and CuTe DSL kernels is what is printed."""

import pathlib
import re

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import test_pytest_plugin  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent.parent
GALLERY = ROOT / "docs" / "gallery.md"


def shown(file):
    """The test of each entry, and the lines that are shown for it."""
    found = re.findall(rf"```console\n\$ pytest --heist {file} -k (\w+)\n(.*?)```", GALLERY.read_text(), re.DOTALL)
    return {name: lines.splitlines() for name, lines in found}


@pytest.mark.parametrize(("file", "least"), [("gallery.py", 6), ("gluon_gallery.py", 3), ("cute_gallery.py", 3)])
def test_the_gallery_shows_what_is_printed(monkeypatch, file, least):
    if not GALLERY.exists():
        pytest.skip("docs/gallery.md is not beside the package")
    if file == "cute_gallery.py":
        pytest.importorskip("cutlass.cute", reason="the CuTe DSL (nvidia-cutlass-dsl) is not installed")
    monkeypatch.setattr(test_pytest_plugin, "KERNELS", ROOT / "python" / "examples" / "gallery")
    told = test_pytest_plugin.run("--heist", file, status=1).replace(f"{ROOT}/", "")
    entries = shown(file)
    assert len(entries) >= least
    for name, lines in entries.items():
        start = told.index(f"_ test_{name} _")
        part = told[start : told.find("\n____", start + 10)]
        # Places in PTX and counts are the compiler's; what is wrong, where, and what to do is the kernel's.
        stable = [line for line in lines if re.match(r"error\[|\s*--> |\d+ \||\s*= help|\w*gallery.py:", line)]
        assert len(stable) >= 4, name
        for line in stable:
            assert line.rstrip() in part, (name, line, part)
