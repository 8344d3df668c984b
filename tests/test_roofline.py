"""Roofline times, bounds and totals, worked by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, parser

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


# 100 GFLOP/s, 10 GB/s from memory, 40 GB/s from a cache that keeps 4 MB; Softmax at half the speed of its roofline.
CORE = Device(
    "core", "test core", {"fp32": 100e9}, {"fp32": 100e9}, 10e9, 40e9, 8e6, 1e-6, {}, {"Softmax": 0.5, "Conv": 0.8},
    ((4e6, 40e9),),
)  # fmt: skip


def test_activations_move_at_cache_rate_as_far_as_the_cache_keeps_them() -> None:
    """2 MB: 50 µs from the cache. 6 MB: 4 MB in 100 µs, 2 MB in 200 µs. 2 MB, 1 MB of it weights: 25 + 100 µs."""
    assert roofline.seconds(Cost(0, 1, 0, 1_000_000, 1_000_000), CORE) == pytest.approx(51e-6)
    assert roofline.seconds(Cost(0, 1, 0, 3_000_000, 3_000_000), CORE) == pytest.approx(301e-6)
    assert roofline.seconds(Cost(0, 1, 0, 1_500_000, 500_000, 1_000_000), CORE) == pytest.approx(126e-6)
    levels = replace(CORE, caches=((1e6, 100e9), (4e6, 40e9)))  # 6 MB: 1 MB in 10 µs, 4 MB in 100 µs, 1 MB in 100 µs
    assert roofline.seconds(Cost(0, 1, 0, 3_000_000, 3_000_000), levels) == pytest.approx(211e-6)


def test_efficiency_stretches_both_sides_of_the_roofline_but_not_the_launch() -> None:
    memory, compute = Cost(0, 1, 0, 1_000_000, 1_000_000), Cost(5_000_000, 0, 0, 4, 4)  # 50 µs and 100 µs of work
    assert roofline.seconds(memory, CORE, work="Softmax") == pytest.approx(101e-6)
    assert roofline.seconds(compute, CORE, work="Softmax") == pytest.approx(201e-6)
    assert roofline.bound(compute, CORE, work="Softmax") == "compute"
    assert roofline.bound(Cost(0, 1, 0, 12_000, 12_000), CORE, work="Softmax") == "memory"  # 1.2 µs, a launch is 1 µs
    assert roofline.bound(Cost(0, 1, 0, 12_000, 12_000), CORE) == "overhead"


def test_a_merged_kernel_takes_the_time_of_one_node_and_never_more_than_its_nodes() -> None:
    """Conv 10 MFLOP in 100/0.8 = 125 µs, 2 MB from the cache in 62.5 µs; Relu 2 MB in 50 µs. As one kernel the Relu's
    0.25 MFLOP are 3.125 µs of the 128.125 µs. Two nodes of 8 MB, 4 of them from the cache, take 100 + 400 µs each.
    """
    conv, relu = Cost(5_000_000, 0, 0, 1_000_000, 1_000_000), Cost(0, 250_000, 0, 1_000_000, 1_000_000)
    fused = Cost(5_000_000, 250_000, 0, 1_000_000, 1_000_000)
    parts = [(conv, roofline.Units(work="Conv")), (relu, roofline.Units(work="Relu"))]
    assert roofline.merged_seconds(fused, parts, CORE, parts[0][1]) == pytest.approx(128.125e-6 + 1e-6)
    copy = Cost(0, 1, 0, 4_000_000, 4_000_000)  # two kernels from the cache take 2 x 500 µs, one of 16 MB would 1,300
    twice = [(copy, roofline.Units(work="Relu"))] * 2
    assert roofline.merged_seconds(copy + copy, twice, CORE, twice[0][1]) == pytest.approx(1e-3 + 1e-6)
    unknown = (Cost(None, 0, 0, 0, 0), roofline.Units())
    assert roofline.merged_seconds(fused, [*parts, unknown], CORE, parts[0][1]) is None


COUNTS = st.integers(0, 10**9)
NODES = st.tuples(
    st.builds(Cost, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS),
    st.builds(roofline.Units, work=st.sampled_from(["Conv", "Softmax", "Relu"])),
)


@given(st.lists(NODES, min_size=2, max_size=5), st.floats(0, 1))
def test_merging_nodes_never_costs_time(nodes: list[tuple[Cost, roofline.Units]], kept: float) -> None:
    """Whatever the nodes' caches and efficiencies: one kernel with a part of their bytes takes no longer than they."""
    whole = sum((cost for cost, _ in nodes), Cost())
    fused = replace(whole, bytes_read=int(whole.bytes_read * kept))  # type: ignore[operator]
    together = roofline.merged_seconds(fused, nodes, CORE, nodes[0][1])
    apart = [roofline.place(cost, CORE, on)[0] for cost, on in nodes]
    assert together is not None and None not in apart
    launches = (sum(cost != Cost() for cost, _ in nodes) - 1) * CORE.launch  # a free node has no launch of its own
    assert together <= (sum(t or 0.0 for t in apart) - launches) * (1 + 1e-9) + 1e-15


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
        ("fp32", True, "FewChannelConv"), ("fp32", True, "Relu"), ("fp32", False, "DepthwiseConv"),
        ("fp32", True, "Reshape"),
    ]  # fmt: skip
    _, facts, _ = model("q (uint8[2,4] a, uint8[4,3] b) => (int32[2,3] y) { y = MatMulInteger (a, b) }")
    assert roofline.units(facts.nodes[0], facts) == ("int8", True, "MatMulInteger")
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
    # the filters 432 and 144, and the shape of the Reshape, which moves nothing
    assert (totals.weight_traffic, totals.activation_traffic) == (432 + 144, 6464 - 432 - 144)
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
    assert (totals.peak_activation_bytes, totals.peak_activation_bytes_in_place) == (symbol("N") * 16,) * 2


