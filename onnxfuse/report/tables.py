"""The tables and sentences that the text reports are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnxfuse.report import units
from onnxfuse.report.console import Cell, Column, Line, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onnxfuse.candidates import Candidate
    from onnxfuse.devices import Device
    from onnxfuse.patterns import Refusal
    from onnxfuse.rewrite import Fusion
    from onnxfuse.roofline import Execution, Row


def ranked(nodes: Sequence[Row], sort: str) -> list[Row]:
    """Most time, bytes or FLOPs first, lowest intensity first, or "order" as in the file; unknown ones at the end."""
    if sort == "order":
        return list(nodes)
    attribute = {"time": "seconds"}.get(sort, sort)
    sign = 1 if sort == "intensity" else -1

    def rank(row: Row) -> tuple[bool, float]:
        value = getattr(row, attribute)
        return (False, sign * value) if isinstance(value, int | float) else (True, 0.0)

    return sorted(nodes, key=rank)


def node_table(nodes: Sequence[Row], whole: float | None, width: int) -> RenderableType:
    """A line a node, in the order given; `whole` is the time that the shares are of."""
    columns = [
        Column("node", cut=True),
        Column("op", limit=19 if width >= 100 else 13),
        Column("FLOPs", right=True, limit=14),
        Column("MB", right=True, limit=14),
        Column("FLOP/B", right=True),
        Column("bound"),
        Column("µs", right=True),
        Column("share", right=True),
    ]
    lines: list[Line] = [
        [
            label(row),
            operator(row) if width >= 100 else "+".join((row.op_type, *row.fused)),
            _bound(row) + units.count(row.flops) if isinstance(row.flops, int) else "?",
            _bound(row) + units.megabytes(row.bytes) if isinstance(row.bytes, int) else "?",
            "–" if row.intensity is None else units.digits(row.intensity),
            Cell(row.bound or "–", row.bound or ""),
            "?" if row.seconds is None else f"{row.seconds * 1e6:,.1f}",
            units.percent(row.seconds, whole) if row.seconds is not None and whole else "–",
        ]
        for row in nodes
    ]
    return table(columns, lines, width)


def _bound(row: Row) -> str:
    """ "≥ " before what is a lower bound, "≤ " before the larger one of two branches."""
    return "≥ " if row.reason is not None else "≤ " if row.branches else ""


def operator(row: Row) -> str:
    """The operator and what it does to its result; "nchwc" where it works on blocks of channels."""
    return "+".join((row.op_type, *row.fused)) + (" nchwc" if row.domain == "com.microsoft.nchwc" else "")


def label(row: Row) -> str:
    """The node's name, or the value that it makes; with the scope in front where there is one."""
    name = row.name or f"→ {next(filter(None, row.outputs), '?')}"
    return f"{row.scope}/{name}" if row.scope else name


def candidates_table(candidates: Sequence[Candidate], width: int) -> RenderableType:
    """Pairs of nodes, what merging them does, and whether a rule does it."""
    columns = [
        Column("#", right=True),
        Column("ops", limit=32),
        Column("first node", cut=True),
        Column("FLOP/B", right=True),
        Column("saves", right=True),
        Column("time", right=True),
        Column("rule that tries it", wrap=True),
    ]
    lines: list[Line] = [
        [
            str(rank),
            " → ".join(c.op_types),
            c.nodes[0],
            f"{units.digits(c.intensity_apart)} → {units.digits(c.intensity_fused)}",
            units.size(c.bytes_saved),
            units.time(c.seconds_saved),
            Cell(c.rule or "", "yes") if c.reason is None else c.reason.split(" (")[0],
        ]
        for rank, c in enumerate(candidates, 1)
    ]
    return table(columns, lines, width)


def change_table(before: Execution, after: Execution, width: int) -> RenderableType:
    """The totals of a model before and after, and by how much they changed."""
    columns = [Column(""), *(Column(t, right=True, limit=24) for t in ("before", "after", "change"))]
    lines: list[Line] = [[*line] for line in change_lines(before, after)]
    return table(columns, lines, width)


def change_lines(before: Execution, after: Execution) -> list[tuple[str, str, str, str]]:
    """Name, before, after and change of the totals that an optimization may change."""
    rows: list[tuple[str, Callable[[Any], str], str]] = [
        ("kernels", units.count, "kernels"),
        ("FLOPs", units.count, "flops"),
        ("memory traffic", units.size, "bytes"),
        ("FLOP/byte", units.digits_or_unknown, "intensity"),
        ("estimated time", units.time, "seconds"),
        ("activations, peak", units.size, "peak_activation_bytes"),
    ]
    pairs = [(name, say, getattr(before, attribute), getattr(after, attribute)) for name, say, attribute in rows]
    return [(name, say(a), say(b), _change(a, b)) for name, say, a, b in pairs]


def _change(before: object, after: object) -> str:
    if not isinstance(before, int | float) or not isinstance(after, int | float) or not before:
        return "–"
    if before == after:
        return "same"
    change = 100 * (after - before) / before
    return f"{change:+.1f} %" if abs(change) >= 0.05 else "≈ 0 %"


def fusion_table(fusions: Sequence[Fusion], width: int) -> RenderableType:
    """Every rewrite that was made."""
    columns = [
        Column("rule"),
        Column("replaces", cut=True),
        Column("saves", right=True),
        Column("FLOPs", right=True),
        Column("time", right=True),
    ]
    lines: list[Line] = [
        [
            f.rule,
            " + ".join(f.sources) or f.node,
            units.size(f.bytes_saved),
            units.count(f.flops_saved),
            units.time(f.seconds_saved),
        ]
        for f in fusions
    ]
    return table(columns, lines, width)


def rule_table(fusions: Sequence[Fusion], width: int) -> RenderableType:
    """The rewrites that were made, summed by rule, most time saved first."""
    by_rule: dict[str, list[Fusion]] = {}
    for fusion in fusions:
        by_rule.setdefault(fusion.rule, []).append(fusion)
    saved = {rule: sum(f.seconds_saved for f in made) for rule, made in by_rule.items()}
    columns = [Column("rule"), *(Column(t, right=True) for t in ("made", "saves", "FLOPs", "time"))]
    lines: list[Line] = [
        [
            rule,
            f"{len(by_rule[rule]):,}",
            units.size(sum(f.bytes_saved for f in by_rule[rule])),
            units.count(sum(f.flops_saved for f in by_rule[rule])),
            units.time(saved[rule]),
        ]
        for rule in sorted(by_rule, key=lambda rule: -saved[rule])
    ]
    return table(columns, lines, width)


def refusal_table(refused: Sequence[Refusal], width: int) -> RenderableType:
    """Every rewrite that was not made, and why."""
    columns = [Column("rule"), Column("node", cut=True), Column("why not", wrap=True)]
    return table(columns, [[r.rule, r.node, r.reason] for r in refused], width)


def devices_table(known: Sequence[Device], width: int) -> RenderableType:
    """A line a device: peaks, bandwidths, ridge point, launch cost."""
    from onnxfuse.roofline import peak, ridge

    columns = [
        Column("device"),
        Column("", cut=True),
        *(Column(t, right=True) for t in ("fp32", "fp16", "memory", "cache", "ridge", "launch")),
    ]
    lines: list[Line] = [
        [
            d.name,
            d.title,
            units.count(peak(d, "fp32", True)),
            units.count(peak(d, "fp16", True)),
            units.count(d.bandwidth),
            units.size(d.cache_bytes),
            units.digits(ridge(d)),
            units.time(d.launch),
        ]
        for d in known
    ]
    return table(columns, lines, width)
