"""The checks on a real GPU, where there is one."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")
if not torch.cuda.is_available():
    pytest.skip("no GPU: cuda_checks.py was not run", allow_module_level=True)

from cuda_checks import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_on_the_gpu(check):
    said = check()
    torch.cuda.synchronize()
    if said:
        pytest.skip(said)
