"""The algebra of dimensions: canonical forms worked by hand, and random expressions against Python's integers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfuse
from onnxfuse.errors import UsageError
from onnxfuse.facts import (
    Dim,
    Expr,
    bounds,
    ceil_div,
    dmax,
    dmin,
    evaluate,
    expr,
    floor_div,
    provably_equal,
    provably_nonnegative,
    substitute,
    symbol,
    symbols,
)  # fmt: skip
from onnxfuse.facts.expr import total

N, H, W, C = (symbol(s) for s in "NHWC")
Z = symbol("Z", low=0)
ANY = symbol("A", low=None)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (2 * N * (H // 2), "2·(H//2)·N"),
        (N + N - 2 * N, "0"),
        ((N + 1) * (N - 1), "N·N - 1"),
        (1 - N, "-N + 1"),
        ((2 * N + 4) // 2, "N + 2"),
        ((4 * N + 3) // 2, "2·N + 1"),  # 4N is even, so the 3 counts as 2
        ((6 * H + 3) // 4, "((H + 1)//2) + H"),  # H + ⌊(2H + 3)/4⌋
        (ceil_div(H, 2), "(H + 1)//2"),
        (-H // 2, "-((H + 1)//2)"),
        ((H // 2) // 3, "H//6"),
        (((H + 1) // 2 + 1) // 2, "(H + 3)//4"),  # two stride-2 layers
        (N * H * W // (N * H), "W"),
        ((N * H + H) // (N + 1), "H"),
        ((2 * N * H) // (4 * N), "H//2"),
        (N % 1, "0"),
        (H + (7 - H % 7) % 7, "7·((H + 6)//7)"),  # padding to a multiple of the window
        ((H + (7 - H % 7) % 7) // 7, "(H + 6)//7"),
        ((N % 4) // 4, "0"),
        (dmin(H, 2**63 - 1), "H"),
        (dmin(H, 100), "min(100, H)"),
        (dmax(H - 1, 0), "H - 1"),  # H ≥ 1
        (dmax(H - 2, 0), "max(0, H - 2)"),
        (dmax(Z - 1, 0), "max(0, Z - 1)"),
        (dmax(N, dmax(H, 3)), "max(3, H, N)"),
        (dmin(H, H // 2), "H//2"),
        (dmin(7 * ((H + 24) // 28), H // 4), "H//4"),  # a map padded to windows of 7 is not smaller than the map
        (dmin(H, dmax(H - 3, 0)), "max(0, H - 3)"),
        (H - H // 2, "(H + 1)//2"),
        (H // 2 + (H + 1) // 2, "H"),
        (H - H // 2 + H // 2, "H"),
        ((H // 4) - (H // 8), "(H + 4)//8"),  # x - x//2 with x = H//4
        (N * H - N * (H // 2), "((H + 1)//2)·N"),
        (N % 2, "-2·(N//2) + N"),
        (N + N % 2, "2·((N + 1)//2)"),
        (N // (H + 1) * 3, "3·(N//(H + 1))"),
        (-1 % (H + 3), "H + 2"),  # the last of H + 3
        (-4 // (H + 3), "-1"),
        (-5 // (H + 3), "-5//(H + 3)"),  # −2 where H is 1
        (4 // (8 * ((H + 28) // 32)), "0"),  # the divisor is not 0, so it is at least 8
        (-4 // (8 * ((H + 28) // 32)), "-1"),
        (9 // (8 * ((H + 28) // 32)), "9//(8·((H + 28)//32))"),
        (symbol("a b") + 1, "'a b' + 1"),
    ],
)
def test_canonical_form(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_a_result_without_symbols_is_an_int() -> None:
    assert [type(d) for d in (N - N, N // N, (2 * N) // N, dmax(N - N, 3), 7 % (N * 0 + 4))] == [int] * 5


def test_equality_is_that_of_the_form() -> None:
    assert N * H == H * N
    assert hash(N * H + 1) == hash(1 + H * N)
    assert N != H
    assert N != 1
    assert {N + 1: "x"}[1 + N] == "x"


def test_symbols_of_one_name_with_other_bounds_are_not_mixed_up() -> None:
    positive, any_size = symbol("x", low=1), symbol("x", low=0)
    assert positive != any_size
    assert provably_nonnegative(positive - 1)
    assert not provably_nonnegative(any_size - 1)
    assert not provably_nonnegative((any_size - 1) // 2 + 1 - 1)


def test_order_is_not_offered() -> None:
    with pytest.raises(TypeError):
        _ = N < H  # type: ignore[operator]


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        _ = N // 0


@pytest.mark.parametrize(
    ("dim", "proved"),
    [
        (N - 1, True),
        (N - 2, False),  # N may be 1
        (Z, True),
        (Z - 1, False),
        (ANY, False),
        (ANY * ANY, False),  # true, but not by these means
        (N * H - N, True),
        (N % 2, True),
        (1 - N % 2, True),
        (H - 2 * (H // 2), True),
        (H - dmin(H, W), True),
        (dmax(H, W) - W, True),
        (H - W, False),
    ],
)
def test_provably_nonnegative(dim: Dim, proved: bool) -> None:
    assert provably_nonnegative(dim) is proved


@pytest.mark.parametrize(
    ("a", "b", "proved"),
    [
        (H - H // 2, (H + 1) // 2, True),
        (H // 2 + (H + 1) // 2, H, True),
        ((H + 1) // 2, H // 2, False),
        (N, H, False),
        (3, 3, True),
        (H // 4 + (H + 1) // 4 + (H + 2) // 4 + (H + 3) // 4, H, True),  # Hermite's identity
    ],
)
def test_provably_equal(a: Dim, b: Dim, proved: bool) -> None:
    assert provably_equal(a, b) is proved


def test_evaluate_names_the_missing_symbol() -> None:
    assert evaluate(7, {}) == 7
    assert evaluate(N * (H // 2), {"N": 3, "H": 9}) == 12
    with pytest.raises(UsageError, match="no value for dimension 'H'"):
        evaluate(N * H, {"N": 3})


@pytest.mark.parametrize(
    ("count", "dims", "error", "said"),
    [
        (None, {"N": 3}, UsageError, "not known"),
        (N // H, {"N": 3, "H": 0}, UsageError, "N//H divides by 0"),
        (N * 2, {"N": "3"}, UsageError, "dimension 'N' is '3'"),
        (N * 2, {"N": True}, UsageError, "dimension 'N' is True"),
        ("2·N", {"N": 3}, TypeError, "not str"),
    ],
)
def test_what_has_no_number(count: Any, dims: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        onnxfuse.evaluate(count, dims)


def test_a_proof_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """max(a, b)·max(c, d)… ≥ b·d… needs a step for each of the twelve maxima: the search gives up, and soon."""
    tried = 0
    search = expr._relaxed

    def counted(dim: Expr) -> Any:
        nonlocal tried
        tried += 1
        return search(dim)

    monkeypatch.setattr(expr, "_relaxed", counted)
    pairs = [(symbol(f"a{i}"), symbol(f"b{i}")) for i in range(12)]
    three, twelve = (math.prod(dmax(a, b) for a, b in p) - math.prod(b for _, b in p) for p in (pairs[:3], pairs))
    assert provably_nonnegative(three)
    tried = 0
    assert not provably_nonnegative(twelve)
    assert tried <= 1500 // (2 * 13)  # two terms of twelve factors


def test_an_expression_gives_its_number() -> None:
    assert isinstance(N * H, Expr)
    assert (N * H - 4).evaluate({"N": 3, "H": 9, "another": 1}) == 23  # type: ignore[union-attr]
    assert dmax(N // 2, 3).evaluate({"N": 9}) == 4  # type: ignore[union-attr]


def test_a_sum_of_many() -> None:
    assert total([N, 4, N * H, N, -H, 4]) == 2 * N + N * H - H + 8
    assert total([]) == 0 and total([H // 2, (H + 1) // 2]) == H


def test_a_product_of_many_terms_is_not_worked_out() -> None:
    many = total(symbol(f"s{i}") for i in range(50))
    with pytest.raises(OverflowError):
        many * many


def test_substitute_keeps_the_other_symbols() -> None:
    assert substitute(N * (H // 2) + dmax(N, W), {"N": 2, "W": C}) == 2 * (H // 2) + dmax(2, C)
    assert symbols(N * (H // 2) + dmax(N, W)) == {"N", "H", "W"}
    assert symbols(4) == frozenset()


# Random expressions --------------------------------------------------------------------------------------------------

VALUES = {"N": 1, "H": 1, "Z": 0, "A": None}
Function = Callable[[dict[str, int]], int]
Pair = tuple[Dim, Function]


def leaf(name: str) -> Pair:
    return symbol(name, VALUES[name]), lambda env: env[name]


def binary(op: str, a: Pair, b: Pair) -> Pair:
    (x, f), (y, g) = a, b
    table: dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = {
        "+": (lambda p, q: p + q, lambda p, q: p + q),
        "-": (lambda p, q: p - q, lambda p, q: p - q),
        "*": (lambda p, q: p * q, lambda p, q: p * q),
        "min": (dmin, min),
        "max": (dmax, max),
        "//": (floor_div, lambda p, q: p // q),
        "%": (lambda p, q: p % q, lambda p, q: p % q),
        "ceil": (ceil_div, lambda p, q: -(-p // q)),
    }
    ours, python = table[op]
    if op in ("//", "%", "ceil") and not isinstance(y, Expr) and y == 0:
        return x, f
    return ours(x, y), lambda env: python(f(env), g(env))


leaves = st.one_of(
    st.sampled_from(sorted(VALUES)).map(leaf),
    st.integers(-9, 9).map(lambda k: (k, lambda env: k)),
)
pairs = st.recursive(
    leaves,
    lambda inner: st.builds(binary, st.sampled_from(["+", "-", "*", "//", "%", "ceil", "min", "max"]), inner, inner),
    max_leaves=9,
)
environments = st.fixed_dictionaries(
    {"N": st.integers(1, 40), "H": st.integers(1, 40), "Z": st.integers(0, 40), "A": st.integers(-40, 40)}
)


@settings(max_examples=400, deadline=None)
@given(pairs, st.lists(environments, min_size=4, max_size=4))
def test_random_expressions_have_the_value_of_python_integers(pair: Pair, envs: list[dict[str, int]]) -> None:
    dim, python = pair
    for env in envs:
        try:
            expected = python(env)
        except ZeroDivisionError:
            continue  # a symbolic divisor that is 0 here: nothing is promised
        assert evaluate(dim, env) == expected
        low, high = bounds(dim)
        assert low is None or low <= expected
        assert high is None or expected <= high
        assert expected >= 0 or not provably_nonnegative(dim)


@settings(max_examples=150, deadline=None)
@given(pairs, environments)
def test_the_text_can_be_read_back(pair: Pair, env: dict[str, int]) -> None:
    dim, _ = pair
    text = str(dim).replace("·", "*")
    try:
        expected = evaluate(dim, env)
    except UsageError:
        return
    assert eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(env)) == expected


@settings(max_examples=200, deadline=None)
@given(pairs, pairs, environments)
def test_what_is_proved_equal_is_equal(a: Pair, b: Pair, env: dict[str, int]) -> None:
    if provably_equal(a[0], b[0]):
        try:
            assert a[1](env) == b[1](env)
        except ZeroDivisionError:
            return
