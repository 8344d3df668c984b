"""The numbers of the text that onnxfuse follows ("fusing operators is trading computation for memory traffic").

Each test builds the graph that the text speaks of and reads the number from the program's own report.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from support import LIGHT_ZOO, graph, optimized

import onnxfuse

MODELS = Path(__file__).parent.parent / "models"


def test_a_vector_add_of_n_elements_moves_12_n_bytes() -> None:
    for n in (1, 1000, 1 << 20):
        model = graph("y = Add(a, b)", inputs=f"float[{n}] a, float[{n}] b", outputs=f"float[{n}] y")
        (node,) = onnxfuse.analyze(model).nodes
        assert node.bytes == 12 * n and node.flops == n
        assert node.intensity == pytest.approx(1 / 12)


def test_conv_100_flop_12_bytes_and_relu_1_flop_8_bytes() -> None:
    # 2 → 1 channels, 5 × 5: 50 MACs an element of the result; 8 bytes of input and 4 of output an element.
    # The 50 weights (200 bytes) are the only thing beside; 1024² elements make them vanish.
    conv = "Conv <kernel_shape = [5, 5], pads = [2, 2, 2, 2]>"
    model = graph(
        f"t = {conv} (x, w) y = Relu(t)",
        inputs="float[1,2,1024,1024] x, float[1,2,5,5] w",
        outputs="float[1,1,1024,1024] y",
    )
    report = onnxfuse.analyze(model)
    n = 1024 * 1024
    conv_row, relu_row = report.nodes
    assert (conv_row.flops, conv_row.bytes) == (100 * n, 12 * n + 200)
    assert (relu_row.flops, relu_row.bytes) == (n, 8 * n)
    (candidate,) = report.candidates
    assert round(candidate.intensity_apart, 2) == 5.05
    assert round(candidate.intensity_fused, 2) == 8.42
    assert round(100 * (candidate.intensity_fused / candidate.intensity_apart - 1)) == 67
    assert candidate.bytes_saved == 8 * n  # the result is no longer written and read again

    result = optimized(model, verify=False)
    assert result.before.flops == result.after.flops == 101 * n  # fusing leaves FLOPs and removes bytes
    assert (result.before.bytes, result.after.bytes) == (20 * n + 200, 12 * n + 200)
    assert round(float(result.after.intensity), 2) == 8.42


@pytest.mark.parametrize("ops", [("Relu", "Neg"), ("Abs", "Relu"), ("Neg", "Floor")])
def test_two_merged_elementwise_operators_double_their_intensity(ops: tuple[str, str]) -> None:
    model = graph(f"t = {ops[0]}(x) y = {ops[1]}(t)", inputs="float[64,1000] x", outputs="float[64,1000] y")
    (candidate,) = onnxfuse.analyze(model).candidates
    assert candidate.intensity_fused == pytest.approx(2 * candidate.intensity_apart)
    assert candidate.rule is None and "no rule or kernel" in str(candidate.reason)  # a computed plan, no kernel yet


def test_two_compute_bound_neighbours_are_refused() -> None:
    inputs = "float[4096,4096] a, float[4096,4096] b, float[4096,4096] c"
    model = graph("t = MatMul(a, b) y = MatMul(t, c)", inputs=inputs, outputs="float[4096,4096] y")
    (candidate,) = onnxfuse.analyze(model).candidates
    # 2·4096³ FLOP over 3·4·4096² bytes
    assert candidate.rule is None and "all are compute-bound (MatMul 682.7 and MatMul 682.7" in str(candidate.reason)


def test_a_fusion_of_two_nodes_above_the_limit_is_refused_with_the_reason() -> None:
    body = "t = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu(t)"
    model = graph(body, inputs="float[1,64,56,56] x, float[64,64,3,3] w", outputs="float[1,64,56,56] y")
    assert len(optimized(model, max_intensity=10).fusions) == 1  # the general rule: below 10 FLOP/byte is memory-bound
    result = optimized(model, max_intensity=0.1)
    assert not result.fusions and "all are compute-bound" in result.refused[0].reason


def test_candidates_are_ranked_from_the_lowest_intensity_up() -> None:
    found = onnxfuse.analyze(MODELS / "small_resnet.onnx").candidates
    assert len(found) > 10
    assert [c.intensity_apart for c in found] == sorted(c.intensity_apart for c in found)
    fusions = onnxfuse.optimize(MODELS / "small_resnet.onnx").fusions
    assert [f.rule for f in fusions] == ["conv_add_relu"] * 4 + ["conv_relu"] * 5  # Add, then Relu, are the lowest


def test_the_class_table() -> None:
    """Typical intensities: elementwise 0.5–2, reductions and pooling 1–5, small convolutions 5–20, large ones 20–100+.

    On the 9 networks of the light zoo the medians of the two convolution classes (below and above 10 million MACs) lie
    in their ranges as FLOP per byte. Those of the first two classes hold per *element* of float32 moved; per byte they
    are a quarter of that, as the text's own vector add (1 FLOP, 12 bytes) shows.
    """
    rows = [row for path in LIGHT_ZOO for row in onnxfuse.analyze(path).nodes if row.intensity]
    classes = {
        "elementwise": [4 * r.intensity for r in rows if r.kind == "elementwise"],
        "pooling and reductions": [4 * r.intensity for r in rows if r.kind in ("pool", "reduction")],
        "small convolutions": [r.intensity for r in rows if r.kind == "conv" and r.macs < 10e6],
        "large convolutions": [r.intensity for r in rows if r.kind == "conv" and r.macs >= 10e6],
    }
    ranges = {
        "elementwise": (0.5, 2),
        "pooling and reductions": (1, 5),
        "small convolutions": (5, 20),
        "large convolutions": (20, 100),
    }
    assert all(len(values) > 50 for values in classes.values())
    middle = {name: median(values) for name, values in classes.items()}
    # a unary operator reads and writes one element: 0.5; a small constant operand takes up to 1 % off
    assert all(0.99 * low <= middle[name] <= high for name, (low, high) in ranges.items()), middle
    assert list(middle.values()) == sorted(middle.values())


def test_a_large_matmul_lies_between_50_and_500() -> None:
    # VGG-19's first classifier layer with a batch of 128, as it is trained: 25,088 → 4,096
    inputs = "float[128,25088] a, float[25088,4096] b"
    (node,) = onnxfuse.analyze(graph("y = MatMul(a, b)", inputs=inputs, outputs="float[128,4096] y")).nodes
    by_hand = 2 * 128 * 25088 * 4096 / (4 * (128 * 25088 + 25088 * 4096 + 128 * 4096))
    assert node.intensity == pytest.approx(by_hand) and 50 <= by_hand <= 500


def test_the_example_has_two_fusions_that_want_one_relu() -> None:
    path = MODELS / "conv_relu_maxpool_conv.onnx"
    pairs = {c.op_types: c for c in onnxfuse.analyze(path).candidates}
    assert pairs["Conv", "Relu"].rule == "conv_relu" and pairs["Relu", "MaxPool"].rule == "relu_maxpool"

    result = onnxfuse.optimize(path)
    assert [f.rule for f in result.fusions] == ["conv_relu"] and result.verdict is not None and result.verdict.ok
    (refusal,) = result.refused
    assert refusal.rule == "relu_maxpool" and "conv_relu at conv_0 takes a node of it" in refusal.reason

    other = onnxfuse.optimize(path, exclude=["conv_relu"])
    assert [f.rule for f in other.fusions] == ["relu_maxpool"] and other.verdict is not None and other.verdict.ok
    assert other.before.seconds > other.after.seconds > result.after.seconds  # the cheaper outcome was taken
