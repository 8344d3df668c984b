"""What `analyze` finds in a model: every node's row, the totals, the candidates, as numbers and as formulas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

from onnxfuse import candidates, devices, ir, roofline, targets
from onnxfuse.binding import Bound, formulas
from onnxfuse.cost import Cost, costs
from onnxfuse.execution import graph_pieces, sizes
from onnxfuse.facts import Expr, Facts, symbols
from onnxfuse.jsonable import plain
from onnxfuse.memory import all_sized
from onnxfuse.model import Model

Dims = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Analysis:
    """What `analyze` finds.

    dims: the sizes of all free dimensions; assumed: those of them that nobody gave.
    as_executed: whether this is of the graph that onnxruntime makes of the model.
    data_dims: symbols in the counts that are no dimension of an input: sizes without a formula in the dims, such as the
        rows that NonZero finds, called "<value>.<axis>". Where the dims do not tell them, nothing is estimated.
    totals, nodes: the counts are exact formulas in the assumed dimensions, numbers where none is in them
        (`onnxfuse.evaluate(report.totals.macs, {"batch": 8})` is the number of either); the estimates, and the
        candidates, are those at `dims`.
    misfit: the first node at which `dims` do not fit the model; what depends on it is unknown.
    """

    model: str | None
    device: str
    target: str
    dims: Dims
    assumed: tuple[str, ...]
    data_dims: tuple[str, ...]
    totals: roofline.Totals
    nodes: tuple[roofline.Row, ...]
    candidates: tuple[candidates.Candidate, ...]
    as_executed: bool = False
    misfit: str | None = None
    _at_dims: Analysis | None = None

    @property
    def at_dims(self) -> Analysis:
        """The same with every count as the number at `dims`: what `analyze` finds when all of them are given."""
        return self._at_dims or self

    def to_json(self) -> dict[str, Any]:
        """The report as plain data with the stable names of the `--json` output."""
        data: dict[str, Any] = plain(self)
        return data


def of_model(
    source: Model, goal: targets.Target, machine: devices.Device, bound: Bound, max_intensity: float | None
) -> Analysis:
    """The analysis at the sizes of `bound`."""
    program = source.program
    facts, prices = bound.facts, bound.costs
    rows = roofline.rows(facts, prices, machine)
    sums = roofline.totals(rows, program, facts)
    exported = frozenset(program.graph.outputs) | ir.captured(program.graph)
    pieces, pairs = graph_pieces(facts, prices), _pairs(goal)
    found = candidates.find(pieces, exported, goal, machine, sizes(facts), pairs, max_intensity)
    return Analysis(
        source.name,
        machine.name,
        goal.name,
        bound.dims,
        bound.assumed,
        _foreign(prices, sums, bound.dims),
        sums,
        rows,
        found,
    )


def with_formulas(sized: Analysis, source: Model, bound: Bound) -> Analysis:
    """The analysis with its counts as formulas in the assumed dimensions."""
    if not bound.assumed:
        return sized
    facts, prices = formulas(source, bound)
    rows = roofline.formula_rows(sized.nodes, prices)
    estimates = {name: getattr(sized.totals, name) for name in ("intensity", "seconds", "bound")}
    totals = replace(roofline.totals(rows, source.program, facts), **estimates)
    if not all_sized(facts, bound.facts):
        totals = replace(totals, peak_activation_bytes=None, peak_activation_bytes_in_place=None)
    foreign = _foreign(prices, totals, sized.dims)
    return replace(sized, totals=totals, nodes=rows, data_dims=foreign, _at_dims=sized)


def _foreign(prices: Iterable[Cost], totals: roofline.Totals, dims: Dims) -> tuple[str, ...]:
    """Symbols in the counts that are none of these dimensions, in the order of the nodes; those of a peak last."""
    kinds = {id(cost): cost for cost in prices}.values()  # nodes that are alike share one cost
    counts = (count for c in kinds for count in (c.flops, c.transcendentals, c.bytes_read, c.bytes_written))
    sums = (getattr(totals, field.name) for field in fields(totals))
    distinct = dict.fromkeys(count for count in chain(counts, sums) if isinstance(count, Expr))
    return tuple(dict.fromkeys(name for count in distinct for name in sorted(symbols(count)) if name not in dims))


def _pairs(target: targets.Target) -> dict[tuple[str, str], str]:
    """(producer, consumer) operators → the rewrite that makes them one node on a target."""
    from onnxfuse.rules import all_rules

    return {pair: r.name for r in all_rules().values() if r.pairs for pair in r.pairs(target)}


def annotate(model: Model, rows: Iterable[roofline.Row], facts: Facts, device: devices.Device) -> None:
    """Write the numbers into the `metadata_props` of each node, those of branches and bodies for one execution."""
    model.annotate([_note(row) for row in rows])
    for path, inner in _body_rows(facts, device):
        model.annotate([_note(row) for row in inner], path)


_Path = tuple[tuple[int, str], ...]


def _body_rows(
    facts: Facts, device: devices.Device, path: _Path = ()
) -> Iterator[tuple[_Path, tuple[roofline.Row, ...]]]:
    """The rows of every branch and loop body, each for one execution, with the way to it."""
    for (index, attribute), body in facts.bodies.items():
        if attribute:
            here = (*path, (index, attribute))
            yield here, roofline.rows(body, costs(body), device)
            yield from _body_rows(body, device, here)


def _note(row: roofline.Row) -> dict[str, str]:
    """A row as entries for a node's `metadata_props`; unknown numbers are left out, and `reason` says why they are, or
    are only lower bounds.
    """
    numbers = ("flops", "macs", "transcendentals", "bytes_read", "bytes_written", "intensity", "seconds", "bound")
    found = {f"onnxfuse.{n}": getattr(row, n) for n in (*numbers, "reason")}
    return {k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in found.items() if v is not None}
