"""PTX of Numba, CuPy and cuda.core through `heist.run`: right, and their mistakes found with the line.
None of it needs a GPU or a driver."""

import numpy
import pytest

import heist

SOURCE = """\
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
WRONG = SOURCE.replace("i < n", "i <= n")


def saxpy(ptx, **how):
    """The kernel over a thousand elements: what was found, and whether the result is right."""
    x, y = numpy.arange(1000, dtype=numpy.float32), numpy.ones(1000, dtype=numpy.float32)
    report = heist.run(ptx, 2.0, x, y, 1000, grid=8, block=128, raises=False, **how)
    return report.findings, bool((y == 1 + 2 * x).all())


def check(compiled):
    """A compiler of `SOURCE`: its kernel is right, and the bound that is off by one is found."""
    assert saxpy(compiled(SOURCE)) == ([], True)
    findings, _ = saxpy(compiled(WRONG))
    assert {finding.code for finding in findings} == {"M001"}
    assert all(said_at(finding, "saxpy.cu:3:") for finding in findings)


def said_at(finding, place):
    return any(note.startswith("source line") and place in note for note in finding.notes)


def test_numba():
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    from numba import cuda, types

    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    def add_too_far(x, y, out):
        i = cuda.grid(1)
        if i <= out.size:
            out[i] = x[i] + y[i]

    def words(array):
        # An array of Numba's is seven words where it has one dimension.
        return 0, 0, array.size, array.itemsize, array, *array.shape, *array.strides

    vector = types.Array(types.float32, 1, "C")
    x = numpy.arange(1000, dtype=numpy.float32)
    for function, codes in ((add, set()), (add_too_far, {"M001"})):
        out = numpy.zeros_like(x)
        ptx, _ = cuda.compile_ptx(function, types.void(vector, vector, vector), cc=(9, 0), lineinfo=True)
        report = heist.run(ptx, *words(x), *words(x), *words(out), grid=8, block=128, raises=False)
        assert {finding.code for finding in report.findings} == codes
        assert (out == 2 * x).all() or codes
        for finding in report.findings:
            assert said_at(finding, f"test_other_compilers.py:{function.__code__.co_firstlineno + 3}:"), finding.text


def test_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

    def compiled(source):
        module = cupy.RawModule(code=source)
        nvrtc = cupy.cuda.nvrtc
        program = nvrtc.createProgram(module.code, "saxpy.cu", (), ())
        nvrtc.compileProgram(program, ("--gpu-architecture=compute_90", "-lineinfo"))
        return nvrtc.getPTX(program).decode()

    check(compiled)


def test_cuda_core():
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    from cuda.bindings import nvrtc

    def done(result):
        assert result[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
        return result[1] if len(result) == 2 else None

    def compiled(source):
        # `Program(..).compile("ptx")` asks the driver for its version; NVRTC itself does not.
        program = done(nvrtc.nvrtcCreateProgram(source.encode(), b"saxpy.cu", 0, [], []))
        done(nvrtc.nvrtcCompileProgram(program, 2, [b"--gpu-architecture=compute_90", b"-lineinfo"]))
        ptx = b" " * done(nvrtc.nvrtcGetPTXSize(program))
        done(nvrtc.nvrtcGetPTX(program, ptx))
        return core.ObjectCode.from_ptx(ptx, name="saxpy").code.decode().rstrip("\0")

    check(compiled)
