"""Attention in the spellings of the exporters, its masks, and what is nearly one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support import assert_same, graph, ops, optimized, random_feeds, run, with_weights

ATTENTION, MULTI_HEAD = "com.microsoft::Attention", "com.microsoft::MultiHeadAttention"
# 64 tokens of 6 channels to 3 heads of 4 channels.
WEIGHTS = "float[6,36] w, float[36] b"
PROJECTED = "xw = MatMul(x, w) xq = Add(xw, b)"
HEADS = "apart = Constant <value_ints = [0, 0, 3, 4]> () together = Constant <value_ints = [0, 0, 12]> ()"
SPLIT = f"""{HEADS} parts = Constant <value_ints = [12, 12, 12]> ()
    q, k, v = Split <axis = 2> (xq, parts)
    q4 = Reshape(q, apart) qh = Transpose <perm = [0, 2, 1, 3]> (q4)
    k4 = Reshape(k, apart) kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    v4 = Reshape(v, apart) vh = Transpose <perm = [0, 2, 1, 3]> (v4)"""
SCALED = "half = Constant <value_float = 0.5> () qk = MatMul(qh, kh) s = Mul(qk, half)"
ATTENDED = "p = Softmax <axis = -1> (s) o = MatMul(p, vh)"
JOINED = "ot = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(ot, together)"


def model(
    body: str, weights: str = WEIGHTS, x: str = "float[N,64,6] x", y: str = "float[N,64,12] y", opset: int = 17
) -> onnx.ModelProto:
    return with_weights(graph(body, inputs=f"{x}, {weights}", outputs=y, opset=opset))


def made(m: onnx.ModelProto, target: str = "ort-cpu") -> list[str]:
    """Operators afterwards, of which those that a second run leaves; the results are those of the original."""
    first = optimized(m, target=target, rules=["attention", "transpose_cancel", "transpose_merge", "view_chain"])
    for dims in ({"N": 2, "S": 64}, {"N": 1, "S": 1}, {"N": 3, "S": 0}, {"N": 0, "S": 5}):
        assert_same(m, first.model, random_feeds(m, 2, dims))
    again = optimized(first.model, target=target, rules=["attention"])
    assert not again.fusions
    return [op for op in ops(first.model) if op != "Constant"]


SPELLINGS = {
    "split": f"{PROJECTED} {SPLIT} {SCALED} {ATTENDED} {JOINED}",
    "free tokens": f"{PROJECTED} {SPLIT} {SCALED} {ATTENDED} {JOINED}",
    "no bias": f"xq = MatMul(x, w) {SPLIT} {SCALED} {ATTENDED} {JOINED}",
    "divided": f"{PROJECTED} {SPLIT} two = Constant <value_float = 2.0> () qk = MatMul(qh, kh) s = Div(qk, two)"
    f" {ATTENDED} {JOINED}",
    "no factor": f"{PROJECTED} {SPLIT} s = MatMul(qh, kh) {ATTENDED} {JOINED}",
    "factors at q and k": f"""{PROJECTED} {SPLIT} f = Constant <value_floats = [0.7]> ()
        qs = Mul(f, qh) ks = Mul(kh, f) s = MatMul(qs, ks) {ATTENDED} {JOINED}""",
    "five axes": f"""{PROJECTED} five = Constant <value_ints = [0, 64, 3, 3, 4]> ()
        together = Constant <value_ints = [-1, 64, 12]> ()
        r = Reshape(xq, five) t = Transpose <perm = [2, 0, 3, 1, 4]> (r)
        i0 = Constant <value_int = 0> () i1 = Constant <value_int = 1> () i2 = Constant <value_int = -1> ()
        qh = Gather(t, i0) k4 = Gather(t, i1) vh = Gather(t, i2) kh = Transpose <perm = [0, 1, 3, 2]> (k4)
        {SCALED} {ATTENDED} {JOINED}""",
    "slices": f"""{PROJECTED} five = Constant <value_ints = [0, 64, 3, 3, 4]> ()
        together = Constant <value_ints = [-1, 64, 12]> () n0 = Constant <value_ints = [0]> ()
        n1 = Constant <value_ints = [1]> () n2 = Constant <value_ints = [2]> () n3 = Constant <value_ints = [3]> ()
        r = Reshape(xq, five) t = Transpose <perm = [2, 0, 3, 1, 4]> (r)
        a = Slice(t, n0, n1, n0) qh = Squeeze(a, n0) c = Slice(t, n1, n2, n0) k4 = Squeeze(c, n0)
        e = Slice(t, n2, n3, n0) vh = Squeeze(e, n0) kh = Transpose <perm = [0, 1, 3, 2]> (k4)
        {SCALED} {ATTENDED} {JOINED}""",
    "heads of q, k, v": f"""{PROJECTED} {HEADS} five = Constant <value_ints = [0, 0, 3, 3, 4]> ()
        i0 = Constant <value_int = 0> () i1 = Constant <value_int = 1> () i2 = Constant <value_int = 2> ()
        r = Reshape(xq, five) q4 = Gather <axis = 3> (r, i0) k4 = Gather <axis = 3> (r, i1)
        v4 = Gather <axis = 3> (r, i2)
        qh = Transpose <perm = [0, 2, 1, 3]> (q4) kh = Transpose <perm = [0, 2, 3, 1]> (k4)
        vh = Transpose <perm = [0, 2, 1, 3]> (v4) {SCALED} {ATTENDED} {JOINED}""",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda"])
def test_one_projection(spelling: str, target: str) -> None:
    sizes = {"x": "float[N,S,6] x", "y": "float[N,S,12] y"} if spelling == "free tokens" else {}
    m = model(SPELLINGS[spelling], **sizes)
    assert made(m, target) == [ATTENTION]


def test_the_columns_stay_where_they_are_in_order() -> None:
    fused = optimized(model(SPELLINGS["split"]), target="ort-cpu").model
    assert list(fused.graph.node[-1].input) == ["x", "w", "b"]
    assert {a.name: onnx.helper.get_attribute_value(a) for a in fused.graph.node[-1].attribute} == {
        "num_heads": 3,
        "scale": 0.5,
    }


@pytest.mark.parametrize("width", [4, 8])
def test_three_projections(width: int) -> None:
    """The values may be wider than queries and keys, and not every projection has a bias."""
    m = model(
        f"""{HEADS} wide = Constant <value_ints = [0, 0, 3, {width}]> ()
        out = Constant <value_ints = [0, 0, {3 * width}]> ()
        qm = MatMul(x, wq) q = Add(bq, qm) k = MatMul(x, wk) vm = MatMul(x, wv) v = Add(vm, bv)
        q4 = Reshape(q, apart) qh = Transpose <perm = [0, 2, 1, 3]> (q4)
        k4 = Reshape(k, apart) kt = Transpose <perm = [0, 2, 1, 3]> (k4) kh = Transpose <perm = [0, 1, 3, 2]> (kt)
        v4 = Reshape(v, wide) vh = Transpose <perm = [0, 2, 1, 3]> (v4)
        {SCALED} {ATTENDED} ot = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(ot, out)""",
        f"float[6,12] wq, float[12] bq, float[6,12] wk, float[6,{3 * width}] wv, float[{3 * width}] bv",
        y=f"float[N,64,{3 * width}] y",
    )
    for target in ("ort-cpu", "ort-cuda"):
        assert made(m, target) == [ATTENTION]


@pytest.mark.parametrize("gemm", ["Gemm (rows, w, b)", "Gemm <transB = 1> (rows, u, b)", "Gemm (rows, w)"])
def test_projections_of_rows(gemm: str) -> None:
    """As transformers' Conv1D is exported."""
    body = f"""there = Constant <value_ints = [-1, 6]> () back = Constant <value_ints = [-1, 64, 36]> ()
        rows = Reshape (x, there) g = {gemm} xq = Reshape (g, back) {SPLIT} {SCALED} {ATTENDED} {JOINED}"""
    for target in ("ort-cpu", "ort-cuda"):
        assert made(model(body, f"{WEIGHTS}, float[36,6] u"), target) == [ATTENTION]


