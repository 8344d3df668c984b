"""PRelu: equal slopes, one slope a channel behind a convolution, and what stays."""

from __future__ import annotations

from collections.abc import Sequence

import examples
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import assert_same, ops, optimized, parse, random_feeds, run

DEPTHWISE = ["Conv", "Conv", "Relu", "Conv", "Add"]
CONV = "c = Conv(x, w) "


def model(
    body: str, slope: np.ndarray, opset: int = 17, channels: int = 8, size: str = "H,W", dtype: str = "float"
) -> onnx.ModelProto:
    """A graph over the image x with the weights w and the slopes s."""
    m = parse(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g ({dtype}[N,3,{size}] x, {dtype} w, {dtype} s) '
        f"=> ({dtype}[N,{channels},P,Q] y) {{ {body} }}"
    )
    kind = np.dtype({"float": np.float32, "float16": np.float16}[dtype])
    del m.graph.input[1:]
    weight = np.random.default_rng(0).standard_normal((channels, 3, 1, 1)).astype(kind)
    m.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    m.graph.initializer.append(numpy_helper.from_array(slope.astype(kind), "s"))
    return m


def made(m: onnx.ModelProto, rule: str) -> list[str]:
    return examples.made(m, rule=rule, dims=[{"N": 2, "H": size, "W": 8, "C": 8} for size in (1, 5)])


POOLED = "p = PRelu(c, s) y = MaxPool<kernel_shape = [1, 1]>(p)"
SLOPES = np.linspace(-0.5, 1.5, 8)


@pytest.mark.parametrize("shape", [(8, 1, 1), (1, 8, 1, 1)])
@pytest.mark.parametrize("opset", [7, 9, 16, 22])
def test_one_slope_a_channel(shape: tuple[int, ...], opset: int) -> None:
    m = model(CONV + POOLED, SLOPES.reshape(shape), opset)
    assert made(m, "prelu_depthwise") == [*DEPTHWISE, "MaxPool"]
    assert made(m, "prelu_equal_slopes") == ops(m)


def test_slopes_of_another_axis_stay() -> None:
    m = model(CONV + POOLED, SLOPES, size="H,8")  # [8] is of the last axis
    assert made(m, "prelu_depthwise") == ops(m)


def test_channels_outside_of_the_layout_stay() -> None:
    m = model(CONV + POOLED, np.linspace(-1, 1, 10).reshape(10, 1, 1), channels=10)
    assert made(m, "prelu_depthwise") == ops(m)


def test_where_nothing_in_the_layout_reads_it_it_stays() -> None:
    m = model(CONV + "y = PRelu(c, s)", SLOPES.reshape(8, 1, 1))
    assert made(m, "prelu_depthwise") == ops(m)


def test_without_a_convolution_it_stays() -> None:
    m = model("y = PRelu(x, s)", np.array([0.1, 0.2, 0.3]).reshape(3, 1, 1), channels=3)
    assert made(m, "prelu_depthwise") == ops(m)


@pytest.mark.parametrize("name", ["w", "s"])
def test_what_a_caller_may_change_stays(name: str) -> None:
    m = model(CONV + POOLED, SLOPES.reshape(8, 1, 1))
    shape = [8, 1, 1] if name == "s" else [8, 3, 1, 1]
    m.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    assert made(m, "prelu_depthwise") == ops(m)


def test_slopes_that_are_not_finite_stay() -> None:
    m = model(CONV + POOLED, np.full((8, 1, 1), np.inf))
    assert not optimized(m, rules=["prelu_depthwise", "prelu_equal_slopes"], target="ort-cpu", verify=False).fusions


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_depthwise_is_for_the_cpu(target: str) -> None:
    m = model(CONV + POOLED, SLOPES.reshape(8, 1, 1))
    assert ops(optimized(m, rules=["prelu_depthwise"], target=target).model) == ops(m)


def test_other_readers_of_the_convolution() -> None:
    m = model(CONV + "p = PRelu(c, s) q = MaxPool<kernel_shape = [1, 1]>(p) y = Add(q, c)", SLOPES.reshape(8, 1, 1))
    assert made(m, "prelu_depthwise") == [*DEPTHWISE, "MaxPool", "Add"]


def test_special_values() -> None:
    """The weights of a convolution are finite, so an infinite sum is one infinity or NaN in all channels."""
    m = model(CONV + POOLED, SLOPES.reshape(8, 1, 1))
    fused = optimized(m, rules=["prelu_depthwise"], target="ort-cpu").model
    assert ops(fused) == [*DEPTHWISE, "MaxPool"]
    x = np.zeros((1, 3, 1, 6), np.float32)
    x[0, 0, 0] = [np.nan, np.inf, -np.inf, 1e38, -1e38, 0]
    ((got,), (expected,)) = run(fused, {"x": x}), run(m, {"x": x})
    assert np.isnan(got[np.isnan(expected)]).all()  # never a number where there was none
    finite = np.isfinite(expected)
    assert finite.any() and not np.isfinite(expected[..., 1:3]).any()
    np.testing.assert_allclose(got[finite], expected[finite], rtol=1e-6)
    negative = np.isinf(expected) & np.isnan(got)
    assert not negative[expected == np.inf].all()  # +inf stays where the convolution gave it


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (8, 1, 1), (1, 8, 1, 1)])
@pytest.mark.parametrize("opset", [7, 16])
def test_equal_slopes_are_leaky_relu(shape: tuple[int, ...], opset: int) -> None:
    m = model(CONV + "y = PRelu(c, s)", np.full(shape, 0.25), opset)
    assert made(m, "prelu_equal_slopes") == ["Conv", "LeakyRelu"]


