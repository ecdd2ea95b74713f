"""Kernels of the CuTe DSL as they are, on simulated GPUs: right against their references, silent,
and each planted mistake found with its line."""

import inspect

import pytest

torch = pytest.importorskip("torch")
cute = pytest.importorskip("cutlass.cute", reason="the CuTe DSL (nvidia-cutlass-dsl) is not installed")

import cute_kernels as kernels  # noqa: E402
import cutlass  # noqa: E402
import numpy  # noqa: E402
from cutlass.cute.runtime import from_dlpack  # noqa: E402

import heist  # noqa: E402
import heist.cute  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def of(x):
    return from_dlpack(x, assumed_align=16)


def operands(rows):
    a, b, c = torch.randn(rows, 128).half(), torch.randn(64, 128).half(), torch.zeros(rows, 64)
    return (a, b, c), a.float() @ b.float().T


@pytest.mark.parametrize("device", ["a100", "h200", "b200"])
def test_vector_add(device):
    x, out = torch.randn(1000), torch.zeros(1000)
    with heist.cute.simulate(device) as session:
        kernels.add(of(x), of(x), of(out))
    assert (out == 2 * x).all()
    assert [(launch.kernel, launch.grid) for launch in session.launches] == [("add_kernel", (8, 1, 1))]


def test_shared_memory():
    x, out = torch.randn(128), torch.zeros(128)
    assert heist.cute.check(kernels.turn, of(x), of(out)) == []
    assert (out == x.flip(0)).all()


@pytest.mark.parametrize("multicast", [False, True])
def test_tma_wgmma_and_clusters(multicast):
    tensors, want = operands(128)
    with heist.cute.simulate("h200"):
        kernels.gemm(*map(of, tensors), multicast)
    torch.testing.assert_close(tensors[2], want, atol=1e-2, rtol=1e-2)


def test_tensor_maps_follow_strides():
    (a, b, c), want = operands(64)
    wide = torch.zeros(64, 136, dtype=torch.float16)
    wide[:, :128] = a
    with heist.cute.simulate("h200"):
        kernels.gemm(of(wide[:, :128]), of(b), of(c))
    torch.testing.assert_close(c, want, atol=1e-2, rtol=1e-2)


def test_a_compiled_function_is_called_again():
    x = [numpy.arange(256, dtype=numpy.float32) for _ in range(3)]
    with heist.cute.simulate("h200") as session:
        add = cute.compile(kernels.add, *map(of, x))
        add(*map(of, x))
        x[2][:] = 0
        add(*map(of, x))
    assert (x[2] == 2 * x[0]).all()
    assert len(session.launches) == 2


def line_of(function, text):
    lines, start = inspect.getsourcelines(inspect.unwrap(function))
    return start + next(at for at, line in enumerate(lines) if text in line)


