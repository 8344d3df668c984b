"""Computed targets of Reshape and Expand as constants: only where 0, 1 and −1 mean the same in every binding."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import assert_same, ops, optimized, parse, random_feeds

from onnxfuse.facts import symbol
from onnxfuse.rules._target_shape import expand_target, reshape_target

RULE = "constant_shape"
N, M, Z = symbol("N"), symbol("M"), symbol("Z", 0)


def made(text: str) -> list[object] | None:
    """The new target; None where nothing was changed."""
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    result = optimized(model, rules=[RULE])
    for sizes in ({"N": 2, "M": 3}, {"N": 1, "M": 1}, {"N": 5, "M": 2}):
        assert_same(model, result.model, random_feeds(model, dims=sizes))
    if not result.fusions:
        return None
    node = next(n for n in result.model.graph.node if n.op_type in ("Reshape", "Expand"))
    held = {t.name: t for t in result.model.graph.initializer}
    return numpy_helper.to_array(held[node.input[1]]).tolist()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("""g (float[N,4,6] x) => (float[N,K] y) <int64[1] m = {24}>
            { n = Shape <end = 1> (x)  s = Concat <axis = 0> (n, m)  y = Reshape(x, s) }""", [0, 24]),
        # the batch moved to another place is what is left over
        ("""g (float[N,4,6] x) => (float[4,K,6] y) <int64[1] a = {4}, int64[1] b = {6}>
            { n = Shape <end = 1> (x)  s = Concat <axis = 0> (a, n, b)  y = Reshape(x, s) }""", [4, -1, 6]),
        ("""g (float[N,M,6] x) => (float[N,M,2,3] y) <int64[2] a = {2, 3}>
            { n = Shape <end = 2> (x)  s = Concat <axis = 0> (n, a)  y = Reshape(x, s) }""", [0, 0, 2, 3]),
        ("""g (float[N,M,6] x) => (float[K,6] y) <int64[1] six = {6}>
            { n = Shape <end = 1> (x)  m = Shape <start = 1, end = 2> (x)  k = Mul(n, m)
              s = Concat <axis = 0> (k, six)  y = Reshape(x, s) }""", [-1, 6]),
        # two dims change places: one can be left over, not both
        ("""g (float[N,M,6] x) => (float[M,N,6] y) <int64[1] six = {6}>
            { n = Shape <end = 1> (x)  m = Shape <start = 1, end = 2> (x)
              s = Concat <axis = 0> (m, n, six)  y = Reshape(x, s) }""", None),
        ("""g (float[N,1,4] x) => (float[N,3,4] y) <int64[2] a = {3, 4}>
            { n = Shape <end = 1> (x)  s = Concat <axis = 0> (n, a)  y = Expand(x, s) }""", [1, 3, 1]),
        # a size that the input has not
        ("""g (float[N,4] x, float[1,4] t) => (float[N,4] y) <int64[1] a = {4}>
            { n = Shape <end = 1> (x)  s = Concat <axis = 0> (n, a)  y = Expand(t, s) }""", None),
    ],
)  # fmt: skip
def test_targets(text: str, target: list[object] | None) -> None:
    assert made(text) == target


@pytest.mark.parametrize(
    ("given", "wanted", "target"),
    [
        ((N, 6), (N, 2, 3), [0, 2, 3]),
        ((N, 8, 6), (N, 8, 2, 3), [0, 0, 2, 3]),
        ((1, 8, 6), (1, 8, 2, 3), [1, 8, 2, 3]),
        ((N, M), (M, N), None),
        ((N, M), (N * M,), [-1]),
        ((Z, 6), (Z, 2, 3), [0, 2, 3]),  # 0 copies a dimension of 0 too
        ((Z, N), (Z, N), [0, 0]),
        ((Z, N, 6), (Z, 6 * N), None),  # −1 is no number where another dimension is 0
        ((N, 0), (N, 0), None),  # a 0 in the target is no length
        ((6, N), (N, 6), [-1, 6]),
    ],
)
def test_reshape_targets(given: tuple[object, ...], wanted: tuple[object, ...], target: list[int] | None) -> None:
    assert reshape_target(given, wanted) == target  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "wanted", "target"),
    [
        ((N, 1), (N, 4), [1, 4]),
        ((4,), (3, 4), [3, 1]),
        ((4,), (N, 4), None),
        ((1, 4), (N, 4), None),
        ((N, 1), (N, 0), [1, 0]),
    ],
)
def test_expand_targets(given: tuple[object, ...], wanted: tuple[object, ...], target: list[int] | None) -> None:
    assert expand_target(given, wanted) == target  # type: ignore[arg-type]


def test_a_constant_target_is_left_alone() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,6] x) => (float[N,2,3] y)
    <int64[3] s = {-1, 2, 3}> { y = Reshape(x, s) }""")
    assert optimized(model, rules=[RULE]).fusions == ()


def test_a_target_that_the_caller_gives_is_left_alone() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[2,6] x, int64[1] s) => (float[K] y)
    { y = Reshape(x, s) }""")
    assert optimized(model, rules=[RULE], verify=False).fusions == ()


def test_zeros_are_lengths_where_the_node_says_so() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4,6] x) => (float[N,24] y) <int64[1] m = {24}>
    { n = Shape <end = 1> (x)  s = Concat <axis = 0> (n, m)  y = Reshape <allowzero = 1> (x, s) }""")
    out = optimized(model, rules=[RULE]).model
    assert ops(out) == ["Reshape"] and not out.graph.node[0].attribute
    onnx.checker.check_model(out, full_check=True)


def test_a_reshape_to_what_it_is_goes_in_the_first_run() -> None:
    """Its sizes are those of another value, which the sum can only have if they are its own."""
    m = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x, float[M,4] z) => (float[K,4] y)
    { a = Add(x, z)  s = Shape(x)  e = Reshape(a, s)  y = Relu(e) }""")
    result = optimized(m, target="portable", verify=False).model
    assert ops(result) == ["Add", "Relu"]
    assert_same(m, result, random_feeds(m))


def test_a_size_that_the_data_may_make_0_is_no_size_for_a_rewrite() -> None:
    """A 0 is the size of the input there: of no rows that NonZero finds, (1, 0) becomes (1, 2·0/1) by a Reshape to
    (0, −1). Without free dimensions the facts for the cost, which take the size to be more, are not those of rules.
    """
    model = parse("""<ir_version: 8, opset_import: ["" : 17]> g (float[6] x) => (int64[A,B] y)
    <int64[1] minus = {-1}> { z = NonZero(x)  k = Shape <start = 1> (z)  t = Concat <axis = 0> (k, minus)
      y = Reshape(z, t) }""")
    result = optimized(model, rules=[RULE])
    for x in ([0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]):
        assert_same(model, result.model, {"x": np.array(x, np.float32)})
    assert result.fusions == ()
