"""Random attributes against onnxruntime: the shape it computes is the shape we infer, bound and with symbols."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import facts, ir

ort = pytest.importorskip("onnxruntime")


@dataclass
class Case:
    op: str
    x: tuple[int, ...]
    inputs: list[np.ndarray] = field(default_factory=list)  # constant inputs after x; an empty name where None
    attrs: dict[str, object] = field(default_factory=dict)
    opset: int = 21


def windows(r: random.Random, n: int) -> tuple[list[int], dict[str, object]]:
    kernel = [r.randint(1, 4) for _ in range(n)]
    attrs: dict[str, object] = {"kernel_shape": kernel, "strides": [r.randint(1, 3) for _ in range(n)]}
    if r.random() < 0.5:
        attrs["dilations"] = [r.randint(1, 2) for _ in range(n)]
    mode = r.choice(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode == "NOTSET":
        attrs["pads"] = [r.randrange(k) for k in kernel * 2]
    else:
        attrs["auto_pad"] = mode
    return kernel, attrs


def sizes(r: random.Random, n: int) -> tuple[int, ...]:
    return tuple(r.randint(8, 15) for _ in range(n))


def conv(r: random.Random) -> Case:
    n = r.choice([1, 2, 3])
    kernel, attrs = windows(r, n)
    if attrs.get("auto_pad", "").startswith("SAME"):
        attrs.pop("dilations", None)  # onnxruntime has no SAME padding with dilations
    return Case("Conv", (2, 3, *sizes(r, n)), [np.zeros((4, 3, *kernel), np.float32)], attrs)


def conv_transpose(r: random.Random) -> Case:
    n = r.choice([1, 2])
    kernel, attrs = windows(r, n)
    if attrs.get("auto_pad", "").startswith("SAME"):
        attrs.pop("dilations", None)
    strides = attrs["strides"]
    attrs["output_padding"] = [r.randrange(s) for s in strides]
    if r.random() < 0.2:
        del attrs["output_padding"]
        attrs["output_shape"] = [r.randint(20, 24) for _ in range(n)]
        attrs.pop("pads", None)
    return Case("ConvTranspose", (2, 4, *sizes(r, n)), [np.zeros((4, 3, *kernel), np.float32)], attrs)


def pool(r: random.Random) -> Case:
    n = r.choice([1, 2, 3])
    _, attrs = windows(r, n)
    op = r.choice(["MaxPool", "AveragePool", "LpPool"])
    attrs["ceil_mode"] = r.randrange(2)
    if op == "AveragePool" or attrs.get("auto_pad", "").startswith("SAME"):
        attrs.pop("dilations", None)
    return Case(op, (2, 3, *sizes(r, n)), [], attrs)


def resize(r: random.Random) -> Case:
    x = (1, 2, *sizes(r, 2))
    if r.random() < 0.6:
        scales = np.array([1, 1, *(r.choice([0.5, 0.25, 1.5, 2, 2.3, 0.7]) for _ in range(2))], np.float32)
        return Case("Resize", x, [None, scales], {"mode": r.choice(["nearest", "linear"])})
    policy = r.choice(["stretch", "not_larger", "not_smaller"])
    wanted = np.array([r.randint(4, 30) for _ in range(2)], np.int64)
    attrs = {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": policy}
    return Case("Resize", x, [None, None, wanted], attrs)


def slice_(r: random.Random) -> Case:
    x = sizes(r, 3)
    axes = r.sample([0, 1, -1], 2)
    edges = [*range(-18, 19), 2**31 - 1, 2**63 - 1, -(2**63)]
    steps = [r.choice([1, 1, 2, 3, -1, -2]) for _ in axes]
    parts = [[r.choice(edges) for _ in axes], [r.choice(edges) for _ in axes], axes, steps]
    return Case("Slice", x, [np.array(p, np.int64) for p in parts])


def pad(r: random.Random) -> Case:
    return Case("Pad", sizes(r, 3), [np.array([r.randint(-3, 4) for _ in range(6)], np.int64)])


def split(r: random.Random) -> Case:
    x = sizes(r, 2)
    parts = r.randint(1, 4)
    return Case("Split", x, [], {"axis": r.choice([0, 1, -1]), "num_outputs": parts})


def reduce(r: random.Random) -> Case:
    axes = r.choice([None, [], [0], [-1], [1, 2], [-3, 1]])
    inputs = [] if axes is None else [np.array(axes, np.int64)]
    attrs = {"keepdims": r.randrange(2), "noop_with_empty_axes": r.randrange(2)}
    return Case(r.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2"]), sizes(r, 3), inputs, attrs)


def reshape(r: random.Random) -> Case:
    a, b, c = x = sizes(r, 3)
    target = r.choice([[a * b, c], [0, -1], [-1], [c, 0, -1], [0, 0, 0, 1], [-1, a, 1], [1, a, -1, b]])
    return Case("Reshape", x, [np.array(target, np.int64)])


def matmul(r: random.Random) -> Case:
    batch = r.choice([(), (3,), (1,), (2, 1)])
    b = r.choice([(5,), (*batch, 5, 4), (5, 4)])
    a = r.choice([(5,), (*r.choice([batch, (3,), ()]), 6, 5)])
    return Case("MatMul", a, [np.zeros(b, np.float32)])


def broadcast(r: random.Random) -> Case:
    x = sizes(r, 3)
    y = tuple(r.choice([1, d]) for d in x)[r.randrange(3) :]
    return Case(r.choice(["Add", "Mul", "PRelu", "Max"]), x, [np.zeros(y, np.float32)])


FAMILIES: list[Callable[[random.Random], Case]] = [
    conv, conv_transpose, pool, resize, slice_, pad, split, reduce, reshape, matmul, broadcast,
]  # fmt: skip


def model(case: Case) -> onnx.ModelProto:
    names = ["x", *(f"i{k}" if a is not None else "" for k, a in enumerate(case.inputs))]
    outputs = [f"y{k}" for k in range(case.attrs.get("num_outputs", 1))]
    node = helper.make_node(case.op, names, outputs, **case.attrs)
    weights = [numpy_helper.from_array(a, f"i{k}") for k, a in enumerate(case.inputs) if a is not None]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [f"D{k}" for k in range(len(case.x))])
    infos = [helper.make_empty_tensor_value_info(o) for o in outputs]
    for info in infos:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph([node], "g", [x], infos, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def runtime_shapes(proto: onnx.ModelProto, x: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """Output shapes in onnxruntime; None where it refuses the attributes."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    refused = (ort.capi.onnxruntime_pybind11_state.Fail, ort.capi.onnxruntime_pybind11_state.InvalidArgument,
               ort.capi.onnxruntime_pybind11_state.RuntimeException,
               ort.capi.onnxruntime_pybind11_state.NotImplemented)  # fmt: skip
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [tuple(y.shape) for y in session.run(None, {"x": np.ones(x, np.float32)})]
    except refused:
        return None


def cases(family: Callable[[random.Random], Case]) -> Iterator[Case]:
    r = random.Random(zlib.crc32(family.__name__.encode()))
    return (family(r) for _ in range(120))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__.strip("_"))
def test_shapes_are_those_of_onnxruntime(family: Callable[[random.Random], Case]) -> None:
    compared = 0
    for case in cases(family):
        proto = model(case)
        expected = runtime_shapes(proto, case.x)
        if expected is None:
            continue
        compared += 1
        program = ir.read(proto)
        sizes = {f"D{k}": d for k, d in enumerate(case.x)}
        bound, free = facts.infer(program, sizes), facts.infer(program)
        for name, shape in zip(program.graph.outputs, expected, strict=True):
            assert bound[name].shape == shape, case
            symbolic = free[name].shape
            if symbolic is not None:
                own = [d for d in symbolic if facts.symbols(d) <= sizes.keys()]
                assert len(symbolic) == len(shape), case
                assert [facts.evaluate(d, sizes) for d in own] == [
                    s for d, s in zip(symbolic, shape, strict=True) if facts.symbols(d) <= sizes.keys()
                ], case
    assert compared >= 25
