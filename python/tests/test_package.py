"""What the package does without PyTorch."""

import pickle
import subprocess
import sys
import textwrap

import pytest

import heist
from texts import ADD

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
    # As where only the package is installed.
    code = "import sys; sys.modules['pytest'] = None; from heist.__main__ import main; sys.argv[1:] = ['--version']; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and heist.__version__ in done.stdout, done.stderr
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


def test_run_with_named_buffers_and_dlpack():
    numpy = pytest.importorskip("numpy")
    data = numpy.arange(64, dtype=numpy.float32)
    heist.run(ADD, "ptr:data+128", 32, 1.0, grid=1, block=32, buffers={"data": data})
    assert (data[:32] == numpy.arange(32)).all() and (data[32:] == numpy.arange(33, 65)).all()

    class Foreign:
        """An array of a library that has DLPack and nothing else."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    heist.run(ADD, Foreign(data), 64, 1.0, grid=1, block=64)
    assert data[0] == 1 and data[63] == 65
    with pytest.raises(ValueError, match="not contiguous"):
        heist.run(ADD, Foreign(data[::2]), 8, 1.0, grid=1, block=64)
    with pytest.raises(TypeError, match="kind 5"):
        heist.run(ADD, Foreign(data.astype(numpy.complex64)), 8, 1.0, grid=1, block=64)


@pytest.mark.parametrize("words", [["gemm", "m=40", "n=24", "k=64"], ["gemm", "m=40", "n=24", "k=64", "--arch", "sm_80"]])
def test_a_kernel_written_in_rust_is_loaded_and_launched(words, tmp_path):
    numpy = pytest.importorskip("numpy")
    command = [sys.executable, "-m", "heist", "emit", *words, "dtype=f16", "out=f32", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = tmp_path / "gemm.json"
    path.write_text(done.stdout)
    emitted = heist.Emitted(path)
    random = numpy.random.default_rng(1)
    a, b = random.standard_normal((40, 64)).astype(numpy.float16), random.standard_normal((24, 64)).astype(numpy.float16)
    d = numpy.full((40, 24), numpy.nan, dtype=numpy.float32)
    (report,) = emitted.run(a=a, b=b, d=d)
    assert report.trace.blocks >= 1 and ".entry" in emitted.ptx[0]
    numpy.testing.assert_allclose(d, a.astype(numpy.float64) @ b.T.astype(numpy.float64), rtol=1e-3, atol=1e-2)
    with pytest.raises(TypeError, match="works on b too"):
        emitted.run(a=a, d=d)
    with pytest.raises(TypeError, match="no buffer e"):
        emitted.run(a=a, b=b, d=d, e=d)
    with pytest.raises(ValueError, match="takes 3840 bytes"):
        emitted.run(a=a, b=b, d=d[:10])
    with pytest.raises(ValueError, match="heist emit"):
        heist.Emitted("{}")


def test_findings_are_exceptions():
    numpy = pytest.importorskip("numpy")
    short = numpy.zeros(10, dtype=numpy.float32)
    with pytest.raises(heist.FindingError) as raised:
        heist.run(ADD, short, 11, 1.0, grid=1, block=32)
    assert "10" in str(raised.value) and raised.value.findings[0].line is not None
    report = heist.run(ADD, short, 11, 1.0, grid=1, block=32, raises=False)
    assert {finding.severity for finding in report.findings} == {"error"}
    # As a worker hands it to the process that asked.
    other = pickle.loads(pickle.dumps(raised.value))
    assert type(other) is heist.FindingError and str(other) == str(raised.value)
    for one, own in zip(other.findings, raised.value.findings, strict=True):
        assert (repr(one), str(one), one.line, one.helps) == (repr(own), str(own), own.line, own.helps)


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

    from heist import _emitted, _inspect, _policy, _run

    pytest.importorskip("numpy")
    for module in (heist, _emitted, _inspect, _policy, _run):
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
