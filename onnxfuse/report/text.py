"""The reports as text for a terminal: one function a command, from its result to a string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnxfuse import targets
from onnxfuse.report import tables, units
from onnxfuse.report.console import Cell, Column, Line, pairs, render, table, title

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onnxfuse.analysis import Analysis
    from onnxfuse.bench import BenchmarkReport
    from onnxfuse.devices import Device
    from onnxfuse.pipeline import Result
    from onnxfuse.profiled import NodeReport, NodeTime
    from onnxfuse.ratio import Ratio
    from onnxfuse.report.console import Part
    from onnxfuse.verification import Verdict


# onnxruntime's optimization levels in words.
_LEVELS = {"disabled": "with optimizations off", "all": "at the default level"}


def analysis(
    report: Analysis, device: Device, *, sort: str = "time", top: int = 20, width: int = 100, colour: bool = False
) -> str:
    """`analyze`: nodes in the order of `sort`, totals, candidates; at most `top` lines a table, 0 for all.

    device: the one of the report.
    """
    from onnxfuse.report import totals  # brings the cost tables, which the other reports do not need
    from onnxfuse.roofline import ridge

    whole = report.at_dims.totals.seconds
    nodes, found = tables.ranked(report.at_dims.nodes, sort), report.candidates
    at = totals.sizes(report.dims, report.assumed)
    name = f"{totals.subject(report)} on {device.title}, target {report.target}{at}"
    parts: list[Part] = [title(name), ""]
    shown = nodes[: top or None]
    parts.append(tables.node_table(shown, whole, width))
    if len(shown) < len(nodes):
        rest = sum(row.seconds or 0.0 for row in nodes[top:])
        share = f" with {units.percent(rest, whole)} of the time" if whole else ""
        parts.append(f"… and {units.several(len(nodes) - top, 'more node')}{share}")
    parts += ["", pairs(totals.lines(report, ridge(device), width), width), ""]
    if not found:
        return render([*parts, "No fusion candidates."], width, colour)
    parts += [title("Fusion candidates, lowest intensity first"), "What becomes of them: optimize --explain"]
    parts.append(tables.candidates_table(found[: top or None], width))
    if top and len(found) > top:
        parts.append(f"… and {units.several(len(found) - top, 'more candidate')}")
    return render(parts, width, colour)


def optimization(result: Result, *, explain: bool = False, width: int = 100, colour: bool = False) -> str:
    """`optimize`: totals before and after, rewrites by rule, verdict; with `explain` one by one, and the refusals."""
    arrow = f"{result.source or 'model'} → {result.output or '(not written)'}"
    parts: list[Part] = [title(f"{arrow}, target {result.target}, device {result.device}"), ""]
    if result.fusions:
        make = tables.fusion_table if explain else tables.rule_table
        parts += [tables.change_table(result.before, result.after, width), "", make(result.fusions, width)]
    else:
        parts.append("Nothing to rewrite: no rule is legal and pays here.")
    if explain and result.refused:
        parts += ["", title("Not made"), tables.refusal_table(result.refused, width)]
    elif result.refused:
        verb = "was" if len(result.refused) == 1 else "were"
        parts += ["", f"{len(result.refused):,} more {verb} not made; --explain says why."]
    parts += ["", f"{verified(result)} ({result.seconds:.1f} s)"]
    if result.verdict is not None and result.fusions:
        parts += _how_verified(result.verdict, targets.find(result.target).provider)
    if result.requires is not None:
        parts.append(" ".join(f"Needs {package} {release} or newer." for package, release in result.requires.items()))
    if result.fusions and not result.quantizable:
        parts.append("To quantize the result, make it with --then quantize (docs/quantization.md).")
    return render(parts, width, colour)


def _how_verified(verdict: Verdict, wanted: str = "cpu") -> Iterator[str]:
    """Where and at which levels both models ran, and what could not be judged. wanted: the target's provider."""
    if verdict.levels:
        levels = " and ".join(_LEVELS[level] for level in verdict.levels)
        missing = " (no CUDA here)" if wanted != verdict.provider else ""
        yield f"Ran {levels} on {'CUDA' if verdict.provider == 'cuda' else 'the CPU'}{missing}."
    for one in verdict.unjudged:
        yield f"Output '{one.name}' was not judged: {one.reason}."


def verified(result: Result) -> str:
    """What the comparison of both models found."""
    if result.verdict is not None and result.fusions:
        said = _verdict(result.verdict)
    else:
        said = "Not verified" if result.fusions else "Nothing was changed"
    taken_back = f"; {len(result.rolled_back)} rolled back" if result.rolled_back else ""
    return f"{said}{taken_back}"


def _verdict(verdict: Verdict) -> str:
    if not verdict.ok:
        return f"{'DIFFERENT' if verdict.judged else 'NOT VERIFIED'}: {verdict.reason}"
    error = (
        f"largest error {verdict.max_error:.1e} of the output's scale" if verdict.max_error else "no difference at all"
    )
    return f"Same results: {units.several(verdict.cases, 'case')}, {error}"


