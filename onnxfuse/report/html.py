"""The reports as interactive HTML pages: what stands in them. `page` makes the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxfuse.report import chart, page, tables, text, totals, units

if TYPE_CHECKING:
    from onnxfuse.analysis import Analysis
    from onnxfuse.candidates import Candidate
    from onnxfuse.devices import Device
    from onnxfuse.patterns import Refusal
    from onnxfuse.pipeline import Result
    from onnxfuse.rewrite import Fusion
    from onnxfuse.roofline import Row

DEPTHS = (1, 2, 3)  # of scopes


def analysis(report: Analysis, device: Device) -> bytes:
    """The page of `analyze`: roofline, nodes, time by class and by scope, fusion candidates."""
    from onnxfuse.roofline import ridge

    drawn = chart.of_analysis(report, device)
    at = report.at_dims
    sections = [
        page.section("Nodes", "", [_nodes("nodes", at)]),
        page.section("Time by operator class", "", [_by_kind("class", at), _by_operator(at)]),
        page.section("Time by scope", "A scope is the front part of a node's name, up to a slash.", _scopes(at)),
        _candidates("Fusion candidates", report.candidates),
    ]
    facts = totals.lines(report, ridge(device))
    return page.render(drawn, _on(report, device), facts, sections)


def optimization(result: Result, before: Analysis, after: Analysis, device: Device) -> bytes:
    """The page of `optimize`: before and after, the fusions on the roofline, what was refused and why.

    before, after: the analyses of the two models, with the sizes of `result.dims`.
    """
    pair = {"optimized": after, "original": before.at_dims}
    changes = tables.change_lines(result.before, result.after)
    columns = (("", ""), ("before", ""), ("after", ""), ("change", ""))
    sections = [
        page.section("Before and after", "", [page.view("totals", columns, changes, tuple)]),
        page.section("Fusions", "", [_fusions(result)]),
        page.section("Not made", "", [_refused(result)]),
        page.section("Nodes", "", [_nodes(name, report) for name, report in pair.items()]),
        page.section("Time by operator class", "", [_by_kind(name, report) for name, report in pair.items()]),
        page.section("Time by scope", "Of the optimized model, by the front part of a node's name.", _scopes(after)),
        _candidates("Fusion candidates that are left", after.candidates),
    ]
    facts = [("written to", result.output or "(not written)"), ("check", text.verified(result))]
    drawn = chart.of_optimization(result, before, after, device)
    return page.render(drawn, _on(result, device), facts, sections)


def _on(report: Analysis | Result, device: Device) -> str:
    return units.printable(f"{device.title}, target {report.target}{totals.sizes(report.dims, report.assumed)}")


def _intensity(x: float | None) -> str:
    return "–" if x is None else units.digits(x)


def _right(*titles: str) -> list[page.Column]:
    return [(title, "right") for title in titles]


def _name(name: str) -> str:
    return units.shorten(name, page.NAME)


def _names(names: Iterable[str]) -> str:
    return " + ".join(map(_name, names))


def _nodes(name: str, report: Analysis) -> page.Part:
    columns = [("node", "long"), ("operator", ""), ("class", ""), ("share", "bar"), ("time", "right"), ("bound", "")]
    columns += _right("FLOPs", "MACs", "read", "written", "FLOP/byte")
    whole, ranked, most = report.totals.seconds, tables.ranked(report.nodes, "time"), page.MAX_ROWS

    def line(row: Row) -> Sequence[page.Cell]:
        return (
            _name(tables.label(row)),
            _name(tables.operator(row)),
            row.kind,
            page.share(row.seconds, whole),
            page.number(row.seconds, units.time),
            row.bound or "–",
            page.number(row.flops, units.count),
            page.number(row.macs, units.count),
            page.number(row.bytes_read, units.size),
            page.number(row.bytes_written, units.size),
            page.number(row.intensity, _intensity),
        )

    note = ""
    if len(ranked) > most:
        part = sum(row.seconds or 0.0 for row in ranked[:most])
        share = f", {units.percent(part, whole)} of it" if whole else ""
        note = f"The {most:,} of {len(ranked):,} nodes with the most time{share}; `onnxfuse analyze --csv` writes all."
    return page.view(name, columns, ranked, line, note)


def _by_kind(name: str, report: Analysis) -> page.Part:
    return _sums(name, "class", _grouped(report.nodes, lambda row: row.kind), report.totals.seconds)


def _by_operator(report: Analysis) -> page.Part:
    groups = _grouped(report.nodes, lambda row: f"{row.domain}::{tables.operator(row)}" if row.domain else row.op_type)
    return _sums("operator", "operator", groups, report.totals.seconds)


def _scopes(report: Analysis) -> list[page.Part]:
    views: list[page.Part] = []
    seen = 0
    for depth in DEPTHS:
        groups = _grouped(report.nodes, lambda row, depth=depth: scope(row, depth))  # type: ignore[misc]
        if len(groups) > seen:  # deeper names than before
            views.append(_sums(f"{depth} deep", "scope", groups, report.totals.seconds))
        seen = max(seen, len(groups))
    return views


def scope(row: Row, depth: int) -> str:
    """The first `depth` parts of a node's name: "layer1/layer1.0" of "/layer1/layer1.0/conv1/Conv" for 2."""
    parts = [part for part in [*row.scope.split("/"), *row.name.split("/")[:-1]] if part]
    return "/".join(parts[:depth]) or "(no scope)"


