"""What holds for every rewrite: taken through its own BEFORE and AFTER, and through variants of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support import assert_same, graph_ops, ops, optimized, parse, random_feeds

from onnxfuse import targets
from onnxfuse.rules import all_rules

NAMES = [name for name, rule in all_rules().items() if rule.pairs is None]


def text(rule: str, which: str) -> onnx.ModelProto:
    return parse(str(getattr(__import__(f"onnxfuse.rules.{rule}", fromlist=[which]), which)))


def target(rule: str) -> str:
    """The first target on which the rule makes its BEFORE another graph."""
    before = text(rule, "BEFORE")
    found = [t for t in ("ort-cpu", *targets.names()) if optimized(before, rules=[rule], target=t).fusions]
    assert found, f"{rule} is not made on any target"
    return found[0]


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
    model = text(rule, "BEFORE")
    outputs = {o.name for o in model.graph.output}
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    model.graph.output.extend(v for v in inferred if v.name not in outputs)
    return model


@pytest.mark.parametrize("rule", NAMES)
def test_before_becomes_after(rule: str) -> None:
    before, after = text(rule, "BEFORE"), text(rule, "AFTER")
    result = optimized(before, rules=[rule], target=target(rule))
    assert {f.rule for f in result.fusions} == {rule}
    assert shape_of(result.model) == shape_of(after)
    assert list(result.model.graph.input) == list(before.graph.input)
    assert list(result.model.graph.output) == list(before.graph.output)
    assert result.model.opset_import[0] == before.opset_import[0]
    onnx.checker.check_model(result.model, full_check=True)
    for seed in range(3):
        assert_same(before, result.model, random_feeds(before, seed))


@pytest.mark.parametrize("rule", NAMES)
def test_a_second_run_changes_nothing(rule: str) -> None:
    once = optimized(text(rule, "BEFORE"), rules=[rule], target=target(rule)).model
    again = optimized(once, rules=[rule], target=target(rule))
    assert again.fusions == () and again.model.SerializeToString() == once.SerializeToString()


@pytest.mark.parametrize("rule", NAMES)
def test_the_docstring_tells_the_algebra(rule: str) -> None:
    doc = all_rules()[rule].doc
    assert "=" in doc and len(doc.splitlines()) > 2


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
    before, after = text(rule, "BEFORE"), text(rule, "AFTER")
    bodies = {}
    for name in ("then_branch", "else_branch"):
        inner = onnx.compose.add_prefix_graph(before.graph, f"{name}_")
        feed = [helper.make_node("Identity", [v.name], [f"{name}_{v.name}"]) for v in before.graph.input]
        bodies[name] = helper.make_graph([*feed, *inner.node], name, [], list(inner.output), list(inner.initializer))
    outputs = []
    for i, o in enumerate(before.graph.output):
        outputs.append(onnx.ValueInfoProto())
        outputs[-1].CopyFrom(o)
        outputs[-1].name = f"out{i}"
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


@pytest.mark.parametrize("rule", NAMES)
def test_a_rule_can_be_switched_off(rule: str) -> None:
    assert rule not in {f.rule for f in optimized(text(rule, "BEFORE"), exclude=[rule], target=target(rule)).fusions}
