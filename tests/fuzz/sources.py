"""Valid model files to mutate: what the onnx wheel brings, the repository's models, and kinds that those lack."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from .generate import generate

Files = dict[str, bytes]  # by path relative to the model's folder; the model is MODEL
MODEL = "m.onnx"
ROOT = Path(__file__).parent.parent.parent
GENERATED = 400  # graphs of the fuzzer of the rewrites, on which rules fire

FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "loc" : 1]>
g (float[N,4] x) => (float[N,4] y) { t = loc.Outer <alpha = 0.5> (x) y = loc.Inner(t) }
<domain: "loc", opset_import: ["" : 17, "loc" : 1]>
Outer <alpha> (a) => (c) { b = LeakyRelu <alpha: float = @alpha> (a) c = loc.Inner(b) }
<domain: "loc", opset_import: ["" : 17]>
Inner (a) => (c) { b = Relu(a) one = Constant <value = float {1.0}> () c = Add(b, one) }"""
BODIES = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x, int64 n, bool c) => (float[N,4] y, float[K,N,4] all)
<float w = {2.0}, bool go = {1}>
{ t = Relu(x)
  u = If (c) <
    then_branch = a () => (float[N,4] p) { q = Relu(t) p = Mul(q, w) },
    else_branch = b () => (float[N,4] r) { r = Add(t, w) }>
  y, all = Loop (n, go, u) <
    body = l (int64 i, bool before, float[N,4] s) => (bool after, float[N,4] next, float[N,4] scanned) {
      after = Identity(before) v = Add(s, t) next = Relu(v) scanned = Mul(next, w) }>
}"""


def _quantized() -> onnx.ModelProto:
    return parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,3,6,6] x) => (float[1,4,6,6] y)
    <float s = {0.1}, uint8 z = {128}, float ws = {0.02}, int8 wz = {0}, int32[4] b = {1, 2, 3, 4},
     int8[4,3,1,1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
    { q = QuantizeLinear(x, s, z) r = QLinearConv(q, s, z, w, ws, wz, s, z, b) t = DequantizeLinear(r, s, z)
      f = DequantizeLinear(w, ws, wz) u = Conv(x, f) v = Add(t, u) y = Relu(v) }""")


def _sparse() -> onnx.ModelProto:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,3] y)
    { c = Constant <value_float = 2.0> () t = MatMul(x, w) u = Mul(t, c) y = Relu(u) }""")
    values = numpy_helper.from_array(np.array([1, -2, 3], np.float32), "w")
    where = numpy_helper.from_array(np.array([0, 5, 11], np.int64), "w_indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, where, [4, 3]))
    return model


def _external(model: onnx.ModelProto, location: str) -> Files:
    """The model with its larger weights in one file beside it."""
    data = b""
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > 16:
            said = {"location": location, "offset": str(len(data)), "length": str(len(tensor.raw_data))}
            for key, value in said.items():
                tensor.external_data.add(key=key, value=value)
            data += tensor.raw_data
            tensor.data_location = TensorProto.EXTERNAL
            tensor.ClearField("raw_data")
    return {MODEL: model.SerializeToString(), location: data}


def _alone(model: onnx.ModelProto) -> Files:
    return {MODEL: model.SerializeToString()}


@cache
def sources(operators: bool) -> dict[str, Callable[[], Files]]:
    """Every source by name. operators: with onnx's 1,884 operator tests, which take seconds to make."""
    own = {p.name: p for p in sorted((ROOT / "models").glob("*.onnx"))}
    wheel = Path(onnx.__file__).parent / "backend/test/data"
    found: dict[str, Callable[[], Files]] = {
        "functions": lambda: _alone(parser.parse_model(FUNCTIONS)),
        "bodies": lambda: _alone(parser.parse_model(BODIES)),
        "quantized": lambda: _alone(_quantized()),
        "sparse": lambda: _alone(_sparse()),
    }
    for name, path in own.items():
        found[name] = lambda path=path: {MODEL: path.read_bytes()}
        found[f"external {name}"] = lambda path=path: _external(onnx.load(path), "w.data")
    found["external in a folder"] = lambda: _external(onnx.load(own["preactivation.onnx"]), "sub/w.data")
    for path in sorted(wheel.rglob("*.onnx")):
        if path.stat().st_size < 40_000:  # the largest networks take seconds each
            found[str(path.relative_to(wheel))] = lambda path=path: {MODEL: path.read_bytes()}
    for seed in range(GENERATED):
        found[f"generated {seed}"] = lambda seed=seed: _alone(generate(seed).model)
    if operators:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the generators provoke overflows and divisions by zero on purpose
            from onnx.backend.test.case.node import collect_testcases

            cases = [case for case in collect_testcases(None) if case.model is not None]
        found |= {case.name: lambda case=case: _alone(case.model) for case in cases}
    return found
