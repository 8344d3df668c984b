"""Roofline times, bounds and totals, worked by hand."""

from __future__ import annotations

import pytest
from onnx import parser

from onnxfuse import devices, ir, roofline
from onnxfuse.cost import Cost, costs
from onnxfuse.devices import Device
from onnxfuse.facts import Facts, infer
from onnxfuse.facts.expr import symbol

# Round numbers: 100 TFLOP/s with matrix units and 10 without, 1 TB/s, 1 µs a launch.
PLAIN = Device(
    "plain", "test device", {"fp16": 100e12, "tf32": 50e12}, {"fp32": 10e12, "fp16": 20e12}, 1e12, 2e12, 1e7, 1e-6, {}
)
KEYS = ("macs", "arith", "transcendentals", "bytes_read", "bytes_written")


def model(text: str) -> tuple[ir.Program, Facts, tuple[Cost, ...]]:
    program = ir.read(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]>\n{text}'))
    facts = infer(program)
    return program, facts, costs(facts)


def test_a_vector_add_takes_its_bytes() -> None:
    """float32 add of N elements: N FLOPs, 12N bytes; at 1 TB/s 12N ps, plus the launch."""
    n = 10_000_000
    add = Cost(0, n, 0, 8 * n, 4 * n)
    assert roofline.seconds(add, PLAIN) == pytest.approx(120e-6 + 1e-6)
    assert roofline.bound(add, PLAIN) == "memory"


