"""What nobody reads goes, with what served it alone."""

from __future__ import annotations

from support import assert_same, ops, optimized, parse, random_feeds

RULE = "dead_node"


def test_an_island_goes_with_its_weights() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
    <float[4] used = {1, 2, 3, 4}, float[4] unused = {1, 2, 3, 4}>
    { a = Mul(x, used)  b = Mul(a, unused)  c, d = Split <axis = 1> (b)  y = Neg(a)  e = Exp(c) }""")
    result = optimized(model, rules=[RULE])
    assert ops(result.model) == ["Mul", "Neg"] and [t.name for t in result.model.graph.initializer] == ["used"]
    assert_same(model, result.model, random_feeds(model))


def test_an_unread_output_among_others_keeps_its_node() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,2] y)
    { c, d = Split <axis = 1> (x)  y = Neg(c) }""")
    assert optimized(model, rules=[RULE]).fusions == ()


def test_what_a_branch_reads_stays() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x, bool flag) => (float[N,4] y)
    { a = Neg(x)  b = Exp(x)
      y = If (flag) <then_branch = t () => (float[N,4] p) { p = Exp(a) },
                     else_branch = e () => (float[N,4] q) { q = Abs(x)  r = Sin(x) }> }""")
    result = optimized(model, rules=[RULE])
    assert ops(result.model) == ["Neg", "If"] and len(result.fusions) == 2
    assert_same(model, result.model, random_feeds(model))


def test_inputs_stay_even_if_nothing_reads_them() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x, float[N,4] z) => (float[N,4] y)
    { a = Neg(z)  y = Abs(x) }""")
    result = optimized(model, rules=[RULE])
    assert ops(result.model) == ["Abs"] and list(result.model.graph.input) == list(model.graph.input)


def test_what_a_dead_branch_alone_read_goes_with_it() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x, bool flag) => (float[N,4] y)
    { a = Neg(x)  b = Exp(a)  y = Abs(x)
      z = If (flag) <then_branch = t () => (float[N,4] p) { p = Exp(b) },
                     else_branch = e () => (float[N,4] q) { q = Abs(b) }> }""")
    result = optimized(model, rules=[RULE])
    assert ops(result.model) == ["Abs"]
