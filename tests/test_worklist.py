"""The rewriting engine, with rules made for the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from support import assert_same, graph, ops, optimized, random_feeds, with_weights

from onnxfuse import rules
from onnxfuse.patterns import Build, NotLegal, Rewrite, Rule, Scope

MatchFunction = Callable[[gs.Node, Scope], Rewrite | None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes these (root, match) pairs the only rules."""
    found: dict[str, Rule] = {}

    def add(name: str, root: str, match: MatchFunction, stage: int = 0, measured: tuple[str, ...] = ()) -> None:
        found[name] = Rule(name, frozenset({root}), None, match, "y = y", stage, frozenset(measured))

    monkeypatch.setattr(rules, "all_rules", lambda: found)
    yield add


def drop_neg(node: gs.Node, scope: Scope) -> Rewrite | None:
    """-(-x) = x."""
    inner = scope.editor.producer(node.inputs[0])
    if inner is None or inner.op != "Neg":
        return None
    return Rewrite(same=((node.outputs[0], inner.inputs[0]),))


def abs_of_neg(node: gs.Node, scope: Scope) -> Rewrite | None:
    """|-x| = |x|."""
    inner = scope.editor.producer(node.inputs[0])
    if inner is None or inner.op != "Neg":
        return None
    build = Build(scope, node)
    build("Abs", inner.inputs[0], out=node.outputs[0])
    return build.rewrite()


def test_a_chain_collapses_to_its_start(install: Callable[..., None]) -> None:
    install("drop_neg", "Neg", drop_neg)
    body = "a = Neg(x) b = Neg(a) c = Neg(b) d = Neg(c) y = Abs(d)"
    model = graph(body, inputs="float[8] x", outputs="float[8] y")
    result = optimized(model)
    assert ops(result.model) == ["Abs"] and len(result.fusions) == 2
    assert_same(model, result.model, random_feeds(model))


def test_a_graph_output_keeps_its_name_when_another_value_stands_for_it(install: Callable[..., None]) -> None:
    install("drop_neg", "Neg", drop_neg)
    model = graph("r = Relu(x) a = Neg(r) y = Neg(a) z = Abs(r)", inputs="float[8] x", outputs="float[8] y, float[8] z")
    result = optimized(model)
    assert [(n.op_type, list(n.input), list(n.output)) for n in result.model.graph.node] == [
        ("Relu", ["x"], ["y"]),
        ("Abs", ["y"], ["z"]),
    ]


@pytest.mark.parametrize(
    "body", ["a = Neg(x) y = Neg(a)", "r = Relu(x) a = Neg(r) y = Neg(a) z = Identity(r)"], ids=["input", "output"]
)
def test_an_output_that_no_other_value_can_replace_stays(body: str, install: Callable[..., None]) -> None:
    install("drop_neg", "Neg", drop_neg)
    outputs = "float[8] y, float[8] r" if "r =" in body else "float[8] y"
    model = graph(body.replace(" z = Identity(r)", ""), inputs="float[8] x", outputs=outputs)
    result = optimized(model)
    assert not result.fusions and "graph output" in result.refused[0].reason
    assert result.model.SerializeToString() == model.SerializeToString()


def test_what_others_read_stays_and_the_price_knows(install: Callable[..., None]) -> None:
    install("abs_of_neg", "Abs", abs_of_neg)
    model = graph("a = Neg(x) y = Abs(a) z = Relu(a)", inputs="float[8] x", outputs="float[8] y, float[8] z")
    result = optimized(model)
    assert not result.fusions and "no gain" in result.refused[0].reason  # Neg stays for Relu: one Abs for another
    alone = graph("a = Neg(x) y = Abs(a)", inputs="float[8] x", outputs="float[8] y")
    assert ops(optimized(alone).model) == ["Abs"]


def test_a_measured_rule_is_made_whatever_the_price(install: Callable[..., None]) -> None:
    def longer(node: gs.Node, scope: Scope) -> Rewrite | None:
        build = Build(scope, node)  # max(x, 0) = (x + |x|)/2, which is no gain anywhere
        half = build.constant(np.float32(0.5))
        build("Mul", build("Add", node.inputs[0], build("Abs", node.inputs[0])), half, out=node.outputs[0])
        return build.rewrite()

    model = graph("y = Relu(x)", inputs="float[8] x", outputs="float[8] y")
    install("longer", "Relu", longer)
    assert "no gain" in optimized(model, target="ort-cpu").refused[0].reason
    install("longer", "Relu", longer, 0, ("ort-cpu",))
    result = optimized(model, target="ort-cpu")
    assert ops(result.model) == ["Abs", "Add", "Mul"]
    assert_same(model, result.model, random_feeds(model))
    assert not optimized(model, target="portable").fusions