def test_a_large_matmul_takes_its_flops() -> None:
    """4096³ MACs = 137.4 GFLOP: 1.374 ms at 100 TFLOP/s (fp16), twice that with TF32, ten times on plain lanes."""
    macs, moved = 4096**3, 3 * 4096**2 * 2
    cost = Cost(macs, 0, 0, moved * 2 // 3, moved // 3)
    assert roofline.seconds(cost, PLAIN, dtype="fp16") == pytest.approx(1.37439e-3 + 1e-6, rel=1e-5)
    assert roofline.seconds(cost, PLAIN, dtype="fp32") == pytest.approx(2.74878e-3 + 1e-6, rel=1e-5)
    assert roofline.seconds(cost, PLAIN, dtype="fp32", matrix=False) == pytest.approx(13.7439e-3 + 1e-6, rel=1e-5)
    assert roofline.bound(cost, PLAIN, dtype="fp16") == "compute"


def test_arithmetic_and_special_functions_run_on_the_plain_lanes() -> None:
    """1e9 FLOPs at 10 TFLOP/s: 100 µs; 1e8 special functions as 16 FLOPs each: 160 µs."""
    assert roofline.seconds(Cost(0, 10**9, 10**8, 0, 4), PLAIN) == pytest.approx(261e-6)


def test_a_small_node_is_bound_by_its_launch() -> None:
    relu = Cost(0, 1000, 0, 4000, 4000)
    assert roofline.bound(relu, PLAIN) == "overhead"
    assert roofline.seconds(relu, PLAIN) == pytest.approx(1.008e-6)


def test_a_view_is_free() -> None:
    assert roofline.seconds(Cost(), PLAIN) == 0
    assert roofline.bound(Cost(), PLAIN) is None


@pytest.mark.parametrize("field", KEYS)
def test_unknown_and_symbolic_counts_have_no_time(field: str) -> None:
    for value in (None, symbol("n")):
        cost = Cost(**{k: value if k == field else 8 for k in KEYS})
        assert roofline.seconds(cost, PLAIN) is None
        assert roofline.bound(cost, PLAIN) is None


def test_removing_bytes_never_costs_time() -> None:
    """Conv (100 FLOP, 12 B) and ReLU (1 FLOP, 8 B) an element: 101/20 = 5.05 FLOP/byte apart, 101/12 = 8.42 fused."""
    n = 1_000_000
    conv, relu = Cost(50 * n, 0, 0, 8 * n, 4 * n), Cost(0, n, 0, 4 * n, 4 * n)
    fused = Cost(50 * n, n, 0, 8 * n, 4 * n)
    apart = conv + relu
    assert apart.intensity == pytest.approx(5.05)
    assert fused.intensity == pytest.approx(8.4167, abs=1e-4)
    times = [roofline.seconds(c, PLAIN) for c in (conv, relu, fused)]
    assert times == pytest.approx([13e-6, 9e-6, 13e-6])


def test_ridge_points_of_the_h200() -> None:
    """989.4 TFLOP/s / 4.8 TB/s = 206.1 FLOP/byte; TF32 half of it; fp32 lanes 66.9 / 4.8 = 13.9."""
    h200 = devices.find("h200")
    assert roofline.ridge(h200, "bf16") == pytest.approx(206.1, abs=0.05)
    assert roofline.ridge(h200) == pytest.approx(103.1, abs=0.05)
    assert roofline.ridge(h200, matrix=False) == pytest.approx(13.9, abs=0.05)


NETWORK = f"""
net (float[1,3,8,8] x) => (float[1,256] y, float[1,4,8,8] r)
<
  float[4,3,3,3] w = {{{", ".join(["0.5"] * 108)}}},
  float[4,1,3,3] dw = {{{", ".join(["0.5"] * 36)}}},
  int64[2] shape = {{1, 256}}
>
{{
  c = Conv <pads = [1,1,1,1]> (x, w)
  [act] r = Relu (c)
  d = Conv <pads = [1,1,1,1], group = 4> (r, dw)
  y = Reshape (d, shape)
}}
"""


def test_rows() -> None:
    """Conv: 4·8·8·27 MACs; reads 3·64 + 4·27 floats, writes 256. Relu: 256 FLOPs, 256 floats in and out."""
    _, facts, prices = model(NETWORK)
    conv, relu, depthwise, view = roofline.rows(facts, prices, PLAIN)
    assert (conv.macs, conv.flops) == (6912, 13824)
    assert (conv.bytes_read, conv.bytes_written, conv.bytes) == (4 * (192 + 108), 1024, 2224)
    assert conv.intensity == pytest.approx(13824 / 2224)
    assert (conv.kind, conv.inputs, conv.outputs) == ("conv", ("x", "w"), ("c",))
    assert (relu.name, relu.op_type, relu.flops, relu.bytes) == ("act", "Relu", 256, 2048)
    assert depthwise.macs == 4 * 64 * 9
    assert (view.flops, view.bytes, view.seconds, view.bound) == (0, 0, 0.0, None)
    assert roofline.rows(facts, prices, PLAIN, scope="outer")[1].scope == "outer"


def test_units() -> None:
    _, facts, _ = model(NETWORK)
    assert [roofline.units(node, facts) for node in facts.nodes] == [
        ("fp32", True), ("fp32", True), ("fp32", False), ("fp32", True),
    ]  # fmt: skip
    _, facts, _ = model("q (uint8[2,4] a, uint8[4,3] b) => (int32[2,3] y) { y = MatMulInteger (a, b) }")
    assert roofline.units(facts.nodes[0], facts) == ("int8", True)
    _, facts, _ = model("h (float16[4] a) => (float16[4] y, bool[4] m) { y = Neg (a) m = Greater (a, a) }")
    assert [roofline.units(node, facts)[0] for node in facts.nodes] == ["fp16", "fp32"]


def test_totals_add_up() -> None:
    program, facts, prices = model(NETWORK)
    annotated = roofline.rows(facts, prices, PLAIN)
    totals = roofline.totals(annotated, program, facts)
    assert totals.macs == 6912 + 2304
    assert totals.flops == 2 * totals.macs + 256
    # conv 1200 + 1024, relu 1024 + 1024, depthwise (256 + 36)·4 + 1024
    assert (totals.bytes_read, totals.bytes_written) == (1200 + 1024 + 1168, 3 * 1024)
    assert totals.bytes == 3392 + 3072
    assert totals.intensity == pytest.approx(totals.flops / 6464)  # type: ignore[operator]
    assert totals.seconds == pytest.approx(3e-6 + 6464e-12)
    assert totals.bound == "overhead"
    assert totals.params == 4 * 27 + 4 * 9
    assert totals.weight_bytes == 4 * 144 + 16
    assert (totals.coverage, totals.unknown) == (1.0, ())


def test_unknown_operators_make_lower_bounds() -> None:
    text = """
    net (float[10] x) => (float[10] y)
    {
      a = Relu (x)
      b = my.domain.Odd (a)
      y = my.domain.Odd (b)
    }
    """
    program = ir.read(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17, "my.domain" : 1]>\n{text}'))
    facts = infer(program)
    totals = roofline.totals(roofline.rows(facts, costs(facts), PLAIN), program, facts)
    assert totals.flops == 10
    # The first Odd reads the 40 known bytes of a, the last one writes the 40 declared bytes of y.
    assert (totals.bytes_read, totals.bytes_written, totals.bytes) == (80, 80, 160)
    assert totals.coverage == pytest.approx(1 / 3)
    assert totals.unknown == ("my.domain::Odd",)
    assert totals.seconds == pytest.approx(1e-6 + 80e-12)


def test_free_dims_give_expressions_and_no_time() -> None:
    program, facts, prices = model("net (float[N,4] x) => (float[N,4] y) { y = Relu (x) }")
    (row,) = roofline.rows(facts, prices, PLAIN)
    assert row.bytes == symbol("N") * 32
    assert row.known
    assert row.seconds is None
    totals = roofline.totals((row,), program, facts)
    assert totals.bytes == symbol("N") * 32
    assert (totals.seconds, totals.bound, totals.intensity) == (None, None, None)
    assert totals.peak_activation_bytes is None


def test_an_empty_graph_is_fully_covered() -> None:
    program, facts, _ = model("net (float[1] x) => (float[1] x) { }")
    totals = roofline.totals((), program, facts)
    assert (totals.flops, totals.seconds, totals.bound, totals.coverage) == (0, 0.0, None, 1.0)


def test_weights_in_constant_nodes_count_and_scalars_and_shapes_do_not() -> None:
    text = """
    net (float[4] x) => (float[2,2] y) <float[4] b = {1, 2, 3, 4}>
    {
      w = Constant <value = float[4] {1, 2, 3, 4}> ()
      half = Constant <value_float = 0.5> ()
      s = Constant <value_ints = [2, 2]> ()
      u = Add (x, w) v = Mul (u, half) t = Add (v, b) y = Reshape (t, s)
    }
    """
    program, facts, prices = model(text)
    totals = roofline.totals(roofline.rows(facts, prices, PLAIN), program, facts)
    assert (totals.params, totals.weight_bytes) == (8, 32)
