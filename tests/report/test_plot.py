"""The plots: real files, the same bytes every time, and what stands in them."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import onnxfuse
from onnxfuse import devices
from onnxfuse.errors import MissingDependency
from onnxfuse.report import chart, plot

EXAMPLE = Path(__file__).parents[2] / "models/small_resnet.onnx"

H200 = devices.find("h200")


@pytest.fixture(scope="module")
def drawn() -> chart.Chart:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    return chart.of_analysis(onnxfuse.analyze(EXAMPLE), H200)


def test_the_svg_is_the_same_every_time_and_holds_every_dot(drawn: chart.Chart) -> None:
    first = plot.image(drawn, "svg")
    assert plot.image(drawn, "svg") == first
    assert b"<dc:date>" not in first
    root = ET.fromstring(first)
    space = "{http://www.w3.org/2000/svg}"
    shapes = [g for g in root.iter(f"{space}g") if g.get("id", "").startswith("PathCollection")]
    # one collection a class, one for its place in the legend, and one for the starts of the arrows
    assert len(shapes) == 2 * len(drawn.spent()) + 1
    # matplotlib draws equal shapes with <use> of a definition, others as paths
    wanted = ("use", "path", "defs/path")
    use, path, defined = (sum(len(g.findall(f".//{w}", {"": space[1:-1]})) for g in shapes) for w in wanted)
    marks = use + path - defined
    assert marks == len(drawn.dots) + len(drawn.spent()) + len(drawn.arrows)
    assert len(drawn.arrows) > 5


def test_the_png_is_the_same_every_time(drawn: chart.Chart) -> None:
    first = plot.image(drawn, "png")
    assert first.startswith(b"\x89PNG\r\n") and plot.image(drawn, "png") == first


def test_any_name_can_be_a_title_and_any_settings_are_left_alone(drawn: chart.Chart) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    for title in ("$x^$ {", "模型\x1b[2J\udcff", "&lt;</svg>", "long/" * 100):
        ET.fromstring(plot.image(replace(drawn, title=title), "svg"))
    assert dict(mpl.rcParams) == before


def test_a_chart_of_nothing(drawn: chart.Chart) -> None:
    assert plot.image(replace(drawn, dots=(), arrows=()), "svg")


def test_close_ceilings_have_names_apart(drawn: chart.Chart) -> None:
    near = replace(drawn, ceilings=(chart.Ceiling("a", 1e12), chart.Ceiling("b", 0.99e12), chart.Ceiling("c", 1e9)))
    a, b, c = plot._heights(near)
    assert a - b == pytest.approx(plot.GAP) and c < b - plot.GAP


@pytest.mark.parametrize(
    ("x", "unit", "said"),
    [
        *[(0.001, "", "0.001"), (1000, "", "1,000"), (1e7, "", "1e+07")],
        *[(1e11, "FLOP/s", "100 GFLOP/s"), (1, "FLOP/s", "1 FLOP/s")],
    ],
)
def test_ticks(x: float, unit: str, said: str) -> None:
    assert plot._tick(x, unit) == said


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingDependency, match=r'^plots need matplotlib; install it with: pip install -e "\.\[plot\]"$'
    ):
        plot.require()


def test_the_title_names_the_sizes() -> None:
    """A text in an SVG of matplotlib is a comment and paths."""
    report = onnxfuse.analyze(EXAMPLE)
    assert report.dims == {"N": 1}
    assert b"small_resnet.onnx, assumed N=1 -->" in plot.image(chart.of_analysis(report, H200), "svg")
    given = onnxfuse.analyze(EXAMPLE, dims={"N": 2})
    assert b"small_resnet.onnx, N=2 -->" in plot.image(chart.of_analysis(given, H200), "svg")
