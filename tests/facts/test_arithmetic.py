"""Shape arithmetic: elements that we compute are those of onnxruntime, bit for bit, with sizes and with symbols."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from onnxfuse import facts, ir
from onnxfuse.facts.expr import Expr
from onnxfuse.facts.fraction import Ratio

TYPES = {T.FLOAT: np.float32, T.DOUBLE: np.float64, T.INT64: np.int64, T.INT32: np.int32}
ROUNDED = ["Floor", "Ceil", "Round"]
FLOATS = ["Add", "Sub", "Mul", "Div", "Neg", "Abs", *ROUNDED, *ROUNDED, "Max", "Min", "Clip", "Sqrt", "Relu", "Sign"]
WHOLES = ["Add", "Sub", "Mul", "Div", "Neg", "Abs", "Max", "Min", "Mod", "Clip", "Where", "Cast", "Sign"]
NUMBERS = [1, 2, 2, 2, 3, 4, 7, 16, 32]
FRACTIONS = [0.5, 0.25, 1.5, 1.7, 0.1, 3.2]


class Chain:
    """A random computation from the sizes of an input x [N, M]; every value on the way is an output."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.nodes = [helper.make_node("Shape", ["x"], ["v0"])]
        self.dtypes = {"v0": T.INT64}
        self.weights: list[onnx.TensorProto] = []
        for _ in range(14):
            self.grow()

    def add(self, op: str, inputs: list[str], dtype: int, **attrs: object) -> None:
        name = f"v{len(self.dtypes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.dtypes[name] = dtype

    def constant(self, dtype: int, values: list[float] | float) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, TYPES[dtype]), name))
        return name

    def grow(self) -> None:
        r = self.r
        name = r.choice([*self.dtypes][-4:])
        dtype = self.dtypes[name]
        floating = dtype in (T.FLOAT, T.DOUBLE)
        if r.random() < (0.15 if floating else 0.4):
            return self.add("Cast", [name], to := r.choice([*TYPES, T.FLOAT]), to=to)
        op = r.choice(FLOATS if floating else WHOLES)
        pool = NUMBERS + FRACTIONS * floating
        alike = [n for n, d in self.dtypes.items() if d == dtype]
        other = r.choice(alike) if r.random() < 0.25 else self.constant(dtype, [r.choice(pool) for _ in range(2)])
        inputs, attrs, made = [name], {}, dtype
        if op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod"):
            inputs.append(other)
            if op == "Mod":
                attrs["fmod"] = r.randrange(2)
        elif op == "Clip":
            low, high = sorted(r.choice([0, 0, 1, 5, 30]) for _ in range(2))
            inputs += [self.constant(dtype, low), self.constant(dtype, high) if r.random() < 0.5 else ""]
        elif op == "Where":
            compare = r.choice(["Less", "Equal", "Greater", "LessOrEqual"])
            self.nodes.append(helper.make_node(compare, [name, other], [f"b{len(self.nodes)}"]))
            inputs = [self.nodes[-1].output[0], name, other]
        elif op == "Cast":
            made = attrs["to"] = r.choice([T.FLOAT, T.DOUBLE])
        return self.add(op, inputs, made, **attrs)

    def model(self) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", T.FLOAT, ["N", "M"])
        outputs = [helper.make_tensor_value_info(name, dtype, [2]) for name, dtype in self.dtypes.items()]
        graph = helper.make_graph(self.nodes, "g", [x], outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def elements(data: np.ndarray, sizes: dict[str, int]) -> list[float | None]:
    """The numbers at these sizes; None for a fraction that has only a floor and a ceiling."""
    found: list[float | None] = []
    for d in data.reshape(-1):
        if isinstance(d, Expr):
            found.append(facts.evaluate(d, sizes))
        elif isinstance(d, Ratio):
            found.append(facts.evaluate(d.top, sizes) / d.bottom if d.exact else None)
        else:
            found.append(float(d))
    return found


def test_random_shape_arithmetic_is_that_of_onnxruntime() -> None:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    compared = symbolic = 0
    for seed in range(150):
        chain = Chain(seed)
        model = chain.model()
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        program = ir.read(model)
        general = facts.infer(program)
        for n, m in [(1, 2), (5, 3), (16, 31), (97, 61), (224, 225), (641, 1023)]:
            sizes = {"N": n, "M": m}
            try:
                expected = session.run(None, {"x": np.zeros((n, m), np.float32)})
            except ort.capi.onnxruntime_pybind11_state.Fail:  # an integer division by 0
                continue
            bound = facts.infer(program, sizes)
            for (name, dtype), value in zip(chain.dtypes.items(), expected, strict=True):
                data = bound[name].data
                if data is not None:
                    compared += 1
                    ours = np.array(data.tolist(), value.dtype)
                    same = (
                        ours.tobytes() == value.tobytes() or np.isnan([ours, value]).any()
                    )  # which NaN is nobody's matter
                    assert same and np.array_equal(ours, value, equal_nan=True), (seed, name, sizes)
                data = general[name].data
                if data is not None and not (dtype == T.INT32 and np.any(np.abs(value) > 2**30)):
                    for a, b in zip(elements(data, sizes), value.tolist(), strict=True):
                        symbolic += a is not None
                        assert a is None or a == b or np.isnan((a, b)).all(), (seed, name, sizes)
    assert compared > 5000 and symbolic > 5000
