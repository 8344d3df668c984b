"""Atoms, monomials and term tables: the parts that an `Expr` is made of."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxfuse.facts.expr import Dim


class Atom:
    """An indivisible factor: kind "symbol" (args: none), "//" (two), "min" or "max" (two or more).

    `low` and `high` bound its value (None = no bound known). They belong to its identity: what is proved of a symbol
    ≥ 1 need not hold for one of the same name that may be 0.
    """

    __slots__ = ("args", "high", "kind", "low", "name", "text")

    def __init__(
        self, kind: str, args: tuple[Dim, ...], low: int | None, high: int | None, text: str, name: str = ""
    ) -> None:
        self.kind, self.args, self.low, self.high, self.text, self.name = kind, args, low, high, text, name

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Atom) or self.text != other.text:
            return False
        return (self.low, self.high, self.args) == (other.low, other.high, other.args)

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: Atom) -> bool:
        return self.text < other.text

    def __repr__(self) -> str:
        return self.text


Monomial = tuple[Atom, ...]  # sorted; the empty one is the constant term
Terms = dict[Monomial, int]


def order(monomial: Monomial) -> tuple[int, Monomial]:
    """Sort key: higher degrees first, then by the atoms. It agrees with multiplication, as long division needs."""
    return -len(monomial), monomial


def multiply(a: Terms, b: Terms) -> Terms:
    """The product of two polynomials; coefficients may come out 0."""
    out: Terms = {}
    for ma, ka in a.items():
        for mb, kb in b.items():
            m = tuple(sorted(ma + mb)) if ma and mb else ma or mb
            out[m] = out.get(m, 0) + ka * kb
    return out


def divide_monomial(m: Monomial, by: Monomial) -> Monomial | None:
    """m/by, None where `by` is not a factor of it."""
    left = list(m)
    for a in by:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def exact_quotient(a: Terms, b: Terms) -> Terms | None:
    """a/b where the polynomial division leaves no remainder, else None (graded lexicographic long division)."""
    lead, lead_k = min(b.items(), key=lambda t: order(t[0]))
    rest, quotient = dict(a), {}
    while rest:
        m, k = min(rest.items(), key=lambda t: order(t[0]))
        left = divide_monomial(m, lead)
        if left is None or k % lead_k:
            return None
        quotient[left] = k // lead_k
        for mb, kb in multiply({left: k // lead_k}, b).items():
            rest[mb] = rest.get(mb, 0) - kb
            if not rest[mb]:
                del rest[mb]
    return quotient


def without_common_factor(a: Terms, b: Terms) -> tuple[Terms, Terms]:
    """Both without the integer and the atoms that are a factor of every term of both."""
    every = [*a.items(), *b.items()]
    common = gcd(*(k for _, k in every))
    shared = list(next(iter(b)))
    for m, _ in every:
        left, kept = list(m), []
        for atom in shared:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        shared = kept
    by = tuple(shared)

    def shrunk(part: Terms) -> Terms:
        return {divide_monomial(m, by) or (): k // common for m, k in part.items()}

    return shrunk(a), shrunk(b)


def split_by_monomial(a: Terms, by: Monomial, c: int) -> tuple[Terms, Terms]:
    """(q, r) with a = q·c·by + r."""
    whole: Terms = {}
    rest: Terms = {}
    for m, k in a.items():
        left = divide_monomial(m, by)
        q = k // c if left is not None else 0
        if left is not None and q:
            whole[left] = q
        rest[m] = k - c * q
    return whole, rest
