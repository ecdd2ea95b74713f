"""Scripts that measure PyTorch beside us: what they answer, without a GPU."""
import ctypes
import importlib.util
import pathlib
import types

import pytest

torch = pytest.importorskip("torch")
SCRIPT = pathlib.Path(__file__).parents[2] / "bench/kernels/share.py"


@pytest.fixture
def share(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: types.SimpleNamespace())
    spec = importlib.util.spec_from_file_location("share", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class End:
    def __init__(self, milliseconds):
        self.at = milliseconds

    def elapsed_time(self, later):
        return later.at - self.at


@pytest.mark.parametrize("ends, watched, ended", [([], 0, 0), ([5], 0, 0), ([5, 7, 9], 4000, 2)])
def test_a_batch_is_watched_from_one_end_to_another_if_there_are_two(share, ends, watched, ended):
    answer = share.seen([12.5], [End(at) for at in ends])
    assert answer == {"samples": [12.5], "watched": watched, "ended": ended}