def test_a_wrong_rewrite_is_taken_back_and_the_others_stay(install: Callable[..., None]) -> None:
    def wrong(node: gs.Node, scope: Scope) -> Rewrite | None:
        build = Build(scope, node)
        build("Relu", scope.editor.producer(node.inputs[0]).inputs[0], out=node.outputs[0])
        return build.rewrite()

    install("wrong", "Sigmoid", wrong)
    install("abs_of_neg", "Abs", abs_of_neg)
    body = "a = Neg(x) b = Abs(a) y = Exp(b) c = Neg(x) z = Sigmoid(c)"
    model = graph(body, inputs="float[8] x", outputs="float[8] y, float[8] z")
    result = optimized(model)
    assert [f.rule for f in result.fusions] == ["abs_of_neg"]
    assert [r.rule for r in result.rolled_back] == ["wrong"]
    assert ops(result.model) == ["Abs", "Exp", "Neg", "Sigmoid"]
    assert_same(model, result.model, random_feeds(model))


def test_the_file_may_hardly_grow(install: Callable[..., None]) -> None:
    def table(node: gs.Node, scope: Scope) -> Rewrite | None:
        build = Build(scope, node)
        build("Mul", node.inputs[0], build.constant(np.full(3000, 2, np.float32)), out=node.outputs[0])
        return build.rewrite()

    install("table", "Sum", table, 0, ("ort-cuda",))
    model = graph("y = Sum(x, x)", inputs="float[3000] x", outputs="float[3000] y")
    result = optimized(model)
    # 3,000 numbers, and a Mul that reads "Sum/constant" in the place of a Sum that reads "x" once more
    assert not result.fusions and "would grow by 12,011 bytes; 8,192 are left" in result.refused[0].reason


def test_names_that_go_make_room(install: Callable[..., None]) -> None:
    def table(node: gs.Node, scope: Scope) -> Rewrite | None:
        inner = scope.editor.producer(node.inputs[0])
        if inner is None:
            return None
        build = Build(scope, node)
        build("Mul", inner.inputs[0], build.constant(np.full(2100, 2, np.float32)), out=node.outputs[0])
        return build.rewrite()

    install("table", "Sum", table, 0, ("ort-cuda",))
    for name, fits in (("h", False), ("h" * 200, True)):  # 8,400 bytes of 8,192; the name is written twice
        model = graph(f"{name} = Neg(x) y = Sum({name}, {name})", inputs="float[2100] x", outputs="float[2100] y")
        assert bool(optimized(model, verify=False).fusions) == fits


def test_freed_weights_make_room(install: Callable[..., None]) -> None:
    def fold(node: gs.Node, scope: Scope) -> Rewrite | None:
        inner = scope.editor.producer(node.inputs[0])
        a, b = (scope.constant(n.inputs[1]) for n in (inner, node))
        build = Build(scope, node)
        build("Mul", inner.inputs[0], build.constant(a * b), out=node.outputs[0])
        return build.rewrite()

    install("fold", "Mul", lambda node, scope: fold(node, scope) if scope.editor.producer(node.inputs[0]) else None)
    two = ", ".join(["2"] * 3000)
    body = "a = Mul(x, u) y = Mul(a, v)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[3000] x) => (float[3000] y) '
        f"<float[3000] u = {{{two}}}, float[3000] v = {{{two}}}> {{ {body} }}"
    )
    result = optimized(model)
    assert ops(result.model) == ["Mul"] and len(result.model.graph.initializer) == 1
    assert_same(model, result.model, random_feeds(model))


def test_what_brings_another_name_each_time_ends(install: Callable[..., None]) -> None:
    def again(node: gs.Node, scope: Scope) -> Rewrite | None:
        build = Build(scope, node)
        build("Relu", build("Relu", node.inputs[0]), out=node.outputs[0])
        return build.rewrite()

    install("again", "Relu", again, 0, ("ort-cpu",))
    model = graph("y = Relu(x)", inputs="float[8] x", outputs="float[8] y")
    result = optimized(model, target="ort-cpu")
    assert len(result.fusions) < 100
    assert_same(model, result.model, random_feeds(model))


def test_stages_follow_each_other(install: Callable[..., None]) -> None:
    seen: list[str] = []

    def note(name: str) -> MatchFunction:
        def match(node: gs.Node, scope: Scope) -> Rewrite | None:
            seen.append(f"{name} {node.op}")
            return None

        return match

    install("late", "Abs", note("late"), 1)
    install("early", "Neg", note("early"), 0)
    optimized(graph("a = Abs(x) y = Neg(a)", inputs="float[8] x", outputs="float[8] y"))
    assert seen == ["early Neg", "late Abs"]


