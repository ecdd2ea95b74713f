"""Code that Inductor, the compiler behind ``torch.compile``, has written, on the simulated GPU."""

from __future__ import annotations

import importlib.util
import os
from typing import Any
from unittest import mock

from ._session import Session, active


def load_inductor(path: str | os.PathLike[str]) -> Any:
    """A file of code that Inductor wrote for a GPU, as a module: ``call`` runs it.

    ``TORCH_LOGS=output_code`` says where the files are, and ``TORCH_COMPILE_DEBUG=1`` keeps each as
    ``output_code.py``. They are made where there is a GPU, and run inside of :func:`simulate`
    anywhere; kernels run in the first of their configurations, or with ``configs="all"`` in each.

    >>> with heist.triton.simulate("h200"):                          # doctest: +SKIP
    ...     module = heist.triton.load_inductor("output_code.py")
    ...     (out,) = module.call([x, y])
    """
    session = active()
    if session is None:
        raise RuntimeError("`load_inductor` works inside of `with heist.triton.simulate(...):`")
    if not session.runs_inductor:
        _prepare(session)
    name = f"heist_inductor_{os.path.splitext(os.path.basename(path))[0]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no file of Python code")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _prepare(session: Session) -> None:
    """Makes Inductor's run-time ask the session where it would ask a driver, until the session ends."""
    from .. import _simulated_torch

    _simulated_torch.import_dynamo()
    import torch._inductor.async_compile  # noqa: F401
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    stack = session.ends
    # Other processes know no simulated GPU, and the launcher in C++ loads machine code.
    wanted = {"compile_threads": 1, "use_static_triton_launcher": False, "autotune_local_cache": False}
    stack.enter_context(config.patch({name: value for name, value in wanted.items() if hasattr(config, name)}))
    cuda = torch.cuda
    asked = {
        "device": cuda.device,
        "get_device_properties": staticmethod(lambda *_: cuda.get_device_properties()),
        "get_raw_stream": staticmethod(lambda *_: 0),
        "synchronize": staticmethod(lambda *_: None),
        "current_device": staticmethod(lambda: 0),
        "set_device": staticmethod(lambda *_: None),
        "exchange_device": staticmethod(lambda *_: 0),
        "maybe_exchange_device": staticmethod(lambda *_: 0),
    }
    for name, answer in asked.items():
        stack.enter_context(mock.patch.object(CudaInterface, name, answer))
    stack.enter_context(mock.patch.object(CachingAutotuner, "autotune_to_one_config", _in_one_configuration(session)))
    # Kernels that were loaded before have chosen their configurations.
    PyCodeCache.cache_clear()
    session.runs_inductor = True
    stack.callback(setattr, session, "runs_inductor", False)


def _in_one_configuration(session: Session) -> Any:
    """Chooses the first configuration; runs the others first where all are to run."""

    def choose(self: Any, *args: Any, **kwargs: Any) -> None:
        first, *others = self.launchers
        for launcher in others if session.configs == "all" else ():
            copies, named = self.maybe_clone_args(set(), *args, **kwargs)
            launcher(*copies, **{**named, "stream": 0})
        self.launchers = [first]

    return choose
