"""The models among the examples, in small, on the simulated GPU: logits, generated tokens
and gradients beside PyTorch's."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")


@pytest.mark.parametrize("name", ["transformer", "experts"])
def test_beside_pytorch(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    example = __import__(name)
    example.main("cpu")
    said = capsys.readouterr().out
    assert "error against float64" in said and "tokens are the same" in said
