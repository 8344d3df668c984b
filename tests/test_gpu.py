"""What is missing for CUDA is said in one line; the driver calls are checked against a stand-in of the driver."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from onnxfuse import gpu
from onnxfuse.errors import MissingDependency

CUDA = "CUDAExecutionProvider"


class Driver:
    """The functions of libcuda that are used, with one device of 10 GiB of which 6 are free."""

    def __init__(self, **codes: int):
        self.codes = codes
        self.retained = 0

    def __getattr__(self, name: str):
        def call(*arguments):
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_NO_DEVICE"
            elif name == "cuDeviceGetName":
                arguments[0].value = b"Test GPU"
            elif name == "cuMemGetInfo_v2":
                arguments[0]._obj.value, arguments[1]._obj.value = 6 << 30, 10 << 30
            self.retained += {"cuDevicePrimaryCtxRetain": 1, "cuDevicePrimaryCtxRelease_v2": -1}.get(name, 0)
            return self.codes.get(name, 0)

        return call


@pytest.fixture
def driver(monkeypatch):
    def install(**codes: int) -> Driver:
        made = Driver(**codes)
        monkeypatch.setattr(ctypes, "CDLL", lambda *_: made)
        return made

    return install


def test_name_and_memory(driver):
    made = driver()
    assert gpu.device_name() == "Test GPU"
    assert gpu.used_bytes() == 4 << 30
    assert made.retained == 0


def test_a_package_without_the_provider():
    ort = SimpleNamespace(__version__="1.0", get_available_providers=lambda: ["CPUExecutionProvider"])
    with pytest.raises(MissingDependency) as caught:
        gpu.require(ort, CUDA)
    message = str(caught.value)
    assert message.startswith(f"the installed onnxruntime 1.0 has no {CUDA}: ")
    assert 'pip install -e ".[cuda]"' in message
    assert "--provider cpu" in message


def test_no_driver(monkeypatch):
    def absent(name, *_):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    ort = SimpleNamespace(__version__="1.0", get_available_providers=lambda: [CUDA])
    with pytest.raises(
        MissingDependency, match=r"no NVIDIA driver: .*cannot open shared object file; `--provider cpu`"
    ):
        gpu.require(ort, CUDA)


def test_a_driver_without_a_device(driver):
    driver(cuInit=100)
    ort = SimpleNamespace(__version__="1.0", get_available_providers=lambda: [CUDA])
    with pytest.raises(MissingDependency, match=r"no CUDA device: cuInit: CUDA_ERROR_NO_DEVICE \(100\); `--provider"):
        gpu.require(ort, CUDA)


def test_what_preloading_prints_stays_off_stdout(driver, capsys):
    driver()
    said = []

    def preload() -> None:
        said.append(sys.stdout.write("Failed to load libcudnn.so.9"))

    gpu.require(SimpleNamespace(get_available_providers=lambda: [CUDA], preload_dlls=preload), CUDA)
    assert said
    assert capsys.readouterr().out == ""


def test_a_library_that_does_not_load_is_the_reason(tmp_path):
    ort = SimpleNamespace(__version__="1.0", __file__=str(tmp_path / "__init__.py"))
    message = str(gpu.unusable(ort, CUDA))
    assert message.startswith(f"onnxruntime 1.0 cannot use {CUDA}: ")
    assert "libonnxruntime_providers_shared.so: cannot open shared object file" in message
    assert message.endswith('pip install -e ".[cuda]" brings CUDA and cuDNN; `--provider cpu` measures without a GPU')
