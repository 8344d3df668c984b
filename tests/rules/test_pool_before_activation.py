"""Non-decreasing functions behind a MaxPool instead of in front of it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support import assert_same, graph, ops, optimized, random_feeds, run

import onnxfuse

HALF = "MaxPool <kernel_shape = [2, 2], strides = [2, 2]>"
RISING = [
    "LeakyRelu <alpha = 0.1>", "Elu", "Elu <alpha = 0.5>", "Celu <alpha = 2.0>", "Sigmoid",
    "Tanh", "Softplus", "Erf", "Exp", "HardSigmoid <alpha = 0.3>", "Clip",
]  # fmt: skip


def chain(function: str, pool: str = HALF, more: str = "") -> onnx.ModelProto:
    body = f"a = {function} (x{more}) y = {pool} (a)"
    return graph(body, inputs="float[N,3,H,W] x, float low, float high", outputs="float[N,3,P,Q] y")


SIZES = {"N": 1, "H": 64, "W": 64}


def rewritten(model: onnx.ModelProto, target: str = "ort-cuda") -> onnxfuse.Result:
    free = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim}
    dims = {name: size for name, size in SIZES.items() if name in free}
    return optimized(model, target=target, rules=["pool_before_activation"], dims=dims)


def made(model: onnx.ModelProto, target: str = "ort-cuda") -> list[str]:
    result = rewritten(model, target)
    for size in (8, 9):
        feeds = random_feeds(model, dims={"N": 2, "H": size, "W": size + 3})
        assert_same(model, result.model, feeds)
    return ops(result.model)


@pytest.mark.parametrize("function", RISING)
@pytest.mark.parametrize("pool", [HALF, "GlobalMaxPool"])
def test_what_never_falls_commutes_with_a_maximum(function: str, pool: str) -> None:
    assert made(chain(function, pool)) == [pool.split()[0], function.split()[0]]


def test_the_limits_of_a_clip_need_not_be_known() -> None:
    assert made(chain("Clip", more=", low, high")) == ["MaxPool", "Clip"]


@pytest.mark.parametrize(
    "function",
    ["LeakyRelu <alpha = -0.1>", "LeakyRelu <alpha = 0.0>", "Elu <alpha = -1.0>", "HardSigmoid <alpha = -0.2>"],
)
def test_what_falls_somewhere_stays(function: str) -> None:
    result = rewritten(chain(function))
    assert ops(result.model) == [function.split()[0], "MaxPool"]
    assert "falls somewhere" in result.refused[0].reason


@pytest.mark.parametrize(
    ("pool", "reason"),
    [
        ("MaxPool <kernel_shape = [1, 1], strides = [2, 2], pads = [1, 1, 1, 1]>", "wholly in padding"),
        ("MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>", None),  # nothing gets smaller
    ],
)
def test_where_it_is_wrong_or_saves_nothing(pool: str, reason: str | None) -> None:
    result = rewritten(chain("Sigmoid", pool))
    assert ops(result.model) == ["Sigmoid", "MaxPool"]
    assert reason is None or reason in result.refused[0].reason


def test_indices_tell_which_maximum_was_taken() -> None:
    model = graph(
        f"a = Sigmoid (x) y, i = {HALF} (a)", inputs="float[1,3,8,8] x", outputs="float[1,3,4,4] y, int64[1,3,4,4] i"
    )
    assert made(model) == ["Sigmoid", "MaxPool"]  # of 40 and 41 both give 1


def test_a_function_that_is_read_twice_stays() -> None:
    model = graph(
        f"a = Sigmoid (x) y = {HALF} (a)", inputs="float[1,3,8,8] x", outputs="float[1,3,4,4] y, float[1,3,8,8] a"
    )
    assert made(model) == ["Sigmoid", "MaxPool"]


def test_the_cpu_keeps_what_its_convolution_absorbs() -> None:
    model = graph(
        f"c = Conv (x, w) a = LeakyRelu (c) y = {HALF} (a)",
        inputs="float[1,3,64,64] x, float[8,3,3,3] w",
        outputs="float[1,8,31,31] y",
    )
    assert made(model, "ort-cpu") == ["Conv", "LeakyRelu", "MaxPool"]
    assert made(model, "ort-cuda") == ["Conv", "MaxPool", "LeakyRelu"]


def test_nan_and_infinities() -> None:
    model = chain("LeakyRelu <alpha = 0.1>")
    after = rewritten(model).model
    feeds = random_feeds(model, dims={"N": 1, "H": 8, "W": 8})
    for i, number in enumerate((np.nan, np.inf, -np.inf, -0.0)):
        feeds["x"][0, :, i, :] = number
    np.testing.assert_array_equal(run(model, feeds)[0], run(after, feeds)[0])
