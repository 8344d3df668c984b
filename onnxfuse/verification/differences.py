"""How far one array is from another, on the scale of the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# The least scale: where an output is all zeros, an absolute error above tolerance × 1e-6 is still an error.
LEAST_SCALE = 1e-6
# Numbers beyond it stand for infinity (the lowest float as a mask or an empty maximum): they set no scale for others.
_HUGE = 1e30
_BLOCK = 1 << 15  # elements that are compared at a time: what is made of them stays in a core's cache


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How far one output is off.

    max_error: largest absolute error / scale; for integers, booleans and strings the fraction of elements that differ;
        inf where dtype, shape or the places of NaN and Inf differ. max_abs_error: the same, not divided by the scale.
    scale: the largest finite |original|, at least 1e-6 (1 for exact types). tolerance: what max_error may be.
    compared: how many elements were compared (finite ones).
    cause: None where ok, else "dtype", "shape", "places" (of NaN and Inf), "value" or "missing".
    """

    name: str
    dtype: str
    max_error: float
    max_abs_error: float
    scale: float
    tolerance: float
    compared: int
    ok: bool
    cause: str | None = None


def difference(name: str, original: np.ndarray, optimized: np.ndarray | None, tolerance: float) -> OutputDifference:
    """Return the difference of one output. `tolerance` applies to floats; all other dtypes must be equal."""
    dtype = str(original.dtype)
    exact = original.dtype.kind in "iubOSU"
    if optimized is None or original.dtype != optimized.dtype or original.shape != optimized.shape:
        cause = "missing" if optimized is None else "dtype" if original.dtype != optimized.dtype else "shape"
        return OutputDifference(name, dtype, np.inf, np.inf, 1.0, 0.0 if exact else tolerance, 0, False, cause)
    if exact:
        count, far = _unequal(original, optimized)
        fraction = count / max(original.size, 1)
        return OutputDifference(
            name, dtype, fraction, far, 1.0, 0.0, original.size, count == 0, "value" if count else None
        )
    found = _compared(original, optimized)
    far, top = (found.far, found.top) if found.plain else (found.far_beyond, found.top_beyond)
    scale = max(top, LEAST_SCALE)
    if found.misplaced:
        return OutputDifference(name, dtype, np.inf, np.inf, scale, tolerance, found.finite, False, "places")
    error = max(far / scale, found.ratio_beyond if found.plain else 0.0)
    ok = error <= tolerance
    return OutputDifference(name, dtype, error, far, scale, tolerance, found.finite, ok, None if ok else "value")


def describe(difference: OutputDifference) -> str:
    """Return what is wrong with an output, in one clause."""
    d = difference
    match d.cause:
        case "missing":
            return f"output '{d.name}' is missing"
        case "dtype" | "shape":
            return f"output '{d.name}' has another {d.cause}"
        case "places":
            return f"output '{d.name}' has NaN or Inf at other places"
        case _ if d.tolerance == 0:
            return f"output '{d.name}' differs in {d.max_error:.2%} of its elements"
        case _:
            return f"output '{d.name}' is off by {d.max_error:.1e} of its scale (tolerance {d.tolerance:.0e})"


@dataclass(slots=True)
class _Compared:
    """What a comparison has found so far. Plain: both finite and |original| at most `_HUGE`; beyond: finite, not plain.

    far, top: largest |a − b| and |a|. ratio_beyond: largest |a − b| / |a|. misplaced: a NaN or an infinity of one array
    has no equal in the other.
    """

    plain: int = 0
    finite: int = 0
    far: float = 0.0
    top: float = 0.0
    far_beyond: float = 0.0
    top_beyond: float = 0.0
    ratio_beyond: float = 0.0
    misplaced: bool = False

    def add(self, a: np.ndarray, b: np.ndarray) -> None:
        """Compare two blocks; those of ordinary numbers, nearly all, in three passes."""
        far, top = float(np.max(np.abs(a - b))), float(np.max(np.abs(a)))
        if far <= _HUGE and top <= _HUGE:  # False for NaN
            self.plain += a.size
            self.finite += a.size
            self.far, self.top = max(self.far, far), max(self.top, top)
        else:
            self._add_carefully(a, b)

    def _add_carefully(self, a: np.ndarray, b: np.ndarray) -> None:
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        finite = np.isfinite(a) & np.isfinite(b)
        plain = finite & (np.abs(a) <= _HUGE)
        beyond = finite & ~plain
        self.misplaced |= not np.all(finite | (np.isnan(a) & np.isnan(b)) | (a == b))  # equal infinities: equal signs
        self.plain += int(np.count_nonzero(plain))
        self.finite += int(np.count_nonzero(finite))
        gap, size = np.abs(a - b), np.abs(a)
        self.far = max(self.far, float(np.max(gap, where=plain, initial=0)))
        self.top = max(self.top, float(np.max(size, where=plain, initial=0)))
        self.far_beyond = max(self.far_beyond, float(np.max(gap, where=beyond, initial=0)))
        self.top_beyond = max(self.top_beyond, float(np.max(size, where=beyond, initial=0)))
        self.ratio_beyond = max(self.ratio_beyond, float(np.max(gap / size, where=beyond, initial=0)))


def _compared(a: np.ndarray, b: np.ndarray) -> _Compared:
    found = _Compared()
    narrow = a.dtype if a.dtype in (np.float32, np.float64, np.complex64, np.complex128) else np.dtype(np.float32)
    with np.errstate(all="ignore"):
        for x, y in _blocks(a, b):
            found.add(x.astype(narrow, copy=False), y.astype(narrow, copy=False))
    return found


def _unequal(a: np.ndarray, b: np.ndarray) -> tuple[int, float]:
    """How many elements differ, and by how much at most; 1 for what is no number."""
    count, far = 0, 0.0
    for x, y in _blocks(a, b):
        here = int(np.count_nonzero(x != y))
        if here and a.dtype.kind in "iub":
            far = max(far, float(np.max(np.abs(x.astype(float) - y.astype(float)))))
        elif here:
            far = 1.0
        count += here
    return count, far


def _blocks(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    flat, other = a.reshape(-1), b.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK], other[start : start + _BLOCK]
