"""``pytest --heist``: kernels that tests launch run on a simulated GPU, and are checked.

A finding fails its test, with the line of the kernel, the rule and what to do; no GPU is
needed. Nothing heavy is imported before a test is to be simulated: this module is loaded by
every run of pytest in an environment that has Heist. ``pytest --heist-record FOLDER`` is the
other way round: on a machine with a GPU it keeps a launch of each test in a file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections import Counter
from typing import Any, Iterator

import pytest

_DEVICE = "h200"
_MARKER = (
    "heist(device=None, explore=None, limit_s=None, expects=None): run the kernels of this test on a simulated GPU "
    "and check them; `expects` is the code of a rule that they are to break"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("heist", "kernels on a simulated GPU")
    group.addoption(
        "--heist", action="store_true", help="run every Triton and CuTe DSL kernel of a test on a simulated GPU, and check it"
    )
    group.addoption("--heist-device", default=_DEVICE, metavar="NAME", help=f"which simulated GPU ({_DEVICE})")
    group.addoption(
        "--heist-explore", type=int, default=None, metavar="N", help="try N schedules of each launch"
    )
    group.addoption(
        "--heist-limit", type=float, default=300.0, metavar="SECONDS", help="stop a launch that takes longer (300)"
    )
    group.addoption("--heist-sarif", default=None, metavar="FILE", help="write what was found as SARIF")
    group.addoption(
        "--heist-record", default=None, metavar="FOLDER", help="on a machine with a GPU: keep a launch of each test in a file there"
    )
    group.addoption("--heist-record-kernel", default=None, metavar="NAME", help="of this kernel (any)")
    group.addoption("--heist-record-launch", type=int, default=1, metavar="N", help="which of its launches in a test (1)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    config.stash[_tally] = _Tally()
    if config.getoption("--heist"):
        _check(config.getoption("--heist-device"))
    folder = config.getoption("--heist-record")
    if folder is not None:
        from heist import _recording

        config.stash[_records] = _recording.Records(folder, *_asked(config))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if config.getoption("--heist-record") is None:
        return None
    from heist import _recording

    return None if _recording.is_on() else _recording.run_with_recorder(config)


def _asked(config: pytest.Config) -> tuple[str | None, int]:
    """Which launch of a test is to be recorded."""
    return config.getoption("--heist-record-kernel"), config.getoption("--heist-record-launch")


def _check(device: str) -> None:
    from heist import _native

    try:
        _native.simulated(device)
    except ValueError as error:
        raise pytest.UsageError(f"--heist-device={device}: {error}") from None
    if not any(importlib.util.find_spec(name) for name in ("triton", "cutlass")):
        raise pytest.UsageError("--heist simulates the launches of Triton and CuTe DSL kernels, and neither is installed")


class _Tally:
    """What was launched and found in all tests."""

    def __init__(self) -> None:
        self.launches = 0
        self.findings: list[dict[str, Any]] = []
        self.records: dict[str, dict[str, Any]] = {}


_tally = pytest.StashKey[_Tally]()
_session = pytest.StashKey[Any]()
_records = pytest.StashKey[Any]()


def _wish(item: pytest.Item) -> dict[str, Any] | None:
    """How a test is to be simulated: by its marker, its fixture or the option; None for not."""
    marker = item.get_closest_marker("heist")
    option = item.config.getoption
    if marker is None and not option("--heist") and "heist_gpu" not in getattr(item, "fixturenames", ()):
        return None
    known = {
        "device": option("--heist-device"),
        "explore": option("--heist-explore"),
        "limit_s": option("--heist-limit"),
    }
    for name, value in (marker.kwargs if marker else {}).items():
        if name != "expects":
            known[name] = value
    if marker and marker.args:
        known["device"] = marker.args[0]
    return {name: value for name, value in known.items() if value is not None}


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    # Modules ask for a GPU while they are imported: in conditions of `skipif`, and where they choose kernels.
    with contextlib.ExitStack() as stack:
        if session.config.getoption("--heist"):
            _simulated(stack, session.config.getoption("--heist-device"), {})
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: Any) -> Iterator[None]:
    wish = _wish(item)
    records = item.config.stash.get(_records, None)
    if records is not None:
        records.before(item.nodeid)
    with contextlib.ExitStack() as stack:
        if wish is not None:
            item.stash[_session] = _simulated(stack, wish.pop("device"), wish)
        yield


def _simulated(stack: contextlib.ExitStack, device: str, how: dict[str, Any]) -> Any:
    """The session of a test: of Triton where that is installed, and of the CuTe DSL where the test
    module or another has imported it. Both keep one list of launches, and one of unwritten memory."""
    sessions = []
    if importlib.util.find_spec("triton") is not None:
        from heist import triton

        sessions.append(stack.enter_context(triton.simulate(device, **how)))
    if "cutlass" in sys.modules or not sessions:
        from heist import cute

        sessions.append(stack.enter_context(cute.simulate(device, **how)))
    for other in sessions[1:]:
        other.launches, other.unwritten = sessions[0].launches, sessions[0].unwritten
    return sessions[0]


@pytest.fixture
def heist_gpu(request: pytest.FixtureRequest) -> Any:
    """The simulated GPU of this test: ``launches`` has what ran and what was found. Choose
    another one with ``@pytest.mark.heist("a100")``."""
    return request.node.stash[_session]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    records = item.config.stash.get(_records, None)
    if records is not None and call.when == "teardown":
        report.heist_record = {item.nodeid: records.after()}
    session = item.stash.get(_session, None)
    if session is None or call.when != "call":
        return
    found = [finding for launch in session.launches for finding in launch.findings]
    if call.excinfo is not None and hasattr(call.excinfo.value, "findings"):
        # Findings of a launch that was refused before it ran are only in the exception.
        found += [finding for finding in call.excinfo.value.findings if finding not in found]
    report.heist = {
        "launches": len(session.launches),
        "findings": [{**_as_dict(finding), "test": item.nodeid} for finding in found],
    }
    # The last report of a test, of its end, is the one that JUnit takes these from.
    item.user_properties.append(("heist.launches", len(session.launches)))
    for finding in found:
        item.user_properties.append(("heist.finding", f"{finding.code} {finding.file}:{finding.line}: {finding.message}"))
    _judge(item, call, report, found)


def _judge(item: pytest.Item, call: pytest.CallInfo[Any], report: Any, found: list[Any]) -> None:
    """Whether the test has passed, now that it is known what was found."""
    marker = item.get_closest_marker("heist")
    expected = marker.kwargs.get("expects") if marker else None
    raised = call.excinfo is not None and hasattr(call.excinfo.value, "findings")
    if expected is not None:
        report.heist["findings"] = [finding for finding in report.heist["findings"] if finding["code"] != expected]
        if any(finding.code == expected for finding in found):
            if raised or call.excinfo is None:
                report.outcome, report.longrepr = "passed", None
        elif call.excinfo is None:
            report.outcome = "failed"
            report.longrepr = f"{expected} was to be found in the kernels of this test, and was not"
        return
    if raised or (report.outcome == "passed" and found):
        report.outcome = "failed"
        report.longrepr = _tell(item, call, found)


def _tell(item: pytest.Item, call: pytest.CallInfo[Any], found: list[Any]) -> str:
    """The launch in the test's own words, and what was found in it."""
    lines = []
    if call.excinfo is None:
        lines.append("the test passed, but its kernels are not right:")
    else:
        own = [entry for entry in call.excinfo.traceback if _is_own(str(entry.path))]
        for entry in own:
            place = os.path.relpath(str(entry.path), str(item.config.invocation_params.dir))
            lines.append(f"{place}:{entry.lineno + 1}: in {entry.name}")
            lines.append(f"    {str(entry.statement).strip()}")
    return "\n".join([*lines, "", *(finding.text for finding in found)])


