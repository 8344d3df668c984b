"""Rotary embeddings as transformers writes them, and what is nearly one."""

from __future__ import annotations

import examples
import numpy as np
import onnx
import pytest
from support import graph, ops, optimized, random_feeds, run

ROTARY = "com.microsoft::RotaryEmbedding"
ANGLES = "c = Concat <axis = -1> (f, f) cc = Cos (c) sc = Sin (c) one = Constant <value_ints = [1]> ()"
SPREAD = "cos = Unsqueeze (cc, one) sin = Unsqueeze (sc, one)"
SPLIT = """parts = Constant <value_ints = [2, 2]> () a, b = Split <axis = 3> (x, parts)"""
SLICES = """n0 = Constant <value_ints = [0]> () n2 = Constant <value_ints = [2]> () n3 = Constant <value_ints = [-1]> ()
    end = Constant <value_ints = [9223372036854775807]> () a = Slice (x, n0, n2, n3) b = Slice (x, n2, end, n3)"""
TURNED = "n = Neg (b) r = Concat <axis = -1> (n, a)"
SUM = "xc = Mul (x, cos) rs = Mul (r, sin) y = Add (xc, rs)"


def model(body: str, f: str = "float[1,S,2] f", x: str = "float[N,3,S,4] x", opset: int = 17) -> onnx.ModelProto:
    return graph(body, inputs=f"{x}, {f}", outputs=x.replace(" x", " y"), opset=opset)


def made(m: onnx.ModelProto, target: str = "ort-cpu") -> list[str]:
    sizes = [{"N": 2, "S": 5}, {"N": 1, "S": 1}, {"N": 2, "S": 0}, {"N": 0, "S": 3}]
    return [op for op in examples.made(m, target, rule="rotary_embedding", dims=sizes) if op != "Constant"]


@pytest.mark.parametrize("halves", [SPLIT, SLICES])
@pytest.mark.parametrize(
    "total",
    [
        SUM,
        "xc = Mul (cos, x) rs = Mul (sin, r) y = Add (rs, xc)",
        "xc = Mul (x, cos) rs = Mul (sin, r) y = Add (xc, rs)",
    ],
)
@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda"])
def test_spellings(halves: str, total: str, target: str) -> None:
    m = model(f"{ANGLES} {SPREAD} {halves} {TURNED} {total}")
    assert sorted(made(m, target)) == ["Cos", "Reshape", "Reshape", "Sin", ROTARY]


@pytest.mark.parametrize("f", ["float[S,2] f", "float[1,1,S,2] f"])
def test_angles_of_other_ranks(f: str) -> None:
    plain = ANGLES.replace("cc =", "cos =").replace("sc =", "sin =")
    assert ROTARY in made(model(f"{plain} {SPLIT} {TURNED} {SUM}", f))


NEAR_MISSES = {
    "the other half negative": (TURNED, "n = Neg (a) r = Concat <axis = -1> (b, n)"),
    "not negative": (TURNED, "r = Concat <axis = -1> (b, a)"),
    "halves in place": (TURNED, "n = Neg (a) r = Concat <axis = -1> (n, b)"),
    "sine and cosine exchanged": (SUM, "xc = Mul (x, sin) rs = Mul (r, cos) y = Add (xc, rs)"),
    "difference": (SUM, "xc = Mul (x, cos) rs = Mul (r, sin) y = Sub (xc, rs)"),
    "different halves of the angles": ("Concat <axis = -1> (f, f)", "Concat <axis = -1> (f, g) "),
}


@pytest.mark.parametrize("kind", NEAR_MISSES)
def test_near_misses_stay(kind: str) -> None:
    old, new = NEAR_MISSES[kind]
    body = f"g = Neg (f) {ANGLES} {SPREAD} {SPLIT} {TURNED} {SUM}"
    assert old in body
    for target in ("ort-cpu", "ort-cuda"):
        assert ROTARY not in made(model(body.replace(old, new)), target)


@pytest.mark.parametrize(
    ("f", "x"),
    [
        ("float[N,S,2] f", "float[N,3,S,4] x"),  # positions of each sequence
        ("float[1,1,2] f", "float[N,3,S,4] x"),  # one position for all steps
        ("float[3,5,2] f", "float[3,3,5,4] x"),
        ("float[1,S,2] f", "double[N,3,S,4] x"),
    ],
)
def test_angles_that_are_no_table_of_the_steps(f: str, x: str) -> None:
    m = model(f"{ANGLES} {SPREAD} {SPLIT} {TURNED} {SUM}", f.replace("float", x.split("[")[0]), x)
    assert ROTARY not in made(m)


def test_a_table_of_another_length() -> None:
    m = model(f"{ANGLES} {SPREAD} {SPLIT} {TURNED} {SUM}", "float[1,M,2] f")
    assert ROTARY not in ops(optimized(m, target="ort-cpu", rules=["rotary_embedding"]).model)


@pytest.mark.parametrize("value", ["xc", "rs"])
def test_products_that_others_read(value: str) -> None:
    m = model(f"{ANGLES} {SPREAD} {SPLIT} {TURNED} {SUM.replace('y =', 'z =')} y = Add (z, {value})")
    assert ROTARY not in made(m)


def test_only_where_there_is_a_kernel() -> None:
    m = model(f"{ANGLES} {SPREAD} {SPLIT} {TURNED} {SUM}")
    assert not optimized(m, target="portable", rules=["rotary_embedding"]).fusions


def test_special_values() -> None:
    m = model(f"{ANGLES} {SPREAD} {SPLIT} {TURNED} {SUM}")
    fused = optimized(m, target="ort-cpu", rules=["rotary_embedding"]).model
    assert ROTARY in ops(fused)
    for number in (np.nan, np.inf, -np.inf, 1e38, -0.0):
        feeds = random_feeds(m, 0, {"N": 2, "S": 7})
        feeds["x"][0, 1, 2, 3] = feeds["x"][1, 2, :, 0] = number
        np.testing.assert_allclose(run(fused, feeds)[0], run(m, feeds)[0], rtol=1e-5, atol=1e-6)
