"""Values that are the same in every run become constants, and only those."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from examples import held
from onnx import numpy_helper
from support import assert_same, ops, optimized, parse, random_feeds, run

RULE = "fold_known"


def folded(model: onnx.ModelProto, dims: dict[str, int] | None = None) -> onnx.ModelProto:
    result = optimized(model, rules=[RULE])
    for n in (2, 3):
        assert_same(model, result.model, random_feeds(model, dims={"N": n} | (dims or {})))
    return result.model


def test_the_size_of_a_fixed_axis_is_known_and_that_of_a_free_one_is_not() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,5] x) => (int64[1] a, float[N,5] y)
    { s = Shape(x)  n = Shape <start = 0, end = 1> (x)  d = Shape <start = -1> (x)  a = Neg(n)
      c = Cast <to = 1> (d)  y = Mul(x, c) }""")
    out = folded(model)
    assert ops(out) == ["Shape", "Shape", "Neg", "Mul"] and held(out) == [[5.0]]


def test_a_shape_with_start_beyond_the_end_counts_from_the_end() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,4,5] x) => (float[N,3,4,5] y)
    { d = Shape <start = 2> (x)  c = Cast <to = 1> (d)  p = ReduceProd <keepdims = 0> (c)  y = Div(x, p) }""")
    out = folded(model)
    assert ops(out)[-1] == "Div"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("t = Transpose <perm = [1, 0]> (w)  y = MatMul(x, t)", [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]),
        ("i = Identity(w)  t = Transpose(i)  y = MatMul(x, t)", [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]),
        ("d = Cast <to = 11> (w)  e = Cast <to = 1> (d)  t = Transpose(e)  y = MatMul(x, t)",
         [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]),
        ("c = Concat <axis = 0> (w, w)  t = Transpose(c)  y = MatMul(x, t)",
         [[1.0, 4.0, 1.0, 4.0], [2.0, 5.0, 2.0, 5.0], [3.0, 6.0, 3.0, 6.0]]),
        ("g = Gather <axis = 1> (w, order)  t = Transpose(g)  y = MatMul(x, t)", [[3.0, 6.0], [1.0, 4.0], [2.0, 5.0]]),
        ("m = Mul(w, w)  t = Transpose(m)  y = MatMul(x, t)", [[1.0, 16.0], [4.0, 25.0], [9.0, 36.0]]),
    ],
)  # fmt: skip
def test_weights_are_computed_ahead(body: str, expected: list[object]) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,K] y)
    <float[2,3] w = {{1, 2, 3, 4, 5, 6}}, int64[3] order = {{2, 0, 1}}> {{ {body} }}""")
    out = folded(model)
    assert ops(out) == ["MatMul"] and expected in held(out)


def test_large_weights_are_transposed_and_what_is_blown_up_is_not() -> None:
    weight = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Transpose", ["w"], ["t"]), onnx.helper.make_node("MatMul", ["x", "t"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, ["N", 300])],
            [onnx.helper.make_tensor_value_info("y", 1, ["N", 200])],
            [numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    out = folded(model)
    assert ops(out) == ["MatMul"] and out.ByteSize() < 1.01 * model.ByteSize()
    blown = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,512,512] x) => (float[N,512,512] y)
    <float[1] one = {1}, int64[2] shape = {512, 512}> { e = Expand(one, shape)  y = Add(x, e) }""")
    kept = optimized(blown, rules=[RULE]).model
    assert ops(kept) == ["Expand", "Add"]


def test_only_the_end_of_a_chain_is_stored() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,2] x) => (float[N,2] y)
    <float[2] w = {1, 2}> { a = Add(w, w)  b = Mul(a, a)  c = Sub(b, w)  y = Mul(x, c) }""")
    out = folded(model)
    assert ops(out) == ["Mul"] and held(out) == [[3.0, 14.0]]


@pytest.mark.parametrize(
    "text",
    [
        # a default that callers may override
        """g (float[N,2] x, float[2] w) => (float[N,2] y) <float[2] w = {1, 2}> { t = Neg(w)  y = Mul(x, t) }""",
        # random numbers
        """g (float[N,2] x) => (float[N,2] y) { t = RandomUniform <shape = [2]> ()  y = Mul(x, t) }""",
        # a float to integer cast that does not fit
        """g (float[N,2] x) => (int64[N,2] y) <float[2] w = {1e30, 2}>
           { i = Cast <to = 7> (w)  z = Cast <to = 7> (x)  y = Mul(z, i) }""",
    ],
)
def test_what_is_not_the_same_in_every_run_stays(text: str) -> None:
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert optimized(model, rules=[RULE], verify=False).fusions == ()


