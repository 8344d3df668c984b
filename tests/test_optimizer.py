"""Verification inside optimize: a rewrite that spoils the result is found, taken back and named."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support import assert_same, graph, ops, random_feeds

import onnxfuse
from onnxfuse import rewrite
from onnxfuse.errors import Finding

BODY = " ".join(
    f"[c{i}] t{i} = Conv <pads = [1, 1, 1, 1]> ({x}, w) [r{i}] {y} = Relu(t{i})"
    for i, (x, y) in enumerate([("x", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "y")])
)


@pytest.fixture
def model() -> onnx.ModelProto:
    return graph(BODY, inputs="float[N,4,8,8] x, float[4,4,3,3] w", outputs="float[N,4,8,8] y")


def spoil(monkeypatch: pytest.MonkeyPatch, *bad: str) -> None:
    """Makes the rewrites at these nodes wrong: another activation."""
    right = rewrite.apply

    def wrong(model, editor, choices, domains=()):  # type: ignore[no-untyped-def]
        for choice in choices:
            if choice.node in bad:
                choice.match.new.attrs["activation"] = "Tanh"
        return right(model, editor, choices, domains)

    monkeypatch.setattr(rewrite, "apply", wrong)


@pytest.mark.parametrize("bad", [["c2"], ["c0", "c4"], ["c0", "c1", "c2", "c3", "c4"]])
def test_the_guilty_rewrite_is_taken_back_and_named(
    bad: list[str], model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil(monkeypatch, *bad)
    result = onnxfuse.optimize(model, tmp_path / "out.onnx")
    assert [r.node for r in result.rolled_back] == bad
    assert all("did not verify" in r.reason for r in result.rolled_back)
    assert len(result.fusions) == 5 - len(bad)
    assert result.verdict is not None and result.verdict.ok
    written = onnx.load(tmp_path / "out.onnx")
    assert ops(written).count("com.microsoft::FusedConv") == 5 - len(bad)
    assert_same(model, written, random_feeds(model))
    assert [p.name for p in tmp_path.iterdir()] == ["out.onnx"]  # nothing temporary is left


def test_without_verification_nothing_is_run(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil(monkeypatch, "c2")
    result = onnxfuse.optimize(model, tmp_path / "out.onnx", verify=False)
    assert result.verdict is None and len(result.fusions) == 5 and (tmp_path / "out.onnx").exists()


def test_an_error_that_the_output_hides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "[c0] t = Conv(x, w) r = Relu(t) z = Constant <value_float = 0.0> () s = Mul(r, z) y = Add(s, b)"
    model = graph(body, inputs="float[1,4,8,8] x, float[4,4,1,1] w, float[1,4,8,8] b", outputs="float[1,4,8,8] y")
    assert len(onnxfuse.optimize(model).fusions) == 1
    spoil(monkeypatch, "c0")
    result = onnxfuse.optimize(model)
    assert not result.fusions and "'r'" in result.rolled_back[0].reason


def test_values_that_annotations_name_stay() -> None:
    model = graph("t = Conv(x, w) y = Relu(t)", inputs="float[1,4,8,8] x, float[4,4,1,1] w", outputs="float[1,4,8,8] y")
    model.graph.quantization_annotation.add(tensor_name="t")
    result = onnxfuse.optimize(model)
    assert not result.fusions and "annotations" in result.refused[0].reason


def test_another_function_of_the_same_name_is_a_refusal(tmp_path: Path) -> None:
    body = "a = Conv(x, w) b = Relu(a) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)"
    extra = '<domain: "onnxfuse", opset_import: ["" : 17]> ConvReluNoBias (X, W) => (Y) { Y = Conv(X, W) }'
    inputs, outputs = "float[1,4,8,8] x, float[4,4,1,1] w", "float[1,4,4,4] y"
    model = graph(body, inputs=inputs, outputs=outputs, extra=extra)
    model.opset_import.append(onnx.helper.make_opsetid("onnxfuse", 1))
    result = onnxfuse.optimize(model, target="portable")
    assert [f.rule for f in result.fusions] == ["relu_maxpool"]
    assert "another function 'onnxfuse::ConvReluNoBias'" in result.refused[0].reason


@pytest.mark.parametrize(("before", "after"), [(3, 3), (4, 8), (7, 8), (8, 8), (10, 10)])
def test_functions_raise_the_ir_version_where_that_changes_nothing_else(before: int, after: int) -> None:
    inputs, outputs = "float[1,4,8,8] x, float[4,4,1,1] w", "float[1,4,8,8] y"
    model = graph("t = Conv(x, w) y = Relu(t)", inputs=inputs, outputs=outputs, opset=7, ir=before)
    assert onnxfuse.optimize(model, target="portable").model.ir_version == after
    assert onnxfuse.optimize(model).model.ir_version == before


def test_what_cannot_be_run_is_not_written(model: onnx.ModelProto, tmp_path: Path) -> None:
    model.graph.node.append(onnx.helper.make_node("Magic", ["x"], ["m"], domain="my.domain"))
    model.opset_import.append(onnx.helper.make_opsetid("my.domain", 1))
    with pytest.raises(Finding, match="onnxruntime does not load the original"):
        onnxfuse.optimize(model, tmp_path / "out.onnx")
    assert list(tmp_path.iterdir()) == []
    assert len(onnxfuse.optimize(model, tmp_path / "out.onnx", verify=False).fusions) == 5


def test_nothing_to_do_needs_no_verification(tmp_path: Path) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Magic", ["x"], ["y"], domain="my.domain")],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, [4])],
            [onnx.helper.make_tensor_value_info("y", 1, [4])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("my.domain", 1)],
        ir_version=8,
    )
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    path.write_bytes(model.SerializeToString())
    result = onnxfuse.optimize(path, out)
    assert result.fusions == () and result.verify is not None and result.verify.ok and result.verify.cases == 0
    assert onnxfuse.optimize(path, verify=False).verdict is None
    assert out.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda", "portable"])
def test_models_of_the_first_opsets_are_left_as_they_are(target: str, caplog: pytest.LogCaptureFixture) -> None:
    """Before opset 7 a Mul broadcasts by its attributes, which no rule looks at, and onnxruntime runs none of it."""
    body = "a = Mul <broadcast = 1, axis = 0> (x, g) b = Add(x, a) c = Identity(b) y = Identity(c)"
    model = graph(body, inputs="float[3,3] x, float[3] g", outputs="float[3,3] y", opset=6, ir=3)
    result = onnxfuse.optimize(model, target=target, verify=False)
    assert result.model == model and not result.fusions
    assert "opset 6: nothing is rewritten before opset 7" in caplog.text
