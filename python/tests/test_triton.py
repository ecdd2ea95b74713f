"""Triton kernels as they are, on simulated GPUs: right against their references, and silent."""

import mmap
import types

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import numpy  # noqa: E402
import triton_kernels as kernels  # noqa: E402

import heist  # noqa: E402
import heist.triton  # noqa: E402
from heist._memory import Allocations, storages  # noqa: E402

VERSION = tuple(map(int, kernels.triton.__version__.split(".")[:2]))


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0])).to(dtype)


def halves(*shape):
    return random(*shape, dtype=torch.float16)


@pytest.fixture(params=["a100", "h200", "b200"])
def gpu(request):
    with heist.triton.simulate(request.param) as session:
        yield session


def close(got, want, tolerance=2e-2):
    torch.testing.assert_close(got.float(), want.float(), atol=tolerance, rtol=tolerance)


def test_vector_add(gpu):
    x, y = random(1000), random(1000)
    close(kernels.add(x, y), x + y, 0)
    assert [launch.grid for launch in gpu.launches] == [(4, 1, 1)]


def test_fused_softmax(gpu):
    x = random(9, 200)
    close(kernels.softmax(x), torch.softmax(x, 1), 1e-5)


def test_matmul_takes_the_first_configuration_that_fits(gpu):
    a, b = halves(100, 80), halves(80, 96)
    close(kernels.matmul(a, b), a.float() @ b.float())
    assert kernels.matmul_kernel.best_config.kwargs["BLOCK_M"] == 64
    relu = torch.nn.functional.leaky_relu(a.float() @ b.float(), 0.01)
    close(kernels.matmul(a, b, "leaky_relu"), relu)


def test_every_configuration_runs_where_that_is_asked_for():
    a, b = halves(64, 32), halves(32, 64)
    with heist.triton.simulate("h200", configs="all") as session:
        close(kernels.matmul(a, b), a.float() @ b.float())
    # Two of the three fit; the chosen one runs once more.
    assert len(session.launches) == 3


def test_dropout(gpu):
    x = random(1000).abs() + 1
    out = kernels.dropout(x, 0.5, 123)
    kept = out != 0
    assert 400 < kept.sum() < 600
    close(out, torch.where(kept, x * 2, 0), 1e-6)


def test_layer_norm(gpu):
    # Before 3.9 nothing keeps the thread that exchanges a word from doing it before the others have loaded it:
    # a race of Triton's own, at the count of `norm_backward_x`.
    gpu.raises = VERSION >= (3, 9)
    x, weight, bias, dy = random(7, 100), random(100), random(100) + 1, random(7, 100) * 2
    for leaf in (x, weight, bias):
        leaf.requires_grad_()
    y = torch.nn.functional.layer_norm(x, (100,), weight, bias)
    y.backward(dy)
    got = kernels.layer_norm(x.detach(), weight.detach(), bias.detach(), dy)
    for mine, theirs in zip(got, (y, x.grad, weight.grad, bias.grad)):
        close(mine, theirs.detach(), 1e-3)
    found = {(finding.code, "atomic_xchg(Count" in finding.text) for launch in gpu.launches for finding in launch.findings}
    assert found == (set() if gpu.raises else {("R005", True)})


@pytest.mark.parametrize("causal", [False, True])
def test_attention(gpu, causal):
    q, k, v = halves(2, 80, 64), halves(2, 80, 64) * 0.5, halves(2, 80, 64) + 1
    out, lse = kernels.attention(q, k, v, causal)
    want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    close(out, want)
    assert torch.isfinite(lse).all()


def test_grouped_matmul_through_tables_of_pointers(gpu):
    sizes = ((64, 32, 64), (32, 64, 32), (96, 32, 96))
    a, b = [halves(m, k) for m, k, _ in sizes], [halves(k, n) for _, k, n in sizes]
    for got, x, y in zip(kernels.grouped_matmul(a, b), a, b):
        close(got, x.float() @ y.float())


