"""Operators that onnxruntime makes for its own layouts, by hand and against what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxfuse import ir
from onnxfuse.facts import infer

ort = pytest.importorskip("onnxruntime")

NHWC = (
    '<ir_version: 8, opset_import: ["" : 17, "com.ms.internal.nhwc" : 17]> '
    "g (float[N, 32, 24, 3] x, float[8, 3, 3, 3] w) => (float[] y) {{ y = com.ms.internal.nhwc.{} }}"
)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Conv<strides=[2,2], pads=[1,1,1,1]>(x, w)", "N, 16, 12, 8"),
        ("MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)", "N, 16, 12, 3"),
        ("GlobalAveragePool(x)", "N, 1, 1, 3"),
        ("SpaceToDepth<blocksize=2>(x)", "N, 16, 12, 12"),
        ("InstanceNormalization(x, w, w)", "N, 32, 24, 3"),
    ],
)
def test_channels_last(call: str, expected: str) -> None:
    value = infer(ir.read(parser.parse_model(NHWC.format(call))))["y"]
    assert value.shape is not None
    assert ", ".join(map(str, value.shape)) == expected


MODEL = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 3, 32, 24] x, float[N, 20, 8, 6] z) => (float[] y, float[] v)'
    "<float[24, 3, 3, 3] a, float[20, 24, 3, 3] b, float[20, 1, 3, 3] c, float[20, 20, 1, 1] d> {"
    "p = Conv<strides=[2,2], pads=[1,1,1,1]>(x, a) q = Relu(p)"
    "r = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(q)"
    "s = Conv<pads=[1,1,1,1]>(r, b) t = Add(s, z) u = Relu(t)"
    "e = Conv<pads=[1,1,1,1], group=20>(u, c) f = Conv(e, d) g = GlobalAveragePool(f) y = Flatten(g)"
    "k = Conv(z, d) v = AveragePool<kernel_shape=[2,2], strides=[2,2]>(k) }"
)


def weighted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with ones for the weights that the text declares."""
    shapes = {"a": (24, 3, 3, 3), "b": (20, 24, 3, 3), "c": (20, 1, 3, 3), "d": (20, 20, 1, 1)}
    del model.graph.initializer[:]
    for name, dims in shapes.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(dims, np.float32), name))
    for kind in (model.graph.value_info, model.graph.input):
        for info in [info for info in kind if info.name in shapes]:
            kind.remove(info)
    return model


def test_blocks_of_channels_are_what_onnxruntime_computes(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    model = weighted(parser.parse_model(MODEL))
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(tmp_path / "optimized.onnx")
    blocked = [o for n in optimized.graph.node if n.domain == "com.microsoft.nchwc" for o in n.output]
    if not blocked:
        pytest.skip("this CPU has no layout of blocks of channels")
    exported = {o.name for o in optimized.graph.output}
    optimized.graph.output.extend(onnx.ValueInfoProto(name=o) for o in blocked if o not in exported)
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain.log_severity_level = 4
    session = ort.InferenceSession(optimized.SerializeToString(), plain, providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones((2, 3, 32, 24), np.float32), "z": np.ones((2, 20, 8, 6), np.float32)}
    found = infer(ir.read(optimized), {"N": 2})
    computed = {o: a.shape for o, a in zip(blocked, session.run(blocked, feeds), strict=True)}
    assert {o: found[o].shape for o in blocked} == computed
