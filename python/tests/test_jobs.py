"""Independent jobs on executors whose workers die: every one has exactly one result."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import heist
import pytest
from heist import jobs

# The command that is installed with this package, or another build of it.
PROGRAM = shlex.split(os.environ.get("HEIST_PROGRAM", "")) or [sys.executable, "-m", "heist"]

#: How many candidates a sweep has in each stage; 500 is a sweep of a user's size, and takes minutes.
CANDIDATES = int(os.environ.get("HEIST_CANDIDATES", "20"))

#: A program that does what PROGRAM does; the job of number KILLED kills the worker that started it instead.
FATAL = """
import os, signal, sys
words = sys.argv[1:]
if "--candidate" in words:
    log = os.open({log!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(log, b".")
    if os.fstat(log).st_size == {killed}:
        os.kill(os.getppid(), signal.SIGKILL)
        sys.exit(9)
os.execvp({program[0]!r}, [*{program!r}, *words])
"""


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch):
    monkeypatch.setenv("HEIST_TUNED", "")


@pytest.fixture(scope="module")
def alone():
    """What one process finds."""
    words = ["gemm", "m=32", "n=32", "k=32", "--device", "sim:h200", "--limit", str(CANDIDATES)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEIST_TUNED", "")
        return jobs.Command("tune", *words, program=PROGRAM)()


@pytest.fixture
def dask_cluster():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def ray_cluster():
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield jobs.RayExecutor(num_cpus=1)
    ray.shutdown()


@pytest.fixture
def processes():
    return lambda: ProcessPoolExecutor(2)


def one_more(number):
    return number + 1


class DiesOnce:
    """Kills the process that runs the job in the middle, once."""

    def __init__(self, folder, victim):
        self.marker = os.path.join(folder, "died")
        self.victim = victim

    def __call__(self, number):
        if number == self.victim:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return number + 1
            os.kill(os.getpid(), signal.SIGKILL)
        return number + 1


class Poison:
    def __call__(self, number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number


def fails(number):
    raise KeyError(number)


def killed_helper(number):
    subprocess.run(["true"], check=True)
    raise jobs.WorkerDied("its helper was ended by signal 9")


def test_threads_are_the_default():
    assert dict(jobs.results(one_more, range(100))) == {n: n + 1 for n in range(100)}


@pytest.mark.parametrize("cluster", ["processes", "dask_cluster", "ray_cluster"])
def test_a_worker_that_dies_costs_nothing(cluster, request, tmp_path):
    executor = request.getfixturevalue(cluster)
    found = list(jobs.results(DiesOnce(os.fspath(tmp_path), 20), range(40), executor))
    assert sorted(found) == [(n, n + 1) for n in range(40)]
    assert os.path.exists(tmp_path / "died")


def test_a_job_that_always_kills_its_worker_is_named(processes):
    with pytest.raises(jobs.JobLost, match="4 times"):
        list(jobs.results(Poison(), range(6), processes))


def test_a_pool_that_is_broken_needs_a_function_that_makes_another(tmp_path):
    with ProcessPoolExecutor(2) as pool, pytest.raises(jobs.JobLost, match="pass a function"):
        list(jobs.results(DiesOnce(os.fspath(tmp_path), 2), range(4), pool))


def test_a_job_s_own_error_is_raised_and_not_tried_again():
    with ThreadPoolExecutor(1) as pool, pytest.raises(jobs.JobError, match="the job 1 failed: KeyError: 1"):
        list(jobs.results(fails, [1], pool))
    with pytest.raises(jobs.JobLost, match="signal 9"):
        list(jobs.results(killed_helper, [1]))
    with pytest.raises(ValueError, match="the job 2 is there twice"):
        jobs.results(one_more, [1, 2, 2])
    with pytest.raises(TypeError, match="executor is a int"):
        list(jobs.results(one_more, [1], 7))


def test_any_command_is_a_job():
    """Here the schedules of a kernel: one seed a job."""
    seeds = [("--seed", str(seed)) for seed in range(3)]
    command = jobs.Command("run", "gemm", "m=16", "n=16", "k=16", "--device", "sim:h200", program=PROGRAM)
    found = dict(jobs.results(command, seeds))
    assert set(found) == set(seeds) and all(answer["right"] for answer in found.values())
    wrong = jobs.Command("run", "no-such-kernel", program=PROGRAM)
    with pytest.raises(jobs.JobError, match="no-such-kernel"):
        list(jobs.results(wrong, [()]))


PROBLEM = {"m": 32, "n": 32, "k": 32}


def by_candidate(rows):
    return {json.dumps(row["candidate"], sort_keys=True): row for row in rows}


@pytest.mark.parametrize("cluster", ["processes", "dask_cluster", "ray_cluster"])
def test_a_sweep_has_every_candidate_once_though_a_worker_dies(cluster, request, tmp_path, alone):
    """Simulated candidates on two workers, one of them killed halfway."""
    executor = request.getfixturevalue(cluster)
    log, journal = os.fspath(tmp_path / "log"), tmp_path / "sweep.jsonl"
    fatal = tmp_path / "fatal.py"
    fatal.write_text(FATAL.format(log=log, killed=CANDIDATES // 20, program=PROGRAM))
    swept = heist.sweep(
        "gemm",
        PROBLEM,
        device="sim:h200",
        executor=executor,
        limit=CANDIDATES,
        batch=10,
        journal=journal,
        program=[sys.executable, os.fspath(fatal)],
    )
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    tried = [line["row"] for line in lines if "row" in line and line["row"]["status"] != "refused"]
    entered = [row for row in tried if not row.get("timing", {}).get("stage", "").startswith("race")]
    counts = Counter(json.dumps(row["candidate"], sort_keys=True) for row in entered)
    assert set(counts.values()) == {1}, "every candidate exactly once"
    tiles = [row for row in entered if "schedule" not in row["candidate"]]
    assert len(tiles) == CANDIDATES + 1, "those, and what is taken without tuning"
    # One job more than there are: the one that was lost with its worker.
    jobs_run = os.path.getsize(log)
    assert jobs_run > len(entered) // 10
    mine, theirs = by_candidate(swept.rows), by_candidate(alone["rows"])
    assert set(mine) == set(theirs)
    for name, row in theirs.items():
        assert mine[name].get("facts") == row.get("facts"), name
        assert (mine[name].get("timing") or {}).get("median_ns") == (row.get("timing") or {}).get("median_ns"), name
    assert swept.best["candidate"] == alone["best"]["candidate"]


def test_a_sweep_goes_on_from_its_journal(tmp_path):
    journal = tmp_path / "sweep.jsonl"

    def sweep(limit):
        return heist.sweep("gemm", PROBLEM, device="sim:h200", limit=limit, journal=journal, program=PROGRAM)

    first, size = sweep(8), journal.stat().st_size
    assert sweep(8) == first
    assert journal.stat().st_size == size, "nothing was left to do"