@pytest.mark.parametrize(
    "gemm",
    [
        "Gemm <alpha = 0.5> (rows, w, b)",
        "Gemm <beta = 2.0> (rows, w, b)",
        "Gemm (rows, w, c)",
        "Gemm (rows, less, b)",
    ],
)
def test_products_of_rows_that_are_no_projection(gemm: str) -> None:
    body = f"""there = Constant <value_ints = [-1, 6]> () back = Constant <value_ints = [-1, 64, 36]> ()
        rows = Reshape (x, there) less = Neg (w) g = {gemm} xq = Reshape (g, back)
        {SPLIT} {SCALED} {ATTENDED} {JOINED}"""
    fused = optimized(model(body, f"{WEIGHTS}, float[1,36] c"), target="ort-cpu", rules=["attention"])
    assert not fused.fusions


def test_a_weight_of_more_columns() -> None:
    """The queries, keys and values are the first columns of a matrix that has more; the rest is not read."""
    split = SPLIT.replace("q, k, v =", "q, k, v, rest =").replace("[12, 12, 12]", "[12, 12, 12, 4]")
    m = model(f"{PROJECTED} {split} {SCALED} {ATTENDED} {JOINED}", "float[6,40] w, float[40] b")
    assert made(m) == [ATTENTION]


TOKENS_FIRST = """xt = Transpose <perm = [1, 0, 2]> (x) xw = MatMul(xt, w) xq = Add(xw, b)
    parts = Constant <value_ints = [12, 12, 12]> () q, k, v = Split <axis = 2> (xq, parts)
    apart = Constant <value_ints = [64, -1, 4]> ()
    q3 = Reshape(q, apart) k3 = Reshape(k, apart) v3 = Reshape(v, apart)"""
