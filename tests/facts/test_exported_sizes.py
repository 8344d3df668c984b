"""Sizes as exporters compute them: TensorFlow's SAME padding and Tensordot, sizes unpacked one by one."""

from __future__ import annotations

import pytest
from onnx import parser

from onnxfuse import facts, ir
from onnxfuse.facts import Facts

SIDES = (1, 2, 3, 7, 31, 32, 33, 97, 224, 640, 4095)


def infer(body: str, inputs: str, *, weights: str = "", opset: int = 17, dims: dict[str, int] | None = None) -> Facts:
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    model = parser.parse_model(f"{head} g ({inputs}) => (float[A] y) <{weights}> {{ {body} }}")
    return facts.infer(ir.read(model), dims)


def shape(found: Facts, name: str = "y") -> str:
    value = found[name].shape
    return "?" if value is None else ", ".join(map(str, value))


def timm(kernel: int, stride: int, dtype: int) -> tuple[str, str]:
    """max((⌈n/s⌉ − 1)·s + k − n, 0), of which a half goes to the front: torch's export of timm's `pad_same`."""
    float_type = {1: "float", 11: "double"}[dtype]
    weights = f"{float_type} s = {{{stride}}}, {float_type} k = {{{kernel}}}, {float_type} one = {{1}},"
    weights += f"{float_type} none = {{0}}, int64 two = {{2}}, int64[1] first = {{0}}, int64[1] sides = {{0}}"
    body = f"""v = Shape <start = 2, end = 3> (x) n = Cast <to = {dtype}> (v) q = Div(n, s) c = Ceil(q) l = Sub(c, one)
        m = Mul(l, s) w = Add(m, k) d = Sub(w, n) r = Clip(d, none) p = Cast <to = 7> (r) h = Div(p, two) t = Sub(p, h)
        z = Concat <axis = 0> (sides, sides, h, sides, sides, t) y = Pad(x, z)"""
    return body, weights


def keras(kernel: int, stride: int, dtype: int) -> tuple[str, str]:
    """The same with −⌊−n/s⌋ for the ceiling, Max for Clip and floats to the end."""
    float_type = {1: "float", 11: "double"}[dtype]
    weights = f"{float_type} s = {{{stride}}}, {float_type} k = {{{kernel}}}, {float_type} one = {{1}},"
    weights += f"{float_type} none = {{0}}, {float_type} half = {{0.5}}, int64[1] sides = {{0}}"
    body = f"""v = Shape <start = 2, end = 3> (x) n = Cast <to = {dtype}> (v) g = Neg(n) q = Div(g, s) f = Floor(q)
        c = Neg(f) l = Sub(c, one) m = Mul(l, s) w = Add(m, k) d = Sub(w, n) r = Max(d, none) e = Mul(r, half)
        h = Floor(e) t = Sub(r, h) i = Cast <to = 7> (h) j = Cast <to = 7> (t)
        z = Concat <axis = 0> (sides, sides, i, sides, sides, j) y = Pad(x, z)"""
    return body, weights


