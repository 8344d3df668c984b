"""The interactive pages: what is in them, that no name can break out, and that they work in a browser."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import onnx
import pytest
from support import graph

import onnxfuse
from onnxfuse import devices
from onnxfuse.report import html, page
from onnxfuse.roofline import Row

EXAMPLE = Path(__file__).parents[2] / "models/small_resnet.onnx"
H200 = devices.find("h200")
HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>"


class Parsed(HTMLParser):
    """Counts the elements of a page and keeps the text of its JSON element."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.data: dict[str, Any] = {}
        self._inside = False
        self.feed(text.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self._inside = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data, self._inside = json.loads(data), False


def views(text: bytes) -> dict[tuple[str, str], list[list[str]]]:
    """(section, view) → the texts of its rows."""
    return {
        (part["title"], view["name"]): [[c if isinstance(c, str) else c[1] for c in row] for row in view["rows"]]
        for part in Parsed(text).data["sections"]
        for view in part["views"]
    }


def hostile_model() -> onnx.ModelProto:
    model = graph("t = Relu(x) y = Neg(t)", inputs="float[64,64] x", outputs="float[64,64] y")
    for node in model.graph.node:
        node.name = f"{HOSTILE}/{node.op_type}"
    return model


def test_the_page_of_an_analysis() -> None:
    report = onnxfuse.analyze(EXAMPLE)
    shown = views(html.analysis(report, H200))
    nodes = shown["Nodes", "nodes"]
    assert len(nodes) == len(report.nodes) == 27
    slowest = max(report.nodes, key=lambda row: row.seconds or 0)
    assert nodes[0][:3] == [slowest.name, slowest.op_type, slowest.kind]
    by_class = {name: (share, count) for name, share, _, count, _, _ in shown["Time by operator class", "class"]}
    assert sum(int(count) for _, count in by_class.values()) == 27
    conv = sum(row.seconds or 0 for row in report.nodes if row.kind == "conv")
    assert by_class["conv"][0] == f"{100 * conv / report.totals.seconds:.1f} %"  # type: ignore[operator]
    assert len(shown["Fusion candidates", "candidates"]) == len(report.candidates)
    assert shown["Time by scope", "1 deep"] == [["(no scope)", "100.0 %", *shown["Time by scope", "1 deep"][0][2:]]]


def test_the_page_of_an_optimization() -> None:
    result = onnxfuse.optimize(EXAMPLE)
    before, after = onnxfuse.analyze(EXAMPLE), result.analysis(H200)
    assert after.nodes == onnxfuse.analyze(result.model).at_dims.nodes
    text = html.optimization(result, before, after, H200)
    shown, data = views(text), Parsed(text).data
    assert ["FLOPs", "42.4 M", "42.4 M", "same"] in shown["Before and after", "totals"]
    assert len(shown["Fusions", "fusions"]) == len(result.fusions) == len(data["chart"]["arrows"]) == 9
    assert [r.reason for r in result.refused] == [row[2] for row in shown["Not made", "refused"]]
    assert (len(shown["Nodes", "original"]), len(shown["Nodes", "optimized"])) == (len(before.nodes), len(after.nodes))
    assert html.optimization(result, before, after, H200) == text


def test_the_page_has_the_formulas_whole() -> None:
    model = graph("y = Relu(x)", inputs="float[N,4] x", outputs="float[N,4] y")
    facts = dict(Parsed(html.analysis(onnxfuse.analyze(model), H200)).data["facts"])
    assert facts["memory traffic"].endswith("= 32·N")
    names = "".join(f", float[n{i}] x{i}" for i in range(60))
    sums = "".join(f" y{i} = Relu(x{i})" for i in range(60))
    model = graph(sums, inputs=names[2:], outputs=names[2:].replace("x", "y"))
    facts = dict(Parsed(html.analysis(onnxfuse.analyze(model), H200)).data["facts"])
    assert facts["memory traffic"].endswith("8·n8 + 8·n9")  # sorted as text: the last of 60 terms


def row(name: str, scope: str = "") -> Row:
    return Row(name, "Conv", "", scope, (), (), "conv", 10, 5, 0, 3, 4, 7, 10 / 7, 2e-6, "memory")


@pytest.mark.parametrize(
    ("node", "depth", "scope"),
    [
        (row("/layer1/layer1.0/conv1/Conv"), 1, "layer1"),
        (row("/layer1/layer1.0/conv1/Conv"), 2, "layer1/layer1.0"),
        (row("/layer1/Conv"), 3, "layer1"),
        (row("Conv", scope="loop_1"), 1, "loop_1"),
        (row("node_conv2d"), 1, "(no scope)"),
        (row(""), 2, "(no scope)"),
    ],
)
def test_the_scope_of_a_node(node: Row, depth: int, scope: str) -> None:
    assert html.scope(node, depth) == scope


def test_scopes_are_summed_as_deep_as_the_names_go() -> None:
    rows = (row("/a/x/Conv"), row("/a/y/Conv"), row("/b/Conv"))
    report = onnxfuse.analyze(EXAMPLE).at_dims
    report = replace(report, nodes=rows, candidates=(), totals=replace(report.totals, seconds=6e-6))
    shown = views(html.analysis(report, H200))
    assert shown["Time by scope", "1 deep"] == [
        ["a", "66.7 %", "4.00 µs", "2", "20", "14 B"],
        ["b", "33.3 %", "2.00 µs", "1", "10", "7 B"],
    ]
    assert [r[0] for r in shown["Time by scope", "2 deep"]] == ["a/x", "a/y", "b"]
    assert ("Time by scope", "3 deep") not in shown


def test_hostile_names_stay_text() -> None:
    report = onnxfuse.analyze(hostile_model())
    text = html.analysis(replace(report, model=HOSTILE), H200)
    parsed = Parsed(text)
    assert parsed.elements["script"] == 2 and parsed.elements["img"] == 0 and parsed.elements["title"] == 1
    assert HOSTILE.encode() not in text
    assert parsed.data["title"] == HOSTILE
    assert {r[0] for r in views(text)["Nodes", "nodes"]} == {f"{HOSTILE}/Relu", f"{HOSTILE}/Neg"}


def test_names_of_any_bytes_and_any_length() -> None:
    report = onnxfuse.analyze(EXAMPLE).at_dims
    odd = replace(report, model="m\udcff\x00.onnx", nodes=(row("\u2028 \x1b" + "x" * 100_000),), candidates=())
    text = html.analysis(odd, H200)
    assert len(text) < 40_000
    assert Parsed(text).data["title"] == "m??.onnx"


def test_large_models_show_the_first_rows_and_say_so() -> None:
    report = onnxfuse.analyze(EXAMPLE).at_dims
    rows = tuple(row(f"n{i}") for i in range(20_000))
    text = html.analysis(replace(report, nodes=rows, candidates=report.candidates[:1] * 5000), H200)
    nodes, candidates = (Parsed(text).data["sections"][i]["views"][0] for i in (0, 3))
    assert len(nodes["rows"]) == len(candidates["rows"]) == page.MAX_ROWS == 2000
    assert nodes["note"].startswith("The 2,000 of 20,000 nodes with the most time")
    assert candidates["note"] == "The first 2,000 of 5,000."
    assert len(text) < 2_000_000


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    if browser.find() is None:
        pytest.skip("no Chromium here to open the page with")
    with browser.opened(tmp_path_factory.mktemp("profile")) as page:
        yield page


def test_in_a_browser(tab: browser.Page, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report = onnxfuse.analyze(EXAMPLE)
    path.write_bytes(html.analysis(report, H200))
    colours = []
    for scheme in ("light", "dark"):
        tab.open(path, scheme=scheme)
        colours.append(tab.run("getComputedStyle(document.body).backgroundColor"))
        assert tab.complaints == []
    assert colours == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"]
    assert tab.run("document.querySelectorAll('svg .dot').length") == 26  # all but Flatten
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")

    first = "[...document.querySelectorAll('table')[0].tBodies[0].rows].map((r) => r.cells[10].textContent)"
    head = "document.querySelectorAll('table')[0].tHead.rows[0].cells[10].firstChild.click()"
    known = sorted((r.intensity for r in report.nodes if r.intensity is not None), reverse=True)
    tab.run(head)
    assert tab.run(first)[0] == f"{known[0]:.1f}" and tab.run(first)[-1] == "–"
    tab.run(head)
    assert tab.run(first)[0] == f"{known[-1]:.2f}" and tab.run(first)[-1] == "–"

    tab.run("{ const f = document.querySelector('input'); f.value = 'gemm'; f.dispatchEvent(new Event('input')) }")
    assert tab.run("[...document.querySelectorAll('table')[0].tBodies[0].rows].filter((r) => !r.hidden).length") == 1
    tab.run("document.querySelector('.tools button').click()")
    assert tab.run("[...document.querySelectorAll('svg g')].filter((g) => g.style.display === 'none').length") == 1
    assert tab.complaints == [] and tab.requests == [path.as_uri()]


def test_a_narrow_window_keeps_the_chart_readable(tab: browser.Page, tmp_path: Path) -> None:
    """At 520 px the chart scrolls in its own box: its texts are not drawn below 8 px, and the page is not wider."""
    path = tmp_path / "report.html"
    path.write_bytes(html.analysis(onnxfuse.analyze(EXAMPLE), H200))
    tab.call("Emulation.setDeviceMetricsOverride", width=520, height=900, deviceScaleFactor=1, mobile=False)
    try:
        tab.open(path)
        svg = "document.querySelector('svg')"
        size = "parseFloat(getComputedStyle(document.querySelector('svg text')).fontSize)"
        assert tab.run(f"{svg}.getScreenCTM().a * {size}") >= 8
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    finally:
        tab.call("Emulation.clearDeviceMetricsOverride")


def test_long_formulas_are_folded(tab: browser.Page, tmp_path: Path) -> None:
    """A text of a hundred terms is whole in the page, but shown only when it is opened."""
    report = onnxfuse.analyze(EXAMPLE)
    long = " + ".join(f"{i}·N" for i in range(1000, 1100))
    path = tmp_path / "report.html"
    path.write_bytes(html.analysis(replace(report, data_dims=(long,)), H200))
    tab.open(path)
    opened = "document.querySelectorAll('dl details')"
    assert tab.run(f"{opened}.length") == 1
    assert tab.run(f"{opened}[0].textContent.includes('1099·N')")
    height = f"{opened}[0].getBoundingClientRect().height"
    closed = tab.run(height)
    tab.run(f"{opened}[0].open = true")
    assert tab.run(height) > closed + 20


def test_hostile_names_in_a_browser(tab: browser.Page, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_bytes(html.analysis(replace(onnxfuse.analyze(hostile_model()), model=HOSTILE), H200))
    tab.open(path)
    assert tab.run("document.querySelectorAll('img').length") == 0
    assert tab.run("document.title") == f"{HOSTILE} · onnxfuse"
    assert tab.run("document.querySelector('h1').textContent") == HOSTILE
    assert tab.complaints == [] and tab.requests == [path.as_uri()]


def test_the_browser_check_sees_errors_and_requests(tab: browser.Page, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<script>nothing.at.all</script><img src='http://127.0.0.1:9/x.png'>", "utf-8")
    tab.open(path)
    assert any("ReferenceError" in said for said in tab.complaints)
    assert "http://127.0.0.1:9/x.png" in tab.requests
