"""How fast a model runs in onnxruntime, alone or against another one.

Two models are timed in one process in turns, A B B A A B B A …, so that a drifting clock, a neighbour's load and the
place in a pair meet both alike. Inputs and outputs stay on the device, and a run ends when the device is done. What is
told of two models is the median of the paired ratios A/B (above 1: B is faster) with a 95 % interval.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from onnxfuse import arguments, gpu, interface, runtime
from onnxfuse import feeds as fd
from onnxfuse import inputs as given_inputs
from onnxfuse.errors import Finding, OnnxfuseError, UsageError, memory_named
from onnxfuse.jsonable import plain
from onnxfuse.model import Source, as_files
from onnxfuse.ratio import Ratio, paired

log = logging.getLogger(__name__)

Find = Callable[[Any], fd.Feeds]  # a session → inputs under which it runs
_MOST_RUNS = 1_000_000
PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
    "cpu": ("CPUExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"),
}


@dataclass(frozen=True, slots=True)
class Timing:
    """One model. Times in milliseconds over all timed runs; the names are those of the JSON.

    peak_memory: bytes that the session, its warm-up and its outputs added at most, None where it cannot be told. CPU:
        growth of the process's peak resident set (Linux: /proc, elsewhere getrusage). GPU: growth of the device's
        used memory; onnxruntime's arena does not shrink, so its last size is its peak. Others on the GPU disturb it.
    nodes_by_provider: how many nodes ran where, by onnxruntime's profile of one run.
    """

    path: str
    median_ms: float
    p10_ms: float
    p90_ms: float
    peak_memory: int | None
    nodes_by_provider: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """What `benchmark` measures. ratio: None for one model."""

    provider: str
    device_name: str
    level: str
    runs: int
    models: tuple[Timing, ...]
    ratio: Ratio | None

    def to_json(self) -> dict[str, Any]:
        """The same names in a dict for JSON."""
        data: dict[str, Any] = plain(self)
        return data


@memory_named()
def benchmark(
    a: Source,
    b: Source | None = None,
    *,
    provider: str = "cuda",
    level: str = "all",
    dims: Mapping[str, int] | None = None,
    runs: int = 100,
    warmup: int = 10,
    seed: int = 0,
    inputs: object = None,
) -> BenchmarkReport:
    """Time one model, or two in turn, in onnxruntime on the same inputs.

    a, b: paths, `onnx.ModelProto`s or `gs.Graph`s.
    provider: "cuda", "cpu" or "tensorrt"; there is no silent fallback. level: onnxruntime's own optimizations, "all",
        "extended", "basic" or "disabled". dims: sizes of free dimensions; typical ones are found for the others.
    runs, warmup: timed and untimed runs of each model. seed: of the inputs.
    inputs: inputs of the models, as in `inputs.load`; of several sets the first is what they run on.
    Raises MissingDependency where onnxruntime, the provider or its device is not there, UsageError for a bad option,
    ModelError for a file that is no model, Finding where onnxruntime does not load one, or one does not run on inputs
    that fit the first.
    """
    if not isinstance(provider, str) or provider not in PROVIDERS:
        raise UsageError(f"unknown provider '{provider}'; known: {', '.join(PROVIDERS)}")
    runs, warmup = arguments.whole("runs", runs, 1, _MOST_RUNS), arguments.whole("warmup", warmup, 0, _MOST_RUNS)
    sizes, seed = arguments.sizes("dims", dims), arguments.whole("seed", seed)
    if provider != "cpu":
        gpu.require(runtime.onnxruntime(), PROVIDERS[provider][0])
    given = (a,) if b is None else (a, b)
    with as_files(*given) as paths:
        files = [_File(path, _name(*pair)) for path, pair in zip(paths, zip(given, "AB", strict=False), strict=True)]
        known = interface.read(files[0].path)
        examples = given_inputs.load(inputs, known)
        sizes = given_inputs.sizes(examples, known, sizes)

        def find(session: Any) -> fd.Feeds:
            attempt = partial(runtime.run, session)
            if not examples:
                return runtime.find_feeds(attempt, known, sizes, seed, typical=True)[1]
            attempt(examples[0].feeds)
            return examples[0].feeds

        return _benchmark(files, provider, level, find, runs, warmup)


@dataclass(frozen=True, slots=True)
class _File:
    """A model in a file; name: what the user calls it."""

    path: Path
    name: str


def _name(source: Source, letter: str) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else f"model {letter}"


def _benchmark(
    files: Sequence[_File], provider: str, level: str, find: Find, runs: int, warmup: int
) -> BenchmarkReport:
    feeds, placed = _place(files, provider, level, find)

    def measure(options: Any) -> tuple[np.ndarray, list[int | None]]:
        calls: list[Callable[[], object]] = []
        memory: list[int | None] = []
        for file in files:
            log.debug("%s: warming up", file.name)
            before = _memory(provider)
            session = _session(file, provider, level)
            calls.append(_bound(session, feeds, "cpu" if provider == "cpu" else "cuda", options))
            for _ in range(max(warmup, 1)):
                calls[-1]()
            memory.append(_memory(provider, before))
        log.debug("timing %d runs of each model", runs)
        return _race(calls, runs), memory

    seconds, memory = runtime.interruptible(measure)
    models = []
    for file, row, peak, nodes in zip(files, seconds, memory, placed, strict=True):
        p10, median, p90 = np.percentile(1e3 * row, (10, 50, 90)).tolist()
        models.append(Timing(file.name, median, p10, p90, peak, nodes))
    ratio = paired(seconds[0], seconds[1]) if len(files) == 2 else None
    device = runtime.cpu_name() if provider == "cpu" else gpu.device_name()
    return BenchmarkReport(provider, device, level, runs, tuple(models), ratio)


def _session(file: _File, provider: str, level: str, profile: Path | None = None) -> Any:
    ort = runtime.onnxruntime()
    options = runtime.options(level)
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    wanted = list(PROVIDERS[provider])
    if provider != "cpu":
        ort.set_default_logger_severity(4)  # a provider that does not load is told below, in one line
    try:
        session = runtime.session(file.path, options, wanted)
    except OnnxfuseError:
        raise
    except Exception as error:
        if provider != "cpu" and gpu.loading_error(ort, wanted[0]):
            raise gpu.unusable(ort, wanted[0]) from error
        raise Finding(f"{file.name}: onnxruntime does not load it: {runtime.first_line(error)}") from error
    finally:
        if provider != "cpu":
            ort.set_default_logger_severity(2)  # onnxruntime's default
    if session.get_providers()[0] != wanted[0]:
        raise gpu.unusable(ort, wanted[0])
    return session


def _place(files: Sequence[_File], provider: str, level: str, find: Find) -> tuple[fd.Feeds, list[dict[str, int]]]:
    """Feeds under which all models run, and for each how many nodes ran on which provider. find: those of the first.

    The sessions are profiled ones of their own, so that neither the search nor the profile touches what is timed.
    """
    feeds: fd.Feeds | None = None
    placed = []
    with tempfile.TemporaryDirectory() as scratch:
        for i, file in enumerate(files):
            log.debug("%s: counting nodes", file.name)
            session = _session(file, provider, level, Path(scratch, str(i)))
            try:
                if feeds is None:
                    feeds = find(session)
                else:
                    runtime.run(session, feeds)
            except OnnxfuseError:
                raise
            except Exception as error:
                line = runtime.first_line(error)
                whose = f"the inputs of {files[0].name}" if i else "the given inputs"
                raise Finding(f"{file.name}: does not run on {whose}: {line}") from error
            finally:
                profile = session.end_profiling()
            placed.append(_count(json.loads(Path(profile).read_bytes())))
    return feeds or {}, placed


def _count(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Nodes by provider in onnxruntime's profile: each node once, however often it ran."""
    nodes = {
        e["name"]: e["args"]["provider"]
        for e in events
        if e.get("cat") == "Node" and "provider" in e.get("args", {}) and e["name"].endswith("_kernel_time")
    }
    return dict(Counter(sorted(nodes.values())))


