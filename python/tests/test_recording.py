"""``pytest --heist-record``: launches of tests on the stand-in for the driver, kept and replayed."""

import importlib.metadata
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

from heist import _recorder

GPU = pathlib.Path(__file__).parents[2] / "crates" / "gpu" / "tests"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not GPU.is_dir() or shutil.which("cc") is None,
    reason="needs Linux on x86-64, cc and the repository, for a stand-in for the driver",
)

TESTS = """
import ctypes
import pathlib

import pytest

cuda = ctypes.CDLL("libcuda.so.1")


def check(status):
    assert status == 0


@pytest.fixture(scope="module")
def stream():
    context, stream, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuStreamCreateWithPriority(ctypes.byref(stream), 0, 0))
    return stream


def launch(stream, threads, times=1):
    module, function, data = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    text = pathlib.Path(__file__).with_name("kernels.ptx").read_bytes()
    check(cuda.cuModuleLoadDataEx(ctypes.byref(module), text, 0, None, None))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"add_one"))
    check(cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(256)))
    numbers = (ctypes.c_uint32 * 64)(*range(64))
    check(cuda.cuMemcpyHtoDAsync_v2(data, numbers, ctypes.c_size_t(256), stream))
    count = ctypes.c_uint32(threads)
    words = (ctypes.c_void_p * 2)(ctypes.addressof(data), ctypes.addressof(count))
    for _ in range(times):
        check(cuda.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, words, None))
    check(cuda.cuStreamSynchronize(stream))


@pytest.mark.parametrize("threads", [8, 32])
def test_adds(stream, threads):
    launch(stream, threads)


def test_adds_twice(stream):
    launch(stream, 16, times=2)


def test_launches_nothing():
    pass


def test_fails_afterwards(stream):
    launch(stream, 4)
    assert 1 == 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    driver = ["cc", "-shared", "-fPIC", "-w", "-Wl,-Bsymbolic", "-o", folder / "libcuda.so.1", GPU / "driver" / "libcuda.c"]
    subprocess.run(driver, check=True)
    shutil.copy(GPU / "hardware" / "kernels.ptx", folder)
    (folder / "test_kernels.py").write_text(TESTS)
    return folder


def run(folder, *words):
    known = importlib.metadata.entry_points(group="pytest11")
    plugin = [] if any(one.name == "heist" for one in known) else ["-p", "heist.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *words]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_the_library_came_with_the_package():
    assert _recorder.library() is not None


def test_each_test_leaves_a_record_that_replays(folder):
    status, told = run(folder, "--heist-record=records", "test_kernels.py")
    assert status == 1 and "4 passed" in told and "1 failed" in told, told
    names = ["test_adds_8", "test_adds_32", "test_adds_twice", "test_fails_afterwards"]
    files = [f"test_kernels.py_{name}.heist" for name in names]
    assert sorted(one.name for one in (folder / "records").iterdir()) == sorted(files), told
    assert f"test_kernels.py::test_adds[8]: `add_one` in records/{files[0]}" in told
    assert "test_launches_nothing:" not in told
    for file in files[:2]:
        checked = [sys.executable, "-m", "heist", "check", f"records/{file}", "--json"]
        done = subprocess.run(checked, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_another_launch_is_asked_for(folder):
    words = ["--heist-record=second", "--heist-record-kernel=add_one", "--heist-record-launch=2", "-k", "adds"]
    status, told = run(folder, *words, "test_kernels.py")
    assert status == 0, told
    assert [one.name for one in (folder / "second").iterdir()] == ["test_kernels.py_test_adds_twice.heist"]
    assert "test_kernels.py::test_adds[8]: no launch 2 of `add_one`; it launched add_one" in told


def test_wrong_wishes_are_told(folder):
    status, told = run(folder, "--heist-record=x", "--heist-record-launch=0")
    assert status == 4 and "counts from 1" in told, told
    status, told = run(folder, "--heist-record=x", "--heist")
    assert status == 4 and "choose one" in told, told
    status, told = run(folder, "--heist-record=x", "-k", "nothing", "test_kernels.py")
    assert status == 0 and "no test launched a kernel through the CUDA driver" in told, told
