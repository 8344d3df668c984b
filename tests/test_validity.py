"""What runtimes run and onnx's checker refuses. Which import counts and which operator runs is onnxruntime's answer."""

from __future__ import annotations

from pathlib import Path

import everywhere
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser
from support import ops, optimized, run

import onnxfuse
from onnxfuse import ir
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


# What onnxruntime 1.32 runs in the default domain and ONNX does not have (at that opset), found by running it:
# opset, weights, node, dtype and shape of its first output.
RUNTIME = {
    "rms norm": (13, "<float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}>", "SimplifiedLayerNormalization (x, s)", 1, (None, 8)),
    "rms norm with everything": (20, "<float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}>",
        "SimplifiedLayerNormalization <axis = -1, epsilon = 0.01, stash_type = 1> (x, s)", 1, (None, 8)),
    "rms norm of another dtype": (17, "<float16[8] s = {1, 1, 1, 1, 1, 1, 1, 2}>",
        "SimplifiedLayerNormalization (x, s)", 10, (None, 8)),
    "layer norm": (11, "<float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {1, 1, 1, 1, 1, 1, 1, 2}>",
        "LayerNormalization <axis = -1> (x, s, b)", 1, (None, 8)),
    "layer norm of another dtype": (16, "<float16[8] s = {1, 1, 1, 1, 1, 1, 1, 2}>", "LayerNormalization (x, s)", 10,
        (None, 8)),
    "relu with a threshold": (9, "", "ThresholdedRelu <alpha = 0.5> (x)", 1, (None, 8)),
    "copy": (17, "", "MemcpyToHost (x)", 1, (None, 8)),
    "affine": (9, "", "Affine <alpha = 2.0, beta = 0.5> (x)", 1, (None, 8)),
    "softplus": (9, "", "ParametricSoftplus <alpha = 2.0, beta = 0.5> (x)", 1, (None, 8)),
    "tanh": (8, "", "ScaledTanh <alpha = 2.0, beta = 0.5> (x)", 1, (None, 8)),
    "scale": (7, "", "Scale <scale = 2.0> (x)", 1, (None, 8)),
    "slice": (9, "<int64[1] b = {2}, int64[1] e = {5}, int64[1] a = {1}>", "DynamicSlice (x, b, e, a)", 1, None),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNTIME)
def test_operators_that_only_onnxruntime_has(name: str) -> None:
    opset, weights, node, dtype, shape = RUNTIME[name]
    kind = {1: "float", 10: "float16"}[dtype]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,8] x) => ({kind}[N,M] y) {weights} '
        f"{{ h = {node}  p = Tanh(h)  q = Tanh(h)  y = Add(p, q) }}"
    )
    everywhere.assert_same(model, FEEDS, {"common_subexpression"})
    value = infer(Model.load(model).program)["h"]
    assert value.dtype == dtype
    if shape is not None:
        assert value.shape is not None and value.shape[1:] == shape[1:] and str(value.shape[0]) == "N"
    assert onnxfuse.analyze(model).totals.coverage == 1


IMAGE = [{"x": np.linspace(-1, 1, 192 * n, dtype=np.float32).reshape(n, 3, 8, 8)} for n in (1, 2)]


@pytest.mark.parametrize(
    ("node", "size"),
    [
        ("MeanVarianceNormalization <across_channels = 0> (x)", "8, 8"),
        ("MeanVarianceNormalization <across_channels = 1, normalize_variance = 1> (x)", "8, 8"),
        ("ImageScaler <bias = [1.0, 2.0, 3.0], scale = 2.0> (x)", "8, 8"),
        ("Crop <border = [1, 2, 1, 1]> (x)", "5, 6"),
        ("Crop <border = [1, 2, 1, 1], scale = [3, 4]> (x)", "3, 4"),
    ],
)
def test_its_operators_on_images(node: str, size: str) -> None:
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 8]> g (float[N,3,8,8] x) => (float[N,3,H,W] y) '
        f"{{ h = {node}  p = Tanh(h)  q = Tanh(h)  y = Add(p, q) }}"
    )
    everywhere.assert_same(model, IMAGE, {"common_subexpression"})
    assert str(infer(Model.load(model).program)["h"].shape) == f"(N, 3, {size})"


def test_its_operators_in_a_body_and_in_what_it_writes(tmp_path: Path) -> None:
    """onnxruntime's own fusion makes the node, and saves the graph of opset 13 with it."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]> g (float[N,8] x, bool c) => (float[N,8] y)
        <float two = {2}, float e = {0.00001}, float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        a = If (c) <
          then_branch = t () => (float[N,8] u) { f = Tanh(x)  p = Pow(f, two)  m = ReduceMean <axes = [-1]> (p)
            s = Add(m, e)  r = Sqrt(s)  d = Div(f, r)  u = Mul(d, w) },
          else_branch = e () => (float[N,8] v) { v = Neg(x) }>
        p2 = Pow(a, two)  m2 = ReduceMean <axes = [-1]> (p2)  s2 = Add(m2, e)  r2 = Sqrt(s2)  d2 = Div(a, r2)
        h = Mul(d2, w)  q1 = Tanh(h)  q2 = Tanh(h)  y = Add(q1, q2) }""")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.log_severity_level = 4
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    saved = onnx.load(tmp_path / "saved.onnx")
    made = [n for n in ir.messages(saved.graph.node) if n.op_type == "SimplifiedLayerNormalization"]
    assert len(made) == 2 and {n.domain for n in made} <= {"", "ai.onnx"}
    feeds = [feed | {"c": np.array(taken)} for feed in FEEDS for taken in (True, False)]
    everywhere.assert_same(saved, feeds, set())
    everywhere.assert_same(spelled_twice(saved), feeds, {"common_subexpression"})


def spelled_twice(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with another output behind: twice the same."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for name in ("k1", "k2"):
        found.graph.node.add(op_type="Exp", input=["y"], output=[name])
    found.graph.node.add(op_type="Add", input=["k1", "k2"], output=["k"])
    found.graph.output.add().CopyFrom(model.graph.output[0])
    found.graph.output[-1].name = "k"
    return found


def test_its_operators_in_a_function_are_refused() -> None:
    """onnxruntime 1.32 ends the process for some of them."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "my" : 1]> g (float[N,8] x) => (float[N,8] y)
        { y = my.f(x, x) } <domain: "my", opset_import: ["" : 17]> f (X, S) => (Y)
        { Y = SimplifiedLayerNormalization(X, S) }""")
    with pytest.raises(ModelError, match="No Op registered for SimplifiedLayerNormalization"):
        Model.load(model)


def test_an_operator_that_nobody_has_stays_refused() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y) {{ y = {} }}'
    for node in ("Nothing(x)", "EfficientNMS_TRT(x, x)", "SimplifiedLayerNormalisation(x, x)"):
        with pytest.raises(ModelError, match="No Op registered"):
            Model.load(parser.parse_model(text.format(node)))