def test_a_known_graph_output_stays() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[3,2] x) => (int64[2] y) { y = Shape(x) }""")
    result = optimized(model, rules=[RULE])
    assert result.fusions == () and "graph output" in result.refused[0].reason
    assert [v.name for v in result.model.graph.input] == ["x"]


def test_a_scatter_that_hits_a_place_twice_stays() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,3] y)
    <float[3] w = {1, 2, 3}, int64[2,1] i = {0, 0}, float[2] u = {5, 6}, int64[2,1] j = {2, 0}>
    { a = ScatterND(w, i, u)  b = ScatterND(w, j, u)  c = Mul(x, a)  y = Add(c, b) }""")
    out = folded(model)
    assert ops(out).count("ScatterND") <= 1 and [6.0, 2.0, 5.0] in held(out)


@pytest.mark.parametrize("body", [
    "t = CastLike(c, x)  r = Sqrt(t)  y = Mul(x, r)",
    "s = Shape(x)  f = Cast <to = 1> (s)  w = ReduceMax <keepdims = 0> (f)  t = CastLike(c, x)  r = Add(w, t)"
    "  y = Mul(x, r)",
    "n = Shape(x)  q = ConstantOfShape(n)  e = Concat <axis = 0> (q, q)  d = CastLike(e, x)  t = Slice(d, a, b)"
    "  k = CastLike(t, x)  r = Neg(k)  y = Add(x, r)",
])  # fmt: skip
def test_what_follows_from_a_new_constant_is_folded_in_the_same_run(body: str) -> None:
    model = parse(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x) => (float[2,3] y) '
        f"<int64[1] a = {{0}}, int64[1] b = {{2}}> {{ c = Constant <value = float {{2}}> ()  {body} }}"
    )
    result = optimized(model, verify=False)
    assert_same(model, result.model, random_feeds(model))
    assert not optimized(result.model, verify=False).fusions
    assert "CastLike" not in ops(result.model)


def test_what_was_before_is_told_of_the_model_as_it_was() -> None:
    """Facts that rewrites bring up to date are not those that the totals before are counted from."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[3,8,5,5] x) => (float[3,8,5,5] y, float[a,b] z)
    <int64 two = {2}, int64[1] one = {1}, int64[1] zero = {0}>
    { s = Shape(x)  g = Gather(s, one)  c = Concat <axis = 0> (g, one)  f = ConstantOfShape(c)  z = Softmax(f)
      n = Neg(x)  y = Neg(n) }""")
    result = optimized(model, target="ort-cpu")
    assert result.before == optimized(model, target="ort-cpu", rules=["dead_node"]).before


