"""``pytest --heist`` over a small package of kernels: clean, then with bugs."""

import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

KERNELS = pathlib.Path(__file__).parent.parent / "examples" / "kernels"


def run(*words, status, **variables):
    """pytest in a process of its own; what it printed."""
    known = importlib.metadata.entry_points(group="pytest11")
    plugin = [] if any(one.name == "heist" for one in known) else ["-p", "heist.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *plugin, *map(str, words)]
    with tempfile.TemporaryDirectory() as cache:
        # Without a word on fusion Triton 3.9 warns, from a path of its own; and what it has cached of
        # the same kernel in another folder names that folder.
        environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", "TRITON_CACHE_DIR": cache, **variables}
        done = subprocess.run(command, cwd=KERNELS, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_right_package_is_silent():
    told = run("--heist", "--heist-explore=2", "--durations=0", "-vv", status=0)
    assert "8 passed" in told
    assert "8 launches, 0 findings" in told
    times = sorted(float(time) for time in re.findall(r"([\d.]+)s call", told))
    assert times


def test_bugs_fail_their_tests_and_the_reports_say_how(tmp_path):
    told = run("--heist", "broken.py", f"--junit-xml={tmp_path}/j.xml", f"--heist-sarif={tmp_path}/s.sarif", status=1)
    assert "4 failed, 1 passed" in told
    assert "error[M001]" in told and "tl.store(out + at, tl.load(x + at) * factor, mask=at < n)" in told
    assert "broken.py:" in told and "unmasked_kernel[(1,)](x, out, 3.0, 100, BLOCK=128)" in told
    assert "R002 was to be found" in told
    assert "site-packages" not in told
    cases = {case.get("name"): case for case in xml.parse(tmp_path / "j.xml").iter("testcase")}
    case = cases["test_transpose_in_place"]
    assert case.find("failure") is not None
    assert any(one.get("value").startswith("R002") for one in case.iter("property"))
    results = json.loads((tmp_path / "s.sarif").read_text())["runs"][0]["results"]
    assert sorted({result["ruleId"] for result in results}) == ["M001", "M011", "R002"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("broken.py") and place["region"]["startLine"] == 14


def test_a_marker_is_enough_and_a_wrong_device_is_told():
    told = run("test_kernels.py", "-s", "-k", "another_gpu", status=0, PYTHONPROFILEIMPORTTIME="1")
    assert "1 launch, 0 findings" in told
    # A kernel that is simulated needs no compiler of PyTorch, which takes seconds to import.
    assert "torch.overrides" in told and "torch._dynamo" not in told
    assert "gtx480" in run("--heist", "--heist-device=gtx480", status=4)
