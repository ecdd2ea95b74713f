"""``with simulate("h200"):``, and what was launched inside."""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Iterator
from unittest import mock

from .. import _native
from .._launches import CompilerWarning, Gpu, How, Launched, finding_error, folded
from .._memory import Allocations
from . import _host, _memory, _runtime, _tvm_ffi

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
    launches: list[Launched] = field(default_factory=list)
    # Kernels of which a warning was given.
    warned: set[str] = field(default_factory=set)
    # What is known of storages of which not everything was written, by their address.
    unwritten: dict[int, bytes] = field(default_factory=dict)
    # What went wrong inside the host code, and is raised when that returns.
    failed: BaseException | None = None

    def launch(self, launch: _runtime.Launch) -> None:
        """Runs a kernel that a host function launches."""
        if 0 in launch.grid:
            return
        memory = Allocations(self.unwritten)
        parameters = _memory.Parameters(memory, launch.arguments)
        how = How(self.gpu.device, self.explore, self.seed, launch.cooperative, self.limit_s)
        cluster = launch.cluster if launch.cluster not in (None, (1, 1, 1)) else None
        started = time.perf_counter()
        kernel = launch.kernel
        report, written = _native.simulate(
            kernel.module, kernel.name, launch.grid, launch.block, cluster, launch.shared, parameters.list, memory.list, how
        )
        memory.finish(written)
        seconds = time.perf_counter() - started
        own = _of_compiler(report.findings)
        found = folded([finding for finding in report.findings if finding not in own])
        self.launches.append(Launched(kernel.title, launch.grid, found, own, report.elapsed_ns, seconds, report.printed))
        if report.printed:
            print(report.printed, end="")
        if own and kernel.name not in self.warned:
            self.warned.add(kernel.name)
            warnings.warn(_about_compiler(kernel.title, own), CompilerWarning, stacklevel=2)
        if self.raises and found:
            raise finding_error(found)


_ONE_COPY = "`cute.copy` by a whole warp is in PTX a copy by each lane: `with cute.arch.elect_one():` around it asks for one"
_NO_WAIT = "`cute.copy` from tensor memory has no wait in PTX: `cute.arch.fence_view_async_tmem_load()` behind it is one"

_DECODED = "`cute.arch.clc_response` decodes an answer of launch control before it is known to grant a block: use what it gives only where that is valid"


def _of_compiler(findings: list[Any]) -> list[Any]:
    """What is wrong in the PTX of a source as NVIDIA's examples have it."""
    repeated = {finding.line for finding in findings if finding.code == "A027"}
    return [
        finding
        for finding in findings
        if finding.code == "L004"
        or finding.code in ("A027", "A009") and finding.line in repeated
        or finding.code in ("T101", "T103") and any("tcgen05.ld" in one for one in finding.instructions)
    ]


def _about_compiler(kernel: str, findings: list[Any]) -> str:
    codes = {finding.code for finding in findings}
    reasons = {"A027": _ONE_COPY, "T101": _NO_WAIT, "T103": _NO_WAIT, "L004": _DECODED}
    advice = dict.fromkeys(reason for code, reason in reasons.items() if code in codes)
    text = "\n".join(finding.text for finding in findings)
    return f"`{kernel}`: the DSL's compiler made this from a source that NVIDIA's examples have too. {'; '.join(advice)}.\n{text}"


@contextlib.contextmanager
def simulate(
    device: str = "h200",
    *,
    explore: int | None = None,
    seed: int = 0,
    limit_s: float = 300.0,
    raises: bool = True,
) -> Iterator[Session]:
    """Functions of the CuTe DSL that are compiled and called inside the block launch their kernels
    on a simulated GPU, and these are checked.

    ``device`` is one of ``heist devices``, such as ``a100``, ``h200`` or ``b200``. Tensors are of
    torch on the CPU or arrays of numpy, by ``from_dlpack``; ``device="cuda"`` means the CPU inside
    the block. ``explore``, ``seed``, ``limit_s`` and ``raises`` are as for
    :func:`heist.triton.simulate`.
    """
    from cutlass.base_dsl.compiler import Compiler
    from cutlass.base_dsl.jit_executor import JitExecutor
    from cutlass.cute.runtime import _Tensor as Tensor
    from cutlass.cutlass_dsl import CuTeDSL
    from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction as Compiled

    session = Session(Gpu(device), explore, seed, limit_s, raises)
    dsl = CuTeDSL._get_dsl()
    with contextlib.ExitStack() as stack:
        settings = {
            "_arch": session.gpu.arch,
            # The PTX is what is simulated, and its lines are those of the Python source.
            "keep_ptx": True,
            "lineinfo": True,
            "dump_dir": stack.enter_context(tempfile.TemporaryDirectory(prefix="heist-cute-")),
        }
        for name, value in settings.items():
            stack.enter_context(mock.patch.object(dsl.envar, name, value))
        if not _sessions:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="Cache is disabled as user wants to generate PTX")
            for owner, name, make in (
                (Compiler, "jit", lambda jit: _linked(dsl, jit)),
                (Compiled, "to", _only_what_was_compiled_here),
                (Compiled, "_load_cuda_library", _with_nothing_to_unload),
                (JitExecutor, "run_compiled_program", _raising),
                (Tensor, "load_dltensor", _memory.in_global_memory),
                (Tensor, "__c_pointers__", _memory.aligned_as_assumed),
            ):
                stack.enter_context(mock.patch.object(owner, name, make(getattr(owner, name))))
            stack.enter_context(mock.patch.object(Compiled, "num_devices", 1))
            _host.answer(stack, _current)
            _tvm_ffi.answer(stack, _raising)
        if importlib.util.find_spec("torch") is not None:
            from .. import _simulated_torch

            stack.enter_context(_simulated_torch.cuda_is_simulated(session))
        _sessions.append(session)
        stack.callback(_sessions.remove, session)
        yield session


def _current() -> Session:
    session = active()
    if session is None:
        raise RuntimeError("a function that was compiled for a simulated GPU is called outside of `heist.cute.simulate`")
    return session


def _linked(dsl: Any, jit: Any) -> Any:
    """Host code that is made into machine code calls our functions instead of CUDA's."""

    def jit_and_link(self: Any, *args: Any, **kwargs: Any) -> Any:
        engine = jit(self, *args, **kwargs)
        path = dsl.compile_options.full_ptx_path
        if path and dsl.num_kernels:
            with open(path) as file:
                _runtime.link(engine, file.read().rstrip("\0"), _current)
        return engine

    return jit_and_link


def _only_what_was_compiled_here(to: Any) -> Any:
    def to_simulated(self: Any, device: Any = None) -> Any:
        if self.has_gpu_module and not hasattr(self.engine, "heist_functions"):
            raise RuntimeError(
                f"`{self.function_name}` was not compiled for {_current().gpu.device}: call `cute.compile` inside of "
                "`heist.cute.simulate`, and without `--gpu-arch`"
            )
        return to(self, device)

    return to_simulated


def _with_nothing_to_unload(load: Any) -> Any:
    """The handle of a library is ours, and nothing that CUDA may be asked to unload."""

    def load_and_forget(self: Any) -> list[Any]:
        load(self)
        return []

    return load_and_forget


def _raising(run: Any) -> Any:
    """What went wrong inside the host code is raised once that has returned."""

    def run_and_raise(self: Any, *args: Any, **kwargs: Any) -> Any:
        session = _current()
        session.failed = None
        try:
            return run(self, *args, **kwargs)
        except Exception:
            if session.failed is None:
                raise
        finally:
            failed, session.failed = session.failed, None
        raise failed

    return run_and_raise
