"""Branches that are always taken: what they make, capture, hold and hand on; and those that stay."""

from __future__ import annotations

import re
from functools import partial

import examples
import numpy as np
import onnx
import pytest
from onnx import helper, parser
from support import assert_same, ops, optimized, parse, random_feeds

RULE = "constant_if"


def model(
    then: str,
    orelse: str,
    *,
    after: str = "y = Neg(c)",
    flag: str = "bool flag = {1}",
    before: str = "",
    more: str = "",
) -> onnx.ModelProto:
    """A model whose If gives c; the branches make what they say of h."""
    return parse(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x{more}) => (float[N,M] y) <{flag}>'
        f" {{ h = Neg(x) {before} c = If (flag) <then_branch = t () => (float[N,4] a) {then},"
        f" else_branch = e () => (float[N,4] b) {orelse}> {after} }}"
    )


made = partial(examples.made, rule=RULE, dims=[{"N": 0}, {"N": 1}, {"N": 3}])


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda", "portable"])
@pytest.mark.parametrize(("flag", "left"), [("{1}", ["Neg", "Relu", "Exp", "Neg"]), ("{0}", ["Neg", "Sigmoid", "Neg"])])
def test_the_branch_that_is_taken(flag: str, left: list[str], target: str) -> None:
    for kind in ("bool", "bool[1]"):
        m = model("{ r = Relu(h) a = Exp(r) }", "{ b = Sigmoid(h) }", flag=f"{kind} flag = {flag}")
        assert made(m, target) == left


def test_both_branches_may_use_the_same_names() -> None:
    """Constants as well: two Ifs, whose branches all have an r and a w."""
    one = "<float[4] w = {1, 2, 3, 4}> { r = Mul(h, w) a = Add(r, w) }"
    two = "<float[4] w = {5, 6, 7, 8}> { r = Add(h, w) b = Mul(r, w) }"
    m = model(one, two)
    second = onnx.NodeProto()
    second.CopyFrom(m.graph.node[1])
    second.output[0] = "d"
    m.graph.node.insert(2, second)
    m.graph.node[3].CopyFrom(helper.make_node("Sub", ["c", "d"], ["y"]))
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.array(False), "no"))
    second = m.graph.node[2]
    second.input[0] = "no"
    assert made(m) == ["Neg", "Mul", "Add", "Add", "Mul", "Sub"]


def test_what_a_branch_holds() -> None:
    """Constants as nodes, several outputs of a node, absent inputs, attributes of all kinds."""
    then = (
        "<int64[1] ax = {1}, int64[2] parts = {1, 3}> { k = Constant <value = float {2}> ()"
        " n = Constant <value_int = 1> () p, q = Split <axis = 1> (h, parts) s = Clip(p, , k)"
        " j = Concat <axis = -1> (q, s) z = Gather <axis = 1> (j, n) u = Shape(z)"
        " f = ConstantOfShape (u) o = Unsqueeze(f, ax) a = Add(j, o) }"
    )
    found = made(model(then, "{ b = Relu(h) }"))
    kept = re.findall(r"= (\w+) ?[<(]", then)[1:]  # the first Constant becomes an initializer
    assert found == ["Neg", *kept, "Neg"]


