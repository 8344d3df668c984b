"""onnxruntime as the rest of the package uses it: found or named as missing, sessions, runs with any dtype."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from onnx import TensorProto, helper

from onnxfuse import feeds as fd
from onnxfuse import interruption, releases, storage
from onnxfuse.errors import NO_THREAD, Finding, MissingDependency, OutOfMemory, UsageError
from onnxfuse.interface import Interface

log = logging.getLogger(__name__)
Outputs = dict[str, np.ndarray]

LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
# onnxruntime takes and gives tensors of the types that numpy itself lacks as OrtValues only; some are packed.
_FOREIGN = re.compile(r"bfloat16|float8|float4|int4|int2\b")
_BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
_PATIENCE = 8  # further tries for inputs with a finite output, once some run


_SECONDS = 300.0  # of one run; no model that is worth verifying takes as long
_ROOM = 512 << 20  # bytes of address space that onnxruntime, the heaps of its threads and some small sessions take
_SESSION_ROOM = 32 << 20  # of a further session, beside twice the model while it is made
_STATM = Path("/proc/self/statm")  # Linux: the size of the process in pages

T = TypeVar("T")


def onnxruntime() -> ModuleType:
    """The onnxruntime module. Raises MissingDependency with what to install where there is none, or one that is too
    old, OutOfMemory where it has no room.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read as it loads: since 1.29 its Linux wheels send by default
    if "onnxruntime" not in sys.modules:
        _require_memory(_ROOM)
    try:
        import onnxruntime
    except ImportError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # amid the initialization of its extension module
            raise error.__cause__ from None
        raise MissingDependency(
            f'onnxruntime cannot be imported ({first_line(error)}): pip install -e ".[cpu]" (or [gpu], [cuda]); '
            "`onnxfuse optimize --no-verify` works without it"
        ) from error
    module: ModuleType = onnxruntime
    releases.check(module.__version__)
    return module


def options(level: str) -> Any:
    """Session options: silent, threads that sleep between runs, the optimization level by name. Raises UsageError."""
    ort = onnxruntime()
    if not isinstance(level, str) or level not in LEVELS:
        raise UsageError(f"unknown level '{level}'; known: {', '.join(LEVELS)}")
    made = ort.SessionOptions()
    made.log_severity_level = 4
    made.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    made.add_session_config_entry("session.force_spinning_stop", "1")  # two sessions share the cores
    return made


def cpu_session(model: Path | bytes, level: str, *, mapped: bool = False) -> Any:
    """A CPU session with two threads, of a file or of a serialized model. Raises what onnxruntime raises,
    MissingDependency, OutOfMemory, UsageError.

    mapped: leave weights where they are instead of a second copy in the order of the kernels; the time to open such a
    session grows with the square of the number of weights.
    """
    made = options(level)
    made.intra_op_num_threads = 2
    # Memory goes back as soon as a value dies; an arena may grow to twice the peak.
    made.enable_cpu_mem_arena = made.enable_mem_pattern = False
    if mapped:
        made.add_session_config_entry("session.disable_prepacking", "1")
    return session(model, made, ["CPUExecutionProvider"])


def session(model: Path | bytes, options: Any, providers: Sequence[Any]) -> Any:
    """A session of a file, whatever its name, or of a serialized model. Raises what onnxruntime raises, OutOfMemory
    where the process may not take the memory, or start a thread, MissingDependency for a model that demands a newer
    onnxruntime.
    """
    ort = onnxruntime()
    make = partial(ort.InferenceSession, sess_options=options, providers=list(providers), enable_fallback=0)
    try:
        if isinstance(model, bytes):
            _require_memory(_SESSION_ROOM + 2 * len(model))
            return make(model)
        releases.check(ort.__version__, storage.read(model).proto)
        _require_memory(_SESSION_ROOM + 2 * model.stat().st_size)
        with storage.utf8(model) as path:
            return make(str(path))
    except Exception as error:
        if "PosixThread" not in str(error):
            raise
        raise OutOfMemory(NO_THREAD) from error


