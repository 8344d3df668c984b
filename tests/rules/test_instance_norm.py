"""InstanceNormalization from its parts, groups included, and near misses that stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from norms import made, model, normalized, of_dtype
from support import graph, ops, optimized, random_feeds, run

HEAD = (
    "m = ReduceMean <axes = [2, 3]> (x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean <axes = [-1, -2]> (s) a = Add(v, e)"
)
IMAGE = "N,3,5,4"
SPELLINGS = {
    "root": f"{HEAD} r = Sqrt(a) q = Div(d, r) p = Mul(q, channel) y = Add(p, moved)",
    "reciprocal": f"{HEAD} r = Sqrt(a) i = Reciprocal(r) q = Mul(i, d) p = Mul(channel, q) y = Add(moved, p)",
    "TensorFlow": f"{HEAD} r = Sqrt(a) i = Reciprocal(r) f = Mul(i, channel) p = Mul(x, f) o = Mul(m, f) "
    "t = Sub(moved, o) y = Add(p, t)",
}


def image(body: str, opset: int = 17, shape: str = IMAGE) -> onnx.ModelProto:
    """A graph over images, with a scale and a shift a channel."""
    m = model(
        body.replace("channel", "c3").replace("moved", "z3"), opset, shape, extra=", float[3,1,1] c3, float[3,1,1] z3"
    )
    del m.graph.input[1:]
    for name, numbers in (("c3", [1, 2, 3]), ("z3", [4, 5, 6])):
        m.graph.initializer.append(onnx.numpy_helper.from_array(np.array(numbers, np.float32).reshape(3, 1, 1), name))
    return m


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_becomes_the_operator(name: str, opset: int) -> None:
    m = image(SPELLINGS[name], opset)
    for target in ("ort-cpu", "ort-cuda"):
        assert made(m, "instance_norm", target) == ["InstanceNormalization"]
    fused = optimized(m, rules=["instance_norm"], target="ort-cpu").model
    x = random_feeds(m)["x"]
    along = np.arange(1.0, 7).reshape(2, 3, 1, 1)
    np.testing.assert_allclose(
        run(fused, {"x": x})[0], normalized(x, (2, 3)) * along[0] + along[1], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ("y = Div(d, r)", []),
        ("q = Div(d, r) y = Mul(q, off)", []),  # one number for all channels
        ("q = Div(d, r) y = Add(q, moved)", []),
        ("q = Div(d, r) p = Mul(q, w) y = Add(p, moved)", ["Mul", "Add"]),  # along the width
        ("q = Div(d, r) p = Mul(q, channel) y = Add(p, x)", ["Add"]),
    ],
)
def test_scale_and_shift(tail: str, left: list[str]) -> None:
    assert made(image(f"{HEAD} r = Sqrt(a) {tail}"), "instance_norm") == ["InstanceNormalization", *left]


def test_groups() -> None:
    m = graph(
        "e = Constant <value_float = 0.001> () to = Constant <value_ints = [0, 2, 2, 5, 4]> () "
        "back = Constant <value_ints = [0, 4, 5, 4]> () g = Reshape(x, to) m = ReduceMean <axes = [2, 3, 4]> (g) "
        "d = Sub(g, m) s = Mul(d, d) v = ReduceMean <axes = [2, 3, 4]> (s) a = Add(v, e) r = Sqrt(a) q = Div(d, r) "
        "y = Reshape(q, back)",
        inputs="float[N,4,5,4] x",
        outputs="float[N,4,5,4] y",
    )
    kept = [op for op in made(m, "instance_norm") if op != "Constant"]
    assert kept == ["Reshape", "InstanceNormalization", "Reshape"]


NEAR_MISSES = {
    "channels too": HEAD.replace("[2, 3]", "[1, 2, 3]").replace("[-1, -2]", "[1, 2, 3]") + " r = Sqrt(a) y = Div(d, r)",
    "one axis of two": HEAD.replace("[2, 3]", "[2]").replace("[-1, -2]", "[2]") + " r = Sqrt(a) y = Div(d, r)",
    "two sets of axes": HEAD.replace("[-1, -2]", "[-1]") + " r = Sqrt(a) y = Div(d, r)",
    "ε outside the root": HEAD.replace("a = Add(v, e)", "r = Sqrt(v) a = Add(r, e)") + " y = Div(d, a)",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_stay(name: str) -> None:
    m = image(NEAR_MISSES[name])
    assert made(m, "instance_norm") == ops(m)


def test_over_one_axis_only_with_a_scale_a_channel() -> None:
    parts = "m = Mean(x); d = Sub(x, m); s = Mul(d, d); v = Mean(s); a = Add(v, e); r = Sqrt(a)"
    rows = model(f"{parts}; y = Div(d, r)")  # a layer normalization
    assert made(rows, "instance_norm") == ops(rows)
    scaled = model(f"{parts}; q = Div(d, r); p = Mul(q, c); y = Add(p, z)")
    assert made(scaled, "instance_norm") == ["InstanceNormalization"]


def test_a_free_number_of_channels_stays() -> None:
    m = image(f"{HEAD} r = Sqrt(a) y = Div(d, r)", shape="2,C,5,4")
    assert not optimized(m, rules=["instance_norm"], target="ort-cpu").fusions


def test_a_value_that_is_needed_elsewhere() -> None:
    m = image(SPELLINGS["root"], shape="2,3,5,4")
    m.graph.output.append(onnx.helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, [2, 3, 1, 1]))
    assert made(m, "instance_norm") == ops(m)


def test_double_stays() -> None:
    m = of_dtype(image(SPELLINGS["root"]), onnx.TensorProto.DOUBLE)
    assert made(m, "instance_norm") == ops(m)


@pytest.mark.parametrize(("size", "epsilon", "recovered"), [(4, 1e-5, True), (4, 1e-12, False), (1, 1e-3, False)])
def test_channels_that_are_all_but_constant(size: int, epsilon: float, recovered: bool) -> None:
    """The kernel computes x·s + (b − m·s), where the parts give exactly b."""
    m = graph(
        f"""e = Constant <value_float = {epsilon}> () w = Constant <value = float[2,1,1] {{3.3, 3.3}}> ()
        b = Constant <value = float[2,1,1] {{0.2, 0.3}}> () m = ReduceMean <axes = [2, 3]> (x) d = Sub(x, m)
        s = Mul(d, d) v = ReduceMean <axes = [2, 3]> (s) a = Add(v, e) r = Sqrt(a) q = Div(d, r) p = Mul(q, w)
        y = Add(p, b)""",
        inputs=f"float[N,2,{size},{size}] x",
        outputs=f"float[N,2,{size},{size}] y",
    )
    result = optimized(m, rules=["instance_norm"], target="ort-cpu", verify=False)
    assert bool(result.fusions) is recovered
    feeds = {"x": np.full((2, 2, size, size), 0.7, np.float32)}
    # 0.7 rounded, times 3.3/sqrt(ε) = 1044: nothing to 6e-5 of it
    np.testing.assert_allclose(run(result.model, feeds)[0], run(m, feeds)[0], rtol=0, atol=6e-5 if recovered else 0)
