"""Numbers as a person reads them: SI prefixes, bytes, seconds. None prints "?", an expression prints itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxfuse.facts.expr import Dim, Expr

_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
LONGEST = 200  # characters of a formula that a person still reads
_WHOLE = ", whole in --json"
_CUT = f" … +9,999 terms{_WHOLE}"
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def digits(x: float) -> str:
    """Three significant digits, at most two after the point, without an exponent: 0.01, 1.23, 12.3, 1,234."""
    size = abs(x)
    return f"{x:,.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def digits_or_unknown(x: float | None) -> str:
    """`digits`, with "?" for None."""
    return "?" if x is None else digits(x)


def count(x: object, unit: str = "") -> str:
    """A count with an SI prefix: 0, 950, 1.23 G; with a unit 1.23 GFLOP."""
    if x is None:
        return "?"
    if not isinstance(x, int | float):
        return f"{x} {unit}".rstrip()
    for factor, prefix in _PREFIXES:
        if abs(x) >= 0.9995 * factor:
            return f"{digits(x / factor)} {prefix}{unit}"
    return f"{x:.0f} {unit}".rstrip() if isinstance(x, int) else f"{digits(x)} {unit}".rstrip()


def size(x: object) -> str:
    """Bytes with a decimal prefix, as bandwidths are given: 512 B, 1.23 MB."""
    return count(x, "B")


def time(x: float | None) -> str:
    """Seconds in the largest fitting unit: 1.23 µs, 45.6 ms."""
    if x is None:
        return "?"
    if x == 0:
        return "0 s"
    for factor, unit in _TIMES:
        if abs(x) >= 0.9995 * factor:
            return f"{digits(x / factor)} {unit}"
    return f"{digits(x / 1e-9)} ns"


def megabytes(x: object) -> str:
    """Bytes as a number of MB for a column of such: 1.23, <0.01, 0; "?" for what is no number."""
    if isinstance(x, int | float):
        return "0" if x == 0 else "<0.01" if x < 0.005e6 else f"{x / 1e6:,.2f}"
    return "?"


def formula(x: Expr) -> str:
    """An expression; one of more than `LONGEST` characters by its leading terms, "… +N terms, whole in --json".

    Terms of the highest degree lead, of these the ones with the largest coefficients. The first term may take twice
    the length, so that there is something to read.
    """
    text = str(x)
    if len(text) <= LONGEST:
        return text
    terms = sorted(x.terms, key=lambda term: (-len(term[0]), -abs(term[1])))
    heads = [str(type(x)(tuple(terms[:kept]))) for kept in range(1, len(terms))]
    fitting = [head for head in heads if len(head) + len(_CUT) <= LONGEST]
    fitting = fitting or [head for head in heads[:1] if len(head) <= 2 * LONGEST]
    if fitting:
        return f"{fitting[-1]} … +{several(len(terms) - len(fitting), 'term')}{_WHOLE}"
    atom = terms[0][0][0]
    if len(terms) == 1 and terms[0] == ((atom,), 1) and atom.kind in ("min", "max"):
        first = max(atom.args, key=_leading)
        if len(str(first)) + len(_CUT) <= LONGEST:
            return f"{atom.kind}({first}, … +{len(atom.args) - 1:,} more){_WHOLE}"
    return f"a long formula{_WHOLE}"


def _leading(dim: Dim) -> tuple[int, int]:
    """Degree and coefficient of what leads an argument of a minimum or maximum."""
    terms = [((), dim)] if isinstance(dim, int) else dim.terms
    return max((len(monomial), k) for monomial, k in terms)


def several(n: int, noun: str) -> str:
    """How many of a thing: 1 node, 1,234 nodes."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def percent(part: float, whole: float) -> str:
    """A share: 12.3 %; "–" of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def printable(text: str) -> str:
    """Text without what could move a terminal's cursor: every unprintable character becomes "?"."""
    return "".join(c if c.isprintable() else "?" for c in text)


def shorten(text: str, width: int) -> str:
    """Text cut to `width` characters; most of what stays is the end, where the names of nodes differ."""
    return _cut(printable(text), width, (width - 1) // 3)


def shorten_apart(texts: Sequence[str], width: int) -> list[str]:
    """Texts cut to `width` characters each; different ones stay different where the width allows it.

    Those that `shorten` would make the same show the part in which they differ instead of their common ends. Scopes
    that the next one repeats ("/block/block.2/…") are left out of them.
    """
    shown = {text: shorten(text, width) for text in texts}
    groups: dict[str, list[str]] = {}
    for text, short in shown.items():
        groups.setdefault(short, []).append(text)
    for group in groups.values():
        if len(group) > 1:
            shown.update(zip(group, _apart([_unrepeated(printable(text)) for text in group], width), strict=True))
    return [shown[text] for text in texts]


def _apart(texts: Sequence[str], width: int) -> list[str]:
    """Texts cut to the part in which they differ, with some of what is around it."""
    before = _common(texts)
    after = _common([text[before:][::-1] for text in texts])
    longest = max(len(text) for text in texts)
    room = width - 2 - (longest - before - after)  # for parts of the common ends, between two "…"
    tail = min(after, max(0, room - min(before, room // 3)))
    head = min(before, max(0, room - tail))
    left, right = before - head, after - tail
    inner = [text[left : len(text) - right] for text in texts]
    ends = ("…" if left else "", "…" if right else "")
    space = width - len("".join(ends))
    cuts = sorted(range(space), key=lambda cut: abs(cut - (space - 1) // 3))
    best = max(cuts, key=lambda cut: len({_cut(text, space, cut) for text in inner}))  # of equal ones the first
    return [f"{ends[0]}{_cut(text, space, best)}{ends[1]}" for text in inner]


def _common(texts: Sequence[str]) -> int:
    """How many characters all texts start with."""
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _unrepeated(text: str) -> str:
    """A name without the scopes that the next one starts with: "/block.2.0/Conv" of "/block/block.2/block.2.0/Conv"."""
    parts = text.split("/")
    kept = [part for part, following in pairwise(parts) if not part or not following.startswith(f"{part}.")]
    return "/".join([*kept, parts[-1]])


def _cut(text: str, width: int, head: int) -> str:
    """Text of at most `width` characters, `head` of them from its start and the others from its end."""
    return text if len(text) <= width else f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
