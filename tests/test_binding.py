"""Counts as formulas: what they are, and that they give the numbers of a run with sizes."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import onnx
import pytest
from support import LIGHT_ZOO, graph

import onnxfuse
from onnxfuse import UsageError
from onnxfuse.analysis import Analysis
from onnxfuse.facts import Expr
from onnxfuse.roofline import Row, Totals

MODELS = Path(__file__).parent.parent / "models"
FOLDER = os.environ.get("ONNXFUSE_MODELS")
ESTIMATES = {"intensity", "seconds", "bound", "coverage", "unknown"}
COUNTS = {
    kind: [f.name for f in fields(kind) if f.type == "Number" and f.name not in ESTIMATES] for kind in (Row, Totals)
}


def test_formulas_by_hand() -> None:
    """MatMul: 8 MACs for each of B·M·16 results; float32. Relu: B·M·16 comparisons."""
    model = graph("t = MatMul(x, w) y = Relu(t)", inputs="float[B,M,8] x, float[8,16] w", outputs="float[B,M,16] y")
    report = onnxfuse.analyze(model)
    matmul, relu = report.nodes
    assert [str(n) for n in (matmul.macs, matmul.flops, matmul.bytes_read, matmul.bytes_written)] == [
        "128·B·M", "256·B·M", "32·B·M + 512", "64·B·M",
    ]  # fmt: skip
    assert (str(relu.flops), str(relu.bytes)) == ("16·B·M", "128·B·M")
    assert str(report.totals.flops) == "272·B·M" and str(report.totals.bytes) == "224·B·M + 512"
    assert report.totals.macs.evaluate({"B": 2, "M": 3}) == 768  # type: ignore[union-attr]
    assert onnxfuse.evaluate(report.totals.macs, {"B": 2, "M": 3}) == 768
    assert onnxfuse.evaluate(onnxfuse.analyze(model, dims={"B": 2, "M": 3}).totals.macs, {}) == 768
    with pytest.raises(UsageError, match="no value for dimension 'M'"):
        report.totals.macs.evaluate({"B": 2})  # type: ignore[union-attr]
    data = report.to_json()
    assert data["totals"]["flops"] == "272·B·M" and data["nodes"][1]["macs"] == 0
    assert (data["dims"], data["assumed"], data["data_dims"]) == ({"B": 1, "M": 128}, ["B", "M"], [])


def test_estimates_are_those_at_the_sizes() -> None:
    model = graph("y = Relu(x)", inputs="float[B,4] x", outputs="float[B,4] y")
    report, sized = onnxfuse.analyze(model), onnxfuse.analyze(model, dims={"B": 1})
    assert report.at_dims.nodes == sized.nodes and report.at_dims.totals == sized.totals
    assert report.candidates == sized.candidates
    assert (report.nodes[0].seconds, report.nodes[0].bound) == (sized.nodes[0].seconds, "overhead")
    assert (report.totals.seconds, report.totals.intensity) == (sized.totals.seconds, 4 / 32)
    assert sized.at_dims is sized


def test_given_dims_are_numbers_in_the_formulas() -> None:
    model = graph("y = Relu(x)", inputs="float[B,M] x", outputs="float[B,M] y")
    report = onnxfuse.analyze(model, dims={"B": 3})
    assert str(report.totals.flops) == "3·M" and report.assumed == ("M",)
    assert onnxfuse.analyze(model, dims={"B": 3, "x.1": 5}).totals.flops == 15


def test_a_size_that_the_data_tell_is_named() -> None:
    """NonZero of a matrix gives two int64 for each of as many columns as there are elements that are not 0."""
    model = graph("i = NonZero(x) y = Abs(i)", inputs="float[B,3] x", outputs="int64[2,K] y")
    report = onnxfuse.analyze(model, dims={"B": 2})
    assert report.data_dims == ("i.1",) and report.assumed == ()
    assert str(report.nodes[1].bytes) == "32·i.1"  # in and out
    assert report.nodes[1].seconds is None and report.totals.seconds is None
    assert report.nodes[1].bytes.evaluate({"i.1": 5}) == 160  # type: ignore[union-attr]
    general = onnxfuse.analyze(model)
    assert general.data_dims == ("i.1",) and str(general.nodes[0].bytes_read) == "12·B"


def test_a_size_that_only_a_peak_has_is_named() -> None:
    """What the loop stacks is live beside z: N·4 floats for each of y.0 rounds; the cost of the loop is not known."""
    body = """z, y = Loop(k, , x) <body = b (int64 i, bool c, float[N,4] a) => (bool c2, float[N,4] a2, float[N,4] o)
        { c2 = Identity(c) a2 = Exp(a) o = Relu(a2) }>"""
    report = onnxfuse.analyze(graph(body, inputs="float[N,4] x, int64 k", outputs="float[R,N,4] y"))
    assert report.data_dims == ("y.0",) and "16·N·y.0" in str(report.totals.peak_activation_bytes)


def test_a_sequence_of_unknown_length_leaves_no_formula_of_the_peak() -> None:
    """The N rows of 6 floats; how many rows a sequence has is not followed as a symbol."""
    model = graph("s = SplitToSequence <axis = 0, keepdims = 0> (x)", inputs="float[N,6] x", outputs="seq(float[6]) s")
    assert onnxfuse.analyze(model, dims={"N": 3}).totals.peak_activation_bytes == 72
    report = onnxfuse.analyze(model)
    assert report.totals.peak_activation_bytes is None and report.totals.peak_activation_bytes_in_place is None
    assert report.at_dims.totals.peak_activation_bytes == 24  # N = 1


def test_dims_that_are_sums() -> None:
    inputs = "float[P] p, float[S] s, float[M] m"
    model = graph("k = Concat <axis = 0> (p, s) y = Add(k, m)", inputs=inputs, outputs="float[M] y")
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "P + S"
    report = onnxfuse.analyze(model)
    assert report.assumed == ("P", "S") and str(report.totals.bytes) == "20·P + 20·S"  # 4·(2 + 3)·(P + S)
    sized = onnxfuse.analyze(model, dims={"P": 7, "S": 3})
    assert sized.assumed == () and sized.totals.bytes == 200 == onnxfuse.evaluate(report.totals.bytes, sized.dims)
    with pytest.raises(UsageError, match=r"'P \+ S' is the sum P \+ S; give the sizes of its parts: P, S"):
        onnxfuse.analyze(model, dims={"P + S": 10})


def test_a_symbol_called_as_an_unnamed_axis() -> None:
    model = graph("y = Add(a, b)", inputs="float[K,4] a, float[M,4] b", outputs="float[M,4] y")
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "a.0"
    assert onnxfuse.analyze(model, dims={"a.0": 3, "a.0#": 1}).totals.bytes == 4 * 4 * (1 + 3 + 3)


def test_sizes_that_do_not_fit_the_model() -> None:
    """A window of 3 over 1 column; and two values of 2·(M//2) and M columns, which differ where M is odd."""
    model = graph("y = MaxPool <kernel_shape = [3]> (x) z = Relu(y)", inputs="float[1,1,M] x", outputs="float[1,1,K] z")
    assert onnxfuse.analyze(model, dims={"M": 1}).misfit == "MaxPool 'y'"
    assert onnxfuse.analyze(model, dims={"M": 3}).misfit is None
    halves = "h = MaxPool <kernel_shape = [2], strides = [2]> (x) c = Concat <axis = 2> (h, h)"
    model = graph(f"{halves} z = Concat <axis = 1> (c, x)", inputs="float[1,1,M] x", outputs="float[1,2,M] z")
    assert onnxfuse.analyze(model, dims={"M": 5}).misfit == "Concat 'z'"
    assert onnxfuse.analyze(model, dims={"M": 6}).misfit is None


BY_CASES = """
    s = Shape <start = 0, end = 1> (x) one = Constant <value_ints = [1]> () c = Equal(s, one)
    y = If (c) <then_branch = t () => (float[B,4] a) { a = Relu(x) },
                else_branch = e () => (float[B,4] b) { u = Relu(x) b = Relu(u) }>
    z = Neg(x)
"""


def test_what_depends_on_sizes_by_cases_has_no_formula() -> None:
    """One Relu for B = 1, two for other sizes: no polynomial; an upper bound would be wrong for B = 1."""
    model = graph(BY_CASES, inputs="float[B,4] x", outputs="float[B,4] y, float[B,4] z")
    report = onnxfuse.analyze(model)
    branch = next(row for row in report.nodes if row.op_type == "If")
    assert branch.flops is None and report.at_dims.totals.flops == 4 + 4 + report.at_dims.nodes[2].flops  # type: ignore[operator]
    assert report.at_dims.totals.coverage == 1.0 > report.totals.coverage
    assert "ai.onnx::If" in report.totals.unknown
    assert "-" not in str(report.totals.flops) and str(report.nodes[-1].flops) == "4·B"


def test_a_product_that_grows_beyond_use_is_unknown() -> None:
    """Σ of 50 symbols to the 4th power has 292,825 terms."""
    names = [f"n{i}" for i in range(50)]
    joined = ", ".join(names)
    body = (
        f"a = Concat <axis = 0> ({joined}) b = NonZero(a) y = Neg(a) o = Shape(a) q = Concat <axis = 0> (o, o, o, o) "
    )
    body += "r = ConstantOfShape(q) z = Neg(r)"
    model = graph(
        body, inputs=", ".join(f"float[{n.upper()}] {n}" for n in names), outputs="float[K] y, float[A,B,C,D] z"
    )
    report = onnxfuse.analyze(model)
    assert str(report.nodes[2].flops).count("+") == 49
    assert report.nodes[-1].flops is None and report.at_dims.nodes[-1].flops == 50**4 * 128**4


def disagreements(report: Analysis, sized: Analysis) -> tuple[list[Any], list[str]]:
    """(counts whose formula is another number, operators of those that are known as a number only)."""
    wrong: list[Any] = []
    lost: list[str] = []
    for formula, number in [*zip(report.nodes, sized.nodes, strict=True), (report.totals, sized.totals)]:
        for name in COUNTS[type(formula)]:
            a, b = getattr(formula, name), getattr(number, name)
            if isinstance(a, Expr):
                a = a.evaluate(sized.dims)
            if a is None and b is not None:
                lost.append(getattr(formula, "op_type", f"totals.{name}"))
            elif a != b and not (isinstance(formula, Totals) and report.totals.coverage < sized.totals.coverage):
                wrong.append((formula.op_type if isinstance(formula, Row) else "totals", name, a, b))
    return wrong, lost


SMALL = {
    "unlike sizes": (
        graph(
            "y = Add(a, b) z = MatMul(a, c)",
            inputs="float[B,M] a, float[M] b, float[M,K] c",
            outputs="float[B,M] y, float[B,K] z",
        ),
        ({"B": 1, "M": 1, "K": 1}, {"B": 5, "M": 7, "K": 11}),
    ),
    "strides and padding": (
        graph(
            "t = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w) "
            "y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (t)",
            inputs="float[B,3,H,W] x, float[8,3,3,3] w",
            outputs="float[B,8,P,Q] y",
        ),
        ({"B": 1, "H": 32, "W": 31}, {"B": 3, "H": 45, "W": 58}),
    ),
    "a loop": (
        graph(
            "s = Shape <start = 0, end = 1> (x) zero = Constant <value_ints = [0]> () n = Squeeze(s, zero) "
            "y = Loop (n, , x) <body = b (int64 i, bool k, float[B,4] v) => (bool k2, float[B,4] t) "
            "{ k2 = Identity(k) t = Relu(v) }>",
            inputs="float[B,4] x",
            outputs="float[B,4] y",
        ),
        ({"B": 1}, {"B": 9}),
    ),
    "branches": (
        graph(
            "y = If (c) <then_branch = t () => (float[B,4] a) { a = Relu(x) },"
            "else_branch = e () => (float[B,4] b) { u = Relu(x) b = Relu(u) }>",
            inputs="bool c, float[B,4] x",
            outputs="float[B,4] y",
        ),
        ({"B": 1}, {"B": 6}),
    ),
    "packed": (
        graph("y = DequantizeLinear(x, s)", inputs="int4[B] x, float s", outputs="float[B] y", opset=21),
        ({"B": 1}, {"B": 7}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_formulas_give_the_numbers_of_a_run_with_sizes(name: str) -> None:
    model, bindings = SMALL[name]
    report = onnxfuse.analyze(model)
    assert report.assumed and report.data_dims == ()
    for dims in bindings:
        assert disagreements(report, onnxfuse.analyze(model, dims=dims)) == ([], [])


@pytest.mark.parametrize("path", [*sorted(MODELS.glob("*.onnx")), *LIGHT_ZOO], ids=lambda p: p.stem)
def test_formulas_of_whole_networks(path: Path) -> None:
    report = onnxfuse.analyze(path)
    assert disagreements(report, onnxfuse.analyze(path, dims=report.dims)) == ([], [])
    dims = {name: 2 * size for name, size in report.dims.items()}
    assert disagreements(report, onnxfuse.analyze(path, dims=dims)) == ([], [])


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER, reason="set ONNXFUSE_MODELS to a folder of models")
@pytest.mark.parametrize("path", sorted(Path(FOLDER or ".").glob("*.onnx")) if FOLDER else [], ids=lambda p: p.stem)
def test_formulas_of_real_models(path: Path) -> None:
    report = onnxfuse.analyze(path)
    other = {name: 3 if size == 1 else size + 64 for name, size in report.dims.items()}
    if path.stem == "ppocrv4_rec":  # lines of text of another height do not run
        other["x.2"] = 48
    for dims in (report.dims, other):
        sized = onnxfuse.analyze(path, dims=dims)
        assert sized.totals.coverage == 1.0
        wrong, lost = disagreements(report, sized)
        assert wrong == []
        # the VAD takes another branch for another length; beyond 8 maxima a peak has no formula
        allowed = {"totals.peak_activation_bytes", "totals.peak_activation_bytes_in_place"}
        assert {op for op in lost if op not in allowed} == set() or path.stem == "silero_vad"


def test_branches_are_told_with_the_node_as_numbers_and_formulas() -> None:
    """MatMul of 8·4·6 MACs a batch, or a sum over 8·4 elements of which 7·4 are additions, by the data."""
    model = graph(
        "y = If (c) <then_branch = t () => (float[B,8,6] a) { a = MatMul(x, w) },"
        "else_branch = e () => (float[B,1,4] b) { b = ReduceSum(x, axis) }>  z = Relu(y)",
        inputs="bool c, float[B,8,4] x, float[4,6] w, int64[1] axis",
        outputs="float[B,D,E] z",
    )
    del model.graph.input[-1]
    model.graph.initializer.append(onnx.helper.make_tensor("axis", onnx.TensorProto.INT64, [1], [1]))
    report = onnxfuse.analyze(model)
    data = report.to_json()
    then, other = data["nodes"][0]["branches"]
    assert (then["node"], then["name"], then["flops"], then["reason"]) == ("y", "then_branch", "384·B", None)
    assert (other["name"], other["flops"], other["bytes_written"]) == ("else_branch", "28·B", "16·B")
    assert data["nodes"][0]["flops"] == "384·B" and data["nodes"][1]["branches"] == []
    assert str(report.totals.flops) == "432·B"  # Relu of the larger result: 48·B
    numbers = onnxfuse.analyze(model, dims={"B": 3}).to_json()
    assert [branch["flops"] for branch in numbers["nodes"][0]["branches"]] == [1152, 84]
    assert numbers["totals"]["flops"] == 1296 and numbers["totals"]["coverage"] == 1


def test_annotations_say_which_numbers_are_lower_bounds(tmp_path: Path) -> None:
    """A Relu of 4 elements in one branch; what the other one does is not known."""
    model = graph(
        "y = If (c) <then_branch = t () => (float[4] a) { a = Relu(x) },"
        "else_branch = e () => (int64[4] b) { b = RegexFullMatch <pattern = \"a\"> (s) }>",
        inputs="bool c, float[4] x, string[4] s", outputs="float[4] y", opset=20, ir=9,
    )  # fmt: skip
    onnxfuse.analyze(model, annotate=tmp_path / "noted.onnx")
    (node,) = onnx.load(tmp_path / "noted.onnx").graph.node
    noted = {entry.key: entry.value for entry in node.metadata_props}
    assert noted["onnxfuse.flops"] == "4"
    assert noted["onnxfuse.reason"].startswith("holds RegexFullMatch: works on strings")
