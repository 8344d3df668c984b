"""The data of the roofline chart, against numbers worked by hand from the device files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import graph

import onnxfuse
from onnxfuse import devices
from onnxfuse.report import chart
from onnxfuse.roofline import Row

EXAMPLE = Path(__file__).parents[2] / "models/small_resnet.onnx"

H200, AVX2 = devices.find("h200"), devices.find("avx2_core")
LAUNCH, BANDWIDTH = 2.2e-6, 4.8e12  # h200.toml


def conv_relu() -> onnxfuse.Analysis:
    """A convolution of 100 FLOP and 12 bytes an element, and its Relu of 1 FLOP and 8 bytes, on 1024² elements."""
    conv = "Conv <kernel_shape = [5, 5], pads = [2, 2, 2, 2]>"
    model = graph(
        f"t = {conv} (x, w) y = Relu(t)",
        inputs="float[1,2,1024,1024] x, float[1,2,5,5] w",
        outputs="float[1,1,1024,1024] y",
    )
    return onnxfuse.analyze(model)


def test_a_dot_is_a_nodes_intensity_and_the_rate_that_it_reaches() -> None:
    report = onnxfuse.analyze(graph("y = Add(a, b)", inputs="float[1000] a, float[1000] b", outputs="float[1000] y"))
    (dot,) = chart.of_analysis(report, H200).dots
    assert (dot.name, dot.kind) == ("Add(y)", "elementwise")
    assert dot.intensity == pytest.approx(1000 / 12000)
    assert dot.seconds == pytest.approx(12000 / BANDWIDTH + LAUNCH)
    assert dot.rate == pytest.approx(1000 / (12000 / BANDWIDTH + LAUNCH))


def test_an_arrow_goes_from_the_nodes_apart_to_the_fused_one() -> None:
    (arrow,) = chart.of_analysis(conv_relu(), H200).arrows
    n = 1024 * 1024
    assert arrow.name == "Conv(t) + Relu(y)"
    assert arrow.before[0] == pytest.approx(101 * n / (20 * n + 200))  # 5.05 FLOP/byte
    assert arrow.after[0] == pytest.approx(101 * n / (12 * n + 200))  # 8.42
    assert arrow.before[1] == pytest.approx(101 * n / ((20 * n + 200) / BANDWIDTH + 2 * LAUNCH))  # two kernels
    assert arrow.after[1] == pytest.approx(101 * n / ((12 * n + 200) / BANDWIDTH + LAUNCH))


def test_candidates_that_no_rule_fuses_and_names_that_two_nodes_share_get_no_arrow() -> None:
    report = conv_relu()
    refused = replace(report.candidates[0], reason="no kernel")
    assert not chart.of_analysis(replace(report, candidates=(refused,)), H200).arrows
    twins = tuple(replace(row, name="same") for row in report.nodes)
    named = replace(report.candidates[0], nodes=("same", "same"))
    assert not chart.of_analysis(replace(report, nodes=twins, candidates=(named,)), H200).arrows


def test_the_arrows_of_an_optimization_are_its_fusions() -> None:
    source = graph(
        "t = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu(t)",
        inputs="float[1,8,32,32] x, float[8,8,3,3] w",
        outputs="float[1,8,32,32] y",
    )
    result = onnxfuse.optimize(source, verify=False)
    before, after = onnxfuse.analyze(source), result.analysis(H200)
    drawn = chart.of_optimization(result, before, after, H200)
    (arrow,) = drawn.arrows
    (fused,) = after.nodes  # the arrow ends at the dot of the fused node
    assert arrow.name == "conv_relu: Conv(t) + Relu(y)"
    assert arrow.after == pytest.approx((fused.intensity, fused.flops / fused.seconds))  # type: ignore[operator]
    assert [(d.intensity, d.rate) for d in drawn.dots] == [pytest.approx(arrow.after)]


def test_a_node_that_goes_leaves_no_arrow() -> None:
    source = graph(
        "one = Constant <value = float {1}> () a = Relu(x) b = Mul(a, one) y = Abs(b)",
        inputs="float[8] x",
        outputs="float[8] y",
    )
    result = onnxfuse.optimize(source, verify=False)
    assert [f.rule for f in result.fusions] == ["neutral_element"]
    drawn = chart.of_optimization(result, onnxfuse.analyze(source), result.analysis(H200), H200)
    assert not drawn.arrows
    assert {d.name for d in drawn.dots} == {"Relu(a)", "Abs(y)"}


def test_ceilings_are_the_peaks_of_the_device_and_equal_ones_are_one() -> None:
    assert [(c.name, c.rate) for c in chart.ceilings(H200)] == [
        ("fp8, int8 matrix", 1978.9e12),
        ("fp16, bf16 matrix", 989.4e12),
        ("tf32 matrix", 494.7e12),
        ("fp16, bf16 vector", 133.8e12),
        ("fp64 matrix; fp32 vector", 66.9e12),
        ("fp64 vector", 33.5e12),
    ]
    assert [c.name for c in chart.ceilings(AVX2)] == ["int8 matrix", "fp32 matrix and vector", "fp64 matrix and vector"]


def test_the_ridge_point_is_the_peak_by_the_bandwidth() -> None:
    assert chart.of_analysis(conv_relu(), H200).ridge == pytest.approx(494.7e12 / 4.8e12)


def test_the_cache_has_a_roof_where_times_count_on_it() -> None:
    assert chart.of_analysis(conv_relu(), H200).cache is None
    assert chart.of_analysis(conv_relu(), AVX2).cache == 60e9


def test_no_dot_lies_above_its_roof_and_all_lie_inside_the_limits() -> None:
    for device in (H200, AVX2):
        drawn = chart.of_analysis(onnxfuse.analyze(EXAMPLE, device=device.name), device)
        (left, right), (low, high) = drawn.limits()
        assert len(drawn.dots) > 20
        for dot in drawn.dots:
            assert dot.rate <= min(dot.intensity * (drawn.cache or drawn.bandwidth), drawn.ceilings[0].rate)
            assert left < dot.intensity < right and low < dot.rate < high


def row(name: str, flops: int | None, seconds: float | None, kind: str = "conv") -> Row:
    return Row(name, "Conv", "", "", ("x",), ("y",), kind, flops, 0, 0, 50, 50, 100, None, seconds, "memory")


def test_nodes_without_a_place_are_counted_with_their_time() -> None:
    rows = (row("a", 100, 3e-6), row("copy", 0, 1e-6), row("odd", None, None))
    drawn = chart.of_analysis(replace(conv_relu(), nodes=rows, candidates=()), H200)
    assert [d.name for d in drawn.dots] == ["a"]
    assert drawn.notes == ("not drawn: nodes without FLOPs or of unknown cost, 2 of 3 (25.0 % of the time)",)


def test_more_arrows_than_can_be_read_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "MAX_ARROWS", 2)
    drawn = chart.of_analysis(onnxfuse.analyze(EXAMPLE), H200)
    assert len(drawn.arrows) == 2 and "arrows for the 2 of 15 fusions that save the most time" in drawn.notes


def test_a_chart_of_nothing_still_has_limits() -> None:
    drawn = chart.of_analysis(replace(conv_relu(), nodes=(), candidates=()), H200)
    assert drawn.dots == () and drawn.notes == ()
    (left, right), (low, high) = drawn.limits()
    assert left < right and low < high


def test_with_too_many_nodes_close_ones_of_a_class_become_one_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "MAX_DOTS", 3)
    rows = (row("a", 150, 1e-6), row("b", 152, 1e-6), row("far", 15_000, 1e-6), row("relu", 150, 2e-6, "elementwise"))
    drawn = chart.of_analysis(replace(conv_relu(), nodes=rows, candidates=()), H200)
    assert [d.name for d in drawn.dots] == ["2 nodes of class conv, such as a", "far", "relu"]
    assert (drawn.dots[0].intensity, drawn.dots[0].rate) == pytest.approx((302 / 200, 302 / 2e-6))
    assert drawn.notes == ("4 nodes in 3 dots",)
    assert drawn.spent() == pytest.approx({"conv": 3e-6, "elementwise": 2e-6})


def test_classes_without_a_colour_are_other() -> None:
    assert chart.legend("conv") == "conv" and chart.legend("spectral") == "other"
