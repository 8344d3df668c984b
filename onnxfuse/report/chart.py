"""What a roofline chart shows, as data: ceilings, a dot a node, an arrow a fusion. The drawing is done elsewhere.

x is the intensity in FLOP/byte, y the FLOP/s that a node reaches under the model of `roofline`, launch cost and
special functions included; so a dot lies below its roof (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from onnxfuse.report import totals, units

if TYPE_CHECKING:
    from onnxfuse.analysis import Analysis
    from onnxfuse.candidates import Candidate
    from onnxfuse.devices import Device
    from onnxfuse.pipeline import Result
    from onnxfuse.rewrite import Fusion
    from onnxfuse.roofline import Row

MAX_DOTS = 2000  # with more nodes, those of one class that lie close together become one dot
CELLS = 10  # a decade is cut into that many cells for it
MAX_ARROWS = 30

# Classes with a colour of their own, legible on white and on black; the others share one.
COLOURS = {
    "conv": "#3b82f6",
    "matmul": "#f97316",
    "attention": "#ef4444",
    "rnn": "#a16207",
    "elementwise": "#22a35a",
    "norm": "#a855f7",
    "pool": "#0fa3a3",
    "reduction": "#e04f9e",
    "convert": "#b5a40c",
    "resample": "#64a30d",
}
OTHER = "#8a8f98"

F = TypeVar("F", "Candidate", "Fusion")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A peak rate in FLOP/s and the units that have it, such as "fp16, bf16 matrix"."""

    name: str
    rate: float


