"""Operations take the answers of `heist tune`, and none that is stale or broken."""

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the operations for it are not tested")

import heist.torch as ht
from references import close

A, B = torch.randn(72, 64, dtype=torch.bfloat16), torch.randn(64, 96, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A file with the tuner's answer for the product of A and B, as the command leaves it."""
    path = tmp_path_factory.mktemp("answers") / "tuned.jsonl"
    words = "gemm m=72 n=96 k=64 layout=nn --device sim:h200 --limit 2 --only stages=2 --json".split()
    run = subprocess.run(
        [sys.executable, "-m", "heist", "tune", *words],
        env={**os.environ, "HEIST_TUNED": str(path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["best"]
    return path


@pytest.fixture
def planted(store, tmp_path):
    """A function that replaces words of the answer, and has operations use the file."""

    def plant(**words):
        path = tmp_path / "tuned.jsonl"
        first, line = store.read_text().splitlines()
        answer = json.loads(line)
        for name, word in words.items():
            if "=" in word:
                word = dict(one.split("=") for one in word.split())
            answer["answer"][name] = word
        path.write_text(f"{first}\n{json.dumps(answer)}\n")
        ht.answers(path)
        return path

    yield plant
    ht.answers()


def product():
    """The product, held against f64, and its plan."""
    for _ in range(2):
        close(ht.mm(A, B), A.double() @ B.double())
    (plan,) = ht.tuned()
    return plan


@pytest.mark.parametrize(
    "candidate, tile",
    [
        ("rows=64 cols=48 depth=64 stages=3", "wgmma:64x48x64/3"),
        ("rows=64 cols=64 depth=32 warp=32x32 stages=2", "64x64x32/32x32/2"),
    ],
)
def test_an_answer_is_taken(planted, candidate, tile):
    planted(candidate=candidate)
    plan = product()
    assert plan.answer == " ".join(sorted(candidate.split()))
    assert plan.plan.endswith(tile) and plan.refusal is None
    # What the command files an answer under is what the operation asks for.
    assert plan.problem.startswith("gemm m=72 n=96 k=64 ")
    ht.answers(False)
    untuned = product()
    assert untuned.answer is None and untuned.problem is None and not untuned.plan.endswith(tile)


def test_a_policy_asks_for_no_answer(planted):
    planted(candidate="rows=64 cols=48 depth=64 stages=3")
    close(ht.mm(A, B, policy="max-steals(2)"), A.double() @ B.double())
    (plan,) = ht.tuned()
    assert plan.problem is None and plan.answer is None


@pytest.mark.parametrize(
    "words, why",
    [
        ({"driver": "another"}, "driver another"),
        ({"version": "0.0.1"}, "version 0.0.1"),
        ({"candidate": "rows=64 cols=48 depth=64 stages=12000"}, "can't be taken"),
        ({"candidate": "nonsense"}, "not a store of tuned answers"),
    ],
)
def test_what_does_not_fit_is_not_obeyed(planted, caplog, words, why):
    planted(**{"candidate": "rows=64 cols=48 depth=64 stages=3", **words})
    plan = product()
    assert plan.answer is None and why in plan.refusal
    assert [why in record.message for record in caplog.records] == [True]


def test_a_file_that_is_no_store_is_not_obeyed(tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text("not a database")
    ht.answers(broken)
    try:
        assert "broken.jsonl" in product().refusal
        ht.answers(tmp_path / "nothing.jsonl")
        assert product().refusal is None
        assert not (tmp_path / "nothing.jsonl").exists()
    finally:
        ht.answers()


def test_the_environment_names_the_file(planted):
    path = planted(candidate="rows=64 cols=48 depth=64 stages=3")
    program = "import torch, heist.torch as ht; ht.mm(torch.ones(72, 64).bfloat16(), torch.ones(64, 96).bfloat16()); print(ht.tuned()[0].answer)"

    def answer(value):
        run = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "HEIST_TUNED": value}, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    assert answer(str(path)) == "cols=48 depth=64 rows=64 stages=3"
    assert answer("") == "None"
