"""analyze() and optimize(): the stages in order.

path → Model → Facts → Costs → Plan → (Model, edits) → Verdict → file
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxfuse import analysis, arguments, devices, interface, quantizing, releases, roofline, targets
from onnxfuse import inputs as given
from onnxfuse.analysis import Analysis, Dims
from onnxfuse.binding import bind, misfit
from onnxfuse.cost import costs
from onnxfuse.errors import UsageError, memory_named
from onnxfuse.execution import run_totals
from onnxfuse.facts import infer
from onnxfuse.jsonable import plain
from onnxfuse.model import Model, Source
from onnxfuse.storage import files

if TYPE_CHECKING:
    import onnx

    from onnxfuse.patterns import Refusal
    from onnxfuse.rewrite import Fusion
    from onnxfuse.verification import Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What `optimize` did. result.model is the optimized model as a proto; verify is None with `verify=False`.

    before, after: sums over the nodes that the target executes (a function may be inlined), and the estimated time of
        its kernels, which may hold several nodes.
    rolled_back: rewrites that were taken back because the model with them did not compute the same.
    quantizable: False where `onnxruntime.quantization` would break the result; made with then="quantize" it does not.
    requires: {"onnxruntime": the least release in which the result is right}; None where it needs none in particular.
    """

    source: str | None
    output: str | None
    target: str
    device: str
    dims: Dims
    assumed: tuple[str, ...]
    before: roofline.Execution
    after: roofline.Execution
    fusions: tuple[Fusion, ...]
    refused: tuple[Refusal, ...]
    verdict: Verdict | None
    rolled_back: tuple[Refusal, ...]
    quantizable: bool
    requires: Mapping[str, str] | None
    seconds: float
    _model: Model

    @property
    def verify(self) -> Verdict | None:
        """The verdict, by its name in JSON."""
        return self.verdict

    @property
    def model(self) -> onnx.ModelProto:
        """The optimized model, weights included (external data stays external)."""
        return self._model.to_proto()

    def analysis(self, device: devices.Device, *, max_intensity: float | None = None) -> Analysis:
        """What `analyze` finds in the optimized model, at the same sizes of the free dimensions."""
        bound = bind(self._model, self.dims)
        return analysis.of_model(self._model, targets.find(self.target), device, bound, max_intensity)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data with the stable names of the `--json` output."""
        verdict = self.verdict
        data: dict[str, Any] = {
            "model": self.source,
            "output": self.output,
            "target": self.target,
            "device": self.device,
            "dims": self.dims,
            "assumed": self.assumed,
            "before": self.before,
            "after": self.after,
            "fusions": self.fusions,
            "refused": self.refused,
            "verify": verdict
            and {
                "ok": verdict.ok,
                "max_error": verdict.max_error,
                "cases": verdict.cases,
                "levels": verdict.levels,
                "provider": verdict.provider,
                "unjudged": verdict.unjudged,
                "rolled_back": self.rolled_back,
            },
            "quantizable": self.quantizable,
            "requires": self.requires,
            "seconds": self.seconds,
        }
        plain_data: dict[str, Any] = plain(data)
        return plain_data


@memory_named()
def analyze(
    model: Source,
    *,
    target: str | None = None,
    device: str | None = None,
    dims: Dims | None = None,
    max_intensity: float | None = None,
    annotate: str | Path | None = None,
    as_executed: bool = False,
    inputs: object = None,
) -> Analysis:
    """FLOPs, bytes, intensity, bound and roofline time of every node, and the fusion candidates.

    model: a path, an `onnx.ModelProto` or a `gs.Graph`; it is left unchanged.
    dims: sizes of free dimensions by name, or by "<input>.<axis>" where they have none. What is not given stays a
        symbol in the counts, and is assumed (see `binding.bind`) for the estimates.
    annotate: path to write a copy to, with the numbers in each node's `metadata_props`.
    as_executed: the report is of the graph that onnxruntime executes on the CPU at its default level (see `executed`).
    target: "ort-cuda" where none is given; with `as_executed` only "ort-cpu".
    inputs: inputs of the model, as in `inputs.load`, whose first set gives the sizes of the free dimensions; of its
        values nothing is used.
    Raises OnnxfuseError for bad input; Finding where onnxruntime does not load the model that it should execute.
    """
    sizes, as_executed = arguments.sizes("dims", dims), arguments.flag("as_executed", as_executed)
    most = None if max_intensity is None else arguments.number("max_intensity", max_intensity, zero=False)
    copy = None if annotate is None else arguments.path("annotate", annotate)
    goal = _target(("ort-cpu" if as_executed else "ort-cuda") if target is None else target)
    if as_executed and goal.name != "ort-cpu":
        raise UsageError(f"as executed is the graph that the CPU provider runs: target ort-cpu, not {goal.name}")
    machine = _device(goal.device if device is None else device)
    with _graph(model, as_executed) as source:
        bound = bind(source, _sizes(source, inputs, sizes))
        sized = analysis.of_model(source, goal, machine, bound, most)
        sized = replace(sized, as_executed=as_executed, misfit=misfit(source, bound))
        report = analysis.with_formulas(sized, source, bound)
        if copy is not None:
            analysis.annotate(source, sized.nodes, bound.facts, machine)
            source.save(copy)
    return report


def _sizes(source: Model, inputs: object, dims: Dims) -> Dims:
    """The given sizes, and those that follow from the given inputs."""
    seen = interface.of(source.proto)
    return given.sizes(given.load(inputs, seen), seen, dims)


@contextmanager
def _graph(source: Source, as_executed: bool) -> Iterator[Model]:
    """The model, or what onnxruntime makes of it, for the while."""
    if not as_executed:
        yield _load(source)
        return
    from onnxfuse.executed import executed

    log.debug("asking onnxruntime for the graph that it executes")
    with executed(source) as model:
        yield model


def _load(source: Source) -> Model:
    log.debug("reading the model")
    model = Model.load(source)
    graph = model.program.graph
    log.info("%s: %d nodes, %d initializers", model.name or "model", len(graph.nodes), len(graph.initializers))
    log.debug("finding shapes and costs")
    return model


def _target(name: object) -> targets.Target:
    arguments.kind("target", name, (str, targets.Target), f"the name of a target: {', '.join(targets.names())}")
    return targets.find(name)  # type: ignore[arg-type]


def _device(name: object) -> devices.Device:
    arguments.kind("device", name, (str, os.PathLike, devices.Device), "the name of a device or the path of its file")
    return roofline.find_device(name)  # type: ignore[arg-type]


@memory_named()
def optimize(
    model: Source,
    out: str | Path | None = None,
    *,
    target: str = "ort-cuda",
    device: str | None = None,
    dims: Dims | None = None,
    rules: Iterable[str] | None = None,
    exclude: Iterable[str] = (),
    max_intensity: float | None = None,
    verify: bool = True,
    seed: int = 0,
    inputs: object = None,
    then: str | None = None,
) -> Result:
    """Fuse what is legal and pays on the target, prove that the result computes the same, and write it to `out`.

    model: a path, an `onnx.ModelProto` or a `gs.Graph`; it is left unchanged.
    out: where the result is written, atomically; None writes nothing (the result is in `Result.model`).
    rules, exclude: names of the rewrites to try, or not to. max_intensity: FLOP/byte from which a node counts as
        compute-bound instead of the device's ridge point.
    inputs: inputs of the model, run before generated ones, as in `inputs.load`.
    then: "quantize" emits nothing that `onnxruntime.quantization` breaks.
    Raises OnnxfuseError for bad input; Finding where the result could not be verified: then nothing is written.
    """
    from onnxfuse.optimizer import Optimizer
    from onnxfuse.rules import select

    started = time.perf_counter()
    sizes, seed, verify = arguments.sizes("dims", dims), arguments.whole("seed", seed), arguments.flag("verify", verify)
    most = None if max_intensity is None else arguments.number("max_intensity", max_intensity, zero=False)
    target_file = None if out is None else arguments.path("out", out)
    goal = quantizing.variant(_target(target), then)
    machine = _device(goal.device if device is None else device)
    only = None if rules is None else arguments.names("rules", rules)
    chosen_rules = select(only, arguments.names("exclude", exclude))
    source = _load(model)
    if target_file is not None:
        files.check(target_file)
    program = source.program
    bound = bind(source, _sizes(source, inputs, sizes))
    free = bound.dims or program.overridable or bound.facts.assumed
    known = infer(program, {}, source.array, general=True) if free else bound.facts
    optimizer = Optimizer(source, goal, machine, known, bound, chosen_rules, most)

    @cache
    def before() -> roofline.Execution:
        return run_totals(program, bound.facts, bound.costs, goal, machine)

    def measure() -> roofline.Execution:
        before()  # here, where the optimizer waits for sessions anyway
        changed = infer(source.program, bound.dims, source.array)
        return run_totals(source.program, changed, costs(changed), goal, machine)

    outcome = optimizer.run(target_file, sizes, seed, verify, measure, inputs)
    rewritten = bool(outcome.made.fusions)
    release = releases.note(source.proto, goal) if rewritten else releases.demanded(source.proto)
    if target_file is not None:
        source.save(target_file)
    return Result(
        source.name,
        None if target_file is None else str(target_file),
        goal.name,
        machine.name,
        bound.dims,
        bound.assumed,
        before(),
        outcome.after or before(),
        outcome.made.fusions,
        outcome.made.refused,
        outcome.verdict,
        outcome.rolled_back,
        quantizing.takes(source.proto),
        None if release is None else {"onnxruntime": release},
        time.perf_counter() - started,
        source,
    )
