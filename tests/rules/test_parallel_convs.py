"""Branches of one value that are added: every window that fits into another, and what must stay apart."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from support import assert_same, graph, ops, optimized, random_feeds, with_weights

NORM = "BatchNormalization (x, s, t, m, v)"
NORMS = ", float[4] s, float[4] t, float[4] m, float[4] v"


def branches(body: str, weights: str, x: str = "N,4,H,W", outs: int = 4, **options: object) -> onnx.ModelProto:
    free = ",".join(["N", str(outs), *(f"o{i}" for i in range(x.count(",") - 1))])
    return with_weights(
        graph(body, inputs=f"float[{x}] x, {weights}", outputs=f"float[{free}] y", **options)  # type: ignore[arg-type]
    )


def made(model: onnx.ModelProto, target: str = "ort-cpu", rule: str = "parallel_convs") -> onnx.ModelProto:
    result = optimized(model, rules=[rule], target=target)
    for size in (7, 8):
        assert_same(model, result.model, random_feeds(model, dims={"N": 2, "H": size, "W": size + 3, "D": 5}))
    return result.model


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("a = Conv <pads = [1,1,1,1]> (x, w) b = Conv (x, u) y = Add (a, b)", "float[4,4,3,3] w, float[4,4,1,1] u"),
        ("a = Conv <pads = [1,1,1,1]> (x, w) b = Conv (x, u, c) y = Add (b, a)",
         "float[4,4,3,3] w, float[4,4,1,1] u, float[4] c"),
        ("a = Conv <pads = [1,1,1,1]> (x, w, d) b = Conv <pads = [1,1,1,1]> (x, u, c) y = Sum (a, b)",
         "float[4,4,3,3] w, float[4,4,3,3] u, float[4] c, float[4] d"),
        ("a = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w) b = Conv <strides = [2,2]> (x, u) y = Add (a, b)",
         "float[4,4,3,3] w, float[4,4,1,1] u"),
        ("a = Conv <pads = [2,2,2,2]> (x, w) b = Conv <pads = [1,1,1,1]> (x, u) y = Add (a, b)",
         "float[4,4,5,5] w, float[4,4,3,3] u"),
        ("a = Conv <pads = [2,2,2,2]> (x, w) b = Conv <pads = [2,2,2,2], dilations = [2,2]> (x, u) y = Add (a, b)",
         "float[4,4,5,5] w, float[4,4,3,3] u"),
        ("a = Conv <pads = [2,2,2,2], dilations = [2,2]> (x, w) b = Conv (x, u) y = Add (a, b)",
         "float[4,4,3,3] w, float[4,4,1,1] u"),
        ("a = Conv <pads = [1,1,1,1]> (x, w) b = Conv <pads = [1,0,1,0]> (x, u) c = Conv <pads = [0,1,0,1]> (x, z) "
         "d = Add (a, b) y = Add (c, d)", "float[4,4,3,3] w, float[4,4,3,1] u, float[4,4,1,3] z"),
        ("a = Conv <pads = [0,0,2,2]> (x, w) b = Conv (x, u) y = Add (a, b)", "float[4,4,3,3] w, float[4,4,1,1] u"),
        ("a = Conv <pads = [1,1,1,1], group = 4> (x, w) b = Conv <group = 4> (x, u) y = Add (a, b)",
         "float[4,1,3,3] w, float[4,1,1,1] u"),
        ("a = Conv <pads = [1,1,1,1], group = 2> (x, w) b = Conv <group = 4> (x, u) y = Add (a, b)",
         "float[4,2,3,3] w, float[4,1,1,1] u"),
        ('a = Conv <auto_pad = "SAME_UPPER"> (x, w) b = Conv <auto_pad = "VALID"> (x, u) y = Add (a, b)',
         "float[4,4,3,3] w, float[4,4,1,1] u"),
        ('a = Conv <auto_pad = "SAME_LOWER"> (x, w) b = Conv <auto_pad = "SAME_UPPER"> (x, u) y = Add (a, b)',
         "float[4,4,2,2] w, float[4,4,3,3] u"),
        ("a = Conv <pads = [1,1,1,1]> (x, w) y = Add (a, x)", "float[4,4,3,3] w"),
        ("a = Conv <pads = [1,1,1,1], group = 2> (x, w) y = Add (x, a)", "float[4,2,3,3] w"),
        ("a = Conv <pads = [1,1,1,1], group = 4> (x, w) y = Sum (x, a, x)", "float[4,1,3,3] w"),
        (f"a = Conv <pads = [1,1,1,1]> (x, w) b = {NORM} y = Add (a, b)", "float[4,4,3,3] w" + NORMS),
        (f"a = Conv <pads = [1,1,1,1], group = 2> (x, w) b = {NORM} c = Conv <group = 2> (x, u) d = Add (b, c) "
         "y = Add (a, d)", "float[4,2,3,3] w, float[4,2,1,1] u" + NORMS),
    ],
)  # fmt: skip
def test_windows_that_fit(body: str, weights: str) -> None:
    assert ops(made(branches(body, weights))) == ["Conv"]


@pytest.mark.parametrize(
    ("x", "weights", "pads", "outs"),
    [
        ("N,4,D", "float[4,4,3] w, float[4,4,1] u", "1,1", 4),
        ("N,4,D,6,6", "float[5,4,3,3,3] w, float[5,4,1,1,1] u", "1,1,1,1,1,1", 5),
    ],
)
def test_other_ranks(x: str, weights: str, pads: str, outs: int) -> None:
    model = branches(f"a = Conv <pads = [{pads}]> (x, w) b = Conv (x, u) y = Add (a, b)", weights, x, outs)
    assert ops(made(model)) == ["Conv"]


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        # an even kernel: the sizes agree, the places do not, and the window that covers both is larger than they are
        ("a = Conv <pads = [1,1,0,0]> (x, w) b = Conv <pads = [0,0,1,1]> (x, u) y = Add (a, b)",
         "float[4,4,2,2] w, float[4,4,2,2] u"),
        ("a = Conv <pads = [0,1,0,1]> (x, w) b = Conv <pads = [1,0,1,0]> (x, u) y = Add (a, b)",
         "float[4,4,1,3] w, float[4,4,3,1] u"),
        ("a = Conv <pads = [1,1,1,1], group = 4> (x, w) b = Conv (x, u) y = Add (a, b)",
         "float[4,1,3,3] w, float[4,4,1,1] u"),
        ("a = Conv <strides = [2,2], pads = [1,1,1,1]> (x, w) b = Conv (x, u) "
         "c = MaxPool <kernel_shape = [1,1], strides = [2,2]> (b) y = Add (a, c)",
         "float[4,4,3,3] w, float[4,4,1,1] u"),
    ],
)  # fmt: skip
def test_what_would_multiply_more_or_steps_differently_stays(body: str, weights: str) -> None:
    model = branches(body, weights)
    assert ops(made(model)) == ops(model)


def test_the_size_of_the_result_must_agree_for_every_size_of_the_input() -> None:
    body = "a = Conv <strides = [2,2]> (x, w) b = Conv <strides = [2,2]> (x, u) y = Add (a, b)"
    model = branches(body, "float[4,4,2,2] w, float[4,4,1,1] u", "1,4,8,8")  # 4 and 4 here, 4 and 5 for 9
    assert ops(made(model)) == ops(model)


def test_a_sum_that_broadcasts_is_no_identity() -> None:
    body = "a = Conv (x, w) y = Add (a, x)"
    model = branches(body, "float[1,4,1,1] w", outs=4)
    assert ops(made(model)) == ["Conv", "Add"]


def test_other_terms_stay_behind() -> None:
    body = (
        "p = Relu (x) a = Conv <pads = [1,1,1,1]> (x, w) q = Add (p, a) b = Conv (x, u) r = Add (q, b) y = Add (r, x2)"
    )
    model = branches(body, "float[N,4,H,W] x2, float[4,4,3,3] w, float[4,4,1,1] u")
    assert ops(made(model)) == ["Relu", "Conv", "Add", "Add"]


def test_a_sum_that_others_read_is_a_term() -> None:
    model = branches(
        "a = Conv <pads = [1,1,1,1]> (x, w) q = Add (a, x) b = Conv <pads = [1,1,1,1]> (x, u) r = Add (q, b) "
        "z = Relu (q) y = Add (r, z)",
        "float[4,4,3,3] w, float[4,4,3,3] u",
    )
    assert ops(made(model)).count("Conv") == 2


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda", "portable"])
def test_a_branch_that_others_read_stays(target: str) -> None:
    body = "a = Conv <pads = [1,1,1,1]> (x, w) b = Conv (x, u) c = Add (a, b) d = Mul (c, a) y = Sub (d, b)"
    model = branches(body, "float[4,4,3,3] w, float[4,4,1,1] u", "1,4,16,16")
    assert ops(made(model, target)) == ops(model)


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18, 21])
def test_opsets(opset: int) -> None:
    body = "a = Conv <pads = [1,1,1,1]> (x, w) b = Conv (x, u) y = Add (a, b)"
    model = branches(body, "float[4,4,3,3] w, float[4,4,1,1] u", opset=opset)
    assert ops(made(model)) == ["Conv"]


def test_weights_that_a_caller_can_change_stay() -> None:
    body = "a = Conv <pads = [1,1,1,1]> (x, w) b = Conv (x, u) y = Add (a, b)"
    model = branches(body, "float[4,4,3,3] w, float[4,4,1,1] u")
    model.graph.input.append(onnx.helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, [4, 4, 1, 1]))
    result = optimized(model, rules=["parallel_convs"], target="ort-cpu")
    assert ops(result.model) == ops(model)
    assert any("not constant" in r.reason for r in result.refused)


def test_float16_and_weights_that_overflow_stay() -> None:
    half = graph(
        "a = Conv <pads = [1,1,1,1]> (x, w) b = Conv (x, u) y = Add (a, b)",
        inputs="float16[1,4,8,8] x, float16[4,4,3,3] w, float16[4,4,1,1] u",
        outputs="float16[1,4,8,8] y",
    )
    assert ops(made(with_weights(half))) == ["Conv", "Conv", "Add"]
    model = branches("a = Conv (x, w) b = Conv (x, u) y = Add (a, b)", "float[4,4,1,1] w, float[4,4,1,1] u", "1,4,8,8")
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(np.full((4, 4, 1, 1), 3e38, np.float32), tensor.name))
    result = optimized(model, rules=["parallel_convs"], target="ort-cpu", verify=False)
    assert ops(result.model) == ops(model)


def test_training_mode_stays() -> None:
    model = branches(
        "a = Conv <pads = [1,1,1,1]> (x, w) "
        "b, n, o = BatchNormalization <training_mode = 1> (x, s, t, m, v) y = Add (a, b)",
        "float[4,4,3,3] w" + NORMS,
        "2,4,8,8",
    )
    assert ops(made(model)) == ops(model)


def test_a_block_of_repvgg_with_its_normalizations() -> None:
    parts = [f"s{i}, t{i}, m{i}, v{i}" for i in range(3)]
    norms = "".join(f", float[4] {name}" for part in parts for name in part.split(", "))
    body = (
        f"a = Conv <pads = [1,1,1,1]> (x, w) an = BatchNormalization (a, {parts[0]}) b = Conv (x, u) "
        f"bn = BatchNormalization (b, {parts[1]}) n = BatchNormalization (x, {parts[2]}) p = Add (an, bn) "
        "q = Add (p, n) y = Relu (q)"
    )
    model = branches(body, "float[4,4,3,3] w, float[4,4,1,1] u" + norms)
    result = optimized(model, target="ort-cpu")
    assert ops(result.model) == ["Conv", "Relu"]
    assert_same(model, result.model, random_feeds(model, dims={"N": 2, "H": 6, "W": 5}))


def test_a_normalization_without_finite_parameters_stays() -> None:
    model = branches(
        "a = Conv (x, w) n = BatchNormalization <epsilon = 0.0> (x, s, t, m, v) y = Add (a, n)",
        f"float[4,4,1,1] w{NORMS}",
    )
    variance = next(t for t in model.graph.initializer if t.name == "v")
    variance.CopyFrom(numpy_helper.from_array(np.array([0, 1, 1, 1], np.float32), "v"))
    assert ops(optimized(model, rules=["parallel_convs"], verify=False).model) == ["Conv", "BatchNormalization", "Add"]


@pytest.mark.parametrize("sums", ["c = Add (a, b) y = Add (z, c)", "c = Add (z, a) y = Add (c, b)"])
def test_no_sum_with_a_convolution_that_is_an_output(sums: str) -> None:
    """onnxruntime 1.32 does not load two convolutions and their sum where the first one is a graph output."""
    model = with_weights(
        graph(
            f"z = Conv <pads = [1,1,1,1]> (x, u) a = Conv <pads = [1,1,1,1]> (x, w) b = Conv (x, q) {sums}",
            inputs="float[N,6,H,W] x, float[6,6,3,3] w, float[6,6,3,3] u, float[6,6,1,1] q",
            outputs="float[N,6,H,W] y, float[N,6,H,W] z",
        )
    )
    result = optimized(model, rules=["parallel_convs"], target="ort-cpu")
    assert "Add" in ops(result.model)
    ort.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
