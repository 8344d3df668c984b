"""Sizes computed in floats: their floor, ceiling and nearest whole number are those that numpy finds for each size."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from onnx import TensorProto as T

from onnxfuse.facts import evaluate, fraction, symbol
from onnxfuse.facts.call import Unclear
from onnxfuse.facts.fraction import Ratio, divided, plus, short_fraction, times

N = symbol("N")
SIZES = np.concatenate([np.arange(1, 3000), np.arange(65_000, 65_536)])


def agrees(formula: object, floats: np.ndarray) -> None:
    found = [evaluate(formula, {"N": int(n)}) for n in SIZES]  # type: ignore[arg-type]
    assert found == floats.astype(np.int64).tolist()


@pytest.mark.parametrize("dtype", [T.FLOAT, T.DOUBLE])
@pytest.mark.parametrize("divisor", [2.0, 3.0, 7.0, 10.0, 32.0, 49.0, 224.0, 0.5, 1.5, 3.2])
def test_quotients(divisor: float, dtype: int) -> None:
    of_type = {T.FLOAT: np.float32, T.DOUBLE: np.float64}[dtype]
    given = float(of_type(divisor))
    quotient, floats = divided(N, given, dtype), SIZES.astype(of_type) / of_type(divisor)
    agrees(fraction.floor(quotient), np.floor(floats))
    agrees(fraction.ceil(quotient), np.ceil(floats))
    agrees(fraction.truncated(quotient), np.trunc(floats))
    if isinstance(quotient, Ratio) and quotient.exact:
        agrees(fraction.nearest(quotient), np.rint(floats))


@pytest.mark.parametrize("factor", [0.5, 0.25, 1.75, 2.0, 0.125, 1.7, 2.3])
def test_products(factor: float) -> None:
    product, floats = times(N, float(np.float32(factor)), T.FLOAT), SIZES.astype(np.float32) * np.float32(factor)
    agrees(fraction.floor(product), np.floor(floats))
    agrees(fraction.ceil(product), np.ceil(floats))


@pytest.mark.parametrize("dtype", [T.FLOAT, T.DOUBLE])
def test_quotients_of_whole_numbers_up_to_the_last_ones(dtype: int) -> None:
    """A size is below 2²⁴: the largest ones, next to multiples of the divisor."""
    of_type = {T.FLOAT: np.float32, T.DOUBLE: np.float64}[dtype]
    r = np.random.default_rng(5)
    for divisor in [3, 5, 7, 11, 255, 1023, *r.integers(3, 65_536, 200).tolist()]:
        multiples = 2**24 // divisor - np.arange(1, 200)
        sizes = np.concatenate([multiples * divisor + k for k in (-1, 0, 1)])
        floats = sizes.astype(of_type) / of_type(divisor)
        assert np.array_equal(np.floor(floats), sizes // divisor)
        assert np.array_equal(np.ceil(floats), -(-sizes // divisor))


@pytest.mark.parametrize(
    ("make", "formula"),
    [
        (lambda half: plus(half, 0.5), "(N + 1)/2"),
        (lambda half: plus(half, half), "N"),
        (lambda half: plus(half, -3), "(N - 6)/2"),
        (lambda half: times(half, 4.0, T.FLOAT), "2·N"),
        (lambda half: divided(half, 4.0, T.FLOAT), "(N)/8"),
        (lambda half: fraction.negated(half), "(-N)/2"),
    ],
)
def test_halves_are_exact(make: Callable[[object], object], formula: str) -> None:
    made = make(divided(N, 2.0, T.FLOAT))
    assert (f"({made.top})/{made.bottom}" if isinstance(made, Ratio) else str(made)) == formula


def test_what_is_rounded_is_not_computed_with() -> None:
    third = divided(N, 3.0, T.FLOAT)
    for function in (
        lambda: plus(third, 1), lambda: times(third, 3.0, T.FLOAT), lambda: fraction.nearest(third),
        lambda: divided(N, 0.7, T.DOUBLE),  # 7/0.7 is a little more than 10
        lambda: divided(N, 0.0, T.FLOAT), lambda: fraction.truncated(divided(N - 5, 2.0, T.FLOAT)),
    ):  # fmt: skip
        with pytest.raises(Unclear):
            function()


def test_short_fractions() -> None:
    assert short_fraction(1.7) == Fraction(17, 10)
    assert short_fraction(3.2, divides=True) == Fraction(5, 16)
    assert short_fraction(float(np.pi)) is None
    assert short_fraction(float("nan")) is None and short_fraction(0.0, divides=True) is None
