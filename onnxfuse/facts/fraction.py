"""Floats computed from symbolic sizes, as far as their floor and ceiling have an exact formula.

Exporters compute sizes in floats: ⌈H/2⌉, ⌊0.5·H⌋. Rounding keeps such a result on its side of every whole number in
these cases, so that the formula of integers holds for the floats, too:

- A division by a whole number d. For |n| < 2²⁴ and correct rounding, n/d is off by less than 1/d, and as far as that
  from a whole number that it is not. `contents` takes a single size to be below 2²⁴.
- A factor with a power of two below it (0.5, 1.75): the product is exact.
- Another factor or divisor (1.7): it stands for a short fraction where all sizes below 65,536, tried one by one, agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from onnxfuse.facts.call import Unclear
from onnxfuse.facts.expr import Dim, Expr, ceil_div, floor_div, provably_nonnegative

_LONGEST = 1 << 16  # sizes for which a factor is compared with a fraction; no longer axis is resized
_SHORT = 256  # the largest divisor of such a fraction


@dataclass(frozen=True, slots=True)
class Ratio:
    """A float whose floor and ceiling are those of top / bottom; with `exact` it is that fraction. bottom > 1."""

    top: Expr
    bottom: int
    exact: bool


Whole = Dim | Ratio


def _ratio(top: Dim, bottom: int, exact: bool) -> Whole:
    """The fraction in lowest terms: a whole number where it is one for all sizes."""
    quotient = floor_div(top, bottom)
    if quotient * bottom == top:
        return quotient
    if isinstance(top, int):  # a fraction without symbols is a float of its own, which these formulas do not hold
        raise Unclear
    common = gcd(bottom, *(k for _, k in top.terms))
    lowest = floor_div(top, common)
    return Ratio(lowest, bottom // common, exact) if isinstance(lowest, Expr) else lowest


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


@lru_cache(maxsize=256)
def short_fraction(factor: float, dtype: int = T.FLOAT, *, divides: bool = False, up: bool = True) -> Fraction | None:
    """The fraction p/q that a factor stands for: 17/10 for 1.7; with `divides` 10/17.

    The product of every size with the factor, in floats, has the floor of that with the fraction, and with `up` the
    ceiling, too. None without such a fraction.
    """
    of_type = helper.tensor_dtype_to_np_dtype(dtype).type
    number = float(of_type(factor))
    if not np.isfinite(number) or (divides and number == 0):
        return None
    ratio = (1 / Fraction(number) if divides else Fraction(number)).limit_denominator(_SHORT)
    if not 0 <= ratio.numerator < 2**31:
        return None
    sizes = np.arange(_LONGEST, dtype=np.int64)
    with np.errstate(all="ignore"):
        floats = (np.divide if divides else np.multiply)(sizes.astype(of_type), of_type(factor))
    product = sizes * ratio.numerator
    if not np.array_equal(np.floor(floats), product // ratio.denominator):
        return None
    return ratio if not up or np.array_equal(np.ceil(floats), -(-product // ratio.denominator)) else None


def times(a: Whole, factor: float, dtype: int) -> Whole:
    """The float product of a symbolic value and a number."""
    number = Fraction(factor)
    if isinstance(a, Ratio):
        if not a.exact or not _power_of_two(number.denominator):
            raise Unclear
        return _ratio(a.top * number.numerator, a.bottom * number.denominator, exact=True)
    if _power_of_two(number.denominator) and max(abs(number.numerator), number.denominator) <= _SHORT:
        return _ratio(a * number.numerator, number.denominator, exact=True)
    return _by_short_fraction(a, short_fraction(factor, dtype))


def divided(a: Whole, divisor: float, dtype: int) -> Whole:
    """The float quotient of a symbolic value and a number."""
    if divisor == 0:
        raise Unclear
    number = Fraction(divisor)
    if number < 0:
        return negated(divided(a, -divisor, dtype))
    if _power_of_two(number.numerator):  # the quotient is a product without a rounding
        return times(a, float(1 / number), dtype)
    if isinstance(a, Ratio):
        raise Unclear
    if number.denominator == 1 and number.numerator <= _LONGEST:
        return _ratio(a, number.numerator, exact=False)
    return _by_short_fraction(a, short_fraction(divisor, dtype, divides=True))


def _by_short_fraction(a: Dim, ratio: Fraction | None) -> Whole:
    if ratio is None or not provably_nonnegative(a):
        raise Unclear
    return _ratio(a * ratio.numerator, ratio.denominator, exact=False)


def plus(a: Whole, b: Whole | float) -> Whole:
    """The float sum, of which at least one is symbolic; nothing is rounded."""
    (p, q), (r, s) = _exact(a), _exact(b)
    return _ratio(p * s + r * q, q * s, exact=True)


def _exact(x: Whole | float) -> tuple[Dim, int]:
    if isinstance(x, Ratio):
        if not x.exact:
            raise Unclear
        return x.top, x.bottom
    if isinstance(x, float):
        number = Fraction(x)
        if max(abs(number.numerator), number.denominator) > _SHORT:
            raise Unclear
        return number.numerator, number.denominator
    return x, 1


def negated(x: Whole) -> Whole:
    """−x."""
    return Ratio(-x.top, x.bottom, x.exact) if isinstance(x, Ratio) else -x


def floor(x: Whole) -> Dim:
    """⌊x⌋."""
    return floor_div(x.top, x.bottom) if isinstance(x, Ratio) else x


def ceil(x: Whole) -> Dim:
    """⌈x⌉."""
    return ceil_div(x.top, x.bottom) if isinstance(x, Ratio) else x


def nearest(x: Whole) -> Dim:
    """The nearest whole number, the even one of two."""
    if not isinstance(x, Ratio):
        return x
    if not x.exact:
        raise Unclear
    # With q even: what exceeds q/2 in each 2·q counts 1, and what reaches 3·q/2 counts 1 more.
    half, period = x.bottom // 2, 2 * x.bottom
    return floor_div(x.top + period - half - 1, period) + floor_div(x.top + half, period)


def truncated(x: Whole) -> Dim:
    """The whole number that a cast makes of it: the next one toward zero."""
    if not isinstance(x, Ratio) or provably_nonnegative(x.top):
        return floor(x)
    if provably_nonnegative(-x.top):
        return ceil(x)
    raise Unclear
