"""What is done with finished expressions: symbols, substitution, evaluation, equality."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import lcm

from onnxfuse.errors import UsageError
from onnxfuse.facts.expr import Dim, Expr, dmax, dmin, floor_div, symbol
from onnxfuse.facts.terms import Atom

_APPLY: dict[str, Callable[..., Dim]] = {"//": floor_div, "min": dmin, "max": dmax}
_MOST_CASES = 64  # residues that one proof of equality goes through


def _alone(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def _atoms(dim: Dim) -> Iterator[Atom]:
    stack = [dim]
    while stack:
        d = stack.pop()
        if isinstance(d, Expr):
            for monomial, _ in d.terms:
                for a in monomial:
                    yield a
                    stack += a.args


def symbols(dim: Dim) -> frozenset[str]:
    """Names of the symbols in it."""
    return frozenset(a.name for a in _atoms(dim) if a.kind == "symbol")


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The expression with symbols replaced; symbols that `values` does not name stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, k in dim.terms:
        term: Dim = k
        for a in monomial:
            if a.kind == "symbol":
                term = term * values.get(a.name, _alone(a))
                continue
            args = [substitute(x, values) for x in a.args]
            term = term * _APPLY[a.kind](*args)
        total = total + term
    return total


def evaluate(count: Dim | None, dims: Mapping[str, int]) -> int:
    """The number that a count is at these sizes, by symbol; sizes of other symbols may be among them.

    It holds for sizes at which the model runs; at others it may be anything, also negative. Raises UsageError for a
    count that is not known (None), a symbol without a size, and sizes at which it divides by 0; TypeError for what is
    no count.
    """
    if count is None:
        raise UsageError("this count is not known (None): it has no number at any sizes")
    if not isinstance(count, int | Expr):
        raise TypeError(f"a count is an int, an expression or None, not {type(count).__name__}")
    if not isinstance(dims, Mapping):
        raise UsageError(f"sizes of dimensions are a mapping of names to whole numbers, not {dims!r}")
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise UsageError(f"dimension '{name}' is {size!r}; give a whole number")
    try:
        return count if isinstance(count, int) else count.evaluate(dims)
    except ZeroDivisionError:
        raise UsageError(f"{count} divides by 0 at these sizes, so the model does not run at them") from None


def provably_equal(a: Dim, b: Dim) -> bool:
    """True when both have the same value for all values of their symbols; False means "not proved".

    Beyond the canonical form, floor divisions by constants are decided by writing each symbol as period·m + residue.
    """
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    periods: dict[str, int] = {}
    for atom in _atoms(difference):
        if atom.kind == "//" and isinstance(atom.args[1], int):
            for name in symbols(atom.args[0]):
                periods[name] = lcm(periods.get(name, 1), atom.args[1])
    cases = 1
    for period in periods.values():
        cases *= period
    if not periods or cases > _MOST_CASES:
        return False
    parts = {name: symbol(name, low=None) for name in periods}
    try:
        return all(
            substitute(difference, {n: p * parts[n] + r for (n, p), r in zip(periods.items(), residues, strict=True)})
            == 0
            for residues in product(*(range(p) for p in periods.values()))
        )
    except ZeroDivisionError:  # some divisor is 0 for that residue
        return False