BUGS = {
    "wait": ("A007", "cute.gemm(mma"),
    "bytes": ("A030", "cute.copy(tma_b, from_b[None, s], to_b[None, s], tma_bar_ptr=full + s)\n"),
    "group": ("T003", "cute.copy(cute.make_copy_atom"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_with_tma_and_wgmma(bug):
    code, text = BUGS[bug]
    tensors, _ = operands(64)
    found = heist.cute.check(kernels.gemm, *map(of, tensors), False, bug)
    assert code in {finding.code for finding in found}
    finding = next(finding for finding in found if finding.code == code)
    assert finding.file.endswith("cute_kernels.py")
    assert finding.line == line_of(kernels.gemm_kernel, text)
    assert finding.helps


def test_a_finding_raises_with_its_line():
    x, out = torch.randn(128), torch.zeros(128)
    with heist.cute.simulate("h200"), pytest.raises(heist.FindingError, match="R001|M010") as error:
        kernels.turn(of(x), of(out), True)
    assert "cute_kernels.py:" in str(error.value)
    x, out = torch.randn(100), torch.zeros(100)
    with heist.cute.simulate("h200"), pytest.raises(heist.FindingError, match="M001.*past the end of `arg0`"):
        kernels.add(of(x), of(x), of(out), True)


def test_a_tensor_of_pointers_is_followed():
    parts = [torch.randn(32), torch.randn(40)]
    hosts = [parts[0].data_ptr(), parts[1][8:].data_ptr()]
    table, out = torch.tensor(hosts), torch.zeros(64)
    with heist.cute.simulate("h200") as session:
        kernels.gather(of(table), of(out))
        assert (out == torch.cat((parts[0], parts[1][8:]))).all()
        table[1] = parts[1][9:].data_ptr()
        with pytest.raises(heist.FindingError, match="M001.*past the end of `arg0"):
            kernels.gather(of(table), of(out))
    assert len(session.launches) == 2
    assert table.tolist() == [hosts[0], hosts[1] + 4]


def test_memory_that_nobody_wrote():
    with heist.cute.simulate("h200"), pytest.raises(heist.FindingError, match="M011"):
        x = torch.empty(128, device="cuda")
        kernels.add(of(x), of(x), of(x.clone().zero_()))


def test_what_was_compiled_for_something_else_is_refused():
    x = [torch.zeros(128)] * 3
    elsewhere = cute.compile(kernels.add, *map(of, x), options="--gpu-arch sm_90a")
    with heist.cute.simulate("h200"), pytest.raises(RuntimeError, match="inside of `heist.cute.simulate`"):
        elsewhere(*map(of, x))
    with heist.cute.simulate("h200"):
        inside = cute.compile(kernels.add, *map(of, x))
        inside(*map(of, x))
    assert heist.cute.active() is None


def test_tensor_maps_of_another_kind_are_refused():
    from heist.cute._memory import TensorMap

    with pytest.raises(NotImplementedError, match="no tiled one"):
        TensorMap("arg0", bytes(128))


def test_what_programs_ask_of_the_machine():
    import cutlass.testing
    from cutlass.utils import HardwareInfo

    x, out = torch.ones(128), torch.zeros(128)
    with heist.cute.simulate("h200") as session:
        assert HardwareInfo().get_max_active_clusters(2) == 66
        assert torch.cuda.current_stream().cuda_stream == 0
        add = cute.compile(kernels.add, of(x), of(x), of(out))
        arguments = cutlass.testing.JitArguments(of(x), of(x), of(out))
        assert cutlass.testing.benchmark(add, kernel_arguments=arguments) > 0
    assert len(session.launches) == 1 and (out == 2).all()


def test_asynchronous_copies_take_tensors_of_the_host():
    from cute_kernels import staged

    x, out = torch.arange(128.0), torch.zeros(128)
    assert heist.cute.check(staged, of(x), of(out), device="a100") == []
    assert (out == x.flip(0)).all()
    found = heist.cute.check(staged, of(x), of(out), True, device="a100")
    assert "A001" in {finding.code for finding in found}


def test_stores_of_a_whole_warp_are_the_compilers():
    out = torch.zeros(8, 32)
    with heist.cute.simulate("h200") as session, pytest.warns(heist.cute.CompilerWarning, match="elect_one"):
        kernels.fill(of(out), False)
    assert (out == torch.arange(32)).all()
    assert session.launches[0].findings == []
    assert {finding.code for finding in session.launches[0].from_compiler} == {"A009", "A027"}
    assert heist.cute.check(kernels.fill, of(out), True) == []


class _Finding:
    def __init__(self, code, line, *instructions):
        self.code, self.line, self.instructions = code, line, instructions


def test_what_the_compiler_is_the_reason_of():
    from heist.cute._session import _of_compiler

    early, wrong = _Finding("T101", 7, "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];"), _Finding("T101", 8, "tcgen05.st")
    twice, after, lost = _Finding("A027", 9), _Finding("A009", 9), _Finding("A009", 10)
    decoded = _Finding("L004", 11, "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, %rq1;")
    found = [early, wrong, twice, after, lost, decoded]
    assert _of_compiler(found) == [early, twice, after, decoded]


def test_functions_of_tvms_interface_take_tensors_as_they_are():
    pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    from cutlass.cute.runtime import make_fake_compact_tensor

    fake = [make_fake_compact_tensor(cutlass.Float32, (128,), assumed_align=128) for _ in range(2)]
    x, out = torch.randn(128), torch.zeros(128)
    with heist.cute.simulate("h200") as session:
        turn = cute.compile(kernels.turn, *fake, options="--enable-tvm-ffi")
        turn(x, out)
        turn(x, out)
    assert (out == x.flip(0)).all() and len(session.launches) == 2
    with heist.cute.simulate("h200"), pytest.raises(heist.FindingError, match="R001|M010"):
        cute.compile(kernels.turn, *fake, True, options="--enable-tvm-ffi")(x, out)


def test_a_tensor_map_is_what_cuda_was_asked_for():
    from heist.cute._memory import TensorMap, encode_tiled

    told = TensorMap("arg0", encode_tiled(9, 0x1000, [64, 32, 2], [128, 4096], [32, 8, 1], 2))
    assert (told.address, told.element, told.swizzle) == (0x1000, "bf16", "64")
    assert (told.dims, told.strides, told.box) == ([64, 32, 2], [128, 4096], [32, 8, 1])
    # Four bits an element, two of them in a byte: coordinates count elements, and so do extents.
    packed = TensorMap("arg0", encode_tiled(13, 0x1000, [256, 32], [128], [64, 8], 1))
    assert (packed.element, packed.dims, packed.box) == ("b4x16", [256, 32], [64, 8])
    for number, element in ((14, "b4x16_p64"), (15, "b6x16_p32")):
        padded = TensorMap("arg0", encode_tiled(number, 0x1000, [256, 32], [128], [128, 8], 0))
        assert (padded.element, padded.dims, padded.box) == (element, [256, 32], [128, 8])
