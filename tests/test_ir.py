"""A dim_param is a symbol, whatever it reads like. Sizes and sums are worked out by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import everywhere
import numpy as np
import onnx
import pytest
from onnx import parser

import onnxfuse
from onnxfuse import interface, ir

LIKE_NUMBERS = ("2", "１", "1+1", "0", "-1", "2.0", "0x2", " 3 ", "1e1", "2147483648", "٣")


def mean_left(name: str) -> onnx.ModelProto:
    """x, squared rows, less its own mean times 2: the mean needs the number of elements, which Size gives."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,N] x) => (float[N,N] y) <int64 two = {2}> {
        s = Size(x)  f = Cast <to = 1> (s)  d = Div(x, f)  m = ReduceSum <keepdims = 0> (d)
        t = Cast <to = 1> (two)  k = Mul(m, t)  y = Sub(x, k) }"""
    model = parser.parse_model(text)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_param = name
    return model


@pytest.mark.parametrize("name", LIKE_NUMBERS)
def test_a_symbol_that_reads_like_a_number_is_free(name: str) -> None:
    feeds = [{"x": np.arange(n * n, dtype=np.float32).reshape(n, n)} for n in (1, 2, 3, 10)]
    result = everywhere.assert_same(mean_left(name), feeds, {"fold_known"})  # the Cast of a constant
    assert result.dims == {name: 1} or result.dims == {name: 128}


@pytest.mark.parametrize("name", LIKE_NUMBERS)
def test_its_formulas_quote_it_and_take_its_size_by_name(name: str) -> None:
    model = parser.parse_model('<ir_version: 8, opset_import: ["":17]> g (float[N,4] x) => (float[N,4] y) {y = Neg(x)}')
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = name
    report = onnxfuse.analyze(model)
    assert str(report.totals.flops) == f"4·{name!r}" and report.assumed == (name,)
    assert onnxfuse.evaluate(report.totals.flops, {name: 3}) == 12
    assert onnxfuse.analyze(model, dims={name: 3}).totals.flops == 12
    assert onnxfuse.analyze(model, dims={"x.0": 3}).totals.flops == 12


def test_the_command_line_takes_its_size(tmp_path: Path) -> None:
    onnx.save(mean_left("2"), tmp_path / "m.onnx")
    command = [sys.executable, "-m", "onnxfuse", "analyze", tmp_path / "m.onnx", "--dim", "2=3", "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert report["dims"] == {"2": 3}
    assert report["nodes"][2]["flops"] == 9  # the Div of 3·3 elements


@pytest.mark.parametrize("name", ["2 + N", "N+2"])
def test_a_number_beside_a_symbol_is_a_number(name: str) -> None:
    """y reads two rows more than x has: the target of the Reshape is x's rows and 2."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x, float[M,4] m) => (float[K,4] y)
        <float[2,4] z = {1, 1, 1, 1, 1, 1, 1, 1}>
        { c = Concat <axis = 0> (x, z)  s = Shape(c)  r = Reshape(m, s)  y = Add(c, r) }"""
    model = parser.parse_model(text)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = name
    report = onnxfuse.analyze(model)
    assert report.assumed == ("N",) and str(report.nodes[-1].flops) == "4·N + 8"
    feeds = [{"x": np.ones((n, 4), np.float32), "m": np.full((n + 2, 4), 3, np.float32)} for n in (1, 5)]
    everywhere.assert_same(model, feeds, set())


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("N", ("N",)), ("past + seq", ("past", "seq")), ("N + 1", ("N", 1)), ("1 + N + 2", (1, "N", 2)),
        ("2", ("2",)), ("1+1", ("1+1",)), ("1 + 2 + 3", ("1 + 2 + 3",)), ("N + １", ("N", "１")),
        ("N + -1", ("N + -1",)), ("N + 2.0", ("N + 2.0",)), ("N + 1234567890", ("N", "1234567890")), ("+", ("+",)),
        ("+1", ("+1",)), ("", ("",)),
    ],
)  # fmt: skip
def test_terms_of_a_name(name: str, terms: tuple[int | str, ...]) -> None:
    assert ir.summands(name) == terms


def test_the_interface_tells_a_symbol_from_a_number() -> None:
    def of(*dims: int | str) -> interface.Interface:
        shape = [onnx.helper.make_tensor_value_info(n, 1, dims) for n in ("x", "y")]
        node = onnx.helper.make_node("Neg", ["x"], ["y"])
        return interface.of(onnx.helper.make_model(onnx.helper.make_graph([node], "g", shape[:1], shape[1:])))

    for name in (*LIKE_NUMBERS, "2,4"):
        difference = interface.difference(of(name, 4), of(2, 4))
        assert difference == f"interface differs: input 'x' is float[2,4], was float[{name!r},4]"
    assert of("N", "past + seq").inputs[0].type == "float[N,past + seq]"