def _bound(session: Any, feeds: fd.Feeds, device: str, options: Any) -> Callable[[], object]:
    """One run with inputs and outputs on the device, finished when it returns. options: of every run.

    onnxruntime binds neither strings nor sequences as inputs, nor outputs whose rank is declared wrongly; such a model
    runs as for a caller without binding.
    """
    if any(not isinstance(value, np.ndarray) or value.dtype.kind == "O" for value in feeds.values()):
        return partial(session.run, None, feeds, options)
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, runtime.to_ort(value, device))
    for port in session.get_outputs():
        numeric = port.type.startswith("tensor(") and port.type != "tensor(string)"
        binding.bind_output(port.name, device if numeric else "cpu")

    def run() -> None:
        session.run_with_iobinding(binding, options)
        binding.synchronize_outputs()

    try:
        run()
        run()  # an output that the first run made is checked by the second
    except Exception:  # noqa: BLE001 - a wrongly declared rank of an output, which stops nobody but who binds it
        return partial(session.run, None, feeds, options)
    return run


def _race(calls: Sequence[Callable[[], object]], runs: int) -> np.ndarray:
    """Seconds of every run, one row a model: the models in turn, the order reversed every other time."""
    seconds = np.empty((len(calls), runs))
    for i in range(runs):
        for j in range(len(calls)) if i % 2 == 0 else reversed(range(len(calls))):
            start = perf_counter()
            calls[j]()
            seconds[j, i] = perf_counter() - start
    return seconds


def _memory(provider: str, before: int | None = None) -> int | None:
    """Bytes in use before a session is made; with that, what it added at most."""
    if provider != "cpu":
        used = gpu.used_bytes()
        return used if before is None else used - before
    if sys.platform != "linux":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: bytes
        return peak if before is None else peak - before
    if before is None:
        with suppress(AttributeError):  # another libc than glibc
            ctypes.CDLL(None).malloc_trim(0)  # what earlier sessions freed goes back, or this one would hide in it
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM, the peak, is now VmRSS: see proc(5)
        return _status("VmRSS")
    return _status("VmHWM") - before


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
