"""Operators on whole numbers and bools, of which some are symbolic, element by element; exact, without a limit."""

from __future__ import annotations

from collections.abc import Callable

from onnxfuse.facts.call import Unclear
from onnxfuse.facts.expr import Dim, Expr, dmax, dmin, floor_div, provably_nonnegative


def sign_of(d: Dim) -> int:
    """−1, 0 or 1 where the sign is the same for all values of the symbols; else Unclear."""
    if isinstance(d, Expr):
        if provably_nonnegative(d - 1):
            return 1
        if provably_nonnegative(-d - 1):
            return -1
        raise Unclear
    return (d > 0) - (d < 0)


def truncating_div(a: Dim, b: Dim) -> Dim:
    """Integer division that rounds toward zero, as ONNX has it."""
    if a == 0:
        return 0
    negative_a, negative_b = (not provably_nonnegative(x) and provably_nonnegative(-x) for x in (a, b))
    if not (negative_a or provably_nonnegative(a)) or not (negative_b or provably_nonnegative(b)):
        raise Unclear
    quotient = floor_div(-a if negative_a else a, -b if negative_b else b)
    return quotient if negative_a == negative_b else -quotient


def _mod(a: Dim, b: Dim) -> Dim:
    return a - b * floor_div(a, b)  # the sign of the divisor, as Python


def truncating_mod(a: Dim, b: Dim) -> Dim:
    """The remainder of that division; it has the sign of the dividend, as in C."""
    return a - b * truncating_div(a, b)


def _power(a: Dim, b: Dim) -> Dim:
    if not isinstance(b, int) or not 0 <= b <= 8:
        raise Unclear
    out: Dim = 1
    for _ in range(b):
        out = out * a
    return out


TABLE: dict[str, Callable[..., object]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": truncating_div,
    "Mod": _mod,
    "Pow": _power,
    "Neg": lambda a: -a,
    "Abs": lambda a: a * sign_of(a),
    "Sign": sign_of,
    "Sum": lambda *a: sum(a[1:], a[0]),
    "Min": dmin,
    "Max": dmax,
    "Floor": lambda a: a,
    "Ceil": lambda a: a,
    "Round": lambda a: a,
    "Identity": lambda a: a,
    "Relu": lambda a: dmax(a, 0),
    "Equal": lambda a, b: a == b if isinstance(a, bool) and isinstance(b, bool) else sign_of(a - b) == 0,
    "Greater": lambda a, b: sign_of(a - b) > 0,
    "Less": lambda a, b: not provably_nonnegative(a - b) and sign_of(a - b) < 0,
    "GreaterOrEqual": lambda a, b: provably_nonnegative(a - b) or sign_of(a - b) >= 0,
    "LessOrEqual": lambda a, b: provably_nonnegative(b - a) or sign_of(a - b) <= 0,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Xor": lambda a, b: a != b,
    "Not": lambda a: not a,
}
