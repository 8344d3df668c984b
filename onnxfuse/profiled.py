"""Does the estimate mean anything? Every node's roofline time beside the time that onnxruntime's profile gives it."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onnxfuse import arguments, devices, feeds, interface, roofline, runtime, trace
from onnxfuse import inputs as given
from onnxfuse.cost import costs
from onnxfuse.errors import Finding, OnnxfuseError, memory_named
from onnxfuse.executed import executed
from onnxfuse.execution import label
from onnxfuse.facts import Facts, free_dims, infer
from onnxfuse.jsonable import plain
from onnxfuse.model import Source

DEVICE = "avx2_core"  # whose estimates are compared where no device is named
SHORTEST = 5e-6  # seconds; below, the profiler measures mostly itself


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """A graph as it was executed. dims: sizes of its free dimensions; assumed: those of them that nobody gave;
    seconds: median of the runs by node position.
    """

    model: str | None
    level: str
    runs: int
    dims: Mapping[str, int]
    assumed: tuple[str, ...]
    facts: Facts
    seconds: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node of the graph that onnxruntime executes. measured (median over the runs), estimated: seconds; estimated is
    None where the cost is unknown. work: as in `roofline.work`. bound: as in `analyze`.
    """

    name: str
    op_type: str
    domain: str
    work: str
    measured: float
    estimated: float | None
    bound: str | None