def test_what_is_handed_on_as_it_is() -> None:
    """A constant, and a copy of a value of outside."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Relu", ["h"], ["r"])],
        "t",
        [],
        [info("r", 1, ["N", 4]), info("h2", 1, ["N", 4]), info("k", 1, [2])],
        [onnx.numpy_helper.from_array(np.array([3, 4], np.float32), "k")],
    )
    body.node.append(helper.make_node("Identity", ["h"], ["h2"]))
    m = model("{ a = Relu(h) }", "{ b = Relu(h) }")
    node = m.graph.node[1]
    for a in node.attribute:
        a.g.CopyFrom(body)
    node.output[:] = ["c", "d", "e"]
    m.graph.node[2].CopyFrom(helper.make_node("Sub", ["c", "d"], ["y"]))
    m.graph.output.append(info("e", 1, [2]))
    assert made(m) == ["Neg", "Relu", "Identity", "Identity", "Sub"]


def test_the_output_of_the_graph_keeps_its_name() -> None:
    m = model("{ a = Relu(h) }", "{ b = Abs(h) }")
    m.graph.node[1].output[0] = "y"
    del m.graph.node[2]
    assert made(m) == ["Neg", "Relu"] and [o.name for o in optimized(m, rules=[RULE]).model.graph.output] == ["y"]


def test_an_inner_one_goes_first() -> None:
    inner = "{ s = Abs(h) a = If (flag) <then_branch = u () => (float[N,4] v) { v = Relu(s) },"
    inner += " else_branch = w () => (float[N,4] o) { o = Exp(s) }> }"
    assert made(model(inner, "{ b = Sigmoid(h) }")) == ["Neg", "Abs", "Relu", "Neg"]


def test_a_branch_that_holds_a_branch_stays() -> None:
    inner = "{ s = Abs(h) a = If (open) <then_branch = u () => (float[N,4] v) { v = Relu(s) },"
    inner += " else_branch = w () => (float[N,4] o) { o = Exp(s) }> }"
    assert made(model(inner, "{ b = Sigmoid(h) }", more=", bool open")) == ["Neg", "If", "Neg"]


def test_a_branch_with_a_tensor_in_an_attribute_stays() -> None:
    then = "{ u = Shape(h) f = ConstantOfShape <value = float[1] {3}> (u) a = Add(f, h) }"
    assert made(model(then, "{ b = Relu(h) }")) == ["Neg", "If", "Neg"]


def test_a_condition_that_is_not_known_stays() -> None:
    m = model("{ a = Relu(h) }", "{ b = Abs(h) }", flag="bool other = {1}", more=", bool flag")
    assert made(m) == ["Neg", "If", "Neg"]
    overridable = model("{ a = Relu(h) }", "{ b = Abs(h) }", more=", bool flag")
    assert ops(optimized(overridable, rules=[RULE], target="ort-cpu").model) == ["Neg", "If", "Neg"]


def test_a_condition_of_a_rank_is_known() -> None:
    before = "s = Shape(x) r = Size(s) flag = Equal(r, two)"
    m = model("{ a = Relu(h) }", "{ b = Abs(h) }", flag="int64 two = {2}", before=before)
    assert made(m) == ["Neg", "Relu", "Neg"]


def test_other_rules_see_across_the_border() -> None:
    m = model("{ a = Neg(h) }", "{ b = Abs(h) }", after="y = Neg(c)")
    conv = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[N,2,3,3] x) => (float[N,2,3,3] y)'
        " <bool flag = {1}, float[2,2,1,1] w = {1, 2, 3, 4}, float two = {2}> { h = Conv(x, w)"
        " y = If (flag) <then_branch = t () => (float[N,2,3,3] a) { a = Mul(h, two) },"
        " else_branch = e () => (float[N,2,3,3] b) { b = Abs(h) }> }"
    )
    assert made(m) == ["Neg", "Neg", "Neg"]
    result = optimized(conv, target="ort-cpu")
    assert ops(result.model) == ["Conv"]
    assert_same(conv, result.model, random_feeds(conv))


@pytest.mark.parametrize("other", ["", "one"])
def test_one_of_several_functions_of_a_name_is_called_where_it_is(other: str) -> None:
    m = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
    g (float[N,3] x) => (float[N,3] y) <bool flag = {1}>
    { c = If (flag) <then_branch = t () => (float[N,3] a) { a = my.f(x) },
                     else_branch = e () => (float[N,3] b) { b = Abs(x) }>  y = Neg(c) }
    <domain: "my", opset_import: ["" : 21]> f (X) => (Y) { Y = Exp(X) }
    <domain: "my", opset_import: ["" : 21]> f (X) => (Y) { Y = Abs(X) }""")
    m.functions[0].overload, m.functions[1].overload = other, "two"
    m.graph.node[0].attribute[0].g.node[0].overload = "two"
    result = optimized(m, target="ort-cpu", verify=False)
    assert_same(m, result.model, {"x": np.array([[-1, 2, 3]], np.float32)})