def _require_memory(need: int) -> None:
    """Raises OutOfMemory where a limit on the address space (`ulimit -v`) leaves fewer bytes: onnxruntime might
    abort the process.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or not _STATM.exists():
        return
    left = limit - int(_STATM.read_text().split()[0]) * resource.getpagesize()
    if left < need:
        raise OutOfMemory(
            f"not enough memory: onnxruntime needs {need >> 20} MiB of address space, and the limit on the process "
            f"(ulimit -v) leaves {max(left, 0) >> 20} MiB"
        )


def run(session: Any, feeds: fd.Feeds, without: Collection[str] = ()) -> Outputs:
    """All outputs by name, less those named; a sequence or map is flattened to "y[0]", "y[key]". Raises what
    onnxruntime raises.
    """
    ports = [port for port in session.get_outputs() if port.name not in without]
    names = [port.name for port in ports] if without else None
    foreign = any(_FOREIGN.search(port.type) for port in ports)
    if foreign or any(isinstance(v, np.ndarray) and v.dtype.isbuiltin != 1 for v in feeds.values()):
        given = {name: to_ort(v) for name, v in feeds.items()}
        values = [_from_ort(v) for v in _within_limit(session.run_with_ort_values, names, given)]
    else:
        values = _within_limit(session.run, names, feeds)
    return {name: a for port, v in zip(ports, values, strict=True) for name, a in _flatten(port.name, v)}


class Endless(Finding):
    """A run took so long that it was ended, as of a Loop that never stops."""


def _within_limit(run: Callable[..., list[Any]], names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
    """Runs a session; raises Endless where it takes too long."""
    try:
        return interruptible(lambda options: run(names, feeds, options), _SECONDS)
    except TimeoutError as error:
        raise Endless(f"the model still ran after {_SECONDS:.0f} s, and was ended") from error


def interruptible(work: Callable[[Any], T], seconds: float | None = None) -> T:
    """What work makes of the options for its runs: they end at Ctrl-C, and after so many seconds in a TimeoutError."""
    options = onnxruntime().RunOptions()
    return interruption.call(partial(work, options), partial(setattr, options, "terminate", True), seconds)


def to_ort(value: Any, device: str = "cpu") -> Any:
    """An OrtValue of an array (on "cpu" or "cuda"), of a dtype that numpy lacks too."""
    ort_value = onnxruntime().OrtValue
    if value is None or isinstance(value, list):
        return value
    if value.dtype.isbuiltin == 1:
        return ort_value.ortvalue_from_numpy(value, device, 0)
    number = helper.np_dtype_to_tensor_dtype(value.dtype)
    bits = value.view(f"u{value.dtype.itemsize}")
    if packed := _BITS.get(TensorProto.DataType.Name(number)):
        bits = _packed(bits, packed)
    return ort_value.ortvalue_from_numpy_with_onnx_type(bits, number)


def _packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Elements of so many bits, one a byte, as onnxruntime lays them: packed from the lowest bits of a byte up.

    The array keeps its shape, which is all that onnxruntime sees of it; its last bytes are not used.
    """
    each = 8 // bits
    rows = np.zeros((-(-values.size // each), each), np.uint8)
    rows.flat[: values.size] = values.reshape(-1) & ((1 << bits) - 1)
    packed = (rows << (np.arange(each, dtype=np.uint8) * bits)).sum(axis=1, dtype=np.uint8)
    made = np.zeros(values.size, np.uint8)
    made[: packed.size] = packed
    return made.reshape(values.shape)


def find_feeds(
    attempt: Callable[[fd.Feeds], Outputs],
    interface: Interface,
    dims: Mapping[str, int],
    seed: int,
    *,
    typical: bool = False,
    check: Callable[[fd.Binding], None] = lambda _: None,
    most: int = 200,
) -> tuple[fd.Binding, fd.Feeds, Outputs]:
    """The first sizes and data under which a model runs and an output has finite elements, else under which it runs.

    Tried are at most `most` times: normal data at many sizes, then positive data, then 0 and 1 as every integer.
    check: raises OutOfMemory for sizes that do not fit in memory; they are not tried.
    Raises UsageError for an unknown key in `dims`, Finding where nothing runs, OutOfMemory where nothing else fits.
    """
    few = most // 10  # data is seldom what a model refuses
    likely, uniform = partial(fd.candidates, interface, dims), partial(fd.uniform, interface, dims)
    trials = chain(
        ((binding, fd.NORMAL) for binding in islice(likely(typical=typical), most - 2 * few)),
        ((binding, fd.POSITIVE) for binding in islice(likely(typical=typical), few)),
        ((binding, fd.NORMAL) for binding in uniform(few // 2, typical=typical)),
    )
    tried, last, poor, patience = 0, "", None, _PATIENCE
    lacking: OutOfMemory | None = None
    for binding, kind in trials:
        tried += 1
        log.debug("looking for inputs under which the model runs, attempt %d", tried)
        try:
            check(binding)
            feeds = fd.make(interface, binding, kind, seed)
            outputs = attempt(feeds)
        except OutOfMemory as error:
            lacking = lacking or error
            continue
        except Endless:
            raise  # other sizes would take as long
        except Exception as error:  # noqa: BLE001 - sizes that the model refuses; onnxruntime has no one base class
            last = last or first_line(error)
            continue
        if any(_has_finite(a) for a in outputs.values()):
            return binding, feeds, outputs
        poor = poor or (binding, feeds, outputs)
        patience -= 1
        if not patience:
            break
    if poor:
        return poor
    if lacking:
        raise lacking
    free = fd.free_dims(interface)
    advice = f"; or give sizes with --dim {' --dim '.join(f'{key}=…' for key in free)}" if free else ""
    raise Finding(
        f"could not generate valid inputs ({tried} attempts). Pass real ones with --inputs data.npz{advice}. "
        f"onnxruntime said: {last}"
    )


def cpu_name() -> str:
    """What the processor calls itself."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def first_line(error: BaseException) -> str:
    """The first line of a message, without onnxruntime's "[ONNXRuntimeError] : 1 : FAIL : ", and without the name of
    the file that it loads, which need not be one that the user knows.
    """
    text = str(error).strip().split("\n", 1)[0]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    return re.sub(r"^Load model from .*? failed: ?", "", text)[:300] or type(error).__name__


def _from_ort(value: Any) -> Any:
    if not value.is_tensor():
        return value.to_list() if hasattr(value, "to_list") else value
    element, shape = value.element_type(), tuple(value.shape())
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    if dtype.isbuiltin == 1:
        return value.numpy()
    count = math.prod(shape)
    if bits := _BITS.get(TensorProto.DataType.Name(element)):  # compared as they are packed
        dtype, shape = np.dtype(np.uint8), (-(-count * bits // 8),)
    size = math.prod(shape) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size) if size else b"", dtype).reshape(shape)


def _has_finite(array: np.ndarray) -> bool:
    if array.dtype.kind in "biuOSU":
        return array.size > 0
    return bool(np.isfinite(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)).any())


def _flatten(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flatten(f"{name}[{key}]", part)
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from _flatten(f"{name}[{i}]", part)
    elif value is None:  # an optional output that is empty
        yield name, np.empty(0)
    else:
        yield name, np.asarray(value)
