"""Chains of views, of transposes, of slices and of concatenations become shorter, and mean the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from examples import held
from support import assert_same, graph, ops, optimized, parse, random_feeds, with_weights
from test_executed_graph import executed


def run(rule: str, text: str, opset: int = 17, verify: bool = True) -> onnx.ModelProto:
    model = parse(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    result = optimized(model, rules=[rule], target="ort-cpu", verify=verify)
    for sizes in ({"N": 2, "M": 3}, {"N": 1, "M": 1}, {"N": 3, "M": 2}):
        assert_same(model, result.model, random_feeds(model, dims=sizes))
    return result.model


# --- view_chain ---


@pytest.mark.parametrize(
    ("text", "expected", "target"),
    [
        # 0 in the outer target copies a dimension of the value between: onnxoptimizer takes it over
        ("""g (float[6,2,2] x) => (float[a,b] y) <int64[2] s = {4, 6}, int64[2] t = {0, -1}>
            { u = Reshape(x, s)  v = Reshape(u, t)  y = Neg(v) }""", ["Reshape", "Neg"], [4, 6]),
        ("""g (float[N,2,6] x) => (float[a,b,c] y) <int64[2] s = {0, 12}, int64[3] t = {0, 4, -1}>
            { u = Reshape(x, s)  v = Reshape(u, t)  y = Neg(v) }""", ["Reshape", "Neg"], [0, 4, 3]),
        ("""g (float[N,1,6] x) => (float[a,b,c] y) <int64[1] one = {1}>
            { u = Squeeze(x, one)  v = Unsqueeze(u, one)  y = Neg(v) }""", ["Neg"], None),
        ("""g (float[N,1,6] x) => (float[a,b,c] y) <int64[1] one = {1}, int64[1] two = {2}>
            { u = Squeeze(x, one)  v = Unsqueeze(u, two)  y = Neg(v) }""", ["Reshape", "Neg"], [0, 6, 1]),
        ("""g (float[N,M,6] x) => (float[a,b] y)
            { u = Flatten <axis = 2> (x)  v = Flatten <axis = 0> (u)  y = Neg(v) }""",
         ["Reshape", "Neg"], [1, -1]),
        ("""g (float[N,6] x) => (float[a,b,c,d] y) <int64[1] one = {1}, int64[1] two = {2}>
            { u = Unsqueeze(x, one)  v = Unsqueeze(u, two)  y = Neg(v) }""", ["Unsqueeze", "Unsqueeze", "Neg"], None),
        # two free dims change places: no constant says that
        ("""g (float[N,M,6] x) => (float[M,N,6] y) <int64[1] f = {-1}, int64[1] six = {6}>
            { n = Shape <end = 1> (x)  m = Shape <start = 1, end = 2> (x)  s = Concat <axis = 0> (m, n, six)
              u = Reshape(x, f)  v = Reshape(u, s)  y = Neg(v) }""", None, None),
        # the value between is read elsewhere: nothing is saved
        ("""g (float[N,4] x) => (float[a] y, float[b,c] z) <int64[2] s = {-1, 2}, int64[1] f = {-1}>
            { u = Reshape(x, s)  v = Reshape(u, f)  y = Neg(v)  z = Exp(u) }""",
         ["Reshape", "Reshape", "Neg", "Exp"], None),
    ],
)  # fmt: skip
def test_view_chain(text: str, expected: list[str] | None, target: list[int] | None) -> None:
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    out = run("view_chain", text)
    assert ops(out) == (ops(model) if expected is None else expected)
    assert target is None or target in held(out)


def test_two_chains_that_share_a_target_keep_their_own() -> None:
    out = run(
        "view_chain",
        """g (float[N,2,4] x, float[N,8] z) => (float[a,b] y, float[c,d] w)
        <int64[2] s = {-1, 4}, int64[1] f = {-1}>
        { u = Reshape(x, f)  v = Reshape(u, s)  y = Neg(v)  p = Reshape(z, f)  q = Reshape(p, s)  w = Exp(q) }""",
    )
    assert ops(out).count("Reshape") == 2


# --- transposes ---


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("t = Transpose <perm = [1, 0, 2]> (x)  u = Transpose <perm = [1, 0, 2]> (t)  y = Neg(u)", ["Neg"]),
        ("t = Transpose(x)  u = Transpose(t)  y = Neg(u)", ["Neg"]),
        ("t = Transpose <perm = [1, 2, 0]> (x)  u = Transpose <perm = [0, 2, 1]> (t)  y = Neg(u)",
         ["Transpose", "Neg"]),
        ("t = Transpose <perm = [1, 0, 2]> (x)  y = Transpose <perm = [1, 0, 2]> (t)", ["Identity"]),
        ("t = Transpose <perm = [1, 0, 2]> (x)  u = Transpose <perm = [2, 1, 0]> (t)  v = Neg(t)  w = Transpose(v)"
         " y = Add(u, w)", ["Transpose", "Transpose", "Neg", "Transpose", "Add"]),
    ],
)  # fmt: skip
def test_transpose_merge(body: str, expected: list[str]) -> None:
    assert ops(run("transpose_merge", f"g (float[N,M,3] x) => (float[a,b,c] y) {{ {body} }}")) == expected


@pytest.mark.parametrize(
    ("shape", "perm", "target"),
    [
        ("N,1,5", [0, 2, 1], [0, 5, 1]),
        ("1,N,5", [1, 2, 0], [-1, 5, 1]),
        ("N,M,1", [0, 2, 1], None),  # [0, 1, -1] fails where N is 0
        ("1,1,4", [1, 0, 2], None),
        ("N,5,1", [1, 0, 2], None),
        ("N,M,5", [1, 0, 2], None),
    ],
)
def test_transpose_to_reshape(shape: str, perm: list[int], target: list[int] | None) -> None:
    text = f"g (float[{shape}] x) => (float[a,b,c] y) {{ t = Transpose <perm = {perm}> (x)  y = Neg(t) }}"
    out = run("transpose_to_reshape", text)
    if shape == "1,1,4":
        target = [1, 1, 4]
    assert ops(out) == (["Transpose", "Neg"] if target is None else ["Reshape", "Neg"])
    assert target is None or held(out) == [target]


TO_LAST, TO_FIRST = "Transpose <perm = [0, 2, 3, 1]>", "Transpose <perm = [0, 3, 1, 2]>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"a = {TO_LAST} (x)  b = Relu(a)  y = {TO_FIRST} (b)", ["Relu"]),
        (
            f"a = {TO_LAST} (x)  b = Add(a, c)  d = Clip(b, zero, six)  e = Mul(d, two)  y = {TO_FIRST} (e)",
            ["Add", "Clip", "Mul"],
        ),
        (f"a = {TO_LAST} (x)  b = Sub(row, a)  y = {TO_FIRST} (b)", ["Sub"]),
        (f"a = {TO_LAST} (x)  b = Sigmoid(a)  d = Mul(a, b)  y = {TO_FIRST} (d)", ["Sigmoid", "Mul"]),
        (f"a = {TO_LAST} (x)  b = PRelu(a, c)  y = {TO_FIRST} (b)", ["PRelu"]),
        # a value in another order comes in
        (f"a = {TO_LAST} (x)  b = Add(a, z)  y = {TO_FIRST} (b)", None),
        # Softmax is not element-wise
        (f"a = {TO_LAST} (x)  b = Softmax <axis = -1> (a)  y = {TO_FIRST} (b)", None),
        # not the opposite
        (f"a = {TO_LAST} (x)  b = Relu(a)  y = {TO_LAST} (b)", None),
        (f"a = {TO_LAST} (x)  b = Add(a, large)  y = {TO_FIRST} (b)", ["Add"]),
    ],
)
def test_transpose_cancel(body: str, expected: list[str] | None) -> None:
    text = f"""g (float[N,2,3,4] x, float[N,3,4,2] z) => (float[p,q,r,s] y)
    <float[2] c = {{0.5, 2}}, float two = {{2}}, float zero = {{0}}, float six = {{6}}, float[4,1] row = {{1, 2, 3, 4}},
     float[1,1,4,2] large = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{ {body} }}"""
    before = parse(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert ops(run("transpose_cancel", text)) == (ops(before) if expected is None else expected)


READ_ELSEWHERE = {
    "inside": f"a = {TO_LAST} (x)  b = Relu(a)  k = Exp(b)  y = {TO_FIRST} (k)  z = Softmax(b)",
    "last": f"a = {TO_LAST} (x)  b = Relu(a)  y = {TO_FIRST} (b)  z = Softmax(b)",
    "output": f"a = {TO_LAST} (x)  z = Relu(a)  k = Exp(z)  y = {TO_FIRST} (k)",
}


@pytest.mark.parametrize("case", READ_ELSEWHERE)
def test_values_that_are_read_elsewhere_keep_the_transposes(case: str) -> None:
    text = f"g (float[N,2,3,4] x) => (float[p,q,r,s] y, float[a,b,c,d] z) {{ {READ_ELSEWHERE[case]} }}"
    before = parse(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert ops(run("transpose_cancel", text)) == ops(before)


def test_a_value_that_the_tree_alone_reads_twice_is_in_its_way_for_nobody() -> None:
    text = f"a = {TO_LAST} (x)  b = Exp(a)  c = Add(a, b)  d = Mul(b, c)  y = {TO_FIRST} (d)"
    assert ops(run("transpose_cancel", f"g (float[N,2,3,4] x) => (float[p,q,r,s] y) {{ {text} }}")) == [
        "Exp", "Add", "Mul"
    ]  # fmt: skip


def test_residual_sums_between_blocks_are_the_runtimes(tmp_path: Path) -> None:
    """Two blocks of a ConvNeXt: the first sum goes into the second block, too."""

    def block(x: str, y: str) -> str:
        return f"""c{y} = Conv <group = 4, pads = [1,1,1,1]> ({x}, k) t{y} = {TO_LAST} (c{y}) m{y} = MatMul (t{y}, w)
        r{y} = Relu (m{y}) u{y} = {TO_FIRST} (r{y}) {y} = Add ({x}, u{y})"""

    body = f"a = {TO_FIRST} (x) {block('a', 'b')} {block('b', 'd')} y = {TO_LAST} (d)"
    inputs = "float[N,8,8,4] x, float[4,1,3,3] k, float[4,4] w"
    model = with_weights(graph(body, inputs=inputs, outputs="float[N,8,8,4] y"))
    onnx.save(model, tmp_path / "before.onnx")
    onnx.save(optimized(model, rules=["transpose_cancel"], target="ort-cpu").model, tmp_path / "after.onnx")
    assert executed(tmp_path / "after.onnx") == executed(tmp_path / "before.onnx")


# --- slice_chain ---


@pytest.mark.parametrize("seed", range(20))
def test_any_two_slices_of_a_known_length(seed: int) -> None:
    rng = np.random.default_rng(seed)
    length = int(rng.integers(4, 20))
    first, second = (
        [int(v) for v in rng.integers(-length - 2, length + 3, 2)] + [int(rng.integers(1, 4))] for _ in "12"
    )
    text = f"""g (float[N,{length}] x) => (float[N,k] y) <int64[1] axis = {{1}},
        int64[1] a = {{{first[0]}}}, int64[1] b = {{{first[1]}}}, int64[1] c = {{{first[2]}}},
        int64[1] d = {{{second[0]}}}, int64[1] e = {{{second[1]}}}, int64[1] f = {{{second[2]}}}>
        {{ p = Slice(x, a, b, axis, c)  q = Slice(p, d, e, axis, f)  y = Neg(q) }}"""
    out = run("slice_chain", text, verify=False)
    left = np.arange(length)[slice(*first)][slice(*second)]
    assert ops(out) == (["Slice", "Neg"] if len(left) else ["Slice", "Slice", "Neg"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("p = Slice(x, one, three, one)  q = Slice(p, one, three, two)  y = Neg(q)", ["Slice", "Neg"]),
        ("p = Slice(x, one, three, zero)  q = Slice(p, minus, big, one)  y = Neg(q)", ["Slice", "Neg"]),
        # the length of the free axis decides what is left
        ("p = Slice(x, one, three, zero)  q = Slice(p, minus, big, zero)  y = Neg(q)", ["Slice", "Slice", "Neg"]),
        ("p = Slice(x, minus, least, one, minus)  q = Slice(p, one, three, one)  y = Neg(q)",
         ["Slice", "Slice", "Neg"]),
        ("p = Slice(x, one, three, one)  q = Slice(p, one, three, two)  r = Neg(q)  s = Slice(p, zero, one, two)"
         " y = Concat <axis = 2> (r, s)", ["Slice", "Slice", "Neg", "Slice", "Concat"]),
    ],
)  # fmt: skip
def test_slice_chain(body: str, expected: list[str]) -> None:
    text = f"""g (float[N,5,6] x) => (float[a,b,c] y) <int64[1] zero = {{0}}, int64[1] one = {{1}},
        int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] minus = {{-1}}, int64[1] big = {{9223372036854775807}},
        int64[1] least = {{-9223372036854775807}}> {{ {body} }}"""
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    result = optimized(model, rules=["slice_chain"], target="ort-cpu")
    for n in (2, 3, 5):
        assert_same(model, result.model, random_feeds(model, dims={"N": n}))
    assert ops(result.model) == expected


# --- concat_flat ---


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("p = Concat <axis = 1> (x, x)  y = Concat <axis = 1> (x, p, x)", ["Concat"]),
        ("p = Concat <axis = 0> (x, x)  y = Concat <axis = 1> (p, p)", ["Concat", "Concat"]),
        ("a, b = Split <axis = 1> (x)  c = Concat <axis = 1> (a, b)  y = Neg(c)", ["Neg"]),
        ("a, b = Split <axis = 1> (x)  c = Concat <axis = 1> (b, a)  y = Neg(c)", ["Split", "Concat", "Neg"]),
        ("a, b = Split <axis = 1> (x)  c = Concat <axis = 0> (a, b)  y = Neg(c)", ["Split", "Concat", "Neg"]),
        ("a, b = Split <axis = 1> (x)  c = Concat <axis = 1> (x, a, b, x)  y = Neg(c)", ["Concat", "Neg"]),
        ("a, b = Split <axis = 1> (x)  c = Concat <axis = 1> (a, b)  d = Exp(a)  y = Concat <axis = 1> (c, d)",
         ["Split", "Exp", "Concat"]),
    ],
)  # fmt: skip
def test_concat_flat(body: str, expected: list[str]) -> None:
    assert ops(run("concat_flat", f"g (float[N,4] x) => (float[a,b] y) {{ {body} }}")) == expected


def test_a_transpose_of_other_axes_than_are_known_stays() -> None:
    # onnxruntime lets slopes of more axes than x give PRelu a fifth one, which the standard does not say.
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,1,3] x) => (float[a,b,c,d,e] y)
    <float[1,1,1,1,1] s = {0.5}> { p = PRelu(x, s)  y = Transpose <perm = [4, 3, 0, 1, 2]> (p) }""")
    result = optimized(model, rules=["transpose_to_reshape", "transpose_merge", "transpose_cancel"], verify=False)
    assert ops(result.model) == ["PRelu", "Transpose"]
