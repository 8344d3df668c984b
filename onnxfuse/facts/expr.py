"""Exact integer arithmetic over named dimensions: `Dim = int | Expr`.

An `Expr` is a polynomial with integer coefficients over atoms, kept in one canonical form, so that `==` compares forms.
An atom is a symbol, a floor division that does not come out even, or a minimum or maximum that cannot be decided.
Ceil division and remainder are written with floor division (⌈a/b⌉ = −⌊−a/b⌋, a mod b = a − b·⌊a/b⌋), which makes
padding to a multiple and its like cancel by themselves. A result without symbols is a plain int.

Every simplification holds for all integer values of the symbols within their bounds, except that a divisor is taken
to be non-zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import gcd

from onnxfuse.errors import UsageError
from onnxfuse.facts.terms import (
    Atom,
    Monomial,
    Terms,
    exact_quotient,
    multiply,
    order,
    split_by_monomial,
    without_common_factor,
)
from onnxfuse.ir import printed

LARGEST = 2**31 - 1  # no dimension is larger; what exporters write for "to the end" is at least this

MOST_TERMS = 2000  # of a product; what grows beyond it is of no use as a formula, and soon of no size to work with

# How far a proof of "≥ 0" is searched, and how many factors of terms it may go through; what is not found is just not
# proved. What is true of real models is proved within some 150.
_DEPTH, _BREADTH, _WORK = 4, 3, 1500

# Sizes that are tried before, as most of what cannot be proved is not true: all the same, in turn, and mixed.
_FEW = (1, 2, 3, 30, 1000, 100_000)
_TRIED = (
    *((1,), (1000,), (3, 50, 700), (700, 50, 3)),
    *(tuple(_FEW[k * j * j % 97 % len(_FEW)] for j in range(3, 34)) for k in range(1, 25)),
)


class Expr:
    """A non-constant integer expression. Immutable and hashable; built by `symbol` and by arithmetic.

    It has no `<`: whether one dimension is smaller than another is mostly not known; ask `provably_nonnegative`.
    `str` prints it, `evaluate` gives its number.
    """

    __slots__ = ("_hash", "_text", "terms")

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._text = ""

    def evaluate(self, dims: Mapping[str, int]) -> int:
        """The number for these sizes, by symbol; sizes of other symbols may be among them. It holds for sizes at which
        the model runs.

        Raises UsageError when a symbol has no size, ZeroDivisionError when a divisor is 0.
        """
        try:
            return _number(self, dims)
        except KeyError as error:
            name = error.args[0]
            raise UsageError(f"no value for dimension '{name}' in {self}; give one for each of its symbols") from None

    @property
    def length(self) -> int:
        """About how many characters it has in print."""
        return sum(len(a.text) for m, _ in self.terms for a in m)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return self if other == 0 else _sum((self.terms, (((), int(other)),)))
        return _sum((self.terms, other.terms)) if isinstance(other, Expr) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((m, -k) for m, k in self.terms))

    def __pos__(self) -> Expr:
        return self

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if other == 1:
                return self
            return Expr(tuple((m, k * other) for m, k in self.terms)) if other else 0
        if not isinstance(other, Expr):
            return NotImplemented
        if len(self.terms) * len(other.terms) > MOST_TERMS:
            raise OverflowError(f"a product of {len(self.terms)} and {len(other.terms)} terms")
        return _make(multiply(dict(self.terms), dict(other.terms)))

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floor_div(self, other) if isinstance(other, (int, Expr)) else NotImplemented

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floor_div(other, self) if isinstance(other, int) else NotImplemented

    def __mod__(self, other: Dim) -> Dim:
        return self - other * floor_div(self, other) if isinstance(other, (int, Expr)) else NotImplemented

    def __rmod__(self, other: Dim) -> Dim:
        return other - self * floor_div(other, self) if isinstance(other, int) else NotImplemented

    def __str__(self) -> str:
        if not self._text:  # kept: the nodes of a model share few expressions
            self._text = self._printed()
        return self._text

    def _printed(self) -> str:
        parts: list[str] = []
        for monomial, k in self.terms:
            factors = [a.text for a in monomial]
            if abs(k) != 1 or not factors:
                factors.insert(0, str(abs(k)))
            sign = (" - " if k < 0 else " + ") if parts else ("-" if k < 0 else "")
            parts.append(sign + "·".join(factors))
        text = "".join(parts)
        alone = len(self.terms) == 1 and self.terms[0][1] == 1 and [a.kind for a in self.terms[0][0]] == ["//"]
        return text[1:-1] if alone else text

    __repr__ = __str__


Dim = int | Expr
_NUMBER: dict[str, Callable[..., int]] = {"//": int.__floordiv__, "min": min, "max": max}


def _number(dim: Dim, dims: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, k in dim.terms:
        for a in monomial:
            k *= dims[a.name] if a.kind == "symbol" else _NUMBER[a.kind](*(_number(x, dims) for x in a.args))
        total += k
    return total


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of many dims, of which many are the same, in one pass."""
    return _sum(((m, n * k) for m, k in _terms(dim).items()) for dim, n in Counter(dims).items())


