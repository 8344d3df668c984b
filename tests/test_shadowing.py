"""Names in bodies that hide outer ones. The numbers are onnxruntime's, of the original at every level alike."""

from __future__ import annotations

from pathlib import Path

import everywhere
import numpy as np
import onnx
import pytest
from onnx import parser

import onnxfuse
from onnxfuse import shadowing
from onnxfuse.model import Model

X, C = "float[N,4] x", "float[N,4] x, bool c"
ELSE = "else_branch = e () => (float[N,4] ey) { ey = Neg(x) }"
W, V = "<float[4] w = {1, 2, 3, 4}>", "<float[4] w = {5, 6, 7, 8}>"
LOOP = "<int64 n = {3}, bool t = {1}, float[4] w = {1, 2, 3, 4}>"

# inputs, initializers, nodes. Each z comes from the body that hides a name; two equal nodes behind are made one.
HIDING = {
    "initializer, outer initializer": (C, W, f"z = If (c) <then_branch = t () => (float[N,4] ty) {V} "
        f"{{ ty = Mul(x, w) }}, {ELSE}> v = Add(z, w)"),
    "initializer, outer value": (C, "", f"w = Neg(x) z = If (c) <then_branch = t () => (float[N,4] ty) "
        f"<float[1,4] w = {{5, 6, 7, 8}}> {{ ty = Mul(x, w) }}, {ELSE}> v = Add(z, w)"),
    "initializer, outer input": (f"{C}, float[4] w", "", f"z = If (c) <then_branch = t () => (float[N,4] ty) {V} "
        f"{{ ty = Mul(x, w) }}, {ELSE}> v = Add(z, w)"),
    "initializer, constant": (C, "", f"w = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> () z = If (c) <then_branch ="
        f" t () => (float[N,4] ty) {V} {{ ty = Mul(x, w) }}, {ELSE}> v = Add(z, w)"),
    "constant branch": (X, "<bool c = {1}, float[4] w = {1, 2, 3, 4}>", f"z = If (c) <then_branch = t () => "
        f"(float[N,4] ty) {V} {{ ty = Mul(x, w) }}, {ELSE}> v = Add(z, w)"),
    "constant branch, other rank": (X, "<bool c = {1}, float[4] w = {1, 2, 3, 4}>", f"z = If (c) <then_branch = t () "
        f"=> (float[N,4] ty) <float w = {{5}}> {{ ty = Mul(x, w) }}, {ELSE}> v = Add(z, w)"),
    "initializer that is the result": (C, W, "z = If (c) <then_branch = t () => (float[4] w) "
        "<float[4] w = {5, 6, 7, 8}> { }, else_branch = e () => (float[4] ey) <float[4] ey = {1, 1, 1, 1}> { }> "
        "a = Add(x, z) v = Mul(a, w)"),
    "node, later value": (C, "", f"z = If (c) <then_branch = t () => (float[N,4] ty) {{ w = Neg(x) ty = Mul(x, w) }}, "
        f"{ELSE}> w = Exp(x) v = Add(z, w)"),
    "node, output of the If": (C, "", f"z = If (c) <then_branch = t () => (float[N,4] z) {{ z = Abs(x) }}, {ELSE}> "
        "v = Add(z, x)"),
    "node, output of the graph": (C, "", f"z = If (c) <then_branch = t () => (float[N,4] y) {{ y = Abs(x) }}, {ELSE}> "
        "v = Add(z, x)"),
    "loop input, outer value": (X, LOOP.replace(", float[4] w = {1, 2, 3, 4}", ""), "w = Abs(x) z = Loop (n, t, w) "
        "<body = b (int64 i, bool k, float[N,4] w) => (bool o, float[N,4] p) { o = Identity(k) p = Add(w, x) }> "
        "v = Add(z, w)"),
    "loop input, outer input": (X, LOOP, "z = Loop (n, t, x) <body = b (int64 i, bool k, float[N,4] x) => "
        "(bool o, float[N,4] p) { o = Identity(k) p = Add(x, x) }> v = Add(z, x)"),
    "loop input, outer initializer": (X, LOOP, "z = Loop (n, t, x) <body = b (int64 i, bool k, float[N,4] w) => "
        "(bool o, float[N,4] p) { o = Identity(k) p = Add(w, x) }> v = Add(z, w)"),
    "loop counter and condition": (X, LOOP, "z = Loop (n, t, x) <body = b (int64 n, bool t, float[N,4] q) => "
        "(bool o, float[N,4] p) { o = Identity(t) f = Cast <to = 1> (n) p = Add(q, f) }> v = Add(z, w)"),
    "loop initializer": (X, LOOP, "z = Loop (n, t, x) <body = b (int64 i, bool k, float[N,4] q) => "
        f"(bool o, float[N,4] p) {V} {{ o = Identity(k) p = Add(q, w) }}> v = Add(z, w)"),
    "scan input": ("float[3,4] x", W, "s = Neg(x) z = Scan <num_scan_inputs = 1, body = b (float[4] s) => "
        "(float[4] o) { a = Neg(s) o = Mul(a, w) }> (x) v = Add(z, s)"),
    "twice deep": (C, W, f"z = If (c) <then_branch = t () => (float[N,4] ty) {{ q = If (c) <then_branch = t2 () => "
        f"(float[N,4] t2y) {V} {{ t2y = Mul(x, w) }}, else_branch = e2 () => (float[N,4] e2y) {{ e2y = Abs(x) }}> "
        f"ty = Add(q, w) }}, {ELSE}> v = Add(z, w)"),
    "at two depths": (C, W, f"z = If (c) <then_branch = t () => (float[N,4] ty) {V} {{ q = If (c) <then_branch = t2 () "
        f"=> (float[N,4] t2y) <float[4] w = {{9, 9, 9, 0}}> {{ t2y = Mul(x, w) }}, else_branch = e2 () => "
        f"(float[N,4] e2y) {{ e2y = Abs(x) }}> ty = Add(q, w) }}, {ELSE}> v = Add(z, w)"),
    "read deeper": (C, W, f"z = If (c) <then_branch = t () => (float[N,4] ty) {V} {{ q = If (c) <then_branch = t2 () "
        f"=> (float[N,4] t2y) {{ t2y = Mul(x, w) }}, else_branch = e2 () => (float[N,4] e2y) {{ e2y = Abs(x) }}> "
        f"ty = Add(q, w) }}, {ELSE}> v = Add(z, w)"),
    "an equal outer value": (C, "", f"a = Abs(x) b = Abs(x) z = If (c) <then_branch = t () => (float[N,4] ty) "
        f"<float[1,4] a = {{5, 6, 7, 8}}> {{ ty = Mul(a, b) }}, {ELSE}> q = Add(a, b) v = Add(z, q)"),
    "a folded outer value": (C, "<float[4] k = {1, 2, 3, 4}, float[4] w = {3, 3, 3, 3}>", f"p = Mul(k, w) "
        f"z = If (c) <then_branch = t () => (float[N,4] ty) <float[4] w = {{5, 6, 7, 8}}> {{ f = Mul(w, p) "
        f"ty = Mul(x, f) }}, {ELSE}> u = Mul(z, p) v = Add(u, w)"),
}  # fmt: skip

