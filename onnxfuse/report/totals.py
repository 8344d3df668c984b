"""The totals of an analysis in names and sentences: the numbers at its sizes, and the formulas behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from onnxfuse.facts.expr import Expr
from onnxfuse.report import tables, units

if TYPE_CHECKING:
    from onnxfuse.analysis import Analysis
    from onnxfuse.cost.registry import Number
    from onnxfuse.roofline import BranchRow, Row, Totals

BOUNDS = {"memory": "memory", "compute": "compute", "overhead": "launch overhead"}

SOME = 8  # operators and symbols that are named
REASON = 60  # characters of why a cost is unknown


def sizes(dims: Mapping[str, int], assumed: Sequence[str]) -> str:
    """ ", batch=8, assumed seq=128": the sizes of the free dimensions, those that nobody gave last; "" without any."""
    given = "".join(f", {name}={size}" for name, size in dims.items() if name not in assumed)
    return given + (", assumed " if assumed else "") + ", ".join(f"{name}={dims[name]}" for name in assumed)


def subject(report: Analysis) -> str:
    """What the report is about: the model, or what the runtime makes of it."""
    return f"{report.model or 'model'}{' as executed by onnxruntime' if report.as_executed else ''}"


def lines(report: Analysis, ridge: float, width: int | None = None) -> list[tuple[str, str]]:
    """Name and sentence of every total; "≥" where unknown nodes make it a lower bound, "≤" where data decide which
    branch runs, so that the larger one is counted.

    ridge: the device's ridge point in FLOP/byte. width: of the terminal, for which long formulas and reasons are cut.
    """
    totals, nodes = report.at_dims.totals, report.at_dims.nodes
    formulas = report.totals
    shown = str if width is None else units.formula
    least = "≥ " if totals.coverage < 1 else "≤ " if any(row.branches for row in nodes) else ""
    lacking = formulas.coverage < totals.coverage

    def both(name: str, say: Callable[[object], str], detail: str = "") -> str:
        number, formula = getattr(totals, name), getattr(formulas, name)
        unit = " B" if say is units.size else ""
        bound = least or ("≥ " if lacking and isinstance(number, Expr) else "")
        return bound + _both(number, formula, say, unit, "≥" if lacking else "=", detail, shown)

    def alone(name: str, say: Callable[[object], str]) -> str:
        number, formula = getattr(totals, name), getattr(formulas, name)
        if isinstance(number, Expr) and isinstance(formula, Expr):
            return f"{shown(formula)}{' B' if say is units.size else ''}"
        return say(number)

    special = f"{alone('transcendentals', units.count)} special functions apart"
    symbolic = isinstance(formulas.macs, Expr)  # then a line of its own
    macs = "" if symbolic else f"{units.count(totals.macs)} MACs; "
    moved = (totals.bytes_read, totals.bytes_written)
    read, written = map(units.size, moved)
    split = "" if any(isinstance(n, Expr) for n in moved) else f" ({read} read, {written} written)"
    found = [
        ("FLOPs", both("flops", units.count, f" ({macs}{special})")),
        *([("MACs", both("macs", units.count))] if symbolic else []),
        ("memory traffic", both("bytes", units.size, split)),
    ]
    if totals.intensity is not None:
        of_known = ", of the nodes of known cost" if totals.coverage < 1 else ""
        limit = f" (ridge point of the device in fp32: {units.digits(ridge)})"
        found.append(("intensity", f"{units.digits(totals.intensity)} FLOP/byte{limit}{of_known}"))
    weights = f"{least}{alone('weight_traffic', units.size)} of the memory traffic"
    found += [
        ("time", _time(totals.seconds, nodes, least)),
        ("weights", f"{units.count(totals.params)} parameters, {units.size(totals.weight_bytes)}; {weights}"),
        ("activations", f"{least}{alone('activation_traffic', units.size)} of the memory traffic"),
        ("peak memory", both("peak_activation_bytes", units.size, " of activations")),
        ("with reuse", both("peak_activation_bytes_in_place", units.size, " where outputs take the place of inputs")),
    ]
    return [*found, *_known(report, width), *_branches(nodes)]


def _both(
    number: Number,
    formula: Number,
    say: Callable[[object], str],
    unit: str,
    relation: str,
    detail: str,
    shown: Callable[[Expr], str],
) -> str:
    """A number, and the formula that it comes from; of a count that the dims do not tell there is only a formula."""
    if isinstance(number, Expr):
        only = shown(formula) if isinstance(formula, Expr) else say(formula)
        return f"{only}{unit}{detail}"
    if formula is None and number is not None:
        return f"{say(number)}{detail} (at the assumed sizes; no formula)"
    known = f" {relation} {shown(formula)}" if isinstance(formula, Expr) else ""
    return f"{say(number)}{detail}{known}"


def _time(seconds: float | None, nodes: Sequence[Row], least: str) -> str:
    if seconds is not None:
        return f"{least}{units.time(seconds)} estimated{_shares(nodes, seconds)}"
    without = sum(row.known and row.seconds is None for row in nodes)
    rest = math.fsum(row.seconds or 0.0 for row in nodes)
    return f"≥ {units.time(rest)} estimated, without {units.several(without, 'node')} whose sizes the dims do not tell"


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
    named = _some(_unknown(at.totals, width))
    unknown = f"; unknown for {named}" if named else ""
    found = [("coverage", f"the cost of {count:,} of {units.several(len(at.nodes), 'node')} is known{unknown}")]
    without = [
        formula.op_type for formula, row in zip(report.nodes, at.nodes, strict=True) if row.known and not formula.known
    ]
    if without:
        operators = _some(list(dict.fromkeys(without)))
        count_of = units.several(len(without), "node")
        found.append(("formulas", f"leave out {count_of}, whose counts depend on the sizes by cases: {operators}"))
    if report.data_dims:
        marked = " (? in the tables)" if at.data_dims else ""
        found.append(("other sizes", f"{_some(report.data_dims)}: without a formula in the dims{marked}"))
    return found


def _branches(nodes: Sequence[Row]) -> list[tuple[str, str]]:
    """A line for each If at which the data decide which branch runs: what each of the two does."""
    found = []
    for row in nodes:
        for name, pair in groupby(row.branches, lambda branch: branch.node):
            inner = "" if name in (row.name, *row.outputs) else f", in {tables.label(row)}"
            said = " or ".join(f"{b.name.removesuffix('_branch')} {_branch(b)}" for b in pair)
            found.append(f"If {name}{inner}: {said}")
    shown = found[:SOME]
    if len(found) > SOME:
        shown.append(f"{units.several(len(found) - SOME, 'more If')}, in --json")
    return [("" if i else "branches", said) for i, said in enumerate(shown)]


def _branch(branch: BranchRow) -> str:
    """What a branch does: "12 FLOPs, 96 B"; "≥" where a part of it is unknown."""

    def said(count: Number, say: Callable[[object], str], unit: str) -> str:
        least = "≥ " if branch.reason is not None and count is not None else ""
        if isinstance(count, Expr):
            return f"{least}{units.formula(count)}{unit}"
        return f"{least}{say(count)}{unit if say is units.count else ''}"

    return f"{said(branch.flops, units.count, ' FLOPs')}, {said(branch.bytes, units.size, ' B')}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SOME:,} more" if len(names) > SOME else ""
    return f"{', '.join(names[:SOME])}{more}"


def _unknown(totals: Totals, width: int | None) -> list[str]:
    """The operators of unknown cost, those of one reason together: "StringSplit, Tokenizer (works on strings)"."""
    by_reason: dict[str, list[str]] = {}
    for name in totals.unknown:
        by_reason.setdefault(totals.reasons[name], []).append(name.removeprefix("ai.onnx::"))
    return [f"{_some(names)} ({why if width is None else _short(why)})" for why, names in by_reason.items()]


def _short(why: str) -> str:
    """A reason up to its first comma, and no longer than `REASON`."""
    short = why.split(",")[0]
    return short if len(short) <= REASON else f"{short[: REASON - 1]}…"