def test_pointers_of_a_low_heap_are_followed_and_indices_are_not():
    # A Python that is not position-independent has its heap below 4 GiB.
    low = 0x40  # MAP_32BIT
    room = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | low)
    tensors = [torch.frombuffer(room, dtype=torch.float32, count=8, offset=at) for at in (0, 4096)]
    firsts = [tensor.data_ptr() for tensor in tensors]
    if max(firsts) >> 32:
        pytest.skip("this system does not map memory low when asked to")
    for words, are_pointers in ((firsts, True), ([firsts[0], 0], True), ([first + 4 for first in firsts], False)):
        table = torch.tensor(words)
        allocations = Allocations({})
        _, memory = allocations.address("table", table)
        allocations.follow("table", memory)
        assert (memory.table is not None) == are_pointers, words
        assert len(allocations.list) == 1 + sum(word > 0 for word in words) * are_pointers
        allocations.finish([None] * len(allocations.list))
        assert table.tolist() == words


def test_tensors_of_transforms_have_no_storage_and_do_no_harm():
    def look(x):
        with pytest.raises((NotImplementedError, RuntimeError)):
            x.untyped_storage()
        assert any(at <= held.data_ptr() < at + size for at, size in storages())
        return x

    held = torch.ones(4)
    torch.func.vmap(look)(torch.ones(2, 3))


def test_persistent_matmul(gpu):
    a, b = halves(150, 72), halves(72, 130)
    close(kernels.persistent_matmul(a, b), a.float() @ b.float())


@pytest.mark.parametrize("num_ctas", [1, 2])
def test_tensor_descriptors_and_clusters(gpu, num_ctas):
    if num_ctas > 1 and gpu.gpu.capability < 90:
        return  # Triton refuses clusters there itself.
    a, b = halves(128, 96), halves(128, 96) * 0.5
    close(kernels.descriptor_matmul(a, b, num_ctas), a.float() @ b.float().T)


def test_persistent_matmul_with_specialised_warps(gpu):
    if gpu.gpu.capability < 90:
        return  # Triton specialises no warps there: it is the kernel above.
    a, b = halves(256, 128), halves(128, 128) * 0.5
    got, _ = kernels.specialised_matmul(a, b)
    close(got, a.float() @ b.float().T)


@pytest.mark.parametrize("specialise", [False, True])
def test_attention_through_descriptors(gpu, specialise):
    if specialise and gpu.gpu.capability < 100:
        return  # Triton's own compiler fails on Hopper, and specialises nothing on Ampere.
    q, k, v = halves(1, 128, 64), halves(1, 128, 64) * 0.5, halves(1, 128, 64) + 1
    got, _ = kernels.described_attention(q, k, v, specialise=specialise)
    close(got, torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float()))


def test_descriptors_made_by_the_kernel(gpu):
    x = random(64, 96)
    close(kernels.doubled(x), x * 2, 0)


@pytest.mark.parametrize("form", ["e4m3", "e5m2", "e2m1"])
def test_block_scaled_matmul(gpu, form):
    a, a_scales, a_means = kernels.scaled(128, 256, form)
    b, b_scales, b_means = kernels.scaled(64, 256, form)
    if (gpu.gpu.capability, form) == (80, "e4m3"):
        with pytest.raises(Exception, match="fp8e4nv not supported in this architecture"):
            kernels.scaled_matmul(a, b, a_scales, b_scales, form)
        return
    got, _ = kernels.scaled_matmul(a, b, a_scales, b_scales, form)
    # Before Blackwell Triton multiplies in bfloat16.
    close(got, a_means @ b_means.T, 1e-3 if gpu.gpu.capability >= 100 else 1e-1)


@pytest.mark.parametrize("device", ["h200", "b200"])
def test_fp8_times_fp4_through_descriptors(device):
    # On Blackwell the fp4 operand is padded in shared memory, by its tensor map.
    a, a_scales, a_means = kernels.scaled(128, 256, "e4m3")
    b, b_scales, b_means = kernels.scaled(64, 256, "e2m1")
    with heist.triton.simulate(device):
        got = kernels.mixed_matmul(a, b, a_scales, b_scales)
    close(got, a_means @ b_means.T, 1e-3 if device == "b200" else 1e-1)


def test_heuristics_and_atomics(gpu):
    x = random(5, 100)
    close(kernels.row_sum(x), x.sum(1), 1e-4)
    bins = torch.arange(1000) % 7
    assert kernels.histogram(bins, 7).tolist() == torch.bincount(bins).tolist()


def test_programs_may_count_blocks_by_registers(gpu):
    x = random(9, 200)
    made = kernels.softmax_kernel.warmup(x, x, 200, 200, 9, 200, 256, 2, num_warps=8, grid=(1,))
    made._init_handles()
    assert 65536 // (made.n_regs * 32 * 8) == 1