# onnxruntime sorts the nodes by itself: whether it takes the name of another node's value depends on the whole graph.
KEPT = ("node, later value", "node, output of the graph")


def model(inputs: str, weights: str, body: str) -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[N,4] y) {weights} {{ {body} '
    return parser.parse_model(text + "e1 = Exp(v)  e2 = Exp(v)  y = Add(e1, e2) }")


def feeds_of(inputs: str) -> list[dict[str, np.ndarray]]:
    found = []
    for rows in (3,) if "[3,4]" in inputs else (1, 3):
        for taken in (True, False):
            feed = {"x": np.linspace(-1, 1, rows * 4, dtype=np.float32).reshape(rows, 4) / 8}
            if "bool c" in inputs:
                feed["c"] = np.array(taken)
            if "float[4] w" in inputs:
                feed["w"] = np.array([1, 2, 3, 4], np.float32)
            found.append(feed)
    return found


@pytest.mark.parametrize("kind", HIDING)
def test_every_kind_of_hiding(kind: str) -> None:
    inputs, weights, body = HIDING[kind]
    original, feeds = model(inputs, weights, body), feeds_of(inputs)
    first, *others = (everywhere.run(original, feeds, level) for level in everywhere.LEVELS)
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_allclose(b[0], a[0], rtol=1e-5)
    everywhere.assert_same(original, feeds, {"common_subexpression"})


@pytest.mark.parametrize("kind", HIDING)
def test_names_come_back_where_nothing_is_rewritten(kind: str, tmp_path: Path) -> None:
    original = model(*HIDING[kind])
    loaded = Model.load(original)
    assert loaded.to_proto() == original
    loaded.proto.producer_name = original.producer_name = "another"
    assert loaded.changed and (loaded.to_proto() == original) == (kind not in KEPT)  # also what is written around them
    loaded.save(tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx") == loaded.to_proto()
    loaded.restore()
    assert not loaded.changed
    again = loaded.proto.SerializeToString()
    assert shadowing.rename(loaded.proto.graph) == {} and loaded.proto.SerializeToString() == again


CONTESTED = (  # outer initializer, value, input
    f'<ir_version: 8, opset_import: ["" : 17]> g ({C}) => (float[N,4] y) {W} {{ z = If (c) <then_branch = t () => '
    f"(float[N,4] ty) {V} {{ n = Neg(w) ty = Mul(x, n) }}, else_branch = e () => (float[N,4] ey) {{ ey = Add(x, w) }}> "
    "s = Exp(z) r = Exp(z) y = Add(s, r) }",
    f'<ir_version: 8, opset_import: ["" : 17]> g ({C}) => (float[N,4] y) {{ w = Abs(x) z = If (c) <then_branch = t () '
    "=> (float[N,4] ty) <float[1,4] w = {5, 6, 7, 8}> { ty = Mul(x, w) }, else_branch = e () => (float[N,4] ey) "
    "{ ey = If (c) <then_branch = t2 () => (float[N,4] a) { a = Add(x, w) }, else_branch = e2 () => (float[N,4] b) "
    "{ b = Abs(x) }> }> s = Exp(z) r = Exp(z) y = Add(s, r) }",
)


@pytest.mark.parametrize("text", CONTESTED)
def test_a_contested_name_leaves_the_model_alone(text: str, tmp_path: Path) -> None:
    """onnxruntime gives other numbers with its optimizations than without them."""
    original = parser.parse_model(text)
    assert shadowing.contested(original.graph) == "w"
    for target in onnxfuse.targets.names():
        result = onnxfuse.optimize(original, tmp_path / "m.onnx", target=target, verify=False)
        assert result.fusions == () and result.model == onnx.load(tmp_path / "m.onnx") == original


def test_a_name_stays_replaced_where_the_old_one_would_be_contested() -> None:
    loaded = Model.load(model(*HIDING["initializer, outer initializer"]))
    then = next(a.g for a in loaded.proto.graph.node[0].attribute if a.name == "then_branch")
    other = next(a.g for a in loaded.proto.graph.node[0].attribute if a.name == "else_branch")
    assert then.initializer[0].name == "w_1" and then.node[0].input[1] == "w_1"
    other.node[0].op_type = "Add"
    other.node[0].input.append("w")
    written = loaded.to_proto().graph.node[0]
    assert [a.g.initializer[0].name for a in written.attribute if a.name == "then_branch"] == ["w_1"]


def test_new_names_are_free() -> None:
    inputs, _, body = HIDING["initializer, outer initializer"]
    original = model(
        inputs, "<float[4] w = {1, 2, 3, 4}, float[4] w_1 = {1, 1, 1, 1}>", body.replace("(z, w)", "(w_1, z)")
    )
    loaded = Model.load(original)
    then = next(a.g for a in loaded.proto.graph.node[0].attribute if a.name == "then_branch")
    assert then.initializer[0].name == "w_2" and loaded.to_proto() == original


def test_a_function_hides_names_in_its_own_bodies() -> None:
    """Another function's names and the caller's are not its own."""
    original = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g ({C}) => (float[N,4] y) {W} {{ z = my.f(x, c)  a = Add(z, w)  b = Add(z, w)  y = Mul(a, b) }}
        <domain: "my", opset_import: ["" : 17]> f (x, c) => (y)
        {{ w = Constant <value_floats = [9.0, 9.0, 9.0, 9.0]> ()
           z = If (c) <then_branch = t () => (float[N,4] ty) {V} {{ ty = Mul(x, w) }}, {ELSE}>  y = Add(z, w) }}""")
    result = everywhere.assert_same(original, feeds_of(C), {"common_subexpression"})
    assert list(result.model.functions) == list(original.functions)


def test_many_bodies_of_one_node_take_linear_time() -> None:
    """Some 10,000 bodies that all hide a name and read another: looked through for each other it takes minutes."""
    body = parser.parse_graph("b () => (float[4] u) <float[4] x = {1, 2, 3, 4}> { u = Add(x, k) }")
    node = onnx.helper.make_node("Choose", ["x"], ["y"], domain="my", bodies=[body] * 10_000)
    graph = onnx.helper.make_graph([node], "g", [onnx.helper.make_tensor_value_info("x", 1, [4])], [])
    assert shadowing.contested(graph) is None
    renamed = shadowing.rename(graph)
    assert set(renamed.values()) == {"x"} and len(renamed) == 10_000
    with shadowing.original(graph, renamed):
        assert {b.initializer[0].name for b in graph.node[0].attribute[0].graphs} == {"x"}
