"""What the tests share."""

import pytest


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers in every run."""
    try:
        import torch
    except ImportError:
        return
    torch.manual_seed(7)