def test_arrays_of_numpy():
    x = numpy.arange(100, dtype=numpy.float32)
    out = numpy.zeros_like(x)
    found = heist.triton.check(kernels.add_kernel, (1,), x, x, out, 100, BLOCK=128)
    assert found == []
    assert (out == 2 * x).all()
    found = heist.triton.check(kernels.add_kernel, (2,), x, x, out[:60].copy(), 100, BLOCK=128)
    assert [finding.code for finding in found] == ["M001"]


def test_two_tensors_over_one_storage():
    whole = torch.arange(256, dtype=torch.float32)
    with heist.triton.simulate("h200"):
        kernels.add_kernel[(1,)](whole[:128], whole[128:], whole[:128], 128, BLOCK=128)
    assert whole[:128].tolist() == [128 + 2 * i for i in range(128)]
    with heist.triton.simulate("h200"), pytest.raises(heist.FindingError, match="R002"):
        # The result lies over the operands, 64 elements later: programs get in each other's way.
        kernels.add_kernel[(2,)](whole[:128], whole[:128], whole[64:192], 128, BLOCK=64)


def test_cuda_means_the_simulated_gpu():
    with heist.triton.simulate("a100"):
        x = torch.ones(100, device="cuda")
        assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (8, 0)
        assert kernels.add(x, x.cuda().to("cuda:0")).sum() == 200
    assert heist.triton.active() is None


def test_tensors_say_that_they_are_on_the_simulated_gpu():
    x = torch.ones(4)
    with heist.triton.simulate("h200"):
        assert x.is_cuda and x.get_device() == 0 and x.device == kernels.triton.runtime.driver.active.get_active_torch_device()
        assert torch.empty_like(x, device=x.device).device.type == "cuda" == torch.nn.Linear(2, 2, device="cuda").weight.device.type
        generator = torch.Generator(device="cuda").manual_seed(1)
        assert isinstance(generator, torch.Generator) and torch.rand(3, generator=generator, device="cuda").is_cuda
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled("cuda") and (x[:, None] @ x[None]).dtype == torch.bfloat16
        with torch.device("cuda"):
            assert torch.zeros(3).is_cuda
        assert torch.accelerator.current_accelerator().type == "cuda"
        # PyTorch's own functions know where a tensor is.
        weight = torch.nn.Parameter(torch.ones(2))
        torch.utils.checkpoint.checkpoint(torch.sin, weight, use_reentrant=False).sum().backward()
        torch.optim.AdamW([weight]).step()
    assert not x.is_cuda and x.device.type == "cpu"


def test_a_benchmark_repeats_a_launch_as_few_times_as_it_can():
    x = random(64)
    with heist.triton.simulate("h200", explore=1) as session:
        kernels.triton.testing.do_bench(lambda: kernels.add(x, x))
    assert 0 < len(session.launches) < 20


@pytest.mark.parametrize("block", [16, 64])
def test_a_tile_of_fewer_elements_than_threads_is_updated_in_place(gpu, block):
    # Several threads load each element, one of them stores it, and what the others have loaded is dropped.
    x, total = random(2 * block - 3), torch.zeros(2)
    want = x * 3
    kernels.triple_kernel[(2,)](x, total, x.numel(), BLOCK=block)
    close(x, want, 1e-6)
    close(total, torch.stack([want[:block].sum(), want[block:].sum()]), 1e-4)


def test_kernels_wrapped_for_the_compiler_of_torch_are_launched(gpu):
    # `torch.library.wrap_triton` makes an operator of operators of a kernel.
    from torch.library import wrap_triton

    x = random(100)
    out = torch.empty_like(x)
    wrap_triton(kernels.add_kernel)[(1,)](x, x, out, 100, BLOCK=128)
    close(out, x * 2, 0)
    assert [launch.kernel for launch in gpu.launches] == ["add_kernel"]


def asserted_on_a_gpu(x):
    assert x.is_cuda and x.device == torch.zeros(1, device="cuda").device
    return x


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return kernels.add(asserted_on_a_gpu(x), x)

    @staticmethod
    def backward(_, gradient):
        return kernels.add(asserted_on_a_gpu(gradient.contiguous()), gradient.contiguous())


