"""What holds for every fusion: taken through its own BEFORE and AFTER, and through variants that must be refused."""

from __future__ import annotations

import onnx
import pytest
from examples import check_same, example, middles, renamed
from onnx import helper
from support import assert_same, ops, optimized, random_feeds

from onnxfuse.rules import all_rules

NAMES = [name for name, rule in all_rules().items() if rule.pairs is not None]


@pytest.mark.parametrize("rule", NAMES)
def test_before_becomes_after(rule: str) -> None:
    before, after = example(rule, "BEFORE"), example(rule, "AFTER")
    result = optimized(before, rules=[rule])
    assert [f.rule for f in result.fusions] == [rule]
    assert result.verdict is not None and result.verdict.ok and result.verdict.cases >= 2
    for made, expected in zip(result.model.graph.node, after.graph.node, strict=True):
        assert (made.op_type, made.domain) == (expected.op_type, expected.domain)
        assert list(made.input) == list(expected.input) and list(made.output) == list(expected.output)
        attributes = {a.name: helper.get_attribute_value(a) for a in expected.attribute}
        assert {a.name: helper.get_attribute_value(a) for a in made.attribute} == attributes
        notes = {"rule", "sources", "bytes_saved", "seconds_saved"}
        assert {p.key for p in made.metadata_props} == {f"onnxfuse.{note}" for note in notes}
    bodies = [[(n.op_type, list(n.input), list(n.output)) for n in f.node] for f in after.functions]
    assert [[(n.op_type, list(n.input), list(n.output)) for n in f.node] for f in result.model.functions] == bodies
    check_same(before, result.model)
    assert not optimized(result.model).fusions  # nor does any other rule find something


@pytest.mark.parametrize("rule", NAMES)
def test_a_middle_value_that_is_an_output_stays(rule: str) -> None:
    before = example(rule, "BEFORE")
    for middle in middles(before):
        model = onnx.ModelProto()
        model.CopyFrom(before)
        model.graph.output.append(middle)
        result = optimized(model, rules=[rule])
        assert not result.fusions and [r.rule for r in result.refused] == [rule]
        assert "graph output" in result.refused[0].reason
        assert result.model.SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("rule", NAMES)
def test_a_middle_value_with_another_use_stays(rule: str) -> None:
    before = example(rule, "BEFORE")
    for middle in middles(before):
        model = onnx.ModelProto()
        model.CopyFrom(before)
        model.graph.node.append(helper.make_node("Neg", [middle.name], ["other"]))
        model.graph.output.append(renamed(middle, "other"))
        result = optimized(model, rules=[rule])
        assert not result.fusions and ops(result.model) == ops(model)
        assert "uses" in result.refused[0].reason


@pytest.mark.parametrize("rule", NAMES)
def test_a_middle_value_captured_by_a_branch_stays(rule: str) -> None:
    before = example(rule, "BEFORE")
    for middle in middles(before):
        model = onnx.ModelProto()
        model.CopyFrom(before)
        branches = {}
        for name, op in (("then_branch", "Abs"), ("else_branch", "Neg")):
            out = renamed(middle, f"{name}_out")
            branches[name] = helper.make_graph([helper.make_node(op, [middle.name], [out.name])], name, [], [out])
        model.graph.node.append(helper.make_node("If", ["flag"], ["other"], **branches))
        model.graph.input.append(helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, []))
        model.graph.output.append(renamed(middle, "other"))
        result = optimized(model, rules=[rule])
        assert not result.fusions and result.refused
        assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize("rule", NAMES)
def test_the_pattern_in_a_branch_is_rewritten_there(rule: str) -> None:
    before = example(rule, "BEFORE")
    y = before.graph.output[0]
    branch = helper.make_graph(list(before.graph.node), "then", [], [y])
    shape = helper.make_node("Constant", [], ["s"], value_ints=[d.dim_value for d in y.type.tensor_type.shape.dim])
    zero = helper.make_graph([shape, helper.make_node("ConstantOfShape", ["s"], ["z"])], "else", [], [
        helper.make_tensor_value_info("z", 1, [d.dim_value for d in y.type.tensor_type.shape.dim])
    ])  # fmt: skip
    model = onnx.ModelProto()
    model.CopyFrom(before)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("If", ["flag"], ["out"], then_branch=branch, else_branch=zero))
    model.graph.input.append(helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, []))
    model.graph.output[0].name = "out"
    result = optimized(model, rules=[rule])
    assert [f.rule for f in result.fusions] == [rule]
    inner = result.model.graph.node[0].attribute
    made = [n.op_type for a in inner if a.name == "then_branch" for n in a.g.node]
    assert made == [n.op_type for n in example(rule, "AFTER").graph.node]
    assert_same(model, result.model, random_feeds(model))
