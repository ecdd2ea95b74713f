"""Right kernels: nothing is found."""

import kernels
import pytest
import torch


@pytest.mark.parametrize("n", [1, 127, 128, 300])
def test_scale(n):
    x = torch.arange(n, dtype=torch.float32, device="cuda")
    assert torch.equal(kernels.scale(x, 3.0), 3 * x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="asked while the module is imported")
def test_total():
    x = torch.ones(300, device="cuda")
    assert kernels.total(x).item() == 300


@pytest.mark.parametrize("shape", [(32, 32), (40, 70)])
def test_transpose(shape):
    x = torch.randn(shape, device="cuda")
    assert torch.equal(kernels.transpose(x), x.T)


@pytest.mark.heist("a100")
def test_on_another_gpu(heist_gpu):
    kernels.total(torch.ones(10, device="cuda"))
    assert heist_gpu.gpu.capability == 80 and len(heist_gpu.launches) == 1