def symbol(name: str, low: int | None = 1) -> Expr:
    """The symbol of that name; it stands for an integer ≥ `low` (None: any integer).

    It prints as its name, in quotes where that does not read like one: the symbol "2" is `'2'` in "3·'2' + 2". Its size
    is given to `evaluate` by the bare name, as in {"2": 3}.
    """
    return _of(Atom("symbol", (), low, None if low is None else LARGEST, printed(name), name))


def _of(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))


def _make(terms: Terms) -> Dim:
    kept = [(m, k) for m, k in terms.items() if k]
    if len(kept) > 1 and any(a.kind == "//" for m, _ in kept for a in m):
        kept = list(_joined_halves(dict(kept)).items())
    if not kept:
        return 0
    if len(kept) == 1:
        return kept[0][1] if not kept[0][0] else Expr((kept[0],))
    kept.sort(key=lambda t: order(t[0]))
    return Expr(tuple(kept))


@lru_cache(maxsize=1 << 12)
def _halves(atom: Atom) -> tuple[Monomial, Terms] | None:
    """For ⌊x/2⌋ with x = ⌊p/d⌋: the other half ⌊(x + 1)/2⌋, where it is one atom, and x. None for what is no half."""
    p, c = atom.args
    if not isinstance(c, int) or c % 2:
        return None
    other = _terms(floor_div(p + c // 2, c))
    if len(other) > 1 or list(other.values()) != [1]:
        return None
    return next(iter(other)), _terms(floor_div(p, c // 2))


def _joined_halves(terms: Terms) -> Terms:
    """⌊x/2⌋ + ⌊(x + 1)/2⌋ written as x, and x − ⌊x/2⌋ as ⌊(x + 1)/2⌋."""
    for monomial in sorted(terms, key=order):
        for atom in dict.fromkeys(monomial):
            k = terms.get(monomial, 0)
            halves = _halves(atom) if k and atom.kind == "//" else None
            if halves is None:
                continue
            rest = list(monomial)
            rest.remove(atom)
            ((other, _),) = multiply({halves[0]: 1}, {tuple(rest): 1}).items()
            whole = multiply(halves[1], {tuple(rest): 1})
            lead = min(whole, key=order)
            both = terms.get(other, 0)
            if k * both > 0:
                n = min(abs(k), abs(both)) * (1 if k > 0 else -1)
                changes = {monomial: -n, other: -n}
            elif k < 0 < whole[lead] and terms.get(lead, 0) >= -k * whole[lead]:
                n = k
                changes = {monomial: -k, other: -k}
            else:
                continue
            for m, c in [*changes.items(), *((m, n * c) for m, c in whole.items())]:
                terms[m] = terms.get(m, 0) + c
    return {m: k for m, k in terms.items() if k}


def _sum(parts: Iterable[Iterable[tuple[Monomial, int]]]) -> Dim:
    total: Terms = {}
    for part in parts:
        for m, k in part:
            total[m] = total.get(m, 0) + k
    return _make(total)


def _terms(dim: Dim) -> Terms:
    return dict(dim.terms) if isinstance(dim, Expr) else {(): int(dim)} if dim else {}


# Bounds --------------------------------------------------------------------------------------------------------------


def bounds(dim: Dim) -> tuple[int | None, int | None]:
    """Interval that surely holds the value: (low, high), None where no bound is known."""
    if isinstance(dim, int):
        return dim, dim
    low: int | None = 0
    high: int | None = 0
    for monomial, k in dim.terms:
        lo: int | None = 1
        hi: int | None = 1
        for a in monomial:
            if lo is None or a.low is None or lo < 0 or a.low < 0:
                lo = hi = None
                break
            lo, hi = lo * a.low, None if hi is None or a.high is None else hi * a.high
        if len(monomial) == 1:
            lo, hi = monomial[0].low, monomial[0].high
        if k < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + k * lo
        high = None if high is None or hi is None else high + k * hi
    return low, high


def provably_nonnegative(dim: Dim) -> bool:
    """True when `dim` ≥ 0 for all values of its symbols; False means "not proved"."""
    return dim >= 0 if isinstance(dim, int) else _proved(dim)


@lru_cache(maxsize=1 << 14)
def _proved(dim: Expr) -> bool:
    common = 0
    for m, k in dim.terms:
        if m:
            common = gcd(common, k)
    # g·p + k ≥ 0 exactly when p + ⌊k/g⌋ ≥ 0, which is the stronger statement to work with.
    try:
        bound = _make({m: k // common for m, k in dim.terms})
        return _nonnegative(bound, 1, 0, [_WORK]) or (not _refuted(dim) and _nonnegative(bound, 1, _DEPTH, [_WORK]))
    except OverflowError:
        return False


class _Sizes(dict[str, int]):
    """Sizes for symbols as they are asked for, in turn from a list; 1 or more, which every symbol can be."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self._sizes = sizes

    def __missing__(self, name: str) -> int:
        self[name] = size = self._sizes[len(self) % len(self._sizes)]
        return size


def _refuted(dim: Expr) -> bool:
    """Whether some sizes make it negative: then the search for a proof, which is slow in vain, is saved."""
    for sizes in _TRIED:
        try:
            if _number(dim, _Sizes(*sizes)) < 0:
                return True
        except ZeroDivisionError:
            continue
    return False


def _nonnegative(bound: Dim, scale: int, depth: int, work: list[int]) -> bool:
    """Does `bound` ≤ scale·e prove e ≥ 0? It does when bound > −scale, because e is an integer.

    work: how many factors of terms the search may still go through; raises OverflowError beyond them.
    """
    slack = bound + (scale - 1)
    if isinstance(slack, int):
        return slack >= 0
    low = bounds(slack)[0]
    if (low is not None and low >= 0) or _shifted_nonnegative(slack):
        return True
    if depth == 0 or isinstance(bound, int):
        return False
    work[0] -= sum(1 + len(m) for m, _ in bound.terms)
    if work[0] < 0:
        raise OverflowError("a long proof")
    return any(_nonnegative(e, scale * c, depth - 1, work) for e, c in _relaxed(bound)) or any(
        all(_nonnegative(e, scale, depth - 1, work) for e in cases) for cases in _cases(bound)
    )


def _shifted_nonnegative(dim: Expr) -> bool:
    """With every atom written as its lower bound plus something ≥ 0, are all coefficients ≥ 0?"""
    out: Terms = {}
    for monomial, k in dim.terms:
        part: Terms = {(): k}
        for a in monomial:
            if a.low is None or len(part) > 64:
                return False
            part = multiply(part, {(a,): 1, (): a.low} if a.low else {(a,): 1})
        for m, c in part.items():
            out[m] = out.get(m, 0) + c
    return all(k >= 0 for k in out.values())


def _relaxed(dim: Expr) -> Iterator[tuple[Dim, int]]:
    """(e, c) with e ≤ c·dim, c > 0: each has one composite atom replaced by a bound of it."""
    atoms = sorted({a for m, _ in dim.terms for a in m if a.kind != "symbol"}, key=lambda a: (-len(a.text), a.text))
    for atom in atoms[:_BREADTH]:
        inner = [(m, k) for m, k in dim.terms if atom in m]
        if any(m.count(atom) > 1 or any(a.low is None or a.low < 0 for a in m if a != atom) for m, _ in inner):
            continue
        others = _make({m: k for m, k in dim.terms if atom not in m})
        rests = [(_make({tuple(a for a in m if a != atom): 1}), k) for m, k in inner]
        if atom.kind == "//":
            a, c = atom.args
            if isinstance(c, int):  # (a − c + 1)/c ≤ a//c ≤ a/c
                yield sum((rest * k * (a if k < 0 else a - c + 1) for rest, k in rests), c * others), c
        elif all((k < 0) == (atom.kind == "min") for _, k in inner):  # min ≤ each argument ≤ max
            for a in atom.args:
                yield sum((rest * k * a for rest, k in rests), others), 1


def _cases(dim: Expr) -> Iterator[list[Dim]]:
    """For each minimum or maximum in it: the expressions with one of the arguments in its place."""
    for atom in sorted({a for m, _ in dim.terms for a in m if a.kind in ("min", "max")})[:_BREADTH]:
        cases = []
        for arg in atom.args:
            case: Dim = 0
            for m, k in dim.terms:
                left = tuple(a for a in m if a != atom)
                term = _make({left: k})
                for _ in range(len(m) - len(left)):
                    term = term * arg
                case = case + term
            cases.append(case)
        yield cases


# Division, minimum, maximum ------------------------------------------------------------------------------------------


def floor_div(a: Dim, b: Dim) -> Dim:
    """⌊a/b⌋. Raises ZeroDivisionError for a constant 0 divisor."""
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b
        if b == 0:
            raise ZeroDivisionError(f"{a} // 0")
        return _floor_by_int(a, b) if b > 0 else _floor_by_int(-a, -b)
    if b.terms[0][1] < 0:
        return floor_div(-a, -b)
    quotient = exact_quotient(_terms(a), _terms(b))
    if quotient is not None:
        return _make(quotient)
    numerator, divisor = without_common_factor(_terms(a), _terms(b))
    a, b = _make(numerator), _make(divisor)
    if isinstance(b, int):
        return floor_div(a, b)
    if len(b.terms) == 1:
        whole, rest = split_by_monomial(numerator, *b.terms[0])
        if whole:
            return _make(whole) + floor_div(_make(rest), b)
    if provably_nonnegative(a) and provably_nonnegative(b - a - 1):
        return 0
    if provably_nonnegative(-a - 1) and provably_nonnegative(a + b):  # −b ≤ a < 0, as in a shift counted from the end
        return -1
    if isinstance(a, int) and provably_nonnegative(b):  # b is not 0 and a multiple of some g, so at least g
        g = gcd(*(k for _, k in b.terms))
        if -g <= a < g:
            return -1 if a < 0 else 0
    (alow, ahigh), (blow, _) = bounds(a), bounds(b)
    low = high = None
    if alow is not None and alow >= 0 and blow is not None and blow >= 0:
        low, high = 0, None if ahigh is None else ahigh // max(blow, 1)
    return _of(Atom("//", (a, b), low, high, f"({_factor(a)}//{_factor(b)})"))


def _floor_by_int(a: Expr, c: int) -> Dim:
    if c == 1:
        return a
    common = c
    for m, k in a.terms:
        if m:
            common = gcd(common, k)
    if common > 1:  # ⌊(g·p + k)/c⌋ = ⌊(p + ⌊k/g⌋)/(c/g)⌋
        return floor_div(_make({m: k // common for m, k in a.terms}), c // common)
    whole: Terms = {}
    rest: Terms = {}
    for m, k in a.terms:
        q = k // c if k > 0 or not m else -(-k // c)
        whole[m], rest[m] = q, k - c * q
    out, r = _make(whole), _make(rest)
    if isinstance(r, int):
        return out  # 0 ≤ r < c
    if r.terms[0][1] < 0:  # ⌊−x/c⌋ = −⌊(x + c − 1)/c⌋
        return out - floor_div(-r + (c - 1), c)
    nested = [m[0] for m, k in r.terms if k == 1 and len(m) == 1 and m[0].kind == "//"]
    composite = [a for m, _ in r.terms for a in m if a.kind != "symbol"]
    if len(nested) == len(composite) == 1 and isinstance(nested[0].args[1], int):  # ⌊(⌊x/d⌋ + p)/c⌋ = ⌊(x + d·p)/(c·d)⌋
        x, d = nested[0].args
        assert isinstance(d, int)
        return out + floor_div(x + d * (r - _of(nested[0])), c * d)
    if composite and provably_nonnegative(r) and provably_nonnegative(c - 1 - r):
        return out
    low, high = bounds(r)
    if low is None and provably_nonnegative(r):
        low = 0
    atom = Atom(
        "//", (r, c), None if low is None else low // c, None if high is None else high // c, f"({_factor(r)}//{c})"
    )
    return out + _of(atom)


def _factor(dim: Dim) -> str:
    text = str(dim)
    return text if isinstance(dim, int) or _single(dim) else f"({text})"


def _single(dim: Expr) -> bool:
    """Is it one symbol, minimum or maximum, which needs no parentheses as a factor?"""
    monomial, k = dim.terms[0]
    return len(dim.terms) == len(monomial) == k == 1 and monomial[0].kind != "//"


def ceil_div(a: Dim, b: Dim) -> Dim:
    """⌈a/b⌉."""
    return -floor_div(-a, b)


def dmin(*dims: Dim) -> Dim:
    """The smallest of the dims."""
    return _extreme("min", dims)


def dmax(*dims: Dim) -> Dim:
    """The largest of the dims."""
    return _extreme("max", dims)


def _extreme(kind: str, dims: Iterable[Dim]) -> Dim:
    flat: list[Dim] = []
    for d in dims:
        atom = d.terms[0][0][0] if isinstance(d, Expr) and _single(d) else None
        flat += atom.args if atom is not None and atom.kind == kind else (d,)
    kept: list[Dim] = []
    for d in flat:
        sign = 1 if kind == "min" else -1
        if any(provably_nonnegative(sign * (d - k)) for k in kept):
            continue
        kept = [k for k in kept if not provably_nonnegative(sign * (k - d))]
        kept.append(d)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=str)
    ranges = [bounds(d) for d in kept]
    lows, highs = [lo for lo, _ in ranges if lo is not None], [hi for _, hi in ranges if hi is not None]
    every_low, every_high = len(lows) == len(kept), len(highs) == len(kept)
    if kind == "min":
        low, high = min(lows) if every_low else None, min(highs, default=None)
    else:
        low, high = max(lows, default=None), max(highs) if every_high else None
    return _of(Atom(kind, tuple(kept), low, high, f"{kind}({', '.join(map(str, kept))})"))
