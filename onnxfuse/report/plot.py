"""The roofline chart as SVG or PNG, drawn by matplotlib; the same input gives the same bytes."""

from __future__ import annotations

import importlib.util
import io
import math
import warnings
from typing import TYPE_CHECKING, Any

from onnxfuse.errors import MissingDependency
from onnxfuse.report import units
from onnxfuse.report.chart import COLOURS, OTHER, Chart, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (11.0, 6.4)  # inches
AREA = (0.09, 0.105, 0.675, 0.80)  # left, bottom, width, height of the plot as shares of the figure
LARGEST, SMALLEST = 420.0, 9.0  # areas of dots, square points
TITLE = 120  # characters, in 9 points
GAP = 0.033  # least distance of two ceiling names, as a share of the plot's height
INK, FAINT = "#1f2328", "#9aa1ab"
STYLE = {
    "svg.hashsalt": "onnxfuse",
    "text.parse_math": False,  # a "$" in a name is no formula
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
}


def require() -> None:
    """Raises MissingDependency where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependency('plots need matplotlib; install it with: pip install -e ".[plot]"')


def image(chart: Chart, kind: str) -> bytes:
    """The chart as a file of kind "svg" or "png". Raises MissingDependency."""
    require()
    import matplotlib.style
    from matplotlib.figure import Figure

    out = io.BytesIO()
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a name in a script that the font lacks: boxes
        figure = Figure(figsize=SIZE)
        axes = figure.add_axes(AREA)
        _scales(axes, chart)
        _roofs(axes, chart)
        _arrows(axes, chart)
        _dots(axes, chart)
        _texts(figure, axes, chart)
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(out, format=kind, dpi=150, metadata=metadata)
    return out.getvalue()


def _scales(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    (left, right), (low, high) = chart.limits()
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    for axis, unit in ((axes.xaxis, ""), (axes.yaxis, "FLOP/s")):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda x, _, unit=unit: _tick(x, unit)))
        axis.set_minor_locator(NullLocator())
    axes.grid(color="#eceef1", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=FAINT, labelcolor=INK)
    axes.set_xlabel("intensity, FLOP/byte", color=INK)


def _tick(x: float, unit: str) -> str:
    """A power of ten: 0.001, 10, 100 GFLOP/s."""
    if not unit:
        return f"{x:,.10g}" if x < 1e6 else f"{x:.0e}"
    number, _, prefix = units.count(x).partition(" ")
    return f"{float(number.replace(',', '')):g} {prefix}{unit}"


def _roofs(axes: Axes, chart: Chart) -> None:
    (left, right), (low, high) = chart.limits()
    width, bandwidth, top = SIZE[0] * AREA[2], chart.bandwidth, chart.ceilings[0].rate
    slope = (SIZE[1] * AREA[3] / math.log(high / low)) / (width / math.log(right / left))
    for name, rate in {"memory": bandwidth, "cache": chart.cache}.items():
        if rate is not None:
            axes.plot([left, top / rate], [left * rate, top], color=INK, linewidth=1.6 if name == "memory" else 0.8)
            x = max(left, low / rate) * 1.15
            axes.text(
                x, x * rate * 1.25, f"{name} {units.count(rate, 'B/s')}", rotation=math.degrees(math.atan(slope)),
                rotation_mode="anchor", fontsize=8, color=INK,
            )  # fmt: skip
    for ceiling in chart.ceilings:
        x = ceiling.rate / (chart.cache or bandwidth)
        axes.plot([x, right], [ceiling.rate] * 2, color=INK, linewidth=1.6 if ceiling.rate == top else 0.8)
        axes.plot([x], [ceiling.rate], marker="D", markersize=3.5, color=INK)
    for ceiling, y in zip(chart.ceilings, _heights(chart), strict=True):
        said = f"{ceiling.name}  {units.count(ceiling.rate, 'FLOP/s')}"
        axes.text(1.008, y, said, transform=axes.transAxes, va="center", fontsize=8, color=INK)
    axes.axvline(chart.ridge, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    beyond = chart.ridge**2 > left * right  # right of the middle: the text stands left of the line
    axes.annotate(
        f"ridge point, fp32: {units.digits(chart.ridge)} FLOP/byte", (chart.ridge, low), (-4 if beyond else 4, 5),
        textcoords="offset points", ha="right" if beyond else "left", fontsize=8, color="#59616d",
    )  # fmt: skip


def _heights(chart: Chart) -> list[float]:
    """Where the names of the ceilings stand, as shares of the plot's height: at their lines, or just below another."""
    low, high = chart.limits()[1]
    heights: list[float] = []
    for ceiling in chart.ceilings:
        y = math.log(ceiling.rate / low) / math.log(high / low)
        heights.append(min(y, heights[-1] - GAP) if heights else y)
    return heights


def _dots(axes: Axes, chart: Chart) -> None:
    longest = max((dot.seconds for dot in chart.dots), default=1.0)
    for kind, spent in chart.spent().items():
        dots = sorted((d for d in chart.dots if legend(d.kind) == kind), key=lambda d: -d.seconds)
        axes.scatter(
            [d.intensity for d in dots], [d.rate for d in dots],
            s=[max(SMALLEST, LARGEST * d.seconds / longest) for d in dots],
            color=COLOURS.get(kind, OTHER), alpha=0.55, linewidths=0.6, edgecolors="white",
            zorder=3, label=f"{kind}  {units.time(spent)}",
        )  # fmt: skip


def _arrows(axes: Axes, chart: Chart) -> None:
    style = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
    for arrow in chart.arrows:
        axes.annotate("", xy=arrow.after, xytext=arrow.before, arrowprops=style, zorder=4)
    xs, ys = [arrow.before[0] for arrow in chart.arrows], [arrow.before[1] for arrow in chart.arrows]
    axes.scatter(xs, ys, s=14, facecolors="white", edgecolors=INK, linewidths=0.9, zorder=4)


def _texts(figure: Figure, axes: Axes, chart: Chart) -> None:
    left, top = AREA[0], AREA[1] + AREA[3]
    heading: dict[str, Any] = {"ha": "left", "color": INK}
    sizes = units.shorten(chart.sizes, TITLE * 2 // 3)
    title = f"{units.shorten(chart.title, TITLE - len(sizes))}{sizes}"
    figure.text(left, top + 0.055, title, fontsize=min(12.0, 9.0 * TITLE / len(title)), weight="bold", **heading)
    said = f"{chart.device}; a dot is a node, its area the time, its height the FLOP/s reached in it"
    figure.text(left, top + 0.02, f"{said}; arrows: apart → fused" if chart.arrows else said, **heading)
    figure.text(left, 0.02, "; ".join(chart.notes), fontsize=8, **heading | {"color": "#59616d"})
    if chart.dots:
        shown = axes.legend(
            loc="lower left", bbox_to_anchor=(1.0, -0.01), frameon=False, fontsize=8, title="class, time",
            title_fontsize=8, alignment="left",
        )  # fmt: skip
        for handle in shown.legend_handles:
            handle.set(sizes=[40])  # type: ignore[union-attr]  # the handle of a scatter is a collection