@pytest.mark.parametrize("dtype", [1, 11])
@pytest.mark.parametrize("make", [timm, keras])
@pytest.mark.parametrize(
    ("kernel", "stride", "padded"),
    [
        (3, 1, "N, 3, H + 2"),
        (3, 2, "N, 3, 2·((H + 1)//2) + 1"),  # (⌈H/2⌉ − 1)·2 + 3
        (2, 2, "N, 3, 2·((H + 1)//2)"),
        (5, 3, "N, 3, 3·((H + 2)//3) + 2"),
        (1, 2, "N, 3, H"),
    ],
)
def test_same_padding(make, kernel: int, stride: int, padded: str, dtype: int) -> None:
    body, weights = make(kernel, stride, dtype)
    found = infer(body, "float[N,3,H] x", weights=weights)
    assert shape(found) == padded
    for side in SIDES:
        expected = max((-(-side // stride) - 1) * stride + kernel, side)
        sized = infer(body, "float[N,3,H] x", weights=weights, dims={"N": 1, "H": side})
        assert sized["y"].shape == (1, 3, expected)
        assert facts.evaluate(found["y"].shape[2], {"H": side}) == expected


TENSORDOT = """s = Shape(x) %s f = Gather <axis = 0> (s%s, free) c = Gather <axis = 0> (s%s, contracted)
    %s
    t = Concat <axis = 0> (p, q) %s  flat = Reshape(x, t%s)  m = MatMul(flat, w)
    o = Concat <axis = 0> (f, ten) %s  y = Reshape(m, o%s)"""
DROPPED = "a = ReduceProd <axes = [0], keepdims = 0> (f) b = ReduceProd <axes = [0], keepdims = 0> (c)"
UNSQUEEZED = "p = Unsqueeze(a, zero) q = Unsqueeze(b, zero)"
KEPT = "p = ReduceProd <axes = [0], keepdims = 1> (f) q = ReduceProd <axes = [0], keepdims = 1> (c)"
IN_FLOATS = (
    "ff = Cast <to = 1> (f) cf = Cast <to = 1> (c) a = ReduceProd <axes = [0], keepdims = 0> (ff) "
    "b = ReduceProd <axes = [0], keepdims = 0> (cf) pf = Unsqueeze(a, zero) qf = Unsqueeze(b, zero) "
    "p = Cast <to = 7> (pf) q = Cast <to = 7> (qf)"
)


@pytest.mark.parametrize(
    ("products", "narrow", "inputs", "rows", "result"),
    [
        (f"{DROPPED} {UNSQUEEZED}", False, "float[B,T,8] x", "B·T, 8", "B, T, 10"),
        (KEPT, False, "float[B,T,8] x", "B·T, 8", "B, T, 10"),
        (KEPT, True, "float[B,T,8] x", "B·T, 8", "B, T, 10"),
        (KEPT, False, "float[2,7,8] x", "14, 8", "2, 7, 10"),
        (IN_FLOATS, False, "float[2,7,8] x", "14, 8", "2, 7, 10"),
        (IN_FLOATS, False, "float[B,7,8] x", "7·B, 8", "B, 7, 10"),
    ],
)
def test_tensordot(products: str, narrow: bool, inputs: str, rows: str, result: str) -> None:
    """TensorFlow's Tensordot over the last axis: rows are the product of the others, which come back at the end."""
    i = "i" if narrow else ""
    body = TENSORDOT % (
        "si = Cast <to = 6> (s)" * narrow, i, i, products, "ti = Cast <to = 7> (t)" * narrow, i,
        "oi = Cast <to = 7> (o)" * narrow, i,
    )  # fmt: skip
    ten = "int32[1] ten = {10}" if narrow else "int64[1] ten = {10}"
    weights = f"int64[2] free = {{0, 1}}, int64[1] contracted = {{2}}, int64[1] zero = {{0}}, {ten}"
    found = infer(body, f"{inputs}, float[8,10] w", weights=weights, opset=13 if products != KEPT else 12)
    assert (shape(found, "flat"), shape(found, "m"), shape(found)) == (rows, rows[:-1] + "10", result)


def test_products_of_two_free_sizes_in_floats_stay_unknown() -> None:
    """float32 holds whole numbers up to 2²⁴ = 4096·4096, which two sizes soon exceed."""
    found = infer(
        "s = Shape(x) f = Cast <to = 1> (s) p = ReduceProd <axes = [0], keepdims = 1> (f) i = Cast <to = 7> (p) "
        "y = ConstantOfShape(i)",
        "float[B,T] x",
    )
    assert shape(found) == "y.0"
    body = "f = Cast <to = 1> (s) y = ReduceProd <axes = [0], keepdims = 1> (f)"
    assert infer(body, "float[1] x", weights="int64[2] s = {4096, 4096}")["y"].data.tolist() == [2**24]
    assert infer(body, "float[1] x", weights="int64[2] s = {4097, 4097}")["y"].data is None


def test_sizes_one_by_one() -> None:
    found = infer(
        "s = Shape(x) n, h, c = Split <axis = 0> (s, one) hc = Mul(h, c) t = Concat <axis = 0> (n, hc) "
        "y = Reshape(x, t) u, v = Split <axis = 0> (s, two) k = GatherND(s, at)",
        "float[N,H,4] x",
        weights="int64[3] one = {1, 1, 1}, int64[2] two = {2, 1}, int64[2,1] at = {1, -3}",
    )
    assert shape(found) == "N, 4·H"
    assert [[str(d) for d in found[name].data] for name in "uvk"] == [["N", "H"], ["4"], ["H", "N"]]


def test_a_chosen_size() -> None:
    found = infer(
        "s = Shape <start = 0, end = 1> (x) z = Less(s, none) t = Where(z, none, s) y = ConstantOfShape(t)",
        "float[N] x",
        weights="int64[1] none = {0}",
    )
    assert shape(found) == "N"


def test_a_size_that_is_0_for_the_smallest_input_is_itself_in_a_cost() -> None:
    """A 0 in the target of a Reshape means the size of the input: here it is one of a window that does not fit."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,H,6] x) => (float[A,B,C] y)
        <int64[1] eight = {8}, int64[1] six = {6}, int64[1] whole = {-1}>
        { h = Shape <start = 1, end = 2> (x) q = Div(h, eight) t = Concat <axis = 0> (whole, q, six)
          y = Reshape(x, t) }"""
    program = ir.read(parser.parse_model(text))
    assert shape(facts.infer(program)) == "(H·N)//(H//8), H//8, 6"
    assert shape(facts.infer(program, general=True)) == "y.0, y.1, y.2"
    assert not facts.infer(program).assumed


def test_whole_floats_add_up_exactly() -> None:
    weights = "float[2] a = {16777215, 1}, float[2] b = {16777216, 1}, float[2] c = {0.5, 0.25}"
    found = infer("s = ReduceSum(a) t = ReduceSum(b) u = ReduceSum(c) y = Relu(x)", "float[1] x", weights=weights)
    assert found["s"].data.tolist() == [2**24]
    assert found["t"].data is None and found["u"].data is None
