"""What holds for every rewrite: taken through its own BEFORE and AFTER, and through variants of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from examples import check_same, example, middles, renamed, target
from onnx import helper, numpy_helper
from support import assert_same, graph_ops, ops, optimized, random_feeds

from onnxfuse import targets
from onnxfuse.rules import all_rules

NAMES = [name for name, rule in all_rules().items() if rule.pairs is None]


def shape_of(model: onnx.ModelProto) -> list[tuple[object, ...]]:
    """Every node with its attributes, its inputs and outputs by where they come from, constants by their elements."""
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    names = {v.name: f"input {i}" for i, v in enumerate(model.graph.input)}
    found = []
    for i, node in enumerate(model.graph.node):
        names |= {name: f"node {i}.{k}" for k, name in enumerate(node.output)}
        reads = [
            np.round(constants[n].astype(float), 5).tolist() if n in constants else names.get(n, n) for n in node.input
        ]
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        found.append((node.domain, node.op_type, reads, attrs))
    return found


def with_middles(rule: str) -> onnx.ModelProto:
    """BEFORE, with every value inside it as a graph output too."""
    model = example(rule, "BEFORE")
    model.graph.output.extend(middles(model))
    return model


@pytest.mark.parametrize("rule", NAMES)
def test_before_becomes_after(rule: str) -> None:
    before, after = example(rule, "BEFORE"), example(rule, "AFTER")
    result = optimized(before, rules=[rule], target=target(rule))
    assert {f.rule for f in result.fusions} == {rule}
    assert shape_of(result.model) == shape_of(after)
    assert result.model.opset_import[0] == before.opset_import[0]
    check_same(before, result.model)


@pytest.mark.parametrize("rule", NAMES)
@pytest.mark.parametrize("aim", targets.names())
def test_values_that_are_outputs_stay_as_they_are(rule: str, aim: str) -> None:
    model = with_middles(rule)
    result = optimized(model, rules=[rule], target=aim)
    assert [o.name for o in result.model.graph.output] == [o.name for o in model.graph.output]
    assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize("rule", NAMES)
@pytest.mark.parametrize("aim", targets.names())
def test_other_readers_of_the_values_see_no_difference(rule: str, aim: str) -> None:
    model = with_middles(rule)
    names = [o.name for o in model.graph.output]
    for i, name in enumerate(names):
        model.graph.node.append(helper.make_node("Identity", [name], [f"seen{i}"]))
        model.graph.output[i].name = f"seen{i}"
    result = optimized(model, rules=[rule], target=aim)
    assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize("rule", NAMES)
def test_the_pattern_in_a_branch_is_rewritten_there(rule: str) -> None:
    before, after = example(rule, "BEFORE"), example(rule, "AFTER")
    bodies = {}
    for name in ("then_branch", "else_branch"):
        inner = onnx.compose.add_prefix_graph(before.graph, f"{name}_")
        feed = [helper.make_node("Identity", [v.name], [f"{name}_{v.name}"]) for v in before.graph.input]
        bodies[name] = helper.make_graph([*feed, *inner.node], name, [], list(inner.output), list(inner.initializer))
    outputs = [renamed(o, f"out{i}") for i, o in enumerate(before.graph.output)]
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    choice = helper.make_node("If", ["flag"], [o.name for o in outputs], **bodies)
    graph = helper.make_graph([choice], "g", [flag, *before.graph.input], outputs)
    model = helper.make_model(graph, opset_imports=before.opset_import, ir_version=before.ir_version)
    result = optimized(model, rules=[rule], target=target(rule))
    assert {f.rule for f in result.fusions} == {rule}
    for attribute in result.model.graph.node[0].attribute:
        assert [n for n in graph_ops(attribute.g) if n != "Identity"] == [n for n in ops(after) if n != "Identity"]
    feeds = random_feeds(model)
    assert_same(model, result.model, feeds)
    assert_same(model, result.model, feeds | {"flag": np.zeros((), bool)})
