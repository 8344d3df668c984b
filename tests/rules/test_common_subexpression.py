"""Nodes that compute the same become one."""

from __future__ import annotations

import pytest
from support import assert_same, ops, optimized, parse, random_feeds

RULE = "common_subexpression"


def run(body: str, outputs: str = "float[N,4] y", constants: str = "") -> list[str]:
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => ({outputs}) {constants} {{ {body} }}')
    result = optimized(model, rules=[RULE], verify=False)
    assert [o.name for o in result.model.graph.output] == [o.name for o in model.graph.output]
    if "Random" not in body:
        assert_same(model, result.model, random_feeds(model))
    return ops(result.model)


def test_chains_fold_from_the_top() -> None:
    body = "a = Neg(x) b = Neg(x) c = Exp(a) d = Exp(b) e = Abs(c) f = Abs(d) y = Sub(e, f)"
    assert run(body) == ["Neg", "Exp", "Abs", "Sub"]


def test_attributes_and_absent_inputs_count() -> None:
    assert run("a = Elu <alpha = 1.0> (x)  b = Elu <alpha = 2.0> (x)  y = Add(a, b)") == ["Elu", "Elu", "Add"]
    constants = "<float low = {0}>"
    assert run("a = Clip(x, low)  b = Clip(x, , low)  y = Add(a, b)", constants=constants) == ["Clip", "Clip", "Add"]
    assert run("a = Clip(x, , low)  b = Clip(x, , low)  y = Add(a, b)", constants=constants) == ["Clip", "Add"]


def test_the_order_of_inputs_counts() -> None:
    assert run("z = Exp(x) a = Sub(x, z) b = Sub(z, x) y = Add(a, b)") == ["Exp", "Sub", "Sub", "Add"]


def test_equal_constants_are_the_same_input_and_others_are_not() -> None:
    constants = "<float a = {2}, float b = {2}, float c = {3}, float zero = {0}, float minus = {-0.0}>"
    assert run("p = Mul(x, a) q = Mul(x, b) y = Add(p, q)", constants=constants) == ["Mul", "Add"]
    assert run("p = Mul(x, a) q = Mul(x, c) y = Add(p, q)", constants=constants) == ["Mul", "Mul", "Add"]
    signs = "p = Div(x, zero) q = Div(x, minus) r = Sign(p) s = Sign(q) y = Sub(r, s)"
    assert run(signs, constants=constants) == ["Div", "Div", "Sign", "Sign", "Sub"]


def test_the_name_of_an_output_stays() -> None:
    assert run("y = Neg(x)  a = Neg(x)  z = Exp(a)", "float[N,4] y, float[N,4] z") == ["Neg", "Exp"]
    assert run("a = Neg(x)  y = Neg(x)  z = Exp(a)", "float[N,4] y, float[N,4] z") == ["Neg", "Exp"]
    assert run("y = Neg(x)  z = Neg(x)", "float[N,4] y, float[N,4] z") == ["Neg", "Neg"]


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_random_numbers_are_drawn_twice(op: str) -> None:
    assert run(f"a = {op}(x) b = {op}(x) y = Add(a, b)") == [op, op, "Add"]


def test_several_outputs() -> None:
    body = "a, b = Split <axis = 1> (x)  c, d = Split <axis = 1> (x)  y = Concat <axis = 1> (a, d, b, c)"
    assert run(body, "float[N,8] y") == ["Split", "Concat"]


def test_twins_in_two_branches_stay() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x, bool flag) => (float[N,4] y)
    { y = If (flag) <then_branch = t () => (float[N,4] p) { a = Neg(x)  p = Exp(a) },
                     else_branch = e () => (float[N,4] q) { b = Neg(x)  q = Abs(b) }> }""")
    assert optimized(model, rules=[RULE]).fusions == ()


def test_attributes_are_compared_as_the_file_holds_them() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
    <float three = {3}, float zero = {0}, float six = {6}, float sixth = {0.16666667}>
    { a = Add(x, three)  b = Clip(a, zero, six)  c = Div(b, six)  d = Add(x, three)  e = Min(d, six)
      f = Max(e, zero)  g = Mul(f, sixth)  y = Add(c, g) }""")
    result = optimized(model, target="ort-cpu")
    assert ops(result.model) == ["Add", "HardSigmoid", "Add"]
    assert_same(model, result.model, random_feeds(model))
    assert optimized(result.model, target="ort-cpu").fusions == ()