def test_the_target_of_an_empty_reshape_is_kept() -> None:
    """onnx's shape inference, in onnxruntime, takes the unknown size for a −1, and refuses −1 beside a known 0."""
    model = parse("""<ir_version: 8, opset_import: ["" : 13]> g (float[N,2,0] x) => (float[N,2,0,1] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}>
    { s = Shape(x) n = Slice(s, zero, one, zero) e = Slice(s, two, three, zero)
      r = Concat <axis = 0> (n, zero, e, one)  y = Reshape(x, r) }""")
    result = optimized(model, rules=[RULE])
    assert not result.fusions and "empty value" in {r.reason for r in result.refused}.pop()
    first = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[2,0,4,N] x, int64[1] k) => (float[a,b,c,d] y)
    <int64[1] zero = {0}> { s = Shape <end = 1> (x) r = Concat <axis = 0> (s, zero, k, zero)  y = Reshape(x, r) }""")
    assert not optimized(first, rules=[RULE], target="ort-cpu", verify=False).fusions
    full = parse(onnx.printer.to_text(model).replace("N,2,0", "N,2,7"))
    assert ops(folded(full)) == ["Shape", "Slice", "Concat", "Reshape"]


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("k = ScatterElements <axis = 1> (d, i, u)", "int64[1,1] i = {0}, int64[1,1] u = {9}"),
        ("k = ScatterElements <axis = 0> (d, i, u)", "int64[1,1] i = {-1}, int64[1,1] u = {9}"),
        ("k = ScatterElements <axis = 1> (d, i, u)", "int64[2,1] i = {0, 1}, int64[2,1] u = {8, 9}"),
        ("k = GatherElements <axis = 1> (d, i)", "int64[1,2] i = {0, 1}"),
        ("k = GatherElements <axis = 0> (d, i)", "int64[3,1] i = {0, 1, -1}"),
        ("k = ScatterND (d, i, u)", "int64[1,1] i = {1}, int64[1,2] u = {8, 9}"),
    ],
)
def test_scattered_and_gathered_integers(body: str, weights: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]> g (int64[1] x) => (int64[n] y)
    <int64[2,2] d = {{1, 2, 3, 4}}, {weights}, int64[1] s = {{-1}}> {{ {body} f = Reshape(k, s)  y = Add(f, x) }}""")
    result = optimized(model, target="ort-cpu", verify=False)
    assert_same(model, result.model, {"x": np.array([0])})


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("k = Range(a, b, c) l = Mul(k, ten) f = Floor(l)", "float a = {1}, float b = {0}, float c = {-0.1}"),
        ("k = Range(a, b, c) l = Mul(k, ten) f = Floor(l)", "float a = {0}, float b = {2}, float c = {0.25}"),
        ("f = ReduceMin <keepdims = 1> (a)", "float[2] a = {1, nan}, float b = {0}, float c = {0}"),
        ("f = ReduceMax <keepdims = 1> (a)", "float[2] a = {nan, 1}, float b = {0}, float c = {0}"),
        ("m = ReduceMax <keepdims = 1> (a) f = Reciprocal(m)", "float[2] a = {-0.0, 0}, float b = {0}, float c = {0}"),
        ("m = Min(a, b) f = Reciprocal(m)", "float[1] a = {0}, float[1] b = {-0.0}, float c = {0}"),
        ("h = Cast <to = 10> (a) k = Cast <to = 1> (h) f = Mul(k, ten)",
         "double[1] a = {2049.0000001}, float b = {0}, float c = {0}"),
        ("h = Cast <to = 10> (a) k = Cast <to = 1> (h) f = Mul(k, ten)",
         "double[1] a = {65519.99999}, float b = {0}, float c = {0}"),
        ("k = Cast <to = 1> (a) f = Mul(k, ten)", "int64[1] a = {1152921573326323713}, float b = {0}, float c = {0}"),
    ],
)  # fmt: skip
def test_floats_that_runtimes_compute_in_other_ways(body: str, numbers: str) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[M] y)
    <{numbers}, float ten = {{10}}> {{ {body} y = Concat <axis = 0> (f, x) }}""")
    result = optimized(model, target="ort-cpu", verify=False)
    feeds = {"x": np.ones(1, np.float32)}
    np.testing.assert_array_equal(run(result.model, feeds)[0], run(model, feeds)[0])


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("c = Cast <to = 2> (n) d = Cast <to = 7> (c) t = Concat <axis = 0> (d, m) y = Reshape(x, t)", 384),  # uint8
        ("c = Cast <to = 3> (n) d = Cast <to = 7> (c) f = Equal(d, n)", 200),  # int8
        ("c = Cast <to = 10> (n) d = Cast <to = 7> (c) f = Equal(d, n)", 4097),  # float16
        ("q = Mul(n, n) c = Cast <to = 1> (q) d = Cast <to = 7> (c) f = Equal(d, q)", 4097),  # float32
        ("k = Sub(n, five) c = Cast <to = 12> (k) d = Cast <to = 7> (c) f = Equal(d, k)", 2),  # uint32
    ],
)
def test_sizes_in_types_that_do_not_hold_them(body: str, size: int) -> None:
    behind = "" if "y = " in body else "g = Cast <to = 1> (f) y = Mul(x, g)"
    m = parse(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[N,2] x) => (float[a,b] y)
    <int64[1] m = {{-1}}, int64[1] five = {{5}}> {{ n = Shape <end = 1> (x) {body} {behind} }}""")
    result = optimized(m, target="ort-cpu", verify=False)
    assert_same(m, result.model, random_feeds(m, dims={"N": size}))


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("p = MaxPool <kernel_shape = [3, 1], strides = [2, 1]> (x) s = Size(p) f = Cast <to = 1> (s) y = Add(p, f)",
         "1,2,2,4"),  # onnxruntime makes one row of what holds no window
        ("s = Shape <start = 1> (x) r = Slice(s, least, least, zero, back) n = Size(r) f = Cast <to = 1> (n) "
         "y = Add(x, f)", "2"),
        ("r = Pow(w, three) f = Floor(r) y = Mul(x, f)", "3"),
    ],
)  # fmt: skip
def test_sizes_and_powers_as_the_runtime_computes_them(body: str, shape: str) -> None:
    m = parse(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[{shape}] x) => (float y)
    <int64[1] least = {{-9223372036854775808}}, int64[1] zero = {{0}}, int64[1] back = {{-1}},
    float[1] w = {{70.51652}}, float three = {{3}}> {{ {body} }}""")
    m.graph.output[0].type.tensor_type.ClearField("shape")
    result = optimized(m, target="ort-cpu", verify=False)
    feeds = random_feeds(m)
    np.testing.assert_array_equal(run(result.model, feeds)[0], run(m, feeds)[0])


@pytest.mark.parametrize("chosen", [True, False])
def test_zeros_of_two_signs_are_two_values(chosen: bool) -> None:
    m = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] y) {
      z = If (c) <then_branch = t () => (float p) { p = Constant <value = float {0.0}> () },
                  else_branch = e () => (float q) { q = Constant <value = float {-0.0}> () }>
      r = Reciprocal(z) m = Mul(x, r) y = Sign(m) }""")
    result = optimized(m, target="ort-cpu", verify=False)
    feeds = {"x": np.ones(2, np.float32), "c": np.array(chosen)}
    np.testing.assert_array_equal(run(result.model, feeds)[0], run(m, feeds)[0])