def _is_own(path: str) -> bool:
    parts = path.replace("\\", "/").split("/")
    return not any(part in ("site-packages", "_pytest", "pluggy") for part in parts) and "heist" not in parts[-3:-1]


def _as_dict(finding: Any) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "file": finding.file,
        "line": finding.line,
        "helps": list(finding.helps),
    }


def pytest_runtest_logreport(report: Any) -> None:
    # With pytest-xdist reports come from other processes, with all of their attributes.
    config = _config
    told = getattr(report, "heist", None)
    if config is not None and told is not None:
        tally = config.stash[_tally]
        tally.launches += told["launches"]
        tally.findings += told["findings"]
    if config is not None:
        config.stash[_tally].records.update(getattr(report, "heist_record", {}))


_config: pytest.Config | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    global _config
    _config = session.config


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    tally = config.stash[_tally]
    if config.getoption("--heist-record") is not None:
        from heist import _recording

        terminalreporter.section("heist records")
        for line in _recording.summary(tally.records, *_asked(config)):
            terminalreporter.write_line(line)
    if not tally.launches and not tally.findings:
        return
    terminalreporter.section("heist")
    terminalreporter.write_line(f"{_many(tally.launches, 'launch', 'launches')}, {_many(len(tally.findings), 'finding')}")
    rules = Counter(finding["code"] for finding in tally.findings)
    for code, count in sorted(rules.items()):
        tests = {finding["test"] for finding in tally.findings if finding["code"] == code}
        terminalreporter.write_line(f"{code}: {count} in {_many(len(tests), 'test')}; `heist explain {code}` has its page")


def _many(count: int, one: str, several: str | None = None) -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--heist-sarif")
    if path is None or hasattr(session.config, "workerinput"):
        return
    with open(path, "w", encoding="utf-8") as file:
        json.dump(_sarif(session.config.stash[_tally].findings, str(session.config.rootpath)), file, indent=1)


def _sarif(findings: list[dict[str, Any]], root: str) -> dict[str, Any]:
    from heist import __version__

    def location(finding: dict[str, Any]) -> dict[str, Any]:
        path = os.path.relpath(finding["file"], root) if os.path.isabs(finding["file"]) else finding["file"]
        place: dict[str, Any] = {"artifactLocation": {"uri": path.replace(os.sep, "/")}}
        if finding["line"]:
            place["region"] = {"startLine": finding["line"]}
        return {"physicalLocation": place}

    def result(finding: dict[str, Any]) -> dict[str, Any]:
        text = "\n".join([finding["message"], *finding["helps"], f"in {finding['test']}"])
        return {
            "ruleId": finding["code"],
            "level": finding["severity"],
            "message": {"text": text},
            "locations": [location(finding)],
        }

    rules = sorted({finding["code"] for finding in findings})
    driver = {"name": "heist", "version": __version__, "rules": [{"id": code} for code in rules]}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [result(finding) for finding in findings]}],
    }
