"""Normalizations before products and sums of every shape: results run in onnxruntime at each of its levels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import onnx
import pytest
from fuzz.sessions import LEVELS, load, run
from support import ops, optimized, parse

from onnxfuse import targets

SQUARES = ("s = Pow(d, two)", "s = Mul(d, d)")
QUOTIENTS = (
    "q = Sqrt(a) n = Div(d, q)",
    "q = Sqrt(a) i = Reciprocal(q) n = Mul(d, i)",
    "q = Sqrt(a) i = Div(one, q) n = Mul(i, d)",
    "q = Pow(a, half) n = Div(d, q)",
)
HIDDEN = (  # what keeps the normalization and the product apart
    "k2 = Identity(n)",
    "k = Concat <axis = 0> (n) k2 = Identity(k)",
    "k = Div(n, one) k2 = Mul(k, ones)",
    "k = Transpose <perm = [0, 1]> (n) k2 = Add(k, zero)",
)
SHAPES = (  # of x, the scale and the shift
    ("3,1", "2", "2"), ("3,1", "2", "1"), ("3,1", "1", "2"), ("3,1", "", "2"), ("1,4", "3,4", "4"), ("1,4", "4", "3,4"),
    ("3,4", "2,3,4", "4"), ("3,4", "1,3,4", "1,4"), ("3,4", "3,4", "3,1"), ("3,4", "4", "4"), ("1,1", "2,2", ""),
    ("1", "3", "3"), ("4", "4", ""), ("4", "", "4"), ("4", "1,4", "4"),
)  # fmt: skip


def tensor(name: str, dims: str) -> str:
    shape = [int(d) for d in dims.split(",") if d]
    numbers = np.linspace(-1.5, 2, int(np.prod(shape, dtype=int)) + 1)[1:].round(3).tolist()
    return f"float{[*shape] if shape else ''} {name} = {{{', '.join(map(str, numbers))}}}"


def model(opset: int, mean: bool, square: str, quotient: str, hidden: str, shapes: tuple[str, ...], left: bool) -> str:
    x, scale, shift = shapes
    rank = len(np.broadcast_shapes(*([int(d) for d in s.split(",") if d] for s in shapes)))
    averaged = "{} = ReduceMean <axes = [-1]> ({})" if opset < 18 else "{} = ReduceMean({}, last)"
    centre = f"{averaged.format('m', 'x')} d = Sub(x, m)" if mean else "d = Identity(x)"
    if "perm" in hidden and "," not in x:
        hidden = hidden.replace("[0, 1]", "[0]")
    return f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[{x}] x) => (float[{", ".join("?" * rank)}] y)
        <float two = {{2}}, float half = {{0.5}}, float one = {{1}}, float zero = {{0}}, float e = {{0.001}},
        int64[1] last = {{-1}}, float[1] ones = {{1}}, {tensor("w", scale)}, {tensor("b", shift)}>
        {{ {centre} {square} {averaged.format("v", "s")} a = Add(v, e) {quotient} {hidden}
        p = Mul({"w, k2" if left else "k2, w"}) y = Add(p, b) }}"""


def cases() -> Iterator[tuple[int, bool, str, str, str, tuple[str, ...], bool]]:
    """Some of all combinations, with each pair of choices among them."""
    every = product((13, 17, 20), (True, False), SQUARES, QUOTIENTS, HIDDEN, SHAPES, (True, False))
    yield from (case for i, case in enumerate(every) if i % 19 == 0)


@pytest.mark.parametrize("mean", [True, False])
def test_what_ran_at_a_level_of_onnxruntime_runs_there_after_it(mean: bool) -> None:
    ran = 0
    for case in cases():
        if case[1] is not mean:
            continue
        before = parse(model(*case))
        feeds = {"x": np.random.default_rng(0).standard_normal([d.dim_value for d in _dims(before)]).astype(np.float32)}
        original = {level: run(load(before.SerializeToString(), level), feeds) for level in LEVELS}
        expected = original["disabled"]
        assert expected is not None
        results = {optimized(before, target=t, verify=False).model.SerializeToString() for t in targets.names()}
        for data, level in product(sorted(results), LEVELS):
            if original[level] is None:
                continue
            found = run(load(data, level), feeds)
            assert found is not None, (case, level)
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5, err_msg=f"{case} {level}")
            ran += 1
    assert ran > 300


def _dims(m: onnx.ModelProto) -> list[onnx.TensorShapeProto.Dimension]:
    return list(m.graph.input[0].type.tensor_type.shape.dim)


@pytest.mark.parametrize("mean", [True, False])
def test_the_refusal_says_why(mean: bool) -> None:
    before = parse(model(13, mean, SQUARES[1], QUOTIENTS[1], "k2 = Identity(n)", ("3,1", "2", "2"), True))
    result = optimized(before, target="ort-cpu")
    assert {f.rule for f in result.fusions} <= {"redundant_copy"}
    assert any("take the product" in r.reason for r in result.refused)


def test_a_rewrite_that_brings_the_pieces_together_is_refused_whatever_its_rule() -> None:
    """Sqrt and Div are apart by a Concat of one, which another rule takes away: the form is whole then."""
    apart = "q0 = Sqrt(a) q = Concat <axis = 0> (q0) n = Div(d, q)"
    before = parse(model(13, False, SQUARES[0], apart, "k2 = Identity(n)", ("3,1", "2", "2"), False))
    result = optimized(before, rules=["redundant_copy"])
    assert any("take the product" in r.reason for r in result.refused) and "Concat" in ops(result.model)
    feeds = {"x": np.ones((3, 1), np.float32)}
    assert run(load(result.model.SerializeToString(), "all"), feeds) is not None


def test_a_scale_that_fits_is_taken_as_before() -> None:
    before = parse(model(13, True, SQUARES[1], QUOTIENTS[1], "k2 = Identity(n)", ("3,4", "4", "4"), True))
    assert "layer_norm" in {f.rule for f in optimized(before, target="ort-cpu").fusions}
