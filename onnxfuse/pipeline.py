"""analyze() and optimize(): the stages in order.

path → Model → Facts → Costs → Plan → (Model, edits) → Verdict → file
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxfuse import candidates, devices, ir, roofline, targets
from onnxfuse.binding import bind
from onnxfuse.cost import Cost, costs
from onnxfuse.errors import OutputError
from onnxfuse.execution import graph_seconds, piece, value_bytes
from onnxfuse.facts import Facts, infer
from onnxfuse.jsonable import plain
from onnxfuse.model import Model, Source

if TYPE_CHECKING:
    import onnx

    from onnxfuse.patterns import Refusal
    from onnxfuse.rewrite import Fusion
    from onnxfuse.verification import Verdict

Dims = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Analysis:
    """What `analyze` finds. dims: the sizes of all free dimensions; assumed: those of them that nobody gave."""

    model: str | None
    device: str
    target: str
    dims: Dims
    assumed: tuple[str, ...]
    totals: roofline.Totals
    nodes: tuple[roofline.Row, ...]
    candidates: tuple[candidates.Candidate, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data with the stable names of the `--json` output."""
        data: dict[str, Any] = plain(self)
        return data


@dataclass(frozen=True, slots=True)
class Result:
    """What `optimize` did. result.model is the optimized model as a proto; verify is None with `verify=False`.

    before, after: sums over the nodes, but `seconds` is the estimate for the kernels that the target executes.
    rolled_back: rewrites that were taken back because the model with them did not compute the same.
    """

    source: str | None
    output: str | None
    target: str
    device: str
    dims: Dims
    assumed: tuple[str, ...]
    before: roofline.Totals
    after: roofline.Totals
    fusions: tuple[Fusion, ...]
    refused: tuple[Refusal, ...]
    verdict: Verdict | None
    rolled_back: tuple[Refusal, ...]
    seconds: float
    _model: Model

    @property
    def model(self) -> onnx.ModelProto:
        """The optimized model, weights included (external data stays external)."""
        return self._model.to_proto()

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
                "rolled_back": self.rolled_back,
            },
            "seconds": self.seconds,
        }
        plain_data: dict[str, Any] = plain(data)
        return plain_data


def analyze(
    model: Source,
    *,
    target: str = "ort-cuda",
    device: str | None = None,
    dims: Dims | None = None,
    max_intensity: float | None = None,
    annotate: str | Path | None = None,
) -> Analysis:
    """FLOPs, bytes, intensity, bound and roofline time of every node, and the fusion candidates.

    model: a path, an `onnx.ModelProto` or a `gs.Graph`; it is left unchanged.
    dims: sizes of free dimensions by name, or by "<input>.<axis>" where they have none. What is not given is assumed
        (see `binding.bind`) and named in the result.
    annotate: path to write a copy to, with the numbers in each node's `metadata_props`.
    Raises OnnxfuseError for bad input.
    """
    goal = targets.find(target)
    machine = devices.find(device or goal.device)
    source = Model.load(model)
    program = source.program
    bound = bind(source, dims or {})
    facts, prices = bound.facts, bound.costs
    rows = roofline.rows(facts, prices, machine)
    if annotate is not None:
        source.annotate([_note(row) for row in rows])
        source.save(annotate)
    pieces = [piece(node, facts, price) for node, price in zip(facts.nodes, prices, strict=True)]
    exported = frozenset(program.graph.outputs) | ir.captured(program.graph)
    pairs = _pairs(goal)
    found = candidates.find(
        pieces, exported, goal, machine, lambda name: value_bytes(facts[name]), pairs, max_intensity
    )
    return Analysis(
        source.name,
        machine.name,
        goal.name,
        bound.dims,
        bound.assumed,
        roofline.totals(rows, program, facts),
        rows,
        found,
    )


def _executed(
    model: Model, facts: Facts, prices: tuple[Cost, ...], target: targets.Target, device: devices.Device
) -> roofline.Totals:
    """Totals of a model whose time is that of the kernels which the target executes."""
    graph = model.program.graph
    exported = {*graph.outputs, *ir.captured(graph)}
    rows = roofline.rows(facts, prices, device)
    totals = roofline.totals(rows, model.program, facts)
    return replace(totals, seconds=graph_seconds(facts, rows, prices, exported, target, device))


def _check_writable(out: Path) -> None:
    """Tell before the work that its result could not be written. Raises OutputError."""
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; name a file")
    if not out.absolute().parent.is_dir():
        raise OutputError(f"{out}: the folder {out.absolute().parent} does not exist")


def _note(row: roofline.Row) -> dict[str, str]:
    """A row as entries for a node's `metadata_props`; unknown numbers are left out."""
    numbers = ("flops", "macs", "transcendentals", "bytes_read", "bytes_written", "intensity", "seconds", "bound")
    found = {f"onnxfuse.{n}": getattr(row, n) for n in numbers}
    return {k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in found.items() if v is not None}


def _pairs(target: targets.Target) -> dict[tuple[str, str], str]:
    """(producer, consumer) operators → the rewrite that makes them one node on a target."""
    from onnxfuse.rules import all_rules

    return {pair: rule.name for rule in all_rules().values() for pair in rule.pairs(target)}


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
) -> Result:
    """Fuse what is legal and pays on the target, prove that the result computes the same, and write it to `out`.

    model: a path, an `onnx.ModelProto` or a `gs.Graph`; it is left unchanged.
    out: where the result is written, atomically; None writes nothing (the result is in `Result.model`).
    rules, exclude: names of the rewrites to try, or not to. max_intensity: FLOP/byte from which a node counts as
        compute-bound instead of the device's ridge point.
    Raises OnnxfuseError for bad input; Finding where the result could not be verified: then nothing is written.
    """
    from onnxfuse.optimizer import Optimizer
    from onnxfuse.rules import select

    started = time.perf_counter()
    goal = targets.find(target)
    machine = devices.find(device or goal.device)
    chosen_rules = select(rules, exclude)
    source = Model.load(model)
    if out is not None:
        _check_writable(Path(out))
    bound = bind(source, dims or {})
    known = infer(source.program, {}, source.array) if bound.dims else bound.facts
    before = _executed(source, bound.facts, bound.costs, goal, machine)
    optimizer = Optimizer(source, goal, machine, known, bound, chosen_rules, max_intensity)

    def measure() -> roofline.Totals:
        changed = infer(source.program, bound.dims, source.array)
        return _executed(source, changed, costs(changed), goal, machine)

    outcome = optimizer.run(None if out is None else Path(out), dims or {}, seed, verify, measure)
    if out is not None:
        source.save(out)
    return Result(
        source.name,
        None if out is None else str(out),
        goal.name,
        machine.name,
        bound.dims,
        bound.assumed,
        before,
        outcome.after or before,
        outcome.made.fusions,
        outcome.made.refused,
        outcome.verdict,
        outcome.rolled_back,
        time.perf_counter() - started,
        source,
    )
