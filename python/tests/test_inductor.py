"""Code that Inductor wrote, on a simulated GPU. Its run-time is imported here, which takes seconds: once."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton  # noqa: E402
from triton.runtime import driver  # noqa: E402

import heist  # noqa: E402
import heist.triton  # noqa: E402

CODE = Path(__file__).with_name("inductor_code.py")


@pytest.mark.parametrize("configs", ["first", "all"])
def test_a_file_of_code_runs(configs):
    x = torch.randn(20, 77)
    want = 2 * torch.softmax(x, 1)
    with heist.triton.simulate("h200", configs=configs) as session:
        module = heist.triton.load_inductor(CODE)
        (out,) = module.call([x])
    torch.testing.assert_close(out, want)
    assert {launch.kernel for launch in session.launches} == {"triton_per_fused_softmax_0", "triton_poi_fused_mul_1"}
    # One of the two has several configurations.
    assert (len(session.launches) == 2) == (configs == "first")


def test_its_findings_have_lines_of_its_kernels(tmp_path):
    bad = tmp_path / "output_code.py"
    bad.write_text(CODE.read_text().replace("xnumel = 1540", "xnumel = 1541"))
    with heist.triton.simulate("h200"), pytest.raises(heist.FindingError, match=r"M001[\s\S]*tl.load\(in_out_ptr0"):
        heist.triton.load_inductor(bad).call([torch.randn(20, 77)])


def test_compiled_functions_run_as_they_are_written():
    # PyTorch compiles nothing under a mode, and must not compile the mode itself instead.
    x = torch.randn(10)
    with heist.triton.simulate("h200"):
        doubled = torch.compile(lambda x: x + x, fullgraph=True)
        torch.testing.assert_close(doubled(x), x + x)


def test_dynamo_keeps_the_functions_of_pytorch_where_it_is_imported_inside(tmp_path):
    # In a process of its own, whose first session imports it.
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, heist.triton\n"
        "with heist.triton.simulate('h200'), heist.triton.simulate('h200'):\n"
        "    compiled = torch.compile(lambda x: x + torch.is_autocast_enabled('cpu'), fullgraph=True, backend='eager')\n"
        "    assert compiled(torch.ones(2)).is_cuda and torch.cuda.is_available()\n"
        "assert torch.cuda.get_device_properties.__module__ == 'torch.cuda'\n"
        "from torch._dynamo.device_interface import CudaInterface\n"
        "assert CudaInterface.get_device_properties is torch.cuda.get_device_properties\n"
        "print(compiled(torch.ones(2)).tolist())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "[1.0, 1.0]\n", done.stderr


def test_it_needs_a_session():
    with pytest.raises(RuntimeError, match="inside of"):
        heist.triton.load_inductor(CODE)


def test_inductor_finds_the_driver_that_is_simulated():
    from torch._inductor.runtime import triton_helpers

    before = triton.backends.backends["nvidia"].driver
    with heist.triton.simulate("h200"):
        simulated = driver.active
        triton_helpers.set_driver_to_gpu()
        assert driver.active is simulated
        with torch.cuda.device(0) as device:
            assert device.idx == torch.cuda.device(torch.device("cuda")).idx == 0
    assert triton.backends.backends["nvidia"].driver is before


def test_a_kernel_that_outlives_its_session_asks_no_driver_to_unload_it(monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    with heist.triton.simulate("h200"):
        module = heist.triton.load_inductor(CODE)
        module.call([torch.randn(20, 77)])
    del module
    gc.collect()
    assert told == []
