"""A driver for Triton whose device is simulated.

Triton asks its active driver for everything it needs to know of a GPU, and hands it what it
has compiled; this one keeps the PTX and has it simulated.
"""

from __future__ import annotations

from typing import Any, Callable

from .. import _native

# Triton keeps compiled kernels by the number of the device: each simulated GPU has its own.
_FIRST_NUMBER = 0x4E15
_numbers: dict[str, int] = {}


class Gpu:
    """What Triton and its users may know of a simulated GPU."""

    def __init__(self, name: str) -> None:
        device, arch, sms, shared, registers = _native.simulated(name)
        self.device = device
        self.capability = int("".join(c for c in arch.removeprefix("sm_") if c.isdigit()))
        self.sms = sms
        self.shared = shared
        self.registers = registers
        self.number = _numbers.setdefault(device, _FIRST_NUMBER + len(_numbers))

    def properties(self) -> dict[str, Any]:
        return {
            "max_shared_mem": self.shared,
            "max_num_regs": self.registers,
            "multiprocessor_count": self.sms,
            "warpSize": 32,
            "sm_clock_rate": 1_500_000,
            "mem_clock_rate": 2_000_000,
            "mem_bus_width": 4096,
        }


class Loaded:
    """A kernel as Triton has loaded it: its PTX, parsed once."""

    def __init__(self, name: str, ptx: str) -> None:
        self.name = name
        self.ptx = ptx
        self.module = _native.Module(ptx, f"{name}.ptx")


class _Utils:
    """What stands for the library of C functions."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return self._gpu.properties()

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
        loaded = Loaded(name, kernel.decode())
        # Registers and spills are what ptxas would tell; nothing here hangs on them.
        return loaded, loaded, 0, 0, 1024

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

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch

        return torch.cpu

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
