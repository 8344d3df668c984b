"""Estimate against measurement: the statistics by hand, the comparison on invented times, a run on a real session."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import parser

from onnxfuse import ir, profiled
from onnxfuse.devices import Device
from onnxfuse.errors import Finding, ModelError, UsageError
from onnxfuse.facts import infer
from onnxfuse.profiled import Profile, benchmark_nodes, compare, spearman

# 1 GFLOP/s, 1 GB/s, no launch cost
ONES = Device("ones", "test device", {"fp32": 1e9}, {"fp32": 1e9}, 1e9, 1e9, 1e6, 0.0, {})
HEAD = '<ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>\n'


def test_rank_correlation() -> None:
    """1 - 6 Σd²/(n(n² - 1)) without ties: d = (0, 1, 1), 1 - 12/24. With ties Pearson of the mean ranks: of
    (1, 2.5, 2.5, 4) and (1, 2, 3, 4), 4.5/√(4.5 · 5) = √0.9.
    """
    assert spearman([10, 20, 30], [1, 3, 2]) == pytest.approx(0.5)
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(math.sqrt(0.9))
    assert spearman([1, 2, 3], [9, 8, 7]) == pytest.approx(-1)
    assert spearman([1], [1]) is None
    assert spearman([1, 2], [3, 3]) is None
    assert spearman([], []) is None


def test_times_side_by_side() -> None:
    """Relu of 1000 floats: 8000 B = 8 µs. Concat of two: 16000 B = 16 µs. Softmax: 4n - 2 FLOPs + 16n = 20 µs."""
    text = """
    net (float[1000] x) => (float[2000] z, float[1000] s) {
      [r] y = Relu (x)
      z = Concat <axis = 0> (x, y)
      s = Softmax (x)
      i = Identity (x)
      o = my.domain.Odd (x)
    }
    """
    facts = infer(ir.read(parser.parse_model(HEAD + text)))
    seconds = {0: 10e-6, 1: 40e-6, 2: 10.5e-6, 3: 4e-6, 4: 50e-6}  # the last ones are too short, and of unknown cost
    report = compare(Profile("m", "all", 7, {"N": 2}, ("N",), facts, seconds), ONES)
    assert [n.name for n in report.nodes] == ["r", "Concat(z)", "Softmax(s)", "Identity(i)", "Odd(o)"]
    assert [n.estimated for n in report.nodes[:3]] == pytest.approx([8e-6, 16e-6, 19.998e-6])
    assert (report.nodes[3].estimated, report.nodes[4].estimated) == (0.0, None)
    assert [n.bound for n in report.nodes[:3]] == ["memory", "memory", "compute"]
    assert report.compared == 3
    assert report.spearman == pytest.approx(0.5)  # ranks 1 3 2 and 1 2 3
    assert report.ratio == pytest.approx(43.998 / 60.5)
    assert [(w.work, w.nodes) for w in report.works] == [("Concat", 1), ("Softmax", 1), ("Relu", 1)]
    assert report.works[0].ratio == pytest.approx(0.4)
    assert [n.name for n in report.worst] == ["Concat(z)", "Softmax(s)", "r"]  # 24, 9.5 and 2 µs apart
    assert (report.model, report.device, report.level, report.runs, report.dims) == ("m", "ones", "all", 7, {"N": 2})


NETWORK = (
    HEAD
    + """
net (bool c, float[N,3,H,W] x) => (float[N,8,H,W] y)
<float[8,3,1,1] w = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.1,0.2,0.3,0.4,0.5,0.6}>
{
  [first] a = Conv (x, w)
  [second] b = Relu (a)
  [branch] y = If (c) <
    then_branch = yes () => (float[N,8,H,W] p) { [inside] p = Exp (b) },
    else_branch = no () => (float[N,8,H,W] q) { q = Neg (b) }
  >
}
"""
)


def test_the_graph_that_is_executed_is_the_one_that_is_timed() -> None:
    model = parser.parse_model(NETWORK)
    sizes = {"N": 1, "H": 16, "W": 16}
    report = benchmark_nodes(model, level="disabled", runs=3, warmup=1, dims=sizes)
    assert [(n.name, n.op_type) for n in report.nodes] == [("first", "Conv"), ("second", "Relu"), ("branch", "If")]
    assert all(n.measured >= 0 and n.estimated is not None for n in report.nodes)
    assert (report.model, report.dims, report.runs, report.level) == (None, sizes, 3, "disabled")
    merged = benchmark_nodes(model, runs=2, dims=sizes)
    assert "Relu" not in {n.op_type for n in merged.nodes}  # onnxruntime fuses it into the convolution
    assert merged.device == "avx2_core" and merged.device_name


def test_sizes_are_found_where_none_are_given() -> None:
    report = benchmark_nodes(parser.parse_model(NETWORK), runs=1)
    assert report.dims.keys() == {"N", "H", "W"} == set(report.assumed)
    some = benchmark_nodes(parser.parse_model(NETWORK), runs=1, dims={"N": 2})
    assert some.dims["N"] == 2 and set(some.assumed) == {"H", "W"}


def test_the_given_inputs_are_the_data_and_give_the_sizes() -> None:
    model = parser.parse_model(NETWORK)
    given = {"c": np.array(False), "x": np.ones((2, 3, 4, 5), np.float32)}
    report = benchmark_nodes(model, runs=1, inputs=given)
    assert report.dims == {"N": 2, "H": 4, "W": 5} and report.assumed == ()
    with pytest.raises(UsageError, match=r"inputs\[0\]: input 'c' is missing"):
        benchmark_nodes(model, inputs={"x": given["x"]})
    odd = parser.parse_model(HEAD + "net (float[N] x, float[M] z) => (float[K] y) { y = Add (x, z) }")
    with pytest.raises(Finding, match=r"inputs\[0\]: the model does not run on it: "):
        benchmark_nodes(odd, inputs={"x": np.ones(2, np.float32), "z": np.ones(3, np.float32)})


def test_bad_requests_are_named(tmp_path) -> None:
    good = parser.parse_model(NETWORK)
    with pytest.raises(UsageError, match="runs is 0; give a whole number from 1"):
        benchmark_nodes(good, runs=0)
    with pytest.raises(UsageError, match="unknown level 'most'"):
        benchmark_nodes(good, level="most")
    with pytest.raises(UsageError, match="unknown device 'abacus'"):
        benchmark_nodes(good, device="abacus")
    with pytest.raises(UsageError, match="no input has a free dimension 'Q'"):
        benchmark_nodes(good, dims={"Q": 1})
    with pytest.raises(ModelError):
        benchmark_nodes(tmp_path / "none.onnx")
    odd = parser.parse_model(HEAD + "net (float[2,3] x, float[4] z) => (float[2,3] y) { y = Add (x, z) }")
    with pytest.raises((ModelError, Finding)):
        benchmark_nodes(odd)


def test_json_has_stable_names() -> None:
    report = benchmark_nodes(parser.parse_model(NETWORK), runs=1, dims={"N": 1, "H": 8, "W": 8}).to_json()
    assert report.keys() == {
        "model", "device", "device_name", "level", "runs", "dims", "assumed", "shortest", "compared", "spearman",
        "ratio", "works", "nodes",
    }  # fmt: skip
    assert report["nodes"][0].keys() == {"name", "op_type", "domain", "work", "measured", "estimated", "bound"}
    assert report["shortest"] == profiled.SHORTEST == 5e-6
