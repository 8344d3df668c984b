"""Operators that change nothing go, others that look like them stay."""

from __future__ import annotations

import onnxruntime as ort
import pytest
from support import assert_same, ops, optimized, parse, random_feeds

RULE = "redundant_copy"
CONSTANTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4},
int64[1] big = {9223372036854775807}, int64[3] ones = {1, 1, 1}, int64[3] twos = {1, 1, 2},
int64[6] pads = {0, 0, 0, 0, 0, 0}, int64[6] shift = {0, 1, 0, 0, -1, 0}, int64[3] same = {0, 4, 6},
int64[3] swap = {0, 6, 4}, bool on = {1}, bool off = {0}, float half = {0.5}, int64[1] minus = {-1}>"""


def run(body: str, opset: int = 17) -> list[str]:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,4,6] x) => (float[N,a,b] y)'
    model = parse(f"{text} {CONSTANTS} {{ s = Neg(x)  {body}  y = Abs(t) }}")
    result = optimized(model, rules=[RULE])
    for n in (1, 3):
        assert_same(model, result.model, random_feeds(model, dims={"N": n}))
    return ops(result.model)[1:-1]


@pytest.mark.parametrize(
    "body",
    [
        "t = Identity(s)", "t = Dropout(s)", "t = Dropout(s, half)", "t = Dropout(s, half, off)",
        "t = Cast <to = 1> (s)", "t = CastLike(s, x)", "t = Pad(s, pads)", "t = Tile(s, ones)", "t = Expand(s, ones)",
        "t = Reshape(s, same)",
        "t = Concat <axis = 1> (s)", "t = Split <axis = 1> (s)", "t = Sum(s)", "t = Max(s)", "t = Min(s)",
        "t = Mean(s)",
        "t = Transpose <perm = [0, 1, 2]> (s)", "t = Slice(s, zero, four, one)", "t = Slice(s, zero, big, zero)",
        "t = Slice(s, zero, big, minus, one)", "u = Identity(s)  t = Identity(u)",
    ],
)  # fmt: skip
def test_a_copy_goes(body: str) -> None:
    assert run(body) == []


@pytest.mark.parametrize(
    ("body", "op"),
    [
        ("u = Cast <to = 10> (s)  t = Cast <to = 1> (u)", "Cast Cast"),  # rounds
        ("t = Pad(s, shift)", "Pad"),  # one row comes in above, one goes below
        ("t = Tile(s, twos)", "Tile"),
        ("t = Reshape(s, swap)", "Reshape"),
        ("t = Transpose <perm = [0, 2, 1]> (s)", "Transpose"),
        ("t = Slice(s, zero, two, one)", "Slice"),
        ("t = Slice(s, minus, big, zero)", "Slice"),  # all of it only where N = 1
        ("t = Slice(s, one, big, two)", "Slice"),
    ],
)
def test_a_change_stays(body: str, op: str) -> None:
    assert run(body) == op.split()


def test_a_slice_that_runs_backwards_stays() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
    <int64[1] last = {3}, int64[1] least = {-9223372036854775807}, int64[1] one = {1}, int64[1] back = {-1}>
    { t = Slice(x, last, least, one, back)  y = Abs(t) }""")
    assert optimized(model, rules=[RULE]).fusions == ()


def test_dropout_in_training_stays() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y)
    <float half = {0.5}, bool on = {1}> { t = Dropout(x, half, on)  y = Abs(t) }""")
    assert optimized(model, rules=[RULE], verify=False).fusions == ()


def test_dropout_with_a_mask_that_is_read_stays() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y, bool[N,4] m)
    { t, m = Dropout(x)  y = Abs(t) }""")
    assert optimized(model, rules=[RULE]).fusions == ()


def test_between_an_input_and_an_output_it_stays() -> None:
    model = parse('<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) { y = Identity(x) }')
    assert optimized(model, rules=[RULE]).fusions == ()


def test_two_outputs_that_are_the_same_stay_two() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y, float[N,4] z)
    { t = Neg(x)  y = Identity(t)  z = Identity(t) }""")
    result = optimized(model, rules=[RULE])
    assert [o.name for o in result.model.graph.output] == ["y", "z"] and ops(result.model) == ["Neg", "Identity"]
    assert_same(model, result.model, random_feeds(model))


def test_the_reshape_of_one_number_stays() -> None:
    """onnxruntime makes one Gelu of the parts, whose result is a scalar as x is, and not of the constants' shape."""
    model = parse("""<ir_version: 8, opset_import: ["" : 18]> g (float x) => (float[1] y)
    <float[1] root = {1.4142135}, float one = {1}, float half = {0.5}, int64[1] shape = {1}>
    { d = Div(x, root)  e = Erf(d)  a = Add(one, e)  h = Mul(x, half)  g = Mul(a, h)  y = Reshape(g, shape) }""")
    result = optimized(model)
    assert_same(model, result.model, random_feeds(model))
    session = ort.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, random_feeds(model))[0].shape == (1,)
