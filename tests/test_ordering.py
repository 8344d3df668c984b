"""Files whose nodes are out of order, as onnxruntime's own float16 converter writes them."""

from __future__ import annotations

import random
from pathlib import Path

import everywhere
import numpy as np
import onnx
import pytest
from onnx import helper, parser
from support import LIGHT_ZOO, parse

import onnxfuse
from onnxfuse import interface, ordering
from onnxfuse.errors import ModelError
from onnxfuse.model import Model

HEAD = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>'
X = [{"x": np.linspace(-2, 2, 4 * n, dtype=np.float32).reshape(n, 4)} for n in (1, 3)]


def outputs(graph: onnx.GraphProto) -> list[str]:
    return [node.output[0] for node in graph.node]


def test_a_node_moves_up_to_before_its_reader_and_no_other_does() -> None:
    model = parser.parse_model(f"""{HEAD} g (float[N,4] x) => (float[N,4] y) {{
        a = Neg(x)  b = Add(a, k)  c = Abs(b)  d = Mul(c, l)  y = Add(d, k)  k = Exp(x)  m = Sin(x)  l = Cos(m) }}""")
    assert ordering.sort(model.graph)
    assert outputs(model.graph) == ["a", "k", "b", "c", "m", "l", "d", "y"]
    assert not ordering.sort(model.graph)
    onnx.checker.check_model(model)


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(r, q)  q = Relu(b)  r = Relu(b)  b = Add(a, x)  a = Neg(x)",
        "y = Add(q, r)  q = Relu(h)  r = Relu(h)  h = If (t) <then_branch = t () => (float[N,4] u) { u = Mul(x, w) }, "
        "else_branch = e () => (float[N,4] v) { v = Neg(x) }>  w = Abs(x)  s = Size(x)  t = Greater(s, seven)  "
        "seven = Constant <value_int = 7> ()",
    ],
)
def test_unsorted_models_are_optimized(body: str) -> None:
    model = parser.parse_model(f"{HEAD} g (float[N,4] x) => (float[N,4] y) {{ {body} }}")
    result = everywhere.assert_same(model, X, {"common_subexpression"})
    onnx.checker.check_model(result.model)
    assert onnxfuse.verify(model, result.model).ok


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("path", LIGHT_ZOO[:3], ids=lambda p: p.stem)
def test_the_order_of_the_file_does_not_matter(path: Path, seed: int) -> None:
    """Analysis knows as much of a shuffled model; the nodes are the same, and sorted."""
    model = onnx.load(path)
    shuffled = onnx.ModelProto()
    shuffled.CopyFrom(model)
    nodes = list(model.graph.node)
    random.Random(seed).shuffle(nodes)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes)
    loaded = Model.load(shuffled)
    onnx.checker.check_model(loaded.proto)
    key = onnx.NodeProto.SerializeToString
    assert sorted(map(key, loaded.proto.graph.node)) == sorted(map(key, nodes))
    a, b = onnxfuse.analyze(model), onnxfuse.analyze(shuffled)
    assert (a.totals.flops, a.totals.bytes, a.totals.params) == (b.totals.flops, b.totals.bytes, b.totals.params)


def test_nothing_rewritten_is_copied_in_its_order(tmp_path: Path) -> None:
    model = parser.parse_model(f"{HEAD} g (float[N,4] x) => (float[N,4] y) {{ y = Tanh(a)  a = Sin(x) }}")
    onnx.save(model, tmp_path / "m.onnx")
    result = onnxfuse.optimize(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert result.fusions == () and result.model == model
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = Relu(b)  b = Add(a, x)  a = Neg(b)", "the nodes form a cycle through Add 'b'"),
        ("y = Add(y, x)", "the nodes form a cycle through Add 'y'"),
        ("c = If (k) <then_branch = t () => (float[N,4] u) { u = Neg(w) }, else_branch = e () => (float[N,4] v) "
         "{ v = Neg(x) }>  w = Abs(c)  y = Neg(w)  k = Constant <value_int = 1> ()",
         "the nodes form a cycle through If 'c'"),
        ("y = Add(a, x)  a = Neg(x)  a = Abs(x)", "'a' has been used as output names multiple times"),
        ("y = Add(a, x)  a = Neg(q)", "input 'q' of node"),
        ("y = my.f(x)", "Nodes in a function must be topologically sorted"),  # onnxruntime does not run them either
        ("c = If (k) <then_branch = t () => (float[N,4] u) { u = Neg(w)  w = Abs(x) }, else_branch = e () => "
         "(float[N,4] v) { v = Neg(x) }>  y = Neg(c)  k = Constant <value_int = 1> ()", "input 'w' of node"),
    ],
)  # fmt: skip
def test_what_cannot_be_sorted_is_refused(body: str, message: str) -> None:
    function = '<domain: "my", opset_import: ["" : 17]> f (X) => (Y) { Y = Relu(b)  b = Neg(X) }' * ("my.f" in body)
    model = parser.parse_model(f"{HEAD} g (float[N,4] x) => (float[N,4] y) {{ {body} }} {function}")
    with pytest.raises(ModelError, match="is not a valid ONNX model: ") as error:
        onnxfuse.optimize(model)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_long_chain_from_its_end() -> None:
    nodes = [helper.make_node("Neg", [f"v{i + 1}"], [f"v{i}"]) for i in range(20_000)]
    ordered = ordering.sorted_nodes(nodes)
    assert [id(n) for n in ordered] == [id(n) for n in reversed(nodes)]


def test_the_coarsest_format_on_the_way_to_an_output() -> None:
    text = f"{HEAD} g (float[N,4] x) => (float[N,4] y, float[N,4] z) {{ CASTS  z = Neg(x) }}"
    casts = ["h = Cast <to = 10> (x)", "f = Cast <to = 1> (h)", "y = Neg(f)"]
    for written in (casts, casts[::-1]):
        steps = interface.of(parser.parse_model(text.replace("CASTS", " ".join(written)))).steps
        assert steps == {"y": 2.0**-10, "z": 2.0**-23}


def test_models_of_a_float16_converter() -> None:
    """onnxruntime's converter appends the Casts of blocked operators and of inputs at the end of the file."""
    float16 = pytest.importorskip("onnxruntime.transformers.float16", reason="onnxruntime comes without its converter")
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] x) => (float[N,4,16,16] y)
        <int64[4] shape = {4, 3, 3, 3}, float[4] scales = {1, 1, 2, 2}, float one = {1}>
        { w = ConstantOfShape <value = float[1] {0.125}> (shape)  c = Conv <pads = [1, 1, 1, 1]> (x, w)  n = Mul(c, one)
          r = Resize <mode = "nearest"> (n, , scales)  p = Relu(r)  q = Relu(r)  y = Add(p, q) }""")
    converted = float16.convert_float_to_float16(model, keep_io_types=True)
    with pytest.raises(onnx.checker.ValidationError, match="topologically sorted"):
        onnx.checker.check_model(converted)
    feeds = [{"x": np.linspace(-1, 1, n * 192, dtype=np.float32).reshape(n, 3, 8, 8)} for n in (1, 2)]
    for target in onnxfuse.targets.names():
        result = onnxfuse.optimize(converted, target=target)
        onnx.checker.check_model(result.model)
        assert "common_subexpression" in {f.rule for f in result.fusions}
        for a, b in zip(
            everywhere.run(converted, feeds, everywhere.LEVELS[0]),
            everywhere.run(result.model, feeds, everywhere.LEVELS[-1]),
            strict=True,
        ):
            np.testing.assert_allclose(b[0], a[0], rtol=1e-2, atol=1e-2)
