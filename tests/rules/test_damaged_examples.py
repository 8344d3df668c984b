"""Rules on nodes that do not fit each other: each says no by itself, none fails.

The examples of the rules are damaged in ways that the checker of onnx lets pass: attributes of another length or value,
absent inputs, constants and inputs of another rank or dtype.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from examples import example
from onnx import AttributeProto, TensorProto, numpy_helper

import onnxfuse
from onnxfuse import targets
from onnxfuse.errors import OnnxfuseError
from onnxfuse.rules import all_rules

DRAWS = 12  # of each example; 300 find nothing more


def attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another length, other numbers, or none at all."""
    found = [(n, a) for n in model.graph.node for a in n.attribute if a.type != AttributeProto.GRAPH]
    if not found:
        return
    node, a = rng.choice(found)
    how = rng.randrange(6)
    if how == 0:
        node.attribute.remove(a)
    elif a.type == AttributeProto.INTS:
        numbers = list(a.ints)
        del a.ints[:]
        changed = [
            [],
            numbers[:-1],
            [*numbers, 1],
            [-n for n in numbers],
            [0 for _ in numbers],
            [n + 9 for n in numbers],
        ]
        a.ints.extend(changed[how])
    elif a.type == AttributeProto.INT:
        a.i = (0, -1, 7, -7, 2**31, -(2**40))[how]
    elif a.type == AttributeProto.FLOAT:
        a.f = (0.0, -1.0, np.inf, np.nan, 1e30, -1e-30)[how]
    elif a.type == AttributeProto.STRING:
        a.s = (b"", b"none", b"SAME_UPPER", b"\xff", b"VALID", b"nearest")[how]


def added(rng: random.Random, model: onnx.ModelProto) -> None:
    """An attribute that the operator knows and the example leaves out."""
    if not model.graph.node:
        return
    node = rng.choice(model.graph.node)
    if not onnx.defs.has(node.op_type, 17):
        return
    known = onnx.defs.get_schema(node.op_type, 17).attributes
    absent = [a for name, a in known.items() if name not in {a.name for a in node.attribute}]
    if not absent:
        return
    wanted = rng.choice(absent)
    numbers = [rng.choice((-3, -1, 0, 1, 2, 5)) for _ in range(rng.randrange(5))]
    if wanted.type == onnx.defs.OpSchema.AttrType.INTS:
        node.attribute.append(onnx.helper.make_attribute(wanted.name, numbers, attr_type=AttributeProto.INTS))
    elif wanted.type == onnx.defs.OpSchema.AttrType.INT:
        node.attribute.append(onnx.helper.make_attribute(wanted.name, [*numbers, 4][0]))
    elif wanted.type == onnx.defs.OpSchema.AttrType.STRING:
        node.attribute.append(
            onnx.helper.make_attribute(wanted.name, rng.choice(("SAME_UPPER", "VALID", "cubic", "?")))
        )


def inputs(rng: random.Random, model: onnx.ModelProto) -> None:
    """One absent, one twice, one from elsewhere."""
    readers = [n for n in model.graph.node if n.input]
    if not readers:
        return
    node = rng.choice(readers)
    i, how = rng.randrange(len(node.input)), rng.randrange(4)
    if how == 0:
        node.input[i] = ""
    elif how == 1:
        del node.input[i]
    elif how == 2:
        node.input[i] = node.input[0]
    else:
        names = [node.input[0], *(v.name for v in model.graph.input)] + [t.name for t in model.graph.initializer]
        node.input[i] = rng.choice(names)


def constant(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another rank, size or dtype."""
    if not model.graph.initializer:
        return
    t = rng.choice(model.graph.initializer)
    array, how = numpy_helper.to_array(t), rng.randrange(8)
    changed: list[Callable[[], np.ndarray]] = [
        lambda: array[None], lambda: array.reshape(-1), lambda: array[..., None], lambda: array.reshape(-1)[:0],
        lambda: array.reshape(-1)[:1].reshape(()) if array.size else array, lambda: np.repeat(array[None], 2, 0),
        lambda: array.astype(np.float64 if array.dtype != np.float64 else np.int64),
        lambda: array[::-1] if array.ndim else array,
    ]  # fmt: skip
    t.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed[how]()), t.name))


def interface(rng: random.Random, model: onnx.ModelProto) -> None:
    """An input of another rank, size or dtype."""
    if not model.graph.input:
        return
    tensor = rng.choice(model.graph.input).type.tensor_type
    how = rng.randrange(6)
    if how == 0:
        tensor.shape.dim.add().dim_value = 3
    elif how == 1 and tensor.shape.dim:
        del tensor.shape.dim[0]
    elif how == 2:
        tensor.ClearField("shape")
    elif how == 3:
        tensor.elem_type = rng.choice((TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL))
    elif tensor.shape.dim:
        dim = rng.choice(tensor.shape.dim)
        dim.dim_value = rng.choice((0, 1, 2, 5))


DAMAGES = (attribute, added, inputs, constant, interface)


def damaged(rule: str, seed: int) -> onnx.ModelProto:
    """An example with one to three things changed."""
    rng = random.Random(f"{rule} {seed}")
    model = example(rule, rng.choice(("BEFORE", "BEFORE", "BEFORE", "AFTER")))
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(DAMAGES)(rng, model)
    return model


@pytest.mark.parametrize("rule", all_rules())
def test_no_rule_fails(rule: str) -> None:
    for seed in range(DRAWS):
        for target in targets.names():
            try:
                onnxfuse.optimize(damaged(rule, seed), target=target, verify=False)
            except OnnxfuseError:
                break  # not a model at all