def _grouped(rows: Iterable[Row], group: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(group(row), []).append(row)
    return found


def _sums(name: str, title: str, groups: Mapping[str, Sequence[Row]], whole: float | None) -> page.Part:
    """A line a group, most time first: time, nodes, and the known FLOPs and bytes."""
    columns = [(title, "long"), ("share", "bar"), *_right("time", "nodes", "FLOPs", "bytes")]
    spent = {group: sum(row.seconds or 0.0 for row in rows) for group, rows in groups.items()}

    def line(group: str) -> Sequence[page.Cell]:
        rows = groups[group]
        flops: Any = sum((row.flops for row in rows if row.flops is not None), start=0)  # numbers or expressions
        moved: Any = sum((row.bytes for row in rows if row.bytes is not None), start=0)
        return (
            _name(group),
            page.share(spent[group], whole),
            page.number(spent[group], units.time),
            page.number(len(rows), lambda n: f"{n:,}"),
            page.number(flops, units.count),
            page.number(moved, units.size),
        )

    return page.view(name, columns, sorted(groups, key=lambda g: (-spent[g], g)), line)


def _candidates(title: str, found: Sequence[Candidate]) -> page.Part:
    columns = [("operators", ""), ("nodes", "long"), *_right("apart", "fused", "saves", "time saved")]

    def line(c: Candidate) -> Sequence[page.Cell]:
        return (
            " → ".join(c.op_types),
            _names(c.nodes),
            page.number(c.intensity_apart, units.digits),
            page.number(c.intensity_fused, units.digits),
            page.number(c.bytes_saved, units.size),
            page.number(c.seconds_saved, units.time),
            f"yes: {c.rule}" if c.reason is None else c.reason,
        )

    note = "Neighbours whose merging saves memory traffic; apart and fused in FLOP/byte, lowest first."
    return page.section(title, note, [page.view("candidates", [*columns, ("fuses?", "long")], found, line)])


def _fusions(result: Result) -> page.Part:
    columns = [("rule", ""), ("replaces", "long"), *_right("saves", "FLOPs saved", "time saved")]

    def line(f: Fusion) -> Sequence[page.Cell]:
        return (
            f.rule,
            _names(f.sources or (f.node,)),
            page.number(f.bytes_saved, units.size),
            page.number(f.flops_saved, units.count),
            page.number(f.seconds_saved, units.time),
        )

    return page.view("fusions", columns, result.fusions, line)


def _refused(result: Result) -> page.Part:
    def line(r: Refusal) -> Sequence[page.Cell]:
        return r.rule, _name(r.node), units.printable(r.reason)

    columns = [("rule", ""), ("node", "long"), ("why not", "long")]
    return page.view("refused", columns, [*result.rolled_back, *result.refused], line)