TOKENS_FIRST_4 = f"""{TOKENS_FIRST} four = Constant <value_ints = [-1, 3, 64, 4]> ()
    turned = Constant <value_ints = [-1, 3, 4, 64]> ()
    qt = Transpose <perm = [1, 0, 2]> (q3) qh = Reshape(qt, four) kt = Transpose <perm = [1, 2, 0]> (k3)
    kh = Reshape(kt, turned) vt = Transpose <perm = [1, 0, 2]> (v3) vh = Reshape(vt, four)
    {SCALED} {ATTENDED}"""
TOKENS_FIRST_3 = f"""{TOKENS_FIRST} qh = Transpose <perm = [1, 0, 2]> (q3) kh = Transpose <perm = [1, 2, 0]> (k3)
    vh = Transpose <perm = [1, 0, 2]> (v3) {SCALED} {ATTENDED}"""


def test_torch_multi_head_attention_with_four_axes() -> None:
    m = model(
        f"""{TOKENS_FIRST_4} ot = Transpose <perm = [2, 0, 1, 3]> (o) rows = Constant <value_ints = [-1, 12]> ()
        y = Reshape(ot, rows)""",
        y="float[M,12] y",
    )
    for target in ("ort-cpu", "ort-cuda"):
        assert made(m, target) == [ATTENTION, "Transpose", "Reshape"]


@pytest.mark.parametrize("last", ["[64, -1, 12]", "[-1, 12]"])
def test_torch_multi_head_attention_with_three_axes(last: str) -> None:
    m = model(
        f"""{TOKENS_FIRST_3} ot = Transpose <perm = [1, 0, 2]> (o) c = Constant <value_ints = {last}> ()
        y = Reshape(ot, c)""",
        y="float[64,N,12] y" if last.startswith("[64") else "float[M,12] y",
    )
    flat = [] if last.startswith("[64") else ["Reshape"]
    for target in ("ort-cpu", "ort-cuda"):
        assert made(m, target) == [ATTENTION, "Transpose", *flat]


def masked(mask: str, target: str = "ort-cpu", x: str = "float[N,64,6] x", stored: str = "") -> list[str]:
    body = f"{PROJECTED} {SPLIT} {SCALED.replace('s = Mul', 'u = Mul')} s = Add(u, xm) {ATTENDED} {JOINED}"
    m = model(body.replace("xm", "m") if stored else body, f"{WEIGHTS}, {mask}", x)
    return made(m, target)


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda"])
@pytest.mark.parametrize("shape", ["1,1", "1,3", "N,1", "N,3"])
def test_masks_that_the_operator_spreads(shape: str, target: str) -> None:
    assert masked(f"float[{shape},64,64] xm", target) == [ATTENTION]


