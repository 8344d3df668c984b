"""What runtimes run and onnx's checker refuses. Which import counts and which operator runs is onnxruntime's answer."""

from __future__ import annotations

import everywhere
import numpy as np
import onnx
import pytest
from onnx import parser
from support import ops, optimized, run

import onnxfuse
from onnxfuse.errors import ModelError
from onnxfuse.facts import infer
from onnxfuse.model import Model

BODY = """g (float[N,8] x) => (float[N,8] y) <bool yes = {1}, float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}>
    { a = Mul(x, b)  c = Mul(x, b)  d = If (yes) <then_branch = t () => (float[N,8] u) { u = Add(a, c) },
      else_branch = e () => (float[N,8] v) { v = Neg(a) }>  i = Identity(d)  y = Relu(i) }"""
FEEDS = [{"x": np.linspace(-1, 1, 8 * n, dtype=np.float32).reshape(n, 8)} for n in (1, 3)]


def spelled(domain: str, *imports: tuple[str, int], only: int | None = None) -> onnx.ModelProto:
    """The model with its nodes, or one of them, in this spelling of the default domain."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {BODY}')
    for i, node in enumerate(model.graph.node):
        if only in (None, i):
            node.domain = domain
    del model.opset_import[:]
    for name, version in imports:
        model.opset_import.add(domain=name, version=version)
    return model


@pytest.mark.parametrize("only", [None, 1, 2])
@pytest.mark.parametrize(
    "imports",
    [
        [("ai.onnx", 17)], [("", 17)], [("", 17), ("ai.onnx", 17)], [("", 13), ("ai.onnx", 17)],
        [("ai.onnx", 99), ("com.microsoft", 1), ("", 17)],
    ],
    ids=str,
)  # fmt: skip
def test_two_spellings_of_the_default_domain(imports: list[tuple[str, int]], only: int | None) -> None:
    model = spelled("ai.onnx", *imports, only=only)
    result = everywhere.assert_same(model, FEEDS, {"common_subexpression", "constant_if", "redundant_copy"})
    assert list(result.model.opset_import)[: len(imports)] == list(model.opset_import)
    report, plain = onnxfuse.analyze(model), onnxfuse.analyze(spelled("", ("", 17)))
    assert report.totals.flops == plain.totals.flops and {row.domain for row in report.nodes} == {""}


def test_what_is_not_rewritten_keeps_its_spelling() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["ai.onnx" : 17]> g (float[N,8] x) => (float[N,8] y)
        { a = Sin(x)  b = Sin(x)  c = Cos(x)  s = Add(a, b)  y = Sub(s, c) }""")
    for node in model.graph.node:
        node.domain = "ai.onnx"
    result = everywhere.assert_same(model, FEEDS, {"common_subexpression"})
    kept = {n.op_type: n.SerializeToString() for n in result.model.graph.node}
    for node in model.graph.node:
        if node.op_type in ("Cos", "Sub"):
            assert kept[node.op_type] == node.SerializeToString()


@pytest.mark.parametrize("imports", [[("", 17), ("ai.onnx", 11)], [("ai.onnx", 17), ("", 11)], [("", 17), ("", 11)]])
def test_the_last_import_of_a_domain_counts(imports: list[tuple[str, int]]) -> None:
    """ReduceSum has its axes in an attribute up to opset 12."""
    text = (
        '<ir_version: 8, opset_import: ["" : 11]> g (float[N,8] x) => (float[N,1] y) { y = ReduceSum <axes = [1]> (x) }'
    )
    model = parser.parse_model(text)
    del model.opset_import[:]
    for name, version in imports:
        model.opset_import.add(domain=name, version=version)
    assert run(model, FEEDS[1])[0].shape == (3, 1)
    assert str(infer(Model.load(model).program)["y"].shape) == "(N, 1)"
    reversed_ = onnx.ModelProto()
    reversed_.CopyFrom(model)
    del reversed_.opset_import[:]
    reversed_.opset_import.extend(reversed(model.opset_import))
    with pytest.raises(ModelError, match="Unrecognized attribute: axes"):
        Model.load(reversed_)


def test_a_newer_opset_in_either_spelling_is_refused() -> None:
    for domain in ("", "ai.onnx"):
        with pytest.raises(ModelError, match="newer format"):
            Model.load(spelled("", ("", 17), (domain, 9999)))


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_a_function_of_the_default_domain_is_not_called(domain: str) -> None:
    """onnxruntime runs its own Relu, whatever function of that name the model has."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y)
        { a = Neg(x)  b = Relu(a)  c = Relu(a)  y = Add(b, c) }""")
    function = model.functions.add(name="Relu", domain=domain, input=["X"], output=["Y"])
    function.opset_import.add(domain="", version=17)
    function.node.add(op_type="ReduceMax", input=["X"], output=["Y"])
    assert str(infer(Model.load(model).program)["y"].shape) == "(N, 8)"
    everywhere.assert_same(model, FEEDS, {"common_subexpression"})


@pytest.mark.parametrize("imported", ["", "ai.onnx"])
def test_the_other_spelling_in_a_function_or_a_body_is_refused(imported: str) -> None:
    """As onnxruntime does: "No opset import for domain ai.onnx"."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[N,8] x) => (float[N,8] y)
        { y = my.f(x) } <domain: "my", opset_import: ["" : 17]> f (X) => (Y) { Y = Relu(X) }""")
    model.functions[0].node[0].domain = "ai.onnx"
    model.functions[0].opset_import[0].domain = imported
    body = spelled("", (imported, 17))
    body.graph.node[2].attribute[0].g.node[0].domain = "ai.onnx"
    for bad in (model, body):
        with pytest.raises(ModelError, match=r"is not a valid ONNX model: No [oO]p"):
            Model.load(bad)


def test_new_nodes_of_other_domains_are_imported_beside_either_spelling() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["ai.onnx" : 17]>
        g (float[N,2,8,8] x) => (float[N,2,4,4] y)
        { r = Relu(x)  y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r) }""")
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert ops(optimized(model, target="ort-cuda").model) == ["onnxfuse::ReluMaxPool"]
    feeds = [{"x": np.linspace(-1, 1, n * 128, dtype=np.float32).reshape(n, 2, 8, 8)} for n in (1, 2)]
    everywhere.assert_same(model, feeds, {"relu_maxpool"})