def test_weight_traffic_counts_every_reader_and_weight_bytes_every_weight_once() -> None:
    """w (16 bytes) is read by two Adds, and by the Neg that makes another constant of it, which the Mul reads."""
    text = """
    net (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}>
    { a = Add (x, w) b = Add (a, w) same = Identity (w) n = Neg (same) y = Mul (b, n) }
    """
    program, facts, prices = model(text)
    annotated = roofline.rows(facts, prices, PLAIN)
    assert [row.weight_traffic for row in annotated] == [16, 16, 0, 32, 16]
    totals = roofline.totals(annotated, program, facts)
    assert (totals.weight_bytes, totals.weight_traffic) == (16, 80)
    assert totals.activation_traffic == 3 * 32
    assert totals.bytes == 80 + 96


def test_what_a_caller_may_override_is_no_weight() -> None:
    text = "net (float[4] x, float[4] w = {1, 2, 3, 4}) => (float[4] y) { y = Add (x, w) }"
    program, facts, prices = model(text)
    totals = roofline.totals(roofline.rows(facts, prices, PLAIN), program, facts)
    assert (totals.weight_traffic, totals.activation_traffic) == (0, 48)


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


# bytes of 5 elements, by type: bf16, two fp8, int4, fp4, uint2, int2, uint8
NARROW = {16: 10, 17: 5, 20: 5, 22: 3, 23: 3, 25: 2, 26: 2, 2: 5}


def test_narrow_types_are_sized_in_bits() -> None:
    """Five elements of 16, 8, 4 or 2 bits, packed, as weights that are read, as activations and at the peak."""
    weights = [helper.make_tensor(f"w{t}", t, [5], bytes(size), raw=True) for t, size in NARROW.items()]
    nodes = [helper.make_node("Cast", ["x"], [f"y{t}"], to=t) for t in NARROW]
    nodes += [helper.make_node("Cast", [f"w{t}"], [f"k{t}"], to=1) for t in NARROW]
    nodes.append(helper.make_node("Sum", ["x", *(f"k{t}" for t in NARROW)], ["z"]))
    infos = [[helper.make_tensor_value_info(n, t, [5]) for n, t in of] for of in ([("x", 1)], [("z", 1)])]
    infos[1] += [helper.make_tensor_value_info(f"y{t}", t, [5]) for t in NARROW]
    program = ir.read(helper.make_model(helper.make_graph(nodes, "g", *infos, weights)))
    facts = infer(program)
    annotated = roofline.rows(facts, costs(facts), PLAIN)
    count, packed = len(NARROW), sum(NARROW.values())
    assert [row.bytes_written for row in annotated[:count]] == list(NARROW.values())
    assert [row.bytes_read for row in annotated[count:-1]] == list(NARROW.values())
    totals = roofline.totals(annotated, program, facts)
    assert totals.weight_bytes == packed
    assert totals.weight_traffic == packed + count * 20 + count * 20  # read, written as floats, read by Sum
    assert totals.activation_traffic == count * 20 + packed + 20 + 20  # x by each Cast, each y; x and z of Sum
    assert totals.peak_activation_bytes == packed + 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak resident size from /proc")
def test_external_weights_are_sized_and_not_loaded(tmp_path: Path) -> None:
    """A sparse file of 3 GiB: 16384² float32, bfloat16 and int4 are 1024 + 512 + 128 MiB of it."""
    k = 16384
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(3 << 30)
    weights = []
    for dtype, offset, size in ((1, 0, 1 << 30), (16, 1 << 30, 1 << 29), (22, 3 << 29, 1 << 27)):
        weight = onnx.TensorProto(name=f"w{dtype}", data_type=dtype, dims=[k, k], data_location=1)
        for key, value in (("location", "w.bin"), ("offset", str(offset)), ("length", str(size))):
            weight.external_data.add(key=key, value=value)
        weights.append(weight)
    nodes = [helper.make_node("Gather", [f"w{t}", "i"], [f"y{t}"]) for t in (1, 16, 22)]
    infos = [[helper.make_tensor_value_info("i", 7, [2])]]
    infos.append([helper.make_tensor_value_info(f"y{t}", t, [2, k]) for t in (1, 16, 22)])
    onnx_file = tmp_path / "m.onnx"
    onnx_file.write_bytes(helper.make_model(helper.make_graph(nodes, "g", *infos, weights)).SerializeToString())
    code = f"""if True:
        import onnxfuse
        totals = onnxfuse.analyze({str(onnx_file)!r}).totals
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
        print(totals.weight_bytes, totals.weight_traffic, totals.activation_traffic, peak)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    stored, weight_traffic, activation_traffic, peak = map(int, done.stdout.split())
    assert stored == (1024 + 512 + 128) << 20
    rows = 2 * k * 4 + 2 * k * 2 + 2 * k // 2
    assert weight_traffic == rows
    assert activation_traffic == 3 * 16 + rows  # the indices, and what comes out
    assert peak < 300 << 10  # kB; mostly the modules
