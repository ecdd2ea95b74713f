"""Lists of independent jobs on any executor of :mod:`concurrent.futures`: threads, processes, Dask, Ray.

A sweep, a fuzz campaign, a mutation test and an exploration of schedules are such lists. A job is named by a value that can be
hashed and sent; :func:`results` gives one result for each name. A job whose worker dies is run again, so jobs have to be
idempotent: run twice they leave what they leave when run once.

>>> from heist import jobs
>>> dict(jobs.results(abs, [-1, 2, -3])) == {-1: 1, 2: 2, -3: 3}
True
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from ._native import HeistError

J = TypeVar("J", bound=Hashable)
R = TypeVar("R")


class JobError(HeistError):
    """A job that failed by itself. It is not run again: it would fail again."""


class JobLost(HeistError):
    """A job whose worker died, as often as it was tried."""


class WorkerDied(RuntimeError):
    """Raised in a job whose helper was killed: the job is run again."""


def results(
    function: Callable[[J], R],
    jobs: Iterable[J],
    executor: Executor | Callable[[], Executor] | Any = None,
    *,
    attempts: int = 4,
) -> Iterator[tuple[J, R]]:
    """Runs ``function(job)`` for every job; pairs of a job and its result as they come, every job exactly once.

    ``executor`` is one of :mod:`concurrent.futures`, a Dask ``Client``, a :class:`RayExecutor`, or a function that makes an
    executor, such as ``lambda: ProcessPoolExecutor(8)``: a pool of processes can't be used after one of them has died,
    and a function can make another. Without it there is a thread for each core.

    An exception of ``function`` is raised as :class:`JobError`. A job that was lost with its worker is tried ``attempts``
    times in all, then :class:`JobLost` is raised. What still runs is cancelled when the caller takes no more results.
    """
    names = list(jobs)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the job {twice!r} is there twice; every job needs a name of its own")
    return _results(function, names, _Pool(executor), attempts)


def _results(function: Callable[[J], R], waiting: list[J], pool: _Pool, attempts: int) -> Iterator[tuple[J, R]]:
    tries = dict.fromkeys(waiting, 0)
    running: dict[Future[Any], tuple[J, int]] = {}
    # How often the pool broke since the last result: one poisoned job is to blame if nothing comes of it any more.
    broken = 0
    try:
        while waiting or running:
            for job in waiting:
                running[pool.submit(function, job)] = (job, pool.made)
            waiting = []
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, made = running.pop(future)
                error = future.exception() if not future.cancelled() else WorkerDied("it was cancelled")
                if error is None:
                    outcome = future.result()
                    if isinstance(outcome, _Failed):
                        raise JobError(f"the job {job!r} failed: {outcome.why}")
                    broken = 0
                    yield job, outcome
                    continue
                if not isinstance(error, BrokenExecutor):
                    tries[job] += 1
                elif made == pool.made:
                    broken += 1
                    pool.replace(error)
                if max(tries[job], broken) >= attempts:
                    raise JobLost(f"the job {job!r} was lost with its worker, {attempts} times: {error}") from error
                waiting.append(job)
    finally:
        for future in running:
            future.cancel()
        pool.close()


class _Failed:
    """A job's own exception, sent back as a value: every exception of a future is its worker's then."""

    def __init__(self, why: str) -> None:
        self.why = why


def _guarded(function: Callable[[Any], Any], job: Any) -> Any:
    try:
        return function(job)
    except WorkerDied:
        raise
    except Exception as error:
        return _Failed(f"{type(error).__name__}: {error}")


class _Pool:
    """An executor, and how to get another."""

    def __init__(self, given: Any) -> None:
        self._make: Callable[[], Executor] | None = None
        if given is None:
            self._make = ThreadPoolExecutor
        elif isinstance(given, Executor):
            self._executor = given
        elif hasattr(given, "get_executor"):
            # Dask has a number of its own for tasks whose workers die; it is the caller's attempts that count here.
            self._executor = given.get_executor(pure=False)
        elif callable(given):
            self._make = given
        else:
            raise TypeError(
                f"executor is a {type(given).__name__}: pass an executor of concurrent.futures, a Dask client, "
                "a heist.jobs.RayExecutor, or a function that makes one"
            )
        if self._make is not None:
            self._executor = self._make()
        #: How many executors there were.
        self.made = 1

    def submit(self, function: Callable[[Any], Any], job: Any) -> Future[Any]:
        try:
            return self._executor.submit(_guarded, function, job)
        except BrokenExecutor as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def replace(self, error: BaseException) -> None:
        if self._make is None:
            raise JobLost(
                f"the executor is broken ({error}): pass a function that makes one, "
                "such as lambda: ProcessPoolExecutor(8), and it is made again"
            ) from error
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._make()
        self.made += 1

    def close(self) -> None:
        if self._make is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


class RayExecutor(Executor):
    """Ray's tasks as an executor. ``options`` are those of ``ray.remote``, such as ``num_gpus=1``.

    >>> import ray; ray.init()                                              # doctest: +SKIP
    >>> dict(jobs.results(abs, [-1, 2], jobs.RayExecutor(num_cpus=1)))      # doctest: +SKIP
    """

    def __init__(self, **options: Any) -> None:
        import ray

        # A lost job is submitted again by `results`, which counts.
        self._task = ray.remote(max_retries=0, **options)(_call) if options else ray.remote(max_retries=0)(_call)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Gives the call to the cluster."""
        return self._task.remote(fn, args, kwargs).future()


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


class Command:
    """The command ``heist`` as a job's function: called with the words that are the job's own, it gives the JSON of the answer.

    >>> seeds = [("--seed", str(seed)) for seed in range(1000)]
    >>> search = jobs.Command("exec", "kernel.ptx", "--chaos")
    >>> found = dict(jobs.results(search, seeds, client))                   # doctest: +SKIP

    ``program`` is what is run on the worker instead of ``python -m heist``.
    """

    def __init__(self, *words: str, program: Sequence[str] | None = None) -> None:
        self.words = tuple(words)
        self.program = tuple(program) if program is not None else None

    def __call__(self, more: Sequence[str] = ()) -> Any:
        program = self.program or (sys.executable, "-m", "heist")
        ran = subprocess.run([*program, *self.words, *more, "--json"], capture_output=True, text=True, env=_environment())
        if ran.returncode < 0:
            raise WorkerDied(f"heist was ended by signal {-ran.returncode}")
        # 1 is an answer too: something was found.
        if ran.returncode not in (0, 1):
            # The error is JSON as well, unless the command could not get that far.
            why = ran.stderr.strip() or ran.stdout.strip()
            raise JobError(f"heist ended with status {ran.returncode}: {why}")
        return json.loads(ran.stdout)


def _environment() -> dict[str, str]:
    """This process's environment; the package is found from where it was imported here."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