def test_equal_slopes_below_zero_and_in_float16() -> None:
    assert made(model(CONV + "y = PRelu(c, s)", np.full((8, 1, 1), -0.5)), "prelu_equal_slopes")[-1] == "LeakyRelu"
    m = model(CONV + "y = PRelu(c, s)", np.full((8, 1, 1), 0.25), dtype="float16")
    assert made(m, "prelu_equal_slopes") == ["Conv", "LeakyRelu"]


def between(body: str, channels: int, extra: str = "", opset: int = 17) -> onnx.ModelProto:
    """A graph over x with weights w (channels,3,3,3), slopes s, weights v (2,channels,1,1)."""
    m = parse(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,3,H,W] x, float w, float s, float v) '
        f"=> (float[N,2,P,Q] y{extra}) {{ {body} }}"
    )
    del m.graph.input[1:]
    rng = np.random.default_rng(0)
    for name, shape in (("w", (channels, 3, 3, 3)), ("s", (1, channels, 1, 1)), ("v", (2, channels, 1, 1))):
        m.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    return m


def padded(m: onnx.ModelProto, *, exclude: Sequence[str] = ()) -> tuple[list[str], int]:
    """Operators after the rule, and the channels behind the first convolution; the results are compared."""
    chosen = {"exclude": exclude} if exclude else {"rules": ["prelu_channels"]}
    result = optimized(m, target="ort-cpu", **chosen)
    assert_same(m, result.model, random_feeds(m, dims={"N": 2, "H": 7, "W": 8}))
    shapes = {t.name: list(t.dims) for t in result.model.graph.initializer}
    return ops(result.model), shapes[result.model.graph.node[0].input[1]][0]


POOL = "m = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (p)"


@pytest.mark.parametrize(("channels", "after"), [(10, 16), (3, 16), (18, 20)])
def test_channels_between_convolutions(channels: int, after: int) -> None:
    pooled = between(f"c = Conv(x, w) p = PRelu(c, s) {POOL} y = Conv(m, v)", channels)
    assert padded(pooled) == ([*DEPTHWISE, "MaxPool", "Conv"], after)
    assert padded(between("c = Conv(x, w) p = PRelu(c, s) y = Conv(p, v)", channels)) == ([*DEPTHWISE, "Conv"], after)


@pytest.mark.parametrize("channels", [8, 16, 20])
def test_whole_blocks_need_no_more_channels(channels: int) -> None:
    m = between("c = Conv(x, w) p = PRelu(c, s) y = Conv(p, v)", channels)
    assert padded(m) == (ops(m), channels)


@pytest.mark.parametrize("exclude", ["prelu_depthwise", "prelu_channels"])
def test_no_more_channels_without_depthwise_convolutions(exclude: str) -> None:
    """Alone, more channels only cost time: they come together with what needs them, or not at all."""
    m = between("c = Conv(x, w) p = PRelu(c, s) y = Conv(p, v)", 10)
    expected = (ops(m), 10) if exclude == "prelu_channels" else ([*DEPTHWISE, "Conv"], 16)
    assert padded(m, exclude=[exclude]) == expected


def test_slopes_that_cannot_be_taken_keep_the_channels() -> None:
    m = between("c = Conv(x, w) p = PRelu(c, s) r = Reciprocal(p) y = Conv(p, v) z = Neg(r)", 10, ", float[N,10,P,Q] z")
    assert padded(m) == (ops(m), 10)
    m = between("c = Conv(x, w) p = PRelu(c, s) y = Conv(p, v)", 10)
    m.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full((1, 10, 1, 1), np.inf, np.float32), "s"))
    result = optimized(m, rules=["prelu_channels"], target="ort-cpu", verify=False)
    assert not result.fusions and any("slopes" in r.reason for r in result.refused)


@pytest.mark.parametrize(
    ("body", "extra"),
    [
        ("c = Conv(x, w) p = PRelu(c, s) y = Conv(p, v)", ", float[N,10,P,Q] p"),
        ("c = Conv(x, w) p = PRelu(c, s) y = Conv(p, v)", ", float[N,10,P,Q] c"),
        ("c = Conv(x, w) p = PRelu(c, s) e = Exp(p) y = Conv(e, v)", ""),
        ("c = Conv(x, w) p = PRelu(c, s) e = Conv(p, v) f = Conv(p, v) y = Add(e, f)", ""),
    ],
)
def test_channels_that_others_see_stay(body: str, extra: str) -> None:
    m = between(body, 10, extra)
    assert padded(m) == (ops(m), 10)


def test_slopes_that_may_be_more_than_the_value_stay() -> None:
    m = model("y = PRelu(x, s)", np.full((1, 1, 5), 0.5), channels=3)  # onnxruntime broadcasts both ways
    assert ops(optimized(m, rules=["prelu_equal_slopes"], target="ort-cpu", verify=False).model) == ["PRelu"]


@pytest.mark.parametrize(
    ("slope", "behind", "fires"),
    [
        (1e-9, "r = Reciprocal(p) y = Add(m, r)", False),
        (0.3, "r = Reciprocal(p) y = Add(m, r)", True),
        (1e-9, "y = Identity(m)", False),
        (1e-9, "y = Softmax(m)", True),
    ],
)
def test_slopes_around_zero(slope: float, behind: str, fires: bool) -> None:
    """Where x < 0, x + (1 − 10⁻⁹)·(−x) is 0 in float32, and the reciprocal of it infinite."""
    m = model(f"{CONV} p = PRelu(c, s) m = MaxPool<kernel_shape = [1, 1]>(p) {behind}", np.full((8, 1, 1), slope))
    result = optimized(m, rules=["prelu_depthwise"], target="ort-cpu", verify=False)
    assert bool(result.fusions) is fires
    assert_same(m, result.model, random_feeds(m, dims={"N": 1, "H": 3, "W": 3}))