@pytest.mark.parametrize("shape", ["64,64", "3,64,64", "1,64,64"])
def test_masks_of_fewer_axes(shape: str) -> None:
    assert masked(f"float[{shape}] xm") == ["Unsqueeze", ATTENTION]
    assert masked(f"float[{shape}] m", stored="yes") == [ATTENTION]


@pytest.mark.parametrize("shape", ["N,1,1,64", "1,1,1,1", "1,1,64,1", "64", "1,64", "3,1,64"])
def test_masks_that_it_does_not_spread(shape: str) -> None:
    assert ATTENTION not in masked(f"float[{shape}] xm")


def test_masks_of_another_batch() -> None:
    """N and M may differ, though they are the same in a run."""
    body = f"{PROJECTED} {SPLIT} {SCALED.replace('s = Mul', 'u = Mul')} s = Add(u, xm) {ATTENDED} {JOINED}"
    m = model(body, f"{WEIGHTS}, float[M,1,64,64] xm")
    assert ATTENTION not in ops(optimized(m, target="ort-cpu", rules=["attention"]).model)


@pytest.mark.parametrize("number", [-np.inf, np.inf, np.nan, np.finfo(np.float32).min, 1e38])
@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda"])
def test_special_values_of_a_mask(number: float, target: str) -> None:
    body = f"{PROJECTED} {SPLIT} {SCALED.replace('s = Mul', 'u = Mul')} s = Add(xm, u) {ATTENDED} {JOINED}"
    m = model(body, f"{WEIGHTS}, float[1,1,64,64] xm")
    fused = optimized(m, target=target, rules=["attention"]).model
    assert ATTENTION in ops(fused)
    for place in (np.s_[..., 1, :], np.s_[..., 1], np.s_[...], np.s_[..., 2, 3]):
        feeds = random_feeds(m)
        feeds["xm"][place] = number
        (a,), (b,) = run(m, feeds), run(fused, feeds)
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5 * np.max(np.abs(a[np.isfinite(a)]), initial=1e-6))


NEAR_MISSES = {
    "over another axis": ATTENDED.replace("axis = -1", "axis = 2"),
    "times v first": "p = Softmax <axis = -1> (s) vt = Transpose <perm = [0, 1, 3, 2]> (vh) pt = "
    "Transpose <perm = [0, 1, 3, 2]> (p) ov = MatMul(vt, pt) o = Transpose <perm = [0, 1, 3, 2]> (ov)",
    "values times a number": "p = Softmax <axis = -1> (s) v2 = Mul(vh, half) o = MatMul(p, v2)",
    "a factor behind it": "p = Softmax <axis = -1> (s) p2 = Mul(p, half) o = MatMul(p2, vh)",
}


@pytest.mark.parametrize("end", NEAR_MISSES)
def test_near_misses_behind_the_scores(end: str) -> None:
    m = model(f"{PROJECTED} {SPLIT} {SCALED} {NEAR_MISSES[end]} {JOINED}")
    for target in ("ort-cpu", "ort-cuda"):
        assert not {ATTENTION, MULTI_HEAD} & {*made(m, target)}


@pytest.mark.parametrize("factor", [0.0, -0.5])
def test_factors_that_are_not_positive(factor: float) -> None:
    m = model(f"{PROJECTED} {SPLIT} {SCALED.replace('0.5', str(factor))} {ATTENDED} {JOINED}")
    assert ATTENTION not in made(m)


def test_a_factor_behind_the_mask() -> None:
    scores = "half = Constant <value_float = 0.5> () qk = MatMul(qh, kh) u = Add(qk, xm) s = Mul(u, half)"
    m = model(f"{PROJECTED} {SPLIT} {scores} {ATTENDED} {JOINED}", f"{WEIGHTS}, float[1,1,64,64] xm")
    assert ATTENTION not in made(m)


