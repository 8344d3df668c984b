"""What this machine's CPU does at best on one thread, measured with the kernels whose times are estimated.

Everything runs in onnxruntime itself: matrix products for the peaks, additions of growing tensors for the memory
hierarchy, a chain of tiny operators for the launch cost, one operator of each kind for its efficiency. A rate is the
best of several runs: what else happens on the machine only ever takes time away.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter, thread_time

import onnx

from onnxfuse import roofline, runtime, trace, workloads
from onnxfuse.cost import costs
from onnxfuse.devices import Device
from onnxfuse.executed import executed
from onnxfuse.facts import infer

log = logging.getLogger(__name__)

_SECONDS, _PEAK_SECONDS = 0.15, 0.3  # of one measurement, and of one of a peak
_LEAST, _PASSES = 5, 2  # runs, however long they take; rounds over all rates, as a busy moment passes
_GEMM = 256  # rows and columns: the three matrices fit into a core's second-level cache
_CHAIN = 400  # operators
_CACHED = 16e6  # bytes on which the cache's rate is taken: beyond second-level caches, within most last-level ones
_SWEEP = tuple(12 * 2**power for power in range(14, 26))  # bytes of two inputs and an output: 0.2 to 403 MB
_MEMORY_SHARE = 4  # the largest takes no more than a quarter of the memory


def measure() -> Device:
    """This machine as a device: one thread of its CPU in onnxruntime. Takes less than a minute.

    Raises MissingDependency without onnxruntime.
    """
    matrix: dict[str, float] = {}
    sweep: dict[int, float] = {}
    for _ in range(_PASSES):
        log.debug("measuring matrix products")
        for name, rate in _products().items():
            matrix[name] = max(rate, matrix.get(name, 0.0))
        log.debug("measuring memory and caches")
        for size in _SWEEP:
            if size <= _memory() / _MEMORY_SHARE:
                sweep[size] = max(_addition(size), sweep.get(size, 0.0))
    near, far = min(sweep, key=lambda size: abs(math.log(size / _CACHED))), max(sweep)
    bandwidth, cache_bandwidth, core_bandwidth = sweep[far], sweep[near], max(sweep.values())
    cached = _reach(sweep, cache_bandwidth, bandwidth)
    log.debug("measuring the launch cost")
    version = runtime.onnxruntime().__version__
    bare = Device(
        name="measured",
        title=f"{runtime.cpu_name()}, one core",
        matrix=matrix,
        vector={name: matrix[name] for name in ("fp64", "fp32")},
        bandwidth=bandwidth,
        cache_bandwidth=cache_bandwidth,
        cache_bytes=cached,
        launch=_launch(),
        sources={
            "matrix": f"measured, best run of MatMul {_GEMM} x {_GEMM} x {_GEMM}, int8: MatMulInteger of uint8 and "
            f"int8; onnxruntime {version}, CPU provider, one thread, as for all numbers here",
            "vector": "the matrix products run on the same vector units",
            "bandwidth": f"measured, best run of Add over {far / 1e6:.0f} MB (two inputs and the output)",
            "cache_bandwidth": f"measured, best run of Add over {near / 1e6:.0f} MB",
            "cache_bytes": "measured, largest working set of Add that is nearer to the cache's rate than to memory's; "
            + _reported_cache(),
            "caches": "measured, the fastest Add and the largest working set that is nearer to it than to the cache's "
            "rate, then the last-level cache as above: an activation was written by the kernel before",
            "launch": f"measured, best run of a chain of {_CHAIN} Relu of 4 elements, for one of them",
            "efficiency": "measured, each operator behind another one on activations of usual size: its time by the "
            "numbers above over its best time in onnxruntime's profile",
        },
        caches=((_reach(sweep, core_bandwidth, cache_bandwidth), core_bandwidth), (cached, cache_bandwidth)),
    )
    efficiency = {}
    for work in workloads.KINDS:
        log.debug("measuring %s", work)
        if (share := _efficiency(work, bare)) is not None:
            efficiency[work] = share
    return replace(bare, efficiency=efficiency)


def toml(device: Device) -> str:
    """A device as the text of a device file; rates with three significant digits."""
    scalars = ("bandwidth", "cache_bandwidth", "cache_bytes", "launch")
    lines = [f"title = {_quoted(device.title)}", *(f"{name} = {getattr(device, name):.2e}" for name in scalars)]
    lines.append(f"caches = [{', '.join(f'[{size:.2e}, {rate:.2e}]' for size, rate in device.caches)}]")
    for table in ("matrix", "vector", "efficiency"):
        lines += ["", f"[{table}]", *(f"{name} = {rate:.3g}" for name, rate in getattr(device, table).items())]
    lines += ["", "[sources]", *(f"{name} = {_quoted(text)}" for name, text in device.sources.items())]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON string is a TOML basic string


def _best(model: onnx.ModelProto, dims: Mapping[str, int], seconds: float) -> float:
    """Seconds of the fastest run; inputs and output stay where they are."""
    options = runtime.options("disabled")
    options.intra_op_num_threads = 1
    session = runtime.onnxruntime().InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, value in workloads.feeds(model, dims).items():
        binding.bind_ortvalue_input(name, runtime.to_ort(value))
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    (made,) = binding.get_outputs()
    binding.bind_ortvalue_output(session.get_outputs()[0].name, made)  # memory that has been touched
    return _repeat(lambda: session.run_with_iobinding(binding), seconds)


def _repeat(call: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest of the calls that fit into so many: of the thread, not of those that ran in between."""
    best, runs, end = math.inf, 0, perf_counter() + seconds
    while runs < _LEAST or perf_counter() < end:
        start = thread_time()
        call()
        best, runs = min(best, thread_time() - start), runs + 1
    return best