@dataclass(frozen=True, slots=True)
class WorkTime:
    """The compared nodes of one kind of work: how many, their seconds, estimated / measured."""

    work: str
    nodes: int
    measured: float
    estimated: float
    ratio: float


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What `benchmark_nodes` finds; the names are those of the JSON.

    dims: the sizes of all free dimensions; assumed: those of them that nobody gave.
    nodes: of the main graph in execution order, a control-flow node with its bodies. Compared are those of known cost
    that take longer than `shortest` seconds: spearman is the rank correlation of estimate and measurement (None for
    fewer than two nodes, or where all are equal), ratio the sum of the estimates over that of the measurements.
    """

    model: str | None
    device: str
    device_name: str
    level: str
    runs: int
    dims: Mapping[str, int]
    assumed: tuple[str, ...]
    shortest: float
    compared: int
    spearman: float | None
    ratio: float | None
    works: tuple[WorkTime, ...]
    nodes: tuple[NodeTime, ...]

    @property
    def worst(self) -> list[NodeTime]:
        """The compared nodes, the largest difference between estimate and measurement first."""
        return sorted(compared(self.nodes), key=lambda node: -abs((node.estimated or 0.0) - node.measured))

    def to_json(self) -> dict[str, Any]:
        """The same names in a dict for JSON."""
        data: dict[str, Any] = plain(self)
        return data


@memory_named()
def benchmark_nodes(
    model: Source,
    *,
    device: str | Path | devices.Device = DEVICE,
    level: str = "all",
    dims: Mapping[str, int] | None = None,
    runs: int = 20,
    warmup: int = 2,
    seed: int = 0,
    inputs: object = None,
) -> NodeReport:
    """Run the graph that onnxruntime's CPU provider makes of a model, on one thread, and compare node by node.

    model: a path, an `onnx.ModelProto` or a `gs.Graph`. device: whose rates the estimates take, a name or a file, such
    as `onnxfuse devices --measure` writes. level: onnxruntime's own optimizations. dims: sizes of free dimensions;
    typical ones under which the model runs are found for the others. inputs: as in `benchmark`.
    Raises UsageError for a bad option, MissingDependency without onnxruntime, ModelError for what is no model,
    Finding where onnxruntime does not load it, or no inputs are found under which it runs.
    """
    arguments.kind("device", device, (str, os.PathLike, devices.Device), "the name of a device or the path of its file")
    machine = roofline.find_device(device)
    return compare(profile(model, level=level, dims=dims, runs=runs, warmup=warmup, seed=seed, inputs=inputs), machine)


def profile(
    model: Source,
    *,
    level: str = "all",
    dims: Mapping[str, int] | None = None,
    runs: int = 20,
    warmup: int = 2,
    seed: int = 0,
    inputs: object = None,
) -> Profile:
    """The measured half of `benchmark_nodes`, with the same arguments and errors."""
    runs, warmup = arguments.whole("runs", runs, 1), arguments.whole("warmup", warmup)
    sized, seed = arguments.sizes("dims", dims), arguments.whole("seed", seed)
    times: dict[int, list[float]] = defaultdict(list)
    with executed(model, level) as graph, tempfile.TemporaryDirectory() as folder:
        session = trace.session(str(graph.path), "disabled", Path(folder))
        attempt, known = partial(runtime.run, session), interface.of(graph.proto)
        examples = given.load(inputs, known)
        sized = given.sizes(examples, known, sized)
        if examples:
            binding, data = next(feeds.candidates(known, sized, typical=True)), examples[0].feeds
            _tried(attempt, examples[0])
        else:
            binding, data, _ = runtime.find_feeds(attempt, known, sized, seed, typical=True)
        for _ in range(warmup + runs):
            runtime.run(session, data)
        for kernel in trace.kernels(session):
            times[kernel.index].append(kernel.seconds)
        sizes = {name: feeds.size(name, binding) for name in free_dims(graph.program)}
        facts = infer(graph.program, sizes, graph.array)
    medians = {i: statistics.median(seconds[-runs:]) for i, seconds in times.items()}
    name = str(model) if isinstance(model, (str, os.PathLike)) else None
    assumed = tuple(key for key in sizes if key not in sized)
    return Profile(name, level, runs, sizes, assumed, facts, medians)


def _tried(attempt: Callable[[feeds.Feeds], object], example: given.Example) -> None:
    """Raises Finding where a model does not run on the given inputs."""
    try:
        attempt(example.feeds)
    except OnnxfuseError:
        raise
    except Exception as error:
        raise Finding(f"{example.name}: the model does not run on it: {runtime.first_line(error)}") from error


def compare(measured: Profile, device: devices.Device) -> NodeReport:
    """The times of a profile beside the estimates for a device."""
    facts, seconds = measured.facts, measured.seconds
    rows = roofline.rows(facts, costs(facts), device)
    nodes = tuple(
        NodeTime(label(node), node.op_type, node.domain, roofline.work(node, facts), seconds[i], row.seconds, row.bound)
        for i, (node, row) in enumerate(zip(facts.nodes, rows, strict=True))
        if i in seconds
    )
    chosen = compared(nodes)
    return NodeReport(
        measured.model,
        device.name,
        runtime.cpu_name(),
        measured.level,
        measured.runs,
        measured.dims,
        measured.assumed,
        SHORTEST,
        len(chosen),
        spearman([n.measured for n in chosen], [n.estimated or 0.0 for n in chosen]),
        _ratio(chosen),
        work_times(chosen),
        nodes,
    )


def compared(nodes: Sequence[NodeTime]) -> list[NodeTime]:
    """The nodes of known cost that take long enough to be measured."""
    return [node for node in nodes if node.estimated is not None and node.measured > SHORTEST]


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's rank correlation, equal values sharing their mean rank; None where it is not defined."""
    x, y = _ranks(np.asarray(a)), _ranks(np.asarray(b))
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _ratio(nodes: Sequence[NodeTime]) -> float | None:
    return sum(n.estimated or 0.0 for n in nodes) / sum(n.measured for n in nodes) if nodes else None


def work_times(nodes: Sequence[NodeTime]) -> tuple[WorkTime, ...]:
    """Sums by kind of work, the longest first."""
    groups: dict[str, list[NodeTime]] = defaultdict(list)
    for node in nodes:
        groups[node.work].append(node)
    found = [
        WorkTime(work, len(group), sum(n.measured for n in group), sum(n.estimated or 0.0 for n in group), ratio)
        for work, group in groups.items()
        if (ratio := _ratio(group)) is not None
    ]
    return tuple(sorted(found, key=lambda w: -w.measured))