def test_a_value_of_another_shape_is_no_replacement(install: Callable[..., None]) -> None:
    def reshape(node: gs.Node, scope: Scope) -> Rewrite | None:
        return Rewrite(same=((node.outputs[0], node.inputs[0]),))

    install("reshape", "Flatten", reshape)
    model = graph("a = Relu(x) b = Flatten(a) y = Abs(b)", inputs="float[2,3,4] x", outputs="float[2,12] y")
    result = optimized(model)
    assert not result.fusions and "another rank" in result.refused[0].reason


def test_metadata_names_every_node_that_a_result_stands_for(install: Callable[..., None]) -> None:
    install("drop_neg", "Neg", drop_neg)
    install("abs_of_neg", "Abs", abs_of_neg)
    model = graph("[n] a = Neg(x) [m] y = Abs(a)", inputs="float[8] x", outputs="float[8] y")
    (node,) = optimized(model).model.graph.node
    notes = {p.key: p.value for p in node.metadata_props}
    assert notes == {"onnxfuse.rule": "abs_of_neg", "onnxfuse.sources": '["n", "m"]'} and node.name == "m"


def test_a_refusal_is_told_once(install: Callable[..., None]) -> None:
    def never(node: gs.Node, scope: Scope) -> Rewrite | None:
        raise NotLegal("never")

    install("never", "Abs", never)
    install("drop_neg", "Neg", drop_neg)
    model = graph("a = Neg(x) b = Neg(a) y = Abs(b)", inputs="float[8] x", outputs="float[8] y")
    assert [r.reason for r in optimized(model).refused] == ["never"]


def test_what_many_nodes_become_names_each_of_them_once() -> None:
    """And writes it once: lists that grow with every step took the square of the chain in time and memory."""
    names = ["x", *(f"v{i}" for i in range(400)), "y"]
    body = " ".join(f"{b} = Relu({a})" for a, b in pairwise(names))
    result = optimized(graph(body, inputs="float[3] x", outputs="float[3] y"), verify=False)
    (node,) = result.model.graph.node
    notes = {e.key: e.value for e in node.metadata_props}
    assert json.loads(notes["onnxfuse.sources"]) == [f"Relu({name})" for name in names[1:]]


def test_a_fused_node_names_what_its_parts_stand_for() -> None:
    body = "a = Relu(x) b = Relu(a) c = Conv(b, w) d = Relu(c) e = Relu(d) y = Neg(e)"
    inputs = "float[1,4,8,8] x, float[4,4,3,3] w"
    model = with_weights(graph(body, inputs=inputs, outputs="float[1,4,6,6] y"))
    (fused,) = (n for n in optimized(model, target="ort-cuda").model.graph.node if n.op_type == "FusedConv")
    notes = {e.key: e.value for e in fused.metadata_props}
    assert json.loads(notes["onnxfuse.sources"]) == ["Conv(c)", "Relu(d)", "Relu(e)"]


@pytest.mark.parametrize(
    "text",
    ["", "not json", "5", "null", '"text"', "[[1]]", "[1, null]", '{"a": 1}', "[" * 100_000, "1" * 5000, '["\\ud800"]'],
)
def test_notes_of_others_under_the_name_of_ours_are_not_taken_for_them(text: str) -> None:
    model = graph("a = Relu(x) y = Relu(a)", inputs="float[3] x", outputs="float[3] y")
    for node in model.graph.node:
        node.metadata_props.add(key="onnxfuse.sources", value=text)
    (node,) = optimized(model, verify=False).model.graph.node
    notes = {e.key: e.value for e in node.metadata_props}
    assert notes["onnxfuse.sources"] == '["Relu(a)", "Relu(y)"]'


def test_what_a_new_node_tells_of_an_old_value_is_looked_at_in_the_same_run() -> None:
    """The parts of a Split by sizes that callers may override have unknown sizes; put together they are the whole."""
    model = graph(
        """p, q = Split <axis = 0> (x, sizes) c = Concat <axis = 0> (p, q, x)
        target = Constant <value_ints = [10, 1]> () e = Expand(c, target) y = Relu(e)""",
        inputs="float[5,3] x, int64[2] sizes",
        outputs="float[10,3] y",
        opset=21,
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 4]), "sizes"))
    result = optimized(model, target="ort-cpu", verify=False)
    assert ops(result.model) == ["Concat", "Relu"]
    assert not optimized(result.model, target="ort-cpu", verify=False).fusions