def _product(left: str, right: str, op_type: str = "MatMul") -> onnx.ModelProto:
    return workloads.model(f"{left}[{_GEMM},{_GEMM}] a, {right}[{_GEMM},{_GEMM}] b", f"y = {op_type}(a, b)")


def _products() -> dict[str, float]:
    """FLOP/s of matrix products by dtype, of those that the provider has kernels for."""
    rates = {"fp64": _gemm("double", "double"), "fp32": _gemm("float", "float")}
    for name, dtype in (("fp16", "float16"), ("bf16", "bfloat16")):
        if _has_kernel(dtype):
            rates[name] = _gemm(dtype, dtype)
    return {**rates, "int8": _gemm("uint8", "int8", "MatMulInteger")}


def _gemm(left: str, right: str, op_type: str = "MatMul") -> float:
    """FLOP/s of a matrix product."""
    return 2 * _GEMM**3 / _best(_product(left, right, op_type), {}, _PEAK_SECONDS)


def _has_kernel(dtype: str) -> bool:
    """Whether a matrix product runs in a dtype: onnxruntime may have no kernel, or put casts around another one."""
    model = _product(dtype, dtype)
    try:
        with tempfile.TemporaryDirectory() as folder:
            session = trace.session(model.SerializeToString(), "disabled", Path(folder))
            runtime.run(session, workloads.feeds(model, {}))
            ran = [kernel.op_type for kernel in trace.kernels(session)]
    except Exception:  # noqa: BLE001 - no kernel; onnxruntime has no one base class
        return False
    return ran == ["MatMul"]


def _addition(size: int) -> float:
    """Bytes/s of an addition that reads and writes so many bytes in all."""
    return size / _best(workloads.model("float[N] a, float[N] b", "y = Add(a, b)"), {"N": size // 12}, _SECONDS)


def _reach(sweep: Mapping[int, float], near: float, far: float) -> float:
    """The largest working set whose rate is nearer to the one level's than to the next one's, by ratio."""
    return float(max((size for size, rate in sweep.items() if rate >= math.sqrt(near * far)), default=min(sweep)))


def _launch() -> float:
    """Seconds of one tiny operator in a chain."""
    names = ["x", *(f"t{i}" for i in range(_CHAIN - 1)), "y"]
    body = "; ".join(f"{made} = Relu({read})" for read, made in pairwise(names))
    return _best(workloads.model("float[4] x", body), {}, _PEAK_SECONDS) / _CHAIN


def _efficiency(work: str, device: Device) -> float | None:
    """Roofline time over measured time of the operator that stands for a kind of work; None where it did not run."""
    best: dict[int, float] = {}
    with executed(workloads.of(work)) as model, tempfile.TemporaryDirectory() as folder:
        session = trace.session(str(model.path), "disabled", Path(folder))
        feeds = workloads.feeds(model.proto, {})
        _repeat(lambda: session.run(None, feeds), _SECONDS)
        for kernel in trace.kernels(session):
            best[kernel.index] = min(kernel.seconds, best.get(kernel.index, math.inf))
        facts = infer(model.program, {}, model.array)
        for i, cost in enumerate(costs(facts)):
            if i in best and roofline.work(facts.nodes[i], facts) == work:
                ideal, _ = roofline.place(cost, device, roofline.units(facts.nodes[i], facts))
                # a faster one was served by a cache nearer to the core, which no other need be
                return None if ideal is None else min(1.0, (ideal - device.launch) / best[i])
    return None


def _memory() -> float:
    """Bytes of main memory."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _reported_cache() -> str:
    """What the operating system says of the last-level cache (Linux)."""
    with suppress(OSError):
        caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
        return f"the system reports {caches[-1].read_text().strip()} of last-level cache" if caches else ""
    return ""