@pytest.mark.parametrize("apart", ["[0, 0, 4, 3]", "[0, 0, 3, 4]"])
def test_channels_of_a_head_that_are_apart(apart: str) -> None:
    """Head i of q, k and v has the channels i, i + 3, …; the columns of the weights are put in order."""
    strided = SPLIT.replace(
        "apart = Constant <value_ints = [0, 0, 3, 4]>", "apart = Constant <value_ints = [0, 0, 4, 3]>"
    )
    for last, perm in (("q", "0, 3, 1, 2"), ("k", "0, 3, 2, 1"), ("v", "0, 3, 1, 2")):
        old = {"q": "0, 2, 1, 3", "k": "0, 2, 3, 1", "v": "0, 2, 1, 3"}[last]
        strided = strided.replace(f"{last}h = Transpose <perm = [{old}]>", f"{last}h = Transpose <perm = [{perm}]>")
    body = strided if apart == "[0, 0, 4, 3]" else SPLIT
    m = model(f"{PROJECTED} {body} {SCALED} {ATTENDED} {JOINED}")
    assert made(m) == [ATTENTION]
    assert ("w" in optimized(m, target="ort-cpu", rules=["attention"]).model.graph.node[-1].input) == (body is SPLIT)


def test_joined_in_another_order() -> None:
    m = model(
        f"{PROJECTED} {SPLIT} {SCALED} {ATTENDED} ot = Transpose <perm = [0, 2, 3, 1]> (o) y = Reshape(ot, together)"
    )
    for target in ("ort-cpu", "ort-cuda"):
        assert not {ATTENTION, MULTI_HEAD} & {*made(m, target)}


@pytest.mark.parametrize("value", ["p", "s", "qk", "qh", "q4", "xq", "xw", "o", "ot"])
def test_a_value_between_that_others_read(value: str) -> None:
    body = f"{PROJECTED} {SPLIT} {SCALED} {ATTENDED} {JOINED} seen = Neg({value})"
    m = model(body, y="float[N,64,12] y, float seen")
    m.graph.output[1].type.tensor_type.ClearField("shape")
    fused = made(m)
    assert ATTENTION not in fused
    if value in ("p", "s", "qk", "o", "ot"):
        assert made(m, "ort-cuda") == fused


def test_weights_that_are_no_constants() -> None:
    m = graph(SPELLINGS["split"], inputs=f"float[N,64,6] x, {WEIGHTS}", outputs="float[N,64,12] y")
    assert ATTENTION not in made(m)
    assert made(m, "ort-cuda") == ["MatMul", "Add", "Split", MULTI_HEAD]


def test_keys_of_another_value() -> None:
    body = f"""{HEADS} q = MatMul(x, wq) k = MatMul(x2, wk) v = MatMul(x2, wv)
        q4 = Reshape(q, apart) qh = Transpose <perm = [0, 2, 1, 3]> (q4)
        k4 = Reshape(k, apart) kh = Transpose <perm = [0, 2, 3, 1]> (k4)
        v4 = Reshape(v, apart) vh = Transpose <perm = [0, 2, 1, 3]> (v4)
        {SCALED.replace("s = Mul", "u = Mul")} s = Add(u, xm) {ATTENDED} {JOINED}"""
    m = model(body, "float[N,9,5] x2, float[1,3,64,9] xm, float[6,12] wq, float[5,12] wk, float[5,12] wv")
    assert ATTENTION not in made(m)
    assert made(m, "ort-cuda") == ["MatMul", "MatMul", "MatMul", MULTI_HEAD]
    other = model(body, "float[M,9,5] x2, float[1,3,64,9] xm, float[6,12] wq, float[5,12] wk, float[5,12] wv")
    assert MULTI_HEAD not in ops(optimized(other, target="ort-cuda", rules=["attention"]).model)


def test_heads_that_were_turned() -> None:
    """What stands between the projection and the product of q and k, as a rotary embedding does, stays."""
    m = model(f"{PROJECTED} {SPLIT.replace('qh =', 'qr =')} qh = Sin(qr) {SCALED} {ATTENDED} {JOINED}")
    assert ATTENTION not in made(m)
    assert made(m, "ort-cuda").count(MULTI_HEAD) == 1


