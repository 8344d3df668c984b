"""The totals of an analysis in names and sentences: the numbers at its sizes, and the formulas behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onnxfuse.facts.expr import Expr
from onnxfuse.report import units

if TYPE_CHECKING:
    from onnxfuse.cost.registry import Number
    from onnxfuse.pipeline import Analysis
    from onnxfuse.roofline import Row

BOUNDS = {"memory": "memory", "compute": "compute", "overhead": "launch overhead"}

SOME = 8  # operators and symbols that are named
NAME = 16  # columns that a name takes, with the gap behind it
REASON = 60  # characters of why a cost is unknown


def sizes(report: Analysis) -> str:
    """ ", batch=8, assumed seq=128": the sizes of the free dimensions, those that nobody gave last; "" without any."""
    given = [f"{name}={size}" for name, size in report.dims.items() if name not in report.assumed]
    assumed = [f"{name}={report.dims[name]}" for name in report.assumed]
    return "".join(f", {size}" for size in given) + (", assumed " if assumed else "") + ", ".join(assumed)


def subject(report: Analysis) -> str:
    """What the report is about: the model, or what the runtime makes of it."""
    return f"{report.model or 'model'}{' as executed by onnxruntime' if report.as_executed else ''}"


def lines(report: Analysis, ridge: float | None, width: int | None = None) -> list[tuple[str, str]]:
    """Name and sentence of every total; "≥" where unknown nodes make it a lower bound.

    ridge: the device's ridge point in FLOP/byte. width: of the terminal; long formulas and reasons are cut to it.
    """
    totals, nodes = report.at_dims.totals, report.at_dims.nodes
    formulas = report.totals
    least = "≥ " if totals.coverage < 1 else ""
    lacking = formulas.coverage < totals.coverage

    def both(name: str, say: Callable[[object], str], detail: str = "") -> str:
        number, formula = getattr(totals, name), getattr(formulas, name)
        unit = " B" if say is units.size else ""
        return least + _both(number, formula, say, unit, "≥" if lacking else "=", detail, width)

    special = f"{units.count(totals.transcendentals)} special functions apart"
    symbolic = isinstance(formulas.macs, Expr)  # then a line of its own
    macs = "" if symbolic else f"{units.count(totals.macs)} MACs; "
    read, written = units.size(totals.bytes_read), units.size(totals.bytes_written)
    found = [
        ("FLOPs", both("flops", units.count, f" ({macs}{special})")),
        *([("MACs", both("macs", units.count))] if symbolic else []),
        ("memory traffic", both("bytes", units.size, f" ({read} read, {written} written)")),
    ]
    if totals.intensity is not None:
        of_known = ", of the nodes of known cost" if least else ""
        limit = "" if ridge is None else f" (ridge point of the device in fp32: {units.digits(ridge)})"
        found.append(("intensity", f"{units.digits(totals.intensity)} FLOP/byte{limit}{of_known}"))
    moved = f"{least}{units.size(totals.weight_traffic)} of the memory traffic"
    found += [
        ("time", _time(totals.seconds, nodes, least)),
        ("weights", f"{units.count(totals.params)} parameters, {units.size(totals.weight_bytes)}; {moved}"),
        ("activations", f"{least}{units.size(totals.activation_traffic)} of the memory traffic"),
        ("peak memory", both("peak_activation_bytes", units.size, " of activations")),
        ("with reuse", both("peak_activation_bytes_in_place", units.size, " where outputs take the place of inputs")),
    ]
    return [*found, *_known(report, width)]


def _both(
    number: Number,
    formula: Number,
    say: Callable[[object], str],
    unit: str,
    relation: str,
    detail: str,
    width: int | None,
) -> str:
    """A number, and the formula that it comes from; of a count that depends on the data there is only a formula."""
    limit = None if width is None else 2 * (width - NAME - 10)
    if isinstance(number, Expr):
        return f"{units.formula(number, limit)}{unit}{detail}"
    known = f" {relation} {units.formula(formula, limit)}" if isinstance(formula, Expr) else ""
    return f"{say(number)}{detail}{known}"


def _time(seconds: float | None, nodes: Sequence[Row], least: str) -> str:
    if seconds is not None:
        return f"{least}{units.time(seconds)} estimated{_shares(nodes, seconds)}"
    without = sum(row.known and row.seconds is None for row in nodes)
    rest = math.fsum(row.seconds or 0.0 for row in nodes)
    return f"≥ {units.time(rest)} estimated, without {without:,} nodes whose sizes only the data tell"


def _shares(nodes: Sequence[Row], whole: float) -> str:
    spent: dict[str, float] = {}
    for row in nodes:
        if row.bound and row.seconds:
            spent[row.bound] = spent.get(row.bound, 0.0) + row.seconds
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    parts = [f"{BOUNDS[b]} ({100 * t / whole:.0f} %)" for b, t in ordered if t >= 0.005 * whole]
    return f", in nodes bound by {', '.join(parts)}" if parts else ""


def _known(report: Analysis, width: int | None) -> list[tuple[str, str]]:
    """What is known and what is not: numbers, formulas, sizes that depend on the data."""
    at = report.at_dims
    count = sum(row.known for row in at.nodes)
    named = _some([_unknown(name, width) for name in at.totals.unknown])
    unknown = f"; unknown for {named}" if named else ""
    found = [("coverage", f"the cost of {count:,} of {len(at.nodes):,} nodes is known{unknown}")]
    without = [
        formula.op_type for formula, row in zip(report.nodes, at.nodes, strict=True) if row.known and not formula.known
    ]
    if without:
        operators = _some(list(dict.fromkeys(without)))
        found.append(("formulas", f"leave out {len(without):,} nodes that depend on the sizes by cases: {operators}"))
    if report.data_dims:
        found.append(("from the data", f"{_some(report.data_dims)}: sizes that only the data tell"))
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SOME:,} more" if len(names) > SOME else ""
    return f"{', '.join(names[:SOME])}{more}"


def _unknown(name: str, width: int | None) -> str:
    """An operator of unknown cost ("ai.onnx::Op"), and why it has no formula where that is written down."""
    from onnxfuse.cost import reason

    domain, _, op_type = name.rpartition("::")
    why = reason(domain, op_type)
    said = name.removeprefix("ai.onnx::")
    if why is None:
        return said
    short = why.split(",")[0]
    return f"{said} ({why if width is None else short if len(short) <= REASON else short[: REASON - 1] + '…'})"