@dataclass(frozen=True, slots=True)
class Dot:
    """One node, or several close ones of a class: their sums' FLOP/byte and FLOP/s, and their seconds."""

    name: str
    kind: str
    intensity: float
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """Nodes apart and as one: FLOP/byte and FLOP/s of both."""

    name: str
    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """A roofline chart. bandwidth in bytes/s; cache: that of the nearest cache in the device's times; ridge: the fp32
    ridge point in FLOP/byte; notes: what is not drawn. sizes: of the free dimensions, as `totals.sizes` says them.
    """

    title: str
    sizes: str
    device: str
    bandwidth: float
    cache: float | None
    ridge: float
    ceilings: tuple[Ceiling, ...]
    dots: tuple[Dot, ...]
    arrows: tuple[Arrow, ...]
    notes: tuple[str, ...]

    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Ranges of x and y: every dot and arrow, every ridge point, every ceiling, and some air."""
        ends = [end for a in self.arrows for end in (a.before, a.after)]
        rates = [c.rate for c in self.ceilings]
        xs = [d.intensity for d in self.dots] + [x for x, _ in ends] + [rate / self.bandwidth for rate in rates]
        ys = [d.rate for d in self.dots] + [y for _, y in ends] + rates
        return (min([0.1, *xs]) / 2, max(xs) * 4), (min(ys) / 3, max(ys) * 3)

    def spent(self) -> dict[str, float]:
        """Seconds by the class that a legend names, most first; classes without a colour are "other"."""
        found: dict[str, float] = {}
        for dot in self.dots:
            kind = legend(dot.kind)
            found[kind] = found.get(kind, 0.0) + dot.seconds
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def legend(kind: str) -> str:
    """The name under which a class stands in the legend."""
    return kind if kind in COLOURS else "other"


def of_analysis(report: Analysis, device: Device) -> Chart:
    """The chart of `analyze`: the nodes, and arrows for the candidates that a rule can fuse."""
    nodes = report.at_dims.nodes
    by_label = _by_label(nodes)
    found = [candidate for candidate in report.candidates if candidate.reason is None]
    arrows = [_candidate_arrow(candidate, by_label) for candidate in _best(found)]
    sizes = totals.sizes(report.dims, report.assumed)
    return _chart(totals.subject(report), sizes, nodes, arrows, len(found), device)


def of_optimization(result: Result, before: Analysis, after: Analysis, device: Device) -> Chart:
    """The chart of `optimize`: the nodes of the result, and an arrow for each fusion that was made."""
    by_label = _by_label(before.at_dims.nodes)
    arrows = [_fusion_arrow(f, by_label) for f in _best(result.fusions)]
    title, sizes = f"{result.source or 'model'}, optimized", totals.sizes(result.dims, result.assumed)
    return _chart(title, sizes, after.nodes, arrows, len(result.fusions), device)


def _best(found: Sequence[F]) -> list[F]:
    return sorted(found, key=lambda f: -f.seconds_saved)[:MAX_ARROWS]


def _chart(
    title: str, sizes: str, rows: Sequence[Row], arrows: Iterable[Arrow | None], fusions: int, device: Device
) -> Chart:
    from onnxfuse.roofline import ridge

    placed, left = [row for row in rows if _rate(row)], [row for row in rows if not _rate(row)]
    dots = _dots(placed)
    notes = []
    if left:
        share = f" ({units.percent(_seconds(left), whole)} of the time)" if (whole := _seconds(rows)) else ""
        notes.append(f"not drawn: nodes without FLOPs or of unknown cost, {len(left):,} of {len(rows):,}{share}")
    if len(dots) < len(placed):
        notes.append(f"{len(placed):,} nodes in {len(dots):,} dots")
    if fusions > MAX_ARROWS:
        notes.append(f"arrows for the {MAX_ARROWS} of {fusions:,} fusions that save the most time")
    return Chart(
        title,
        sizes,
        device.title,
        device.bandwidth,
        device.caches[0][1] if device.caches else None,
        ridge(device),
        ceilings(device),
        dots,
        tuple(arrow for arrow in arrows if arrow is not None),
        tuple(notes),
    )


def ceilings(device: Device) -> tuple[Ceiling, ...]:
    """The peaks of a device, highest first; those of one rate are one ceiling."""
    found: dict[float, dict[str, list[str]]] = {}
    for unit, peaks in (("matrix", device.matrix), ("vector", device.vector)):
        for dtype, rate in peaks.items():
            found.setdefault(rate, {}).setdefault(unit, []).append(dtype)
    return tuple(Ceiling(_units(found[rate]), float(rate)) for rate in sorted(found, reverse=True))


def _units(of_rate: Mapping[str, Sequence[str]]) -> str:
    names = {unit: ", ".join(dtypes) for unit, dtypes in of_rate.items()}
    if len(set(names.values())) < len(names):
        return f"{names['matrix']} {' and '.join(names)}"
    return "; ".join(f"{dtypes} {unit}" for unit, dtypes in names.items())


def _rate(row: Row) -> float | None:
    """FLOP/s of a node that has a place in the chart."""
    if not isinstance(row.flops, int) or not isinstance(row.bytes, int) or not row.bytes or not row.seconds:
        return None
    return row.flops / row.seconds or None


def _dots(rows: Sequence[Row]) -> tuple[Dot, ...]:
    if len(rows) <= MAX_DOTS:
        return tuple(_dot([row]) for row in rows)
    cells: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        x, y = _point([row])
        key = (row.kind, math.floor(math.log10(x) * CELLS), math.floor(math.log10(y) * CELLS))
        cells.setdefault(key, []).append(row)
    return tuple(_dot(part) for part in cells.values())


def _dot(rows: Sequence[Row]) -> Dot:
    first = label(rows[0])
    name = first if len(rows) == 1 else f"{len(rows):,} nodes of class {rows[0].kind}, such as {first}"
    return Dot(name, rows[0].kind, *_point(rows), _seconds(rows))


def _seconds(rows: Iterable[Row]) -> float:
    return math.fsum(row.seconds or 0.0 for row in rows)


def _left(
    rows: Sequence[Row], flops_saved: int = 0, bytes_saved: int = 0, seconds_saved: float = 0.0
) -> tuple[int, int, float]:
    """FLOPs, bytes and seconds of rows together, less what a fusion saves."""
    flops = sum(row.flops for row in rows if isinstance(row.flops, int)) - flops_saved
    moved = sum(row.bytes for row in rows if isinstance(row.bytes, int)) - bytes_saved
    return flops, moved, _seconds(rows) - seconds_saved


def _point(
    rows: Sequence[Row], flops_saved: int = 0, bytes_saved: int = 0, seconds_saved: float = 0.0
) -> tuple[float, float]:
    """(FLOP/byte, FLOP/s) of rows that have a place each, together, less what a fusion saves."""
    flops, moved, seconds = _left(rows, flops_saved, bytes_saved, seconds_saved)
    return flops / moved, flops / seconds


def label(row: Row) -> str:
    """How plans and candidates call a node: its name, or its operator and first output."""
    return row.name or f"{row.op_type}({row.outputs[0] if row.outputs else ''})"


def _by_label(rows: Iterable[Row]) -> dict[str, Row]:
    """Rows that have a place by label; names that two nodes share are left out."""
    found: dict[str, Row] = {}
    twice: set[str] = set()
    for row in rows:
        name = label(row)
        twice.update([name] if name in found else [])
        found[name] = row
    return {name: row for name, row in found.items() if name not in twice and _rate(row)}


def _candidate_arrow(candidate: Candidate, by_label: Mapping[str, Row]) -> Arrow | None:
    rows = [by_label[name] for name in candidate.nodes if name in by_label]
    if len(rows) < len(candidate.nodes):
        return None
    after = _point(rows, 0, candidate.bytes_saved, candidate.seconds_saved)
    return Arrow(" + ".join(candidate.nodes), _point(rows), after)


def _fusion_arrow(fusion: Fusion, by_label: Mapping[str, Row]) -> Arrow | None:
    rows = [by_label[name] for name in fusion.sources if name in by_label]
    if not rows or len(rows) < len(fusion.sources):
        return None
    saved = fusion.flops_saved, fusion.bytes_saved, fusion.seconds_saved
    if min(_left(rows, *saved)) <= 0:
        return None  # what is gone has no place
    after = _point(rows, *saved)
    return Arrow(f"{fusion.rule}: {' + '.join(fusion.sources)}", _point(rows), after)
