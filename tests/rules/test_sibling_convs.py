"""Convolutions of one value as one: blocks of channels counted by hand, results against the convolutions apart."""

from __future__ import annotations

from functools import partial

import examples
import onnx
import pytest
from support import graph, ops, with_weights

HEADS = "a = Conv (x, w, c) b = Conv (x, v) y = Transpose <perm = [0,2,3,1]> (a) z = Softmax <axis = 1> (b)"
WEIGHTS = "float[4,6,1,1] w, float[4] c, float[2,6,1,1] v"
ONE = ["Conv", "Split", "Transpose", "Softmax"]
APART = ["Conv", "Conv", "Transpose", "Softmax"]


def model(body: str = HEADS, weights: str = WEIGHTS, opset: int = 17, dtype: str = "float") -> onnx.ModelProto:
    inputs = f"float[N,6,H,W] x, {weights}".replace("float[", f"{dtype}[")
    outputs = f"{dtype}[N,P,Q,R] y, {dtype}[N,S,T,U] z"
    return with_weights(graph(body, inputs=inputs, outputs=outputs, opset=opset))


made = partial(examples.made, rule="sibling_convs", dims=[{"N": 2, "H": size, "W": 6} for size in (5, 8)])


@pytest.mark.parametrize("opset", [7, 11, 12, 13, 18, 21])
def test_heads(opset: int) -> None:
    assert made(model(opset=opset)) == ONE


@pytest.mark.parametrize(
    ("channels", "one"),
    [
        ((4, 2), True),  # 1 + 1 blocks of 16, together 1
        ((8, 8), True),  # 1 + 1, 1
        ((9, 8), False),  # 1 + 1, 2
        ((36, 9), True),  # 3 + 1, 3
        ((32, 16), False),  # full
        ((24, 126), False),  # 2 + 8, 10
    ],
)
def test_blocks(channels: tuple[int, int], one: bool) -> None:
    a, b = channels
    weights = f"float[{a},6,3,3] w, float[{a}] c, float[{b},6,3,3] v"
    assert made(model(weights=weights)) == (ONE if one else APART)


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        (HEADS, WEIGHTS.replace("float[2,6,1,1]", "float[2,6,3,3]")),
        (HEADS.replace("Conv (x, v)", "Conv <strides = [2,2]> (x, v)"), WEIGHTS),
        (HEADS.replace("Transpose <perm = [0,2,3,1]> (a)", "Relu (a)"), WEIGHTS),  # which the Conv ends with
        (HEADS.replace("Transpose <perm = [0,2,3,1]> (a)", "Add (a, a)"), WEIGHTS),
        (HEADS.replace("b = Conv (x, v)", "k = Exp (x) b = Conv (k, v)"), WEIGHTS),
        # so little work that the copies take longer
        (HEADS, WEIGHTS.replace("[4,", "[72,").replace("[4]", "[72]").replace("[2,", "[8,")),
    ],
)
def test_what_stays(body: str, weights: str) -> None:
    m = model(body, weights)
    assert made(m) == ops(m)


def test_of_three_those_whose_readers_take_no_blocks() -> None:
    body = "y = Conv (x, w, c) k = Exp (y) b = Conv (x, v) d = Conv (x, u) e = {} (k, d) z = Softmax <axis = 1> (b)"
    weights = f"{WEIGHTS}, float[4,6,1,1] u"
    assert sorted(made(model(body.format("Add"), weights))) == ["Add", "Conv", "Conv", "Exp", "Softmax", "Split"]
    assert sorted(made(model(body.format("Sub"), weights))) == ["Conv", "Exp", "Softmax", "Split", "Sub"]


def test_weights_that_a_caller_can_change_other_dtypes_and_targets_stay() -> None:
    m = model()
    m.graph.input.append(onnx.helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, [2, 6, 1, 1]))
    assert made(m) == APART
    assert made(model(dtype="float16")) == APART
    assert made(model(), "ort-cuda") == APART and made(model(), "portable") == APART


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda"])
def test_transposes_behind_all_of_them_are_one(target: str) -> None:
    body = "a = Conv (x, w, c) b = Conv (x, v) y = Transpose <perm = [{}]> (a) z = Transpose <perm = [{}]> (b)"
    for perm in ("0,2,3,1", "0,1,3,2", "1,0,2,3"):
        assert made(model(body.format(perm, perm)), target) == ["Conv", "Transpose", "Split"]
    apart = made(model(body.format("0,2,3,1", "0,3,2,1")), target)
    assert apart.count("Transpose") == 2
