"""What the package does without PyTorch."""

import subprocess
import sys
import textwrap

import pytest

import heist

ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 data, .param .u32 count, .param .f32 more) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<3>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [count];
    ld.param.f32 %f1, [more];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.f32 %f2, [%rd3];
    add.f32 %f2, %f2, %f1;
    st.global.f32 [%rd3], %f2;
DONE:
    ret;
}
"""

MISALIGNED = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k() {
    .shared .align 16 .b8 tile[64];
    .reg .b32 %r<5>;
    ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [tile+4];
    ret;
}
"""


def test_importing_imports_nothing_heavy():
    code = "import sys, heist; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command():
    done = subprocess.run([sys.executable, "-m", "heist", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and heist.__version__ in done.stdout
    done = subprocess.run([sys.executable, "-m", "heist", "explain", "M007"], capture_output=True, text=True)
    assert done.returncode == 0 and "M007" in done.stdout
    done = subprocess.run([sys.executable, "-m", "heist", "no-such"], capture_output=True, text=True)
    assert done.returncode == 2


def test_check_finds_and_explains(tmp_path):
    (finding,) = heist.check(MISALIGNED)
    assert finding.code == "M007" and finding.severity == "error" and finding.line == 8
    assert "tile+4" in str(finding) and "M007" in repr(finding)
    path = tmp_path / "k.ptx"
    path.write_text(MISALIGNED)
    assert heist.check(path)[0].file == str(path)
    assert heist.check(str(path))[0].code == "M007"
    assert heist.check(ADD) == []
    assert heist.explain("M007").startswith("# M007")


def test_run_with_arrays():
    numpy = pytest.importorskip("numpy")
    data = numpy.arange(100, dtype=numpy.float32)
    report = heist.run(ADD, data, 60, 0.5, grid=1, block=128)
    assert report.findings == [] and report.elapsed_ns > 0
    assert (data[:60] == numpy.arange(60) + 0.5).all() and (data[60:] == numpy.arange(60, 100)).all()
    assert "<html" in report.trace.to_html() and report.trace.blocks == 1
    assert report.trace._repr_html_().startswith("<iframe")
    # Text as the command takes it.
    report = heist.run(ADD, "inout:f32:[1, 2, 3]", "u32:3", "f32:1", grid=1, block=32)
    assert numpy.frombuffer(report.outputs[0][1], dtype=numpy.float32).tolist() == [2, 3, 4]


def test_findings_are_exceptions():
    numpy = pytest.importorskip("numpy")
    short = numpy.zeros(10, dtype=numpy.float32)
    with pytest.raises(heist.FindingError) as raised:
        heist.run(ADD, short, 11, 1.0, grid=1, block=32)
    assert "10" in str(raised.value) and raised.value.findings[0].line is not None
    report = heist.run(ADD, short, 11, 1.0, grid=1, block=32, raises=False)
    assert {finding.severity for finding in report.findings} == {"error"}


def test_policies():
    policy = heist.Policy("max-steals(8)") & "first-half"
    assert policy == heist.Policy("max-steals(8) & first-half") and hash(policy) == hash(heist.Policy(str(policy)))
    assert isinstance(~policy | "greedy", heist.Policy)
    assert any("greedy" in example for example, _ in heist.Policy.all())


BAD = [
    (lambda: heist.check("hello"), FileNotFoundError, "there is no file"),
    (lambda: heist.check("no ptx\nat all"), ValueError, "neither PTX"),
    (lambda: heist.explain("Z999"), ValueError, "there is no rule"),
    (lambda: heist.Policy("max-steels(8)"), ValueError, "max-steals"),
    (lambda: heist.Policy("max-steals("), ValueError, "max-steals("),
    (lambda: heist.Policy(8), TypeError, "a policy is text"),
    (lambda: heist.run(ADD, grid=1, block=1), TypeError, "takes 3 arguments"),
    (lambda: heist.run(ADD, object(), 1, 1.0, grid=1, block=1), TypeError, "pass a number"),
    (lambda: heist.run(ADD, "in:f32:[", 1, 1.0, grid=1, block=1), ValueError, "column"),
    (lambda: heist.run(ADD, "out:f32:1", 1, 1.0, grid=0, block=1), ValueError, "grid is one to three"),
    (lambda: heist.run(ADD, "out:f32:1", 1, 1.0, grid=1, block=(1, 2, 3, 4)), ValueError, "block is one"),
    (lambda: heist.run(ADD, "out:f32:1", 1, 1.0, grid=1, block=1, entry="sub"), ValueError, "there are: add"),
    (lambda: heist.run(ADD, "out:f32:1", 1, 1.0, grid=1, block=1, device="sim:gtx480"), ValueError, "sim:h200"),
    (lambda: heist.run(ADD, "out:f32:1", 1, 1.0, grid=1, block=2048), heist.HeistError, "2048"),
    (lambda: heist.run(ADD.replace("ld.param.u32", "ld.param.u33"), "out:f32:1", 1, 1.0, grid=1, block=1), heist.FindingError, "u33"),
]


@pytest.mark.parametrize("call, error, words", BAD, ids=[words for _, _, words in BAD])
def test_bad_calls_say_what_to_do(call, error, words):
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)


def test_examples_in_the_documentation():
    import doctest

    from heist import _inspect, _policy, _run

    pytest.importorskip("numpy")
    for module in (heist, _inspect, _policy, _run):
        failed, _ = doctest.testmod(module, extraglobs={"heist": heist}, optionflags=doctest.ELLIPSIS)
        assert failed == 0, module


def test_hints_name_what_there_is():
    import ast
    from pathlib import Path

    from heist import _native

    stub = ast.parse((Path(_native.__file__).parent / "_native.pyi").read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)
    named = {node.name for node in stub.body if isinstance(node, kinds) and not node.name.startswith("_")}
    there = {name for name in dir(_native) if not name.startswith("__")}
    assert named == there, textwrap.dedent(f"only in the hints: {named - there}; not in them: {there - named}")
