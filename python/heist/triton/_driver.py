"""A driver for Triton whose device is simulated.

Triton asks its active driver for everything it needs to know of a GPU, and hands it what it
has compiled; this one keeps the PTX and has it simulated.
"""

from __future__ import annotations

import re
from typing import Any, Callable

from .. import _native
from .._launches import Gpu


class Loaded:
    """A kernel as Triton has loaded it: its PTX, parsed once."""

    def __init__(self, name: str, ptx: str) -> None:
        self.name = name
        self.ptx = ptx
        self.module = _native.Module(ptx, f"{name}.ptx")


def _most_registers(ptx: str, of_sm: int) -> int:
    """The most registers that a thread may have for one block to fit. Only ptxas knows how many it
    has; programs that count blocks by them, as Triton's softmax does, so count at least one."""
    threads = re.search(r"\.(?:reqntid|maxntid) (\d+)", ptx)
    return min(255, of_sm // int(threads[1]) // 8 * 8) if threads else 255


class _Utils:
    """What stands for the library of C functions."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return self._gpu.properties()

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
        loaded = Loaded(name, kernel.decode())
        return loaded, loaded, _most_registers(loaded.ptx, self._gpu.registers), 0, 1024

    def unload_module(self, module: Any) -> None:
        pass


class SimulatedDriver:
    """A driver for one simulated GPU. ``launch`` runs a kernel."""

    def __init__(self, gpu: Gpu, launch: Callable[..., None]) -> None:
        self.gpu = gpu
        self.utils = _Utils(gpu)
        self._launch = launch

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        def run(x: int, y: int, z: int, stream: Any, loaded: Loaded, packed: Any, *rest: Any) -> None:
            launch_metadata, enter, leave, *arguments = rest
            if enter is not None:
                enter(launch_metadata)
            _session_of(self)(source, metadata, loaded, (x, y, z), arguments)
            if leave is not None:
                leave(launch_metadata)

        return run

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.gpu.capability, 32)

    def get_current_device(self) -> int:
        return self.gpu.number

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return divmod(self.gpu.capability, 10)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Callable[..., list[float]]:
        # Only asked where every configuration is to run: the first is as good as any.
        def once(call: Callable[[], Any], *, quantiles: Any = None, **_: Any) -> list[float]:
            call()
            return [1.0] * len(quantiles or (0.5,))

        return once

    def get_empty_cache_for_benchmark(self) -> Any:
        import torch

        return torch.empty(0, dtype=torch.int8)

    def clear_cache(self, cache: Any) -> None:
        pass

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> Any:
        import torch

        return torch.zeros(size, dtype=torch.int8)


def let_go_of_kernels() -> None:
    """A kernel that is dropped unloads its module, perhaps after its session: no real driver is asked to unload ours."""
    from triton.compiler import CompiledKernel

    unload = getattr(CompiledKernel, "__del__", None)
    if unload is None or getattr(unload, "knows_simulated", False):
        return

    def unload_unless_simulated(self: Any) -> None:
        if not isinstance(getattr(self, "module", None), Loaded):
            unload(self)

    unload_unless_simulated.knows_simulated = True  # type: ignore[attr-defined]
    CompiledKernel.__del__ = unload_unless_simulated


def _session_of(driver: SimulatedDriver) -> Callable[..., None]:
    """The launch of the session that is active now: a kernel outlives the one it was compiled in."""
    from triton.runtime import driver as config

    now = config.active
    return now._launch if isinstance(now, SimulatedDriver) else driver._launch


def ptx_instead_of_cubin(*asked: Any) -> Any:
    """For ``knobs.runtime.add_stages_inspection_hook``: the last stage keeps the PTX as it is,
    so nothing is assembled. Newer versions also ask, without arguments, what to add to the key
    of their cache."""
    if not asked:
        return "heist-ptx", "heist-ptx"
    stages = asked[1]
    stages["cubin"] = lambda ptx, metadata: ptx.encode() if isinstance(ptx, str) else ptx
    return None
