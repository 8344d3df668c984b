"""The first CUDA device as its driver sees it, and why onnxruntime cannot use it.

Function and type names as in NVIDIA's CUDA Driver API reference; the driver library is there wherever a GPU works, no
toolkit is needed. CUDA_VISIBLE_DEVICES counts as for onnxruntime.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxfuse.errors import MissingDependency

_DRIVER = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_INSTEAD = "`--provider cpu` measures without a GPU"


def require(ort: ModuleType, provider: str) -> None:
    """Raises MissingDependency where onnxruntime's `provider` cannot work: package, driver or device is missing."""
    if provider not in ort.get_available_providers():
        raise MissingDependency(
            f"the installed onnxruntime {ort.__version__} has no {provider}: pip uninstall onnxruntime, then "
            f'pip install -e ".[cuda]"; {_INSTEAD}'
        )
    _driver()
    if hasattr(ort, "preload_dlls"):  # finds the CUDA and cuDNN wheels; it prints what is missing, `unusable` tells it
        with contextlib.redirect_stdout(io.StringIO()):
            ort.preload_dlls()


def usable(ort: ModuleType) -> bool:
    """Return whether the CUDA provider, a driver and a device are here."""
    try:
        require(ort, "CUDAExecutionProvider")
    except MissingDependency:
        return False
    return True


def loading_error(ort: ModuleType, provider: str) -> str | None:
    """Why the library of `provider` does not load; None if it does. Only after onnxruntime itself has tried."""
    folder = Path(str(ort.__file__)).parent / "capi"
    name = provider.removesuffix("ExecutionProvider").lower()
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"))
    except OSError as error:
        return str(error)
    return None


def unusable(ort: ModuleType, provider: str) -> MissingDependency:
    """The error for a provider that onnxruntime has and did not take."""
    reason = loading_error(ort, provider) or "onnxruntime does not say why"
    advice = "install TensorRT" if "Tensorrt" in provider else 'pip install -e ".[cuda]" brings CUDA and cuDNN'
    return MissingDependency(f"onnxruntime {ort.__version__} cannot use {provider}: {reason}; {advice}; {_INSTEAD}")


def device_name() -> str:
    """Such as "NVIDIA H200". Raises MissingDependency."""
    driver, device = _driver()
    text = ctypes.create_string_buffer(256)
    _call(driver, "cuDeviceGetName", text, ctypes.c_int(256), device)
    return text.value.decode()


def used_bytes() -> int:
    """Memory of the device in use by all processes, in bytes. Raises MissingDependency."""
    driver, device = _driver()
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)  # the context that onnxruntime uses
    try:
        _call(driver, "cuCtxPushCurrent_v2", context)
        _call(driver, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        _call(driver, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    finally:
        _call(driver, "cuDevicePrimaryCtxRelease_v2", device)
    return total.value - free.value


def _driver() -> tuple[Any, ctypes.c_int]:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise MissingDependency(f"no NVIDIA driver: {error}; {_INSTEAD}") from error
    device = ctypes.c_int()
    _call(driver, "cuInit", ctypes.c_uint(0))
    _call(driver, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    return driver, device


def _call(driver: Any, function: str, *arguments: Any) -> None:
    if code := getattr(driver, function)(*arguments):
        name = ctypes.c_char_p()
        driver.cuGetErrorName(ctypes.c_int(code), ctypes.byref(name))
        raise MissingDependency(f"no CUDA device: {function}: {(name.value or b'?').decode()} ({code}); {_INSTEAD}")
