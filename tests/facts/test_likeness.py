"""What is worked out once for many nodes: only for those which mean the same."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper, parser

from onnxfuse import facts, ir
from onnxfuse.cost import costs
from onnxfuse.facts import Facts
from onnxfuse.facts.likeness import Interned
from onnxfuse.facts.value import Value


def inferred(body: str, inputs: str, weights: str = "") -> Facts:
    text = f'<ir_version: 8, opset_import: ["" : 18, "custom" : 1]> g ({inputs}) => (float y) {weights} {{ {body} }}'
    return facts.infer(ir.read(parser.parse_model(text)))


def shapes(found: Facts, *names: str) -> list[str]:
    return [str(found[name].shape) for name in names]


def test_nodes_that_mean_the_same_share_their_facts_and_their_cost() -> None:
    """4N floats in and out are 32N bytes; a node with 2 of them in a row moves 16N."""
    found = inferred("a = Relu(x) b = Neg(x) c = Relu(x) d = Relu(z) y = Neg(x)", "float[N, 4] x, float[N, 2] z")
    assert found.alike == {2: 0, 4: 1}
    assert found["a"] is found["c"]
    prices = costs(found)
    assert prices[0] is prices[2]
    assert [str(price.bytes) for price in prices] == ["32·N", "32·N", "32·N", "16·N", "32·N"]


def test_the_turns_of_a_chain_are_alike() -> None:
    """What is given and what the nodes make is compared by its facts."""
    found = inferred("a = Relu(x) b = Neg(a) c = Relu(b) d = Neg(c) e = Relu(d) y = Neg(e)", "float[N, 4] x")
    assert found.alike == {2: 0, 3: 1, 4: 0, 5: 1}


def test_an_attribute_of_another_type_or_value_makes_another_node() -> None:
    x = helper.make_tensor_value_info("x", T.FLOAT, [2, 3, 4])
    nodes = [
        helper.make_node("Flatten", ["x"], [name], axis=axis)
        for name, axis in (("a", 1), ("b", 1.0), ("c", 2), ("d", 1))
    ]
    y = helper.make_tensor_value_info("a", T.FLOAT, None)
    found = facts.infer(ir.read(helper.make_model(helper.make_graph(nodes, "g", [x], [y]))))
    assert shapes(found, "a", "b", "c", "d") == ["(2, 12)", "None", "(6, 4)", "(2, 12)"]
    assert found.alike == {3: 0}


def test_what_depends_on_the_data_is_of_each_node_alone() -> None:
    found = inferred("a = NonZero(x) b = NonZero(x)", "float[N, 4] x")
    assert shapes(found, "a", "b") == ["(2, a.1)", "(2, b.1)"]
    assert not found.alike


def test_a_value_that_is_read_twice_is_another_node_than_two_values() -> None:
    """4 bytes an element: x + x reads one tensor, a + b two; both write one."""
    found = inferred("a = Relu(x) b = Relu(x) c = Add(a, a) d = Add(a, b) y = Add(b, b)", "float[10] x")
    assert [price.bytes for price in costs(found)] == [80, 80, 80, 120, 80]
    assert found.alike == {1: 0, 4: 2}


def test_an_output_that_is_not_there_is_not_written() -> None:
    """MaxPool with stride 2 over 1x1x8x8 float32 writes 16 values, and 16 int64 indices where they are asked for."""
    pool = "MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)"
    found = inferred(f"a = {pool} b, i = {pool} c = {pool}", "float[1, 1, 8, 8] x")
    assert [price.bytes_written for price in costs(found)] == [64, 192, 64]


def test_an_optional_input_that_is_not_there_is_no_unknown_one() -> None:
    """Clip reads 4 floats and a maximum; how much of `m` there is to read, nobody knows."""
    found = inferred("m = custom.Op(x) a = Clip(x, m, s) b = Clip(x, , s) c = Clip(x, , s)", "float[4] x, float s")
    assert [price.bytes_read for price in costs(found)[1:]] == [None, 20, 20]
    assert found.alike == {3: 2}


def test_initializers_are_alike_with_the_same_contents_only() -> None:
    """A Reshape to what each initializer says, and a sum with weights that differ."""
    weights = "<int64[2] p = {2, 3}, int64[2] q = {3, 2}, int64[2] r = {2, 3}>"
    found = inferred("a = Reshape(x, p) b = Reshape(x, q) c = Reshape(x, r)", "float[6] x", weights)
    assert shapes(found, "a", "b", "c") == ["(2, 3)", "(3, 2)", "(2, 3)"]
    assert found.alike == {2: 0}


def test_initializers_of_other_bytes_another_type_or_shape_have_other_contents() -> None:
    raw = np.array([1, 0], np.int64)
    tensors = [
        numpy_helper.from_array(raw, "p"),
        numpy_helper.from_array(raw.reshape(2, 1), "q"),
        numpy_helper.from_array(raw.view(np.float64), "r"),
        numpy_helper.from_array(raw.copy(), "s"),
        numpy_helper.from_array(raw[::-1].copy(), "t"),
    ]
    y = helper.make_tensor_value_info("p", T.INT64, [2])
    found = facts.infer(ir.read(helper.make_model(helper.make_graph([], "g", [], [y], tensors))))
    assert [found[name].dtype for name in "pqrs"] == [T.INT64, T.INT64, T.DOUBLE, T.INT64]
    assert shapes(found, "p", "q") == ["(2,)", "(2, 1)"]
    assert [str(found[name].data) for name in "pst"] == ["[1 0]", "[1 0]", "[0 1]"]
    assert found["p"] is found["s"]


def test_a_weight_that_a_caller_may_replace_is_not_one_that_stays() -> None:
    weights = [numpy_helper.from_array(np.ones(4, np.float32), name) for name in ("w", "v")]
    ports = [helper.make_tensor_value_info(name, T.FLOAT, [4]) for name in ("x", "w")]
    nodes = [onnx.helper.make_node("Add", ["x", name], [f"y{name}"]) for name in ("w", "v")]
    y = helper.make_tensor_value_info("yv", T.FLOAT, [4])
    program = ir.read(helper.make_model(helper.make_graph(nodes, "g", ports, [y], weights), ir_version=8))
    found = facts.infer(program)
    assert (found["w"].constant, found["v"].constant) == (False, True)
    assert [price.weight_traffic for price in costs(found)] == [0, 16]


def test_interned_values_differ_by_every_fact() -> None:
    interned = Interned()
    numbers = np.array([1, 0], dtype=object)
    values = [
        Value(T.INT64, (2,), numbers),
        Value(T.BOOL, (2,), np.array([True, False], dtype=object)),
        Value(T.INT64, (2, 1), numbers.reshape(2, 1)),
        Value(T.INT64, (2,)),
        Value(T.INT64, None),
        Value(T.INT64, (2,), numbers, constant=True),
        Value(T.INT64, (2,), np.array([0, 1], dtype=object)),
        Value(T.FLOAT, (2,), np.array([0.0, 1.0], np.float32)),
        Value(T.FLOAT, (2,), np.array([-0.0, 1.0], np.float32)),
    ]
    assert [interned(value) for value in values] == values  # compared as objects: all are new
    assert interned(Value(T.INT64, (2,), numbers.copy())) is values[0]
