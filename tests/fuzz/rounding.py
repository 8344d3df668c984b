"""How far rounding alone moves the results of a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .sessions import Feeds, load, run, values_of


def sensitivity(
    model: onnx.ModelProto, feeds: Feeds, index: int, expected: np.ndarray, fired: Collection[str]
) -> float:
    """How far an output moves when every value, computed or constant, is off by some roundings: what cancels shows."""
    largest = 0.0
    for result in rerounded(model, feeds, index, fired):
        if result is None or result.shape != expected.shape:
            return np.inf
        off = np.abs(result.astype(np.float64) - expected.astype(np.float64))[np.isfinite(expected)]
        if not np.isfinite(off).all():
            return np.inf
        largest = max(largest, float(np.max(off, initial=0)))
    return largest


def rerounded(model: onnx.ModelProto, feeds: Feeds, index: int, fired: Collection[str]) -> Iterator[np.ndarray | None]:
    """An output where every value, computed or constant, is off by some roundings, drawn four times."""
    step = 8 * epsilon(model)
    arrays = values_of(model, feeds)
    powers = {node.input[1] for node in model.graph.node if node.op_type == "Pow"}  # a negative number has whole ones
    # 1/(1 + e) is off by 3e-7, whatever its size, where onnxruntime's Sigmoid computes it.
    below = {node.input[-1] for node in model.graph.node if node.op_type in ("Div", "Reciprocal")}
    steps = {n: step + 3e-7 * np.abs(a) if "sigmoid" in fired and n in below else step for n, a in arrays.items()}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        moved = onnx.ModelProto.FromString(model.SerializeToString())
        for t in (t for t in moved.graph.initializer if t.name not in powers):
            t.CopyFrom(numpy_helper.from_array(_shaken(numpy_helper.to_array(t), step, rng), t.name))
        nodes = []
        for node in moved.graph.node:
            nodes.append(node)
            for i, name in enumerate(node.output):
                if name in arrays and arrays[name].dtype.kind == "f" and name not in powers:
                    noise = _shaken(np.ones_like(arrays[name]), np.minimum(steps[name], 0.5), rng)
                    moved.graph.initializer.append(numpy_helper.from_array(noise, f"{name}/noise"))
                    node.output[i] = f"{name}/raw"
                    nodes.append(helper.make_node("Mul", [f"{name}/raw", f"{name}/noise"], [name]))
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del moved.graph.node[:]
        moved.graph.node.extend(copies)
        moved.ir_version = max(moved.ir_version, 4)
        results = run(load(moved.SerializeToString(), "disabled"), {n: _shaken(a, step, rng) for n, a in feeds.items()})
        yield None if results is None else results[index]


def epsilon(model: onnx.ModelProto) -> float:
    """The coarsest rounding in a graph."""
    types = {t.data_type for t in model.graph.initializer} | {i.type.tensor_type.elem_type for i in model.graph.input}
    types |= {o.type.tensor_type.elem_type for o in model.graph.output}
    for node in model.graph.node:
        types |= {a.i for a in node.attribute if a.name == "to"} | {a.t.data_type for a in node.attribute}
        if node.op_type in ("HardSigmoid", "LeakyRelu", "BatchNormalization"):  # attributes are float32
            types.add(TensorProto.FLOAT)
    if TensorProto.FLOAT16 in types:
        return 2.0**-11
    return 2.0**-24 if TensorProto.FLOAT in types else 2.0**-52


def _shaken(array: np.ndarray, step: float | np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    with np.errstate(all="ignore"):
        return np.asarray(array * (1 + step * rng.choice([-1, 1], array.shape))).astype(array.dtype)
