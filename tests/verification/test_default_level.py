"""A result is also run as users run it: at onnxruntime's default level, where its own fusions may spoil it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import graph, parse

import onnxfuse
from onnxfuse.verification import Sessions, compare

# A normalization of rows of one element, whose scale makes them wider. Where the square is a Pow, onnxruntime's
# LayerNormFusion takes the Mul and the Add for scale and bias of the norm, and its kernel fails. With optimizations off
# both spellings are right.
PIECES = """m = ReduceMean <axes = [-1], keepdims = 1> (x) d = Sub(x, m) s = {}
    v = ReduceMean <axes = [-1], keepdims = 1> (s) ve = Add(v, e) q = Sqrt(ve) n = Div(d, q) z = Mul(n, w)
    y = Add(z, b)"""
APART, FUSED = PIECES.format("Mul(d, d)"), PIECES.format("Pow(d, two)")


def norm(body: str) -> onnx.ModelProto:
    weights = "float e = {1e-5}, float two = {2.0}, float[2] w = {2.0, -3.0}, float[2] b = {1.0, 2.0}"
    frame = '<ir_version: 9, opset_import: ["" : 13]> g (float[3,1] x) => (float[3,2] y)'
    return parse(f"{frame} <{weights}> {{ {body} }}")


@pytest.fixture
def files(tmp_path: Path) -> Any:
    def write(*models: onnx.ModelProto) -> list[Path]:
        paths = [tmp_path / f"{i}.onnx" for i in range(len(models))]
        for path, model in zip(paths, models, strict=True):
            onnx.save(model, path)
        return paths

    return write


def test_what_only_the_default_level_spoils_is_found(files: Any) -> None:
    verdict = compare(*files(norm(APART), norm(FUSED)))
    assert not verdict.ok and verdict.judged
    assert verdict.reason.startswith("optimized model does not run at onnxruntime's default level (normal data): ")
    assert verdict.focus is not None and verdict.focus.level == "all" and not verdict.focus.names


def test_what_spoils_the_original_too_does_not_count(files: Any) -> None:
    """The original runs with optimizations off only: there alone it is compared."""
    verdict = compare(*files(norm(FUSED), norm(FUSED)))
    assert verdict.ok and verdict.levels == ("disabled",)
    other = compare(*files(norm(FUSED), norm(FUSED.replace("Add(z, b)", "Sub(z, b)"))))
    assert not other.ok


def test_both_levels_are_run(files: Any) -> None:
    (path,) = files(norm(APART))
    verdict = compare(path, path)
    assert verdict.ok and verdict.levels == ("disabled", "all") and verdict.provider == "cpu"


class Bent(Sessions):
    """Sessions of which one, at the default level, gives other numbers."""

    def __init__(self, path: str, factor: float) -> None:
        super().__init__()
        self._bent, self._factor = path, factor

    def run(self, path: Path, level: str, feeds: Any, without: Any = ()) -> Any:
        outputs = super().run(path, level, feeds, without)
        bent = level == "all" and path.stem in self._bent
        return {name: a * np.float32(self._factor) for name, a in outputs.items()} if bent else outputs


@pytest.mark.parametrize(
    ("bent", "factor", "ok"),
    [
        ("b", 1.01, False),  # the result alone changes between the levels
        ("ab", 1.01, True),  # the original changes as much
        ("a", 1.01, True),  # the result stays nearer to the original than the original itself
        ("b", 1 + 1e-6, True),  # rounding
    ],
)
def test_a_result_may_change_between_levels_as_the_original_does(
    bent: str, factor: float, ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = graph("y = Relu(x)", inputs="float[N,8] x", outputs="float[N,8] y")
    for name in "ab":
        onnx.save(model, tmp_path / f"{name}.onnx")
    monkeypatch.setattr("onnxfuse.verification.reference.Sessions", lambda: Bent(bent, factor))
    verdict = compare(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert verdict.ok is ok
    if not ok:
        assert "default level)" in verdict.reason and "is off by 1.0e-02" in verdict.reason


def test_optimize_takes_back_what_the_default_level_spoils(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of four fused nodes is computed wrongly, at the default level alone."""
    body = " ".join(f"[c{i}] t{i} = Conv(x{i}, w) [r{i}] x{i + 1} = Relu(t{i})" for i in range(4))
    shape = "float[1,4,8,8]"
    model = graph(f"x0 = Neg(x) {body} y = Neg(x4)", inputs=f"{shape} x, float[4,4,1,1] w", outputs=f"{shape} y")
    real = Sessions.run

    def run(self: Sessions, path: Path, level: str, feeds: Any, without: Any = ()) -> Any:
        outputs = real(self, path, level, feeds, without)
        spoiled = any(n.op_type == "FusedConv" and n.output[0] == "x3" for n in onnx.load(path).graph.node)
        return {name: a + np.float32(1) for name, a in outputs.items()} if spoiled and level == "all" else outputs

    monkeypatch.setattr(Sessions, "run", run)
    result = onnxfuse.optimize(model, tmp_path / "out.onnx")
    assert [r.node for r in result.rolled_back] == ["c2"] and len(result.fusions) == 3
    assert "default level" in result.rolled_back[0].reason
    assert result.verdict is not None and result.verdict.levels == ("disabled", "all")
