"""``with simulate("h200"):``, and what was launched inside."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Iterator
from unittest import mock

from .. import _native
from .._launches import CompilerWarning, Gpu, How, Launched, finding_error, folded
from .._memory import Allocations, NumpyTensor
from . import _versions
from ._arguments import Parameters
from ._driver import Loaded, SimulatedDriver, let_go_of_kernels, ptx_instead_of_cubin

_sessions: list["Session"] = []


def active() -> "Session | None":
    """The innermost :func:`simulate` that this is inside of."""
    return _sessions[-1] if _sessions else None


@dataclass
class Session:
    """A simulated GPU while kernels are launched on it."""

    gpu: Gpu
    explore: int | None
    seed: int
    limit_s: float
    raises: bool
    configs: str
    launches: list[Launched] = field(default_factory=list)
    # Kernels of which a warning was given.
    warned: set[str] = field(default_factory=set)
    # What is known of storages of which not everything was written, by their address.
    unwritten: dict[int, bytes] = field(default_factory=dict)
    # What is undone when it ends, and whether Inductor's run-time was prepared for it.
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    runs_inductor: bool = False

    def launch(
        self, source: Any, metadata: Any, loaded: Loaded, grid: tuple[int, int, int], arguments: list[Any]
    ) -> None:
        """Runs a kernel that Triton has compiled."""
        if 0 in grid:
            return
        blocks = grid[0] * grid[1] * grid[2]
        ctas = getattr(metadata, "num_ctas", 1)
        memory = Allocations(self.unwritten)
        parameters = Parameters(memory, getattr(metadata, "tensordesc_meta", None))
        for (name, ty), value in zip(source.signature.items(), arguments):
            parameters.add(_name(source, name), ty, value)
        for which in ("global_scratch", "profile_scratch"):
            size = getattr(metadata, f"{which}_size", 0)
            at = memory.scratch(which, size * blocks * ctas, getattr(metadata, f"{which}_align", 1)) if size else 0
            parameters.list.append(at.to_bytes(8, "little"))
        given = loaded.module.parameters(loaded.name)
        # Older compilers leave hidden parameters out that they do not use.
        del parameters.list[len(given) :]
        how = How(
            self.gpu.device, self.explore, self.seed, bool(getattr(metadata, "launch_cooperative_grid", False)), self.limit_s
        )
        started = time.perf_counter()
        report, written = _native.simulate(
            loaded.module,
            loaded.name,
            (grid[0] * ctas, grid[1], grid[2]),
            (metadata.num_warps * 32, 1, 1),
            (ctas, 1, 1) if ctas > 1 else None,
            metadata.shared,
            parameters.list,
            memory.list,
            how,
        )
        memory.finish(written)
        seconds = time.perf_counter() - started
        gluon = "GLUON" in str(getattr(source, "language", "")).upper()
        is_compilers = _is_compilers_of_gluon if gluon else _is_compilers
        own = [finding for finding in report.findings if is_compilers(finding)]
        found = folded([finding for finding in report.findings if finding not in own])
        self.launches.append(Launched(loaded.name, grid, found, own, report.elapsed_ns, seconds, report.printed))
        if report.printed:
            print(report.printed, end="")
        if own and loaded.name not in self.warned:
            self.warned.add(loaded.name)
            warnings.warn(_about_compiler(loaded.name, gluon, own), CompilerWarning, stacklevel=5)
        if self.raises and found:
            raise finding_error(found)


def _is_compilers(finding: Any) -> bool:
    """Whether only the compiler can be the reason. A Triton kernel names no shared memory, no
    asynchronous copy, no mbarrier, no instruction of tensor cores or warp groups, knows no threads,
    and gives every name a value: what is wrong with those is not in the source."""
    # Sums are an example: each lane stores the one it has, of which the first addition may be
    # fused with a product, and so is rounded otherwise in each half of the warp.
    in_shared = "of the block's shared memory" in finding.message
    if finding.code in ("A022", "A023"):  # Where a descriptor is read or written is the source's choice.
        return in_shared
    own = finding.code == "M013" or finding.code[0] in "AT" or in_shared and finding.code[0] in "MR"
    return own or _is_compilers_of_gluon(finding)


def _is_compilers_of_gluon(finding: Any) -> bool:
    """The same of a Gluon kernel, which names its memory, copies and barriers: only tensor memory is
    allocated without its doing. The word that its address is put into has no name and lies where
    a buffer is, and before 3.9 pairs of blocks allocate it before they have met (M009)."""
    words = ("tcgen05.alloc", "tcgen05.relinquish_alloc_permit", "tcgen05.dealloc")
    allocates = any(word in instruction for instruction in finding.instructions for word in words)
    return allocates and (finding.code[0] in "AR" or finding.code == "M009")


def _about_compiler(kernel: str, gluon: bool, findings: list[Any]) -> str:
    what = "allocates tensor memory, puts its address into" if gluon else "places"
    text = "\n".join(finding.text for finding in findings)
    return (
        f"`{kernel}`: Triton itself {what} shared memory{'' if gluon else ' and registers'} and orders what touches "
        f"{'it' if gluon else 'them'}, so this is its compiler's doing:\n{text}"
    )


def _name(source: Any, name: Any) -> str:
    return name if isinstance(name, str) else source.fn.arg_names[name]


@contextlib.contextmanager
def simulate(
    device: str = "h200",
    *,
    explore: int | None = None,
    seed: int = 0,
    limit_s: float = 300.0,
    raises: bool = True,
    configs: str = "first",
) -> Iterator[Session]:
    """Launches of Triton kernels inside the block run on a simulated GPU, and are checked.

    ``device`` is one of ``heist devices``, such as ``a100``, ``h200`` or ``b200``. Tensors are of
    torch on the CPU, or arrays of numpy; ``device="cuda"`` means the CPU inside the block.

    ``explore`` is how many schedules each launch is tried in: a few where that is cheap, if
    nothing is said. ``seed`` is the first of them. ``limit_s`` ends a launch that takes longer.
    What is found raises :class:`heist.FindingError`; with ``raises=False`` it is in
    ``session.launches`` alone. Simulated times choose no configuration: an autotuned kernel
    runs in the first one that fits the device, or with ``configs="all"`` once in each.
    """
    import triton

    _versions.check(triton.__version__)
    from triton import knobs
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    if configs not in ("first", "all"):
        raise ValueError(f"configs is 'first' or 'all'; given: {configs!r}")
    session = Session(Gpu(device), explore, seed, limit_s, raises, configs)
    driver = triton.runtime.driver
    let_go_of_kernels()
    with session.ends as stack:
        before = driver._active
        stack.callback(setattr, driver, "_active", before)
        driver.set_active(SimulatedDriver(session.gpu, session.launch))
        # Programs that look for the driver of NVIDIA's GPUs, as Inductor's do, find this one.
        nvidia = triton.backends.backends["nvidia"]
        simulated = dataclasses.replace(nvidia, driver=SimulatedDriver)
        stack.enter_context(mock.patch.dict(triton.backends.backends, {"nvidia": simulated}))
        # What is compiled here is no code for a real GPU: it is kept apart.
        stack.enter_context(knobs.runtime.scope())
        stack.enter_context(knobs.cache.scope())
        knobs.runtime.add_stages_inspection_hook = ptx_instead_of_cubin
        if os.path.basename(knobs.cache.dir) != "heist":
            knobs.cache.dir = os.path.join(knobs.cache.dir, "heist")
        if not _sessions:
            stack.enter_context(mock.patch.object(JITFunction, "run", _with_arrays(JITFunction.run)))
            stack.enter_context(mock.patch.object(Autotuner, "run", _in_one_configuration(Autotuner.run)))
        if _has_torch():
            from .. import _simulated_torch

            stack.enter_context(_simulated_torch.cuda_is_simulated(session))
        _sessions.append(session)
        stack.callback(_sessions.remove, session)
        yield session


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


def _with_arrays(run: Any) -> Any:
    """Arrays of numpy get what Triton asks of a tensor."""

    def wrap(value: Any) -> Any:
        is_array = type(value).__module__ == "numpy" and getattr(value, "shape", ()) != ()
        return NumpyTensor(value) if is_array else value

    def run_with_arrays(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(wrap(value) for value in args)
        return run(self, *args, **{name: wrap(value) for name, value in kwargs.items()})

    return run_with_arrays


def _in_one_configuration(run: Any) -> Any:
    """The first configuration that the device has room for."""
    from triton.runtime.errors import OutOfResources

    def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
        session = active()
        if session is None or session.configs == "all":
            return run(self, *args, **kwargs)
        self.nargs = dict(zip(self.arg_names, args))
        configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
        refused = None
        for config in configs:
            self.best_config = config
            whole = {**self.nargs, **kwargs, **config.all_kwargs()}
            try:
                if config.pre_hook is not None:
                    config.pre_hook(whole)
                return self.fn.run(*args, **kwargs, **config.all_kwargs())
            except OutOfResources as error:
                refused = error
        raise refused or RuntimeError("an autotuned kernel without a configuration")

    return run_first