def test_gradients_see_a_gpu_as_well():
    x = random(100).requires_grad_()
    with heist.triton.simulate("h200") as session:
        Doubled.apply(x).backward(torch.ones(100))
        torch.autograd.grad(Doubled.apply(x), x, torch.ones(100))
    close(x.grad, torch.full((100,), 2.0), 0)
    assert len(session.launches) == 4


def test_operators_written_in_python_see_a_gpu_and_what_they_write_is_noted():
    library = torch.library.Library("heist_tests", "FRAGMENT")
    library.define("filled(Tensor x) -> Tensor")

    def filled(x):
        out = torch.empty_like(asserted_on_a_gpu(x), device="cuda")
        kernels.add_kernel[(1,)](x, x, out, 100, BLOCK=128)
        return out

    # Many are registered for a GPU alone.
    library.impl("filled", filled, "CUDA")

    @torch.library.custom_op("heist_tests::accumulated", mutates_args=("total",))
    def accumulated(x: torch.Tensor, total: torch.Tensor) -> None:
        asserted_on_a_gpu(total).zero_()
        kernels.add_kernel[(1,)](x, total, total, 100, BLOCK=128)

    x = random(100)
    with heist.triton.simulate("h200") as session:
        close(torch.ops.heist_tests.filled(x), x * 2, 0)
        total = torch.empty_like(x)
        accumulated(x, total)
    close(total, x, 0)
    assert len(session.launches) == 2


def test_what_is_no_memory_of_the_host_is_refused():
    with heist.triton.simulate("h200"), pytest.raises(ValueError, match=r"pass `.cpu\(\)`"):
        kernels.add_kernel[(1,)](*[torch.ones(8, device="meta")] * 3, 8, BLOCK=8)
    with pytest.raises(ValueError, match="simulated"), heist.triton.simulate("gpu:0"):
        pass
    with pytest.raises(ValueError, match="there are"), heist.triton.simulate("gtx480"):
        pass


def test_sessions_end_as_they_began():
    from triton import knobs
    from triton.runtime import driver

    before = (driver._active, knobs.cache.dir, knobs.runtime.add_stages_inspection_hook)
    with heist.triton.simulate("a100"):
        with heist.triton.simulate("h200") as inner:
            kernels.add(torch.ones(8), torch.ones(8))
        outer = heist.triton.active()
        kernels.add(torch.ones(8), torch.ones(8))
    assert len(inner.launches) == len(outer.launches) == 1
    assert (driver._active, knobs.cache.dir, knobs.runtime.add_stages_inspection_hook) == before


@pytest.mark.parametrize("version", ["2.3.1", "3.5.1"])
def test_a_triton_that_is_too_old_is_refused(monkeypatch, version):
    import triton

    monkeypatch.setattr(triton, "__version__", version)
    with pytest.raises(heist.UnsupportedError, match=f"3.6 and newer, and this is {version}: .*pip install"):
        heist.triton.check(kernels.add_kernel, (1,), *[torch.ones(8)] * 3, 8, BLOCK=8)


@pytest.mark.parametrize("version", ["3.10.0", "4.0.0+git1234"])
def test_a_triton_that_is_newer_than_any_tried_runs_with_a_warning(monkeypatch, version):
    import triton

    monkeypatch.setattr(triton, "__version__", version)
    with pytest.warns(UserWarning, match="tested with Triton 3.6 to 3.9, and this is"):
        assert heist.triton.check(kernels.add_kernel, (1,), *[torch.ones(8) for _ in range(3)], 8, BLOCK=8) == []


@pytest.mark.parametrize(
    ("code", "message", "instruction", "whose"),
    [
        ("A011", "initialises the mbarrier at 0x0 again", "mbarrier.init.shared::cta.b64 [%r1], 1;", "compiler"),
        ("M009", "works with block rank 1, which may not have started", "tcgen05.alloc.cta_group::2 [%r1], 64;", "compiler"),
        ("A023", "the box does not begin at a multiple of 16 bytes", "cp.async.bulk.tensor.2d [%r1]", "source"),
        ("M001", "reads 4 bytes of global memory", "ld.global.b32 %r1, [%rd1];", "source"),
    ],
)
def test_what_no_kernel_names_is_the_compilers(code, message, instruction, whose):
    from heist.triton import _session

    finding = types.SimpleNamespace(code=code, message=message, instructions=[instruction])
    assert _session._is_compilers(finding) == (whose == "compiler")
