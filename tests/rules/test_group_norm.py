"""GroupNormalization as InstanceNormalization of groups."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from norms import made, normalized
from onnx import numpy_helper
from support import graph, ops, optimized, random_feeds, run

LOWERED = ["Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]
SCALE = np.arange(1, 7, dtype=np.float32)


def model(shape: str = "N,6,5,4", *, groups: int = 3, dtype: str = "float") -> onnx.ModelProto:
    m = graph(
        f"y = GroupNormalization <num_groups = {groups}, epsilon = 0.001> (x, w, b)",
        inputs=f"{dtype}[{shape}] x, {dtype}[6] w, {dtype}[6] b",
        outputs=f"{dtype}[{shape}] y",
        opset=21,
        ir=10,
    )
    element = np.float16 if dtype == "float16" else np.float32
    del m.graph.input[1:]
    for name, array in (("w", SCALE), ("b", -SCALE)):
        m.graph.initializer.append(numpy_helper.from_array(array.astype(element), name))
    return m


@pytest.mark.parametrize(("shape", "groups"), [("N,6,5,4", 3), ("2,6,7", 6), ("N,6,5,4", 1), ("N,6,H,4", 2)])
def test_its_parts(shape: str, groups: int) -> None:
    m = model(shape=shape, groups=groups)
    assert made(m, "group_norm") == LOWERED
    x = random_feeds(m)["x"]
    fused = optimized(m, rules=["group_norm"], target="ort-cpu").model
    expected = normalized(x.reshape(x.shape[0], groups, -1), (2,)).reshape(x.shape)
    along = SCALE.reshape(-1, *[1] * (x.ndim - 2))
    np.testing.assert_allclose(run(fused, {"x": x})[0], expected * along - along, rtol=1e-5, atol=1e-5)


def test_a_free_image_takes_its_shape() -> None:
    assert made(model(shape="N,6,H,W"), "group_norm") == ["Reshape", "InstanceNormalization", "Shape", *LOWERED[2:]]


def test_what_stays() -> None:
    for m in (model(shape="N,C,5,4"), model(dtype="float16")):
        assert not optimized(m, rules=["group_norm"], target="ort-cpu", verify=False).fusions
    scale = model()
    scale.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [6]))
    assert made(scale, "group_norm") == ["GroupNormalization"]


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_only_on_the_cpu(target: str) -> None:
    assert made(model(), "group_norm", target) == ops(model())
