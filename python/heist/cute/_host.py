"""What programs ask of the machine around their launches, answered for the simulated GPU."""

from __future__ import annotations

import contextlib
from typing import Any, Callable
from unittest import mock


def answer(stack: contextlib.ExitStack, session: Callable[[], Any]) -> None:
    """Replaces the DSL's questions to the driver, and its stop-watch, until the stack is left."""
    import cutlass.cute.testing
    import cutlass.testing
    from cuda.bindings import driver
    from cutlass.utils import HardwareInfo

    success = driver.CUresult.CUDA_SUCCESS
    answers: tuple[tuple[Any, str, Any], ...] = (
        (HardwareInfo, "__init__", lambda self, device_id=0: setattr(self, "device", driver.CUdevice(0))),
        (HardwareInfo, "get_max_active_clusters", lambda self, size, stream=None: max(1, session().gpu.sms // size)),
        (HardwareInfo, "get_device_multiprocessor_count", lambda self: session().gpu.sms),
        (driver, "cuInit", lambda flags: (success,)),
        (driver, "cuDeviceGetCount", lambda: (success, 1)),
        (cutlass.cuda, "initialize_cuda_context", lambda device_id=0, flags=0: driver.CUcontext(0)),
        (cutlass.cuda, "stream_create", lambda id=0: driver.CUstream(0)),
        (cutlass.cuda, "stream_sync", lambda stream: None),
        (cutlass.cuda, "stream_destroy", lambda stream: None),
        (cutlass.testing, "benchmark", _once(session)),
        (cutlass.testing, "_benchmark_for_autotune", _called_once(session)),
        (cutlass.cute.testing, "benchmark", _once(session)),
    )
    for owner, name, function in answers:
        stack.enter_context(mock.patch.object(owner, name, function))


def _called_once(session: Callable[[], Any]) -> Callable[..., float]:
    """The same for the function that tuning measures with, whose own words are by name."""
    own = ("warmup_iterations", "iterations", "use_cold_l2", "print_verbose", "current_stream")

    def benchmark(function: Any, *args: Any, **kwargs: Any) -> float:
        before = len(session().launches)
        function(*args, **{name: value for name, value in kwargs.items() if name not in own})
        return sum(launch.elapsed_ns or 0.0 for launch in session().launches[before:]) / 1e3

    return benchmark


def _once(session: Callable[[], Any]) -> Callable[..., float]:
    """Instead of a measurement: one call, and the simulated time of its launches in microseconds."""

    def benchmark(function: Any, *_: Any, kernel_arguments: Any = None, workspace_generator: Any = None, **__: Any) -> float:
        given = workspace_generator() if workspace_generator is not None else kernel_arguments
        before = len(session().launches)
        function(*getattr(given, "args", ()), **getattr(given, "kwargs", {}))
        return sum(launch.elapsed_ns or 0.0 for launch in session().launches[before:]) / 1e3

    return benchmark
