"""Every planted mistake is found, at its line, and the message says what to do."""

import inspect

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import triton_bugs  # noqa: E402

import heist  # noqa: E402
import heist.triton  # noqa: E402


@pytest.mark.parametrize("name", triton_bugs.BUGS)
def test_bug_is_found(name):
    launch, codes = triton_bugs.BUGS[name]
    with heist.triton.simulate("h200", limit_s=3), pytest.raises(heist.HeistError) as raised:
        launch()
    found = raised.value.findings
    assert any(finding.code in codes for finding in found), raised.value
    marked = [number for number, line in enumerate(inspect.getsource(triton_bugs).splitlines(), 1) if "# BUG" in line]
    places = [finding.line for finding in found if finding.file.endswith("triton_bugs.py")]
    if any(finding.line for finding in found):
        assert set(places) & set(marked), raised.value
    # An assertion and a descriptor say themselves what was not so.
    assert any(finding.helps or finding.code in ("X013", "X018") for finding in found)


def test_there_are_enough():
    assert len(triton_bugs.BUGS) >= 20