def test_a_target_that_may_be_zero_copies() -> None:
    """N − 1 is 0 where N is 1, and 0 in the target of a Reshape is the input's own size."""
    m = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[a,2] y)
    <int64[1] one = {1}, int64[1] two = {2}, float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}>
    { n = Shape <end = 1> (x) m = Sub(n, one) t = Concat <axis = 0> (m, two) r = Reshape(w, t)
      k = Shape <end = 1> (r) q = Equal(k, m) f = Cast <to = 1> (q) y = Mul(r, f) }""")
    result = optimized(m, target="ort-cpu", verify=False)
    assert_same(m, result.model, {"x": np.ones((1, 3), np.float32)})
    assert_same(m, result.model, {"x": np.ones((5, 3), np.float32)})


def same_padding(dims: str) -> onnx.ModelProto:
    """TensorFlow's SAME padding of a 3x3 window in steps of 2, as torch exports timm's `pad_same`."""
    sides = "".join(
        f"""n{k} = Gather <axis = 0> (s, axis{k})  f{k} = Cast <to = 1> (n{k})  q{k} = Div(f{k}, two)  c{k} = Ceil(q{k})
        l{k} = Sub(c{k}, one)  m{k} = Mul(l{k}, two)  k{k} = Add(m{k}, three)  p{k} = Sub(k{k}, f{k})
        o{k} = Clip(p{k}, none)  i{k} = Cast <to = 7> (o{k})  h{k} = Div(i{k}, half)  r{k} = Sub(i{k}, h{k})
        b{k} = Unsqueeze(h{k}, first)  e{k} = Unsqueeze(r{k}, first) """
        for k in (2, 3)
    )
    return parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[{dims}] x, float[2,3,3,3] w) => (float[A,B,C,D] y)
    <int64 axis2 = {{2}}, int64 axis3 = {{3}}, float one = {{1}}, float two = {{2}}, float three = {{3}},
     int64 half = {{2}}, float none = {{0}}, int64[1] first = {{0}}, int64[1] last = {{-1}},
     int64[1] front = {{-9223372036854775807}},
     int64[4] rest = {{0, 0, 0, 0}}, int64[2] pairs = {{-1, 2}}>
    {{ s = Shape(x) {sides} p = Concat <axis = 0> (b3, e3, b2, e2, rest)  t = Reshape(p, pairs)
       u = Slice(t, last, front, first, last)  v = Transpose <perm = [1, 0]> (u)  z = Reshape(v, last)
       a = Pad(x, z)  y = Conv <strides = [2, 2]> (a, w) }}""")


def test_the_padding_of_tensorflow_becomes_constant() -> None:
    """A side of 97 needs (⌈97/2⌉ − 1)·2 + 3 − 97 = 2, one at each end; one of 60 needs 1, at its end."""
    out = folded(same_padding("N,3,97,60"))
    assert ops(out) == ["Pad", "Conv"] and [0, 0, 1, 0, 0, 0, 1, 1] in held(out)
    assert len(ops(folded(same_padding("N,3,H,W"), {"H": 8, "W": 9}))) > 20


def test_what_float16_rounds_stays() -> None:
    """onnxruntime's CPU kernels keep float32 between two float16 nodes: 2047/4 is 511.75 in both, 2047/6 is not."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (int64[N,2] x) => (int64[N,2] y)
    <float16[2] a = {2047, 2047}, float16[2] b = {4, 6}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
    { q = Div(a, b)  c = Ceil(q)  p = Slice(c, zero, one)  r = Slice(c, one, two)  i = Cast <to = 7> (c)
      y = Mul(x, i) }""")
    assert "Div" in ops(folded(model))


def test_the_size_of_the_larger_branch_is_not_taken_for_the_size() -> None:
    """The estimate takes it for one, in a model without free dimensions, too; a rewrite must not."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[4,3] x) => (float[A,3] y)
    { z = If (c) <then_branch = t () => (float[4,3] p) { p = Relu(x) },
        else_branch = e () => (float[2,3] q) <int64[1] a = {0}, int64[1] b = {2}> { q = Slice(x, a, b) }>
      s = Shape <end = 1> (z)  n = Cast <to = 1> (s)  y = Div(z, n) }""")
    result = optimized(model, rules=[RULE], verify=False)
    assert "Shape" in ops(result.model)
    for condition in (True, False):
        feeds = random_feeds(model) | {"c": np.array(condition)}
        assert_same(model, result.model, feeds)