def verification(verdict: Verdict, *, width: int = 100, colour: bool = False) -> str:
    """`verify`: the verdict, and the largest error of every output."""
    columns = [Column("output", cut=True), Column("dtype")]
    columns += [Column(t, right=True) for t in ("error", "allowed", "scale")]
    columns.append(Column(""))
    lines: list[Line] = [
        [
            o.name,
            o.dtype,
            f"{o.max_error:.1e}",
            f"{o.tolerance:.1e}",
            f"{o.scale:.3g}",
            Cell("same", "yes") if o.ok else Cell("DIFFERENT", "no"),
        ]
        for o in verdict.outputs
    ]
    parts: list[Part] = [_verdict(verdict), *_how_verified(verdict)]
    if lines:
        parts += ["", table(columns, lines, width)]
    return render(parts, width, colour)


def device_table(known: Sequence[Device], *, width: int = 100, colour: bool = False) -> str:
    """`devices`: peaks, memory, ridge point and launch cost of each."""
    note = (
        "fp32, fp16: dense FLOP/s of multiply-accumulates (fp32 on TF32 units where there are any). memory: bytes/s. "
        "ridge: FLOP/byte for fp32. Every number's source is in the device's .toml file."
    )
    return render([tables.devices_table(known, width), "", note], width, colour)


def benchmark(report: BenchmarkReport, *, width: int = 100, colour: bool = False) -> str:
    """`benchmark`: times and memory of each model, where their nodes ran, and the ratio of two."""
    columns = [Column("model", cut=True)]
    columns += [Column(t, right=True) for t in ("median", "p10", "p90", "peak memory")]
    columns.append(Column("nodes by provider", wrap=True))
    lines: list[Line] = [
        [
            str(m.path),
            *(units.time(ms / 1e3) for ms in (m.median_ms, m.p10_ms, m.p90_ms)),
            units.size(m.peak_memory),
            ", ".join(f"{name.removesuffix('ExecutionProvider')} {n:,}" for name, n in m.nodes_by_provider.items()),
        ]
        for m in report.models
    ]
    runs = units.several(report.runs, "run")
    heading = f"{report.provider} on {report.device_name}, level {report.level}, {runs} each"
    parts: list[Part] = [title(heading), "", table(columns, lines, width)]
    if report.ratio is not None:
        parts += ["", _compared(report.ratio)]
    return render(parts, width, colour)


def _compared(ratio: Ratio) -> str:
    if ratio.ci95 is None:
        return f"Too few runs to tell; --runs 20 or more: median speed-up {ratio.median:.3f}x"
    low, high = ratio.ci95
    said = (
        "No measurable difference"
        if low <= 1 <= high
        else "The second is faster"
        if low > 1
        else "The second is slower"
    )
    return f"{said}: speed-up {ratio.median:.3f}x (95 % confidence: {low:.3f}x to {high:.3f}x)"


def node_times(report: NodeReport, *, worst: int = 15, width: int = 100, colour: bool = False) -> str:
    """`benchmark --per-node`: how estimate and measurement agree, by kind of work, and the nodes that differ most."""
    from onnxfuse.report import totals

    measured = sum(work.measured for work in report.works)
    estimated = sum(work.estimated for work in report.works)
    rank = "not defined" if report.spearman is None else f"{report.spearman:.3f}"
    at = f"level {report.level}{totals.sizes(report.dims, report.assumed)}"
    heading = f"{report.model or 'model'} on one thread of {report.device_name}, {at}"
    nodes = units.several(len(report.nodes), "node")
    compared = f"{report.compared:,} of {nodes}, those above {units.time(report.shortest)}"
    if without := sum(node.estimated is None for node in report.nodes):
        compared += f"; {without:,} without an estimate (cost unknown, or sizes that the dims do not tell)"
    parts: list[Part] = [title(heading), ""]
    sums = [("compared", f"{compared}; median of {units.several(report.runs, 'run')} against device {report.device}")]
    if not report.compared:
        return render([*parts, pairs(sums, width)], width, colour)
    sums += [
        ("rank correlation", f"{rank} (Spearman)"),
        ("sum", f"estimated {units.time(estimated)}, measured {units.time(measured)}: {_times(report.ratio)}"),
    ]
    parts.append(pairs(sums, width))
    columns = [Column("work", cut=True), *(Column(t, right=True) for t in ("nodes", "measured", "share", "estimated"))]
    columns.append(Column("est./meas.", right=True))
    by_work: list[Line] = [
        [
            w.work,
            f"{w.nodes:,}",
            units.time(w.measured),
            units.percent(w.measured, measured),
            units.time(w.estimated),
            _times(w.ratio),
        ]
        for w in report.works
    ]
    parts += ["", table(columns, by_work, width), "", title("Largest differences")]
    return render([*parts, _differences(report.worst[:worst], width)], width, colour)


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}x"


def _differences(nodes: Sequence[NodeTime], width: int) -> RenderableType:
    columns = [Column("node", cut=True), Column("work", cut=True)]
    columns += [*(Column(t, right=True) for t in ("measured", "estimated", "est./meas.")), Column("bound")]
    lines: list[Line] = [
        [
            node.name,
            node.work,
            units.time(node.measured),
            units.time(node.estimated),
            _times((node.estimated or 0.0) / node.measured),
            Cell(node.bound or "–", node.bound or ""),
        ]
        for node in nodes
    ]
    return table(columns, lines, width)
