"""Gluon kernels as they are, on simulated GPUs: right and silent; and with mistakes, each found at its line."""

import contextlib
import inspect
import warnings

import pytest

pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
triton = pytest.importorskip("triton")

import gluon_bugs  # noqa: E402
import gluon_kernels as kernels  # noqa: E402
import gluon_names  # noqa: E402

import heist  # noqa: E402
import heist.triton  # noqa: E402

# Where the address of tensor memory lies under a buffer of the copy engine, without a fence between.
UNDER_A_BUFFER = {"A006"}


# Tensor memory's loads say no layout, pairs of blocks have one, and launch control is there, from 3.8 on; before, parts of a
# kernel for warps of their own took no flags.
newer = pytest.mark.skipif(gluon_names.VERSION < (3, 8), reason="written for Gluon of Triton 3.8 and later")
NEWER_MISTAKES = {
    "stage_given_back_before_the_product_is_done",
    "stage_filled_before_it_is_empty",
    "product_read_before_it_is_done",
    "product_of_operands_that_are_on_their_way",
    "answer_of_launch_control_read_too_early",
}


@pytest.fixture
def on():
    """Enters a simulated GPU; afterwards every launch must have been silent."""
    sessions = []

    def enter(device, theirs=()):
        sessions.append(stack.enter_context(heist.triton.simulate(device)))
        allowed.update(theirs)
        return sessions[-1]

    allowed = set()
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore", heist.triton.CompilerWarning)
        yield enter
    launches = [launch for session in sessions for launch in session.launches]
    assert launches
    assert {finding.code for launch in launches for finding in launch.from_compiler} <= allowed


def floats(*shape):
    return kernels.halves(*shape).float()


def close(got, want):
    numpy.testing.assert_allclose(got.float().numpy(), want.float().numpy(), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("device", ["a100", "h200", "b200"])
def test_copies_in_groups(on, device):
    on(device)
    x = floats(4096)
    close(kernels.scale(x, 3.0), x * 3)


@pytest.mark.parametrize("device", ["a100", "h200"])
def test_products_of_warps(on, device):
    on(device)
    a, b = kernels.halves(128, 96), kernels.halves(96, 64)
    close(kernels.mma(a, b), a.float() @ b.float())


@pytest.mark.parametrize("device", ["h200", "b200"])
def test_the_copy_engine_both_ways(on, device):
    on(device)
    x = floats(32, 128)
    close(kernels.shift(x, 2.0), x + 2)


@pytest.mark.parametrize("stages", [2, 3])
def test_products_of_warpgroups_with_stages(on, stages):
    on("h200")
    a, b = kernels.halves(128, 160), kernels.halves(160, 128)
    got, _ = kernels.product(kernels.wgmma_kernel, a, b, stages)
    close(got, a.float() @ b.float())


def test_warpgroups_with_a_warp_that_copies(on):
    on("h200")
    a, b = kernels.halves(64, 160), kernels.halves(160, 128)
    got, _ = kernels.product(kernels.specialised_wgmma_kernel, a, b, 2)
    close(got, a.float() @ b.float())


@newer
def test_products_in_tensor_memory(on):
    on("b200", UNDER_A_BUFFER)
    a, b = kernels.halves(128, 96), kernels.halves(96, 128)
    got, _ = kernels.product(kernels.tcgen05_kernel, a, b, blocks=(128, 64, 32))
    close(got, a.float() @ b.float())


@newer
def test_tensor_memory_with_warps_for_copies_and_products(on):
    on("b200", UNDER_A_BUFFER)
    a, b = kernels.halves(128, 160), kernels.halves(160, 128)
    got, _ = kernels.product(kernels.specialised_tcgen05_kernel, a, b, 2, blocks=(128, 64, 32))
    close(got, a.float() @ b.float())


@newer
def test_pairs_of_blocks_that_multiply_together(on):
    # Before 3.9 a block allocates for the pair before it knows that its peer has started.
    on("b200", UNDER_A_BUFFER | ({"M009"} if gluon_names.VERSION < (3, 9) else set()))
    a, b = kernels.halves(256, 96), kernels.halves(96, 128)
    close(kernels.paired(a, b), a.float() @ b.float())


@newer
def test_tiles_by_launch_control(on):
    session = on("b200")
    x = floats(256 * 400)
    close(kernels.squares(x), x * x)
    assert session.launches[0].grid == (400, 1, 1)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[newer] if name in NEWER_MISTAKES else []) for name in gluon_bugs.BUGS])
def test_mistake_is_found(name):
    launch, device, code = gluon_bugs.BUGS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", heist.triton.CompilerWarning)
        with heist.triton.simulate(device, limit_s=5), pytest.raises(heist.HeistError) as raised:
            launch()
    lines = inspect.getsource(gluon_bugs).splitlines()
    found = [finding for finding in raised.value.findings if finding.code == code]
    assert any(finding.file.endswith("gluon_bugs.py") and "# BUG" in lines[finding.line - 1] for finding in found), raised.value
    assert all(finding.helps for finding in found)


def test_there_are_enough():
    assert set(gluon_bugs.BUGS) >= NEWER_MISTAKES
    assert len(gluon_bugs.BUGS) >= 12