def test_few_tokens_of_many_sequences() -> None:
    body = SPELLINGS["split"]
    assert ATTENTION not in made(model(body, x="float[N,8,6] x", y="float[N,8,12] y"))
    assert made(model(body, x="float[1,8,6] x", y="float[1,8,12] y")) == [ATTENTION]
    assert made(model(body, x="float[N,8,6] x", y="float[N,8,12] y"), "ort-cuda") == [ATTENTION]


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_other_dtypes(dtype: str) -> None:
    m = graph(
        f"{PROJECTED} {SPLIT} s = MatMul(qh, kh) {ATTENDED} {JOINED}",
        inputs=f"{dtype}[N,64,6] x, {WEIGHTS.replace('float', dtype)}",
        outputs=f"{dtype}[N,64,12] y",
    )
    for target in ("ort-cpu", "ort-cuda", "portable"):
        fused = optimized(with_weights(m), target=target, rules=["attention"])
        assert not fused.fusions


def test_only_where_there_is_a_kernel() -> None:
    assert not optimized(model(SPELLINGS["split"]), target="portable", rules=["attention"]).fusions


def test_softmax_before_opset_13() -> None:
    """There the axis is the first one of the rest by default, and Split has its parts as an attribute."""
    body = SPELLINGS["split"].replace("Split <axis = 2> (xq, parts)", "Split <axis = 2, split = [12, 12, 12]> (xq)")
    body = body.replace("parts = Constant <value_ints = [12, 12, 12]> ()", "")
    for axis, fused in (("axis = -1", True), ("axis = 3", True), ("axis = 1", False)):
        m = model(body.replace("axis = -1", axis), opset=12)
        assert (ATTENTION in made(m)) == fused


def test_the_scores_are_not_moved() -> None:
    """2 · 3 · 64 · 64 scores are written and read by MatMul, Mul, Softmax and MatMul: 6 times 4 bytes each."""
    result = optimized(model(SPELLINGS["split"]), target="ort-cuda", rules=["attention"], dims={"N": 2})
    assert result.fusions[0].bytes_saved > 6 * 4 * 2 * 3 * 64 * 64


def test_a_scale_that_float32_has_no_number_for() -> None:
    """0 would mean 1/√size to the operator."""
    scaled = "t = Constant <value_float = 1e-30> () qk = MatMul(qh, kh) s0 = Mul(qk, t) s = Mul(s0, t)"
    assert ATTENTION not in made(model(f"{PROJECTED} {SPLIT} {scaled} {ATTENDED} {JOINED}"))


def test_one_square_weight_as_it_is_and_turned() -> None:
    """k comes of the transposed weight; the columns of all three are those of the whole."""
    body = f"""{HEADS} there = Constant <value_ints = [-1, 36]> () wide = Constant <value_ints = [-1, 64, 36]> ()
        two = Constant <value_ints = [2]> () rows = Reshape(x, there)
        q0 = Constant <value_ints = [0]> () q1 = Constant <value_ints = [12]> ()
        k0 = Constant <value_ints = [12]> () k1 = Constant <value_ints = [24]> ()
        v0 = Constant <value_ints = [24]> () v1 = Constant <value_ints = [36]> ()
        qf = Gemm(rows, w, b) qr = Reshape(qf, wide) q = Slice(qr, q0, q1, two)
        kf = Gemm <transB = 1> (rows, w, b) kr = Reshape(kf, wide) k = Slice(kr, k0, k1, two)
        vf = Gemm(rows, w, b) vr = Reshape(vf, wide) v = Slice(vr, v0, v1, two)
        q4 = Reshape(q, apart) qh = Transpose <perm = [0, 2, 1, 3]> (q4)
        k4 = Reshape(k, apart) kh = Transpose <perm = [0, 2, 3, 1]> (k4)
        v4 = Reshape(v, apart) vh = Transpose <perm = [0, 2, 1, 3]> (v4)
        {SCALED} {ATTENDED} {JOINED}"""
    m = model(body, "float[36,36] w, float[36] b", x="float[N,64,36] x")
    assert ATTENTION in made(m)
