"""Normalizations in the spellings of exporters, in ONNX text, and what they are in numpy."""

from __future__ import annotations

import re

import examples
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support import parse

CONSTANTS = """<float two = {2}, int64 whole = {2}, float one = {1}, float e = {0.001}, float[1,1] e2 = {0.001},
float half = {0.5}, float minus = {-0.5}, float n = {4}, float rn = {0.25}, float off = {5}, int64[1] last = {-1},
int64[1] first = {0}, int64[2] both = {-1, 1}, float[4] w = {1, 2, -3, 4}, float[4] b = {1, -1, 0.5, 2},
float[1,1,4] w3 = {1, 2, -3, 4}, float[1,4] b2 = {1, -1, 0.5, 2}, float[3,1] c = {1, 2, 3}, float[3,1] z = {4, 5, 6}>"""
W, B = np.array([1, 2, -3, 4.0]), np.array([1, -1, 0.5, 2])


def model(body: str, opset: int = 17, shape: str = "N,3,4", *, extra: str = "") -> onnx.ModelProto:
    """A graph from x to y over these constants; `Mean(a)` and `Sum(a)` reduce the last axis, in the opset's form."""
    for op, since in (("Mean", 18), ("Sum", 13)):
        form = rf"Reduce{op} <axes = [-1]> (\1)" if opset < since else rf"Reduce{op}(\1, last)"
        body = re.sub(rf"\b{op}\((\w+)\)", form, body)
    ir = 8 if opset < 20 else 10
    head = f'<ir_version: {ir}, opset_import: ["" : {opset}]> g (float[{shape}] x{extra}) => (float[{shape}] y)'
    return parse(f"{head} {CONSTANTS} {{ {body.replace(';', ' ')} }}")


def of_dtype(m: onnx.ModelProto, dtype: int) -> onnx.ModelProto:
    """The graph in another floating dtype."""
    for info in (*m.graph.input, *m.graph.output):
        info.type.tensor_type.elem_type = dtype
    for t in m.graph.initializer:
        if t.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(t).astype(helper.tensor_dtype_to_np_dtype(dtype))
            t.CopyFrom(numpy_helper.from_array(array, t.name))
    onnx.checker.check_model(m)
    return m


def made(m: onnx.ModelProto, rule: str, target: str = "ort-cpu") -> list[str]:
    """Operators after the rule, with the results compared."""
    return examples.made(m, target, rule=rule)


def normalized(x: np.ndarray, axes: tuple[int, ...], epsilon: float = 1e-3, centred: bool = True) -> np.ndarray:
    """(x − mean)/sqrt(mean square + ε) in double precision; the mean is 0 where not `centred`."""
    x = x.astype(np.float64)
    d = x - x.mean(axes, keepdims=True) if centred else x
    return np.asarray(d / np.sqrt((d * d).mean(axes, keepdims=True) + epsilon))
