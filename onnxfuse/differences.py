"""How far one array is from another, on the scale of the first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# The least scale: where an output is all zeros, an absolute error above tolerance × 1e-6 is still an error.
LEAST_SCALE = 1e-6
# Numbers beyond it stand for infinity (the lowest float as a mask or an empty maximum): they set no scale for others.
_HUGE = 1e30


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
    """The difference of one output; `tolerance` holds for floats, everything else must be equal."""
    dtype = str(original.dtype)
    exact = original.dtype.kind in "iubOSU"
    if optimized is None or original.dtype != optimized.dtype or original.shape != optimized.shape:
        cause = "missing" if optimized is None else "dtype" if original.dtype != optimized.dtype else "shape"
        return OutputDifference(name, dtype, np.inf, np.inf, 1.0, 0.0 if exact else tolerance, 0, False, cause)
    if exact:
        count = int(np.count_nonzero(original != optimized))
        fraction = count / max(original.size, 1)
        far = (
            float(np.max(np.abs(original.astype(float) - optimized.astype(float)), initial=0))
            if (original.dtype.kind in "iub")
            else float(count > 0)
        )
        return OutputDifference(
            name, dtype, fraction, far, 1.0, 0.0, original.size, count == 0, "value" if count else None
        )
    wide = np.complex128 if original.dtype.kind == "c" else np.float64
    a, b = original.astype(wide), optimized.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    plain = finite & (np.abs(a) <= _HUGE)
    if not np.any(plain):
        plain = finite
    scale = max(float(np.max(np.abs(a[plain]), initial=0)), LEAST_SCALE)
    compared = int(np.count_nonzero(finite))
    if not np.all(finite | (np.isnan(a) & np.isnan(b)) | (a == b)):  # equal infinities have equal signs
        return OutputDifference(name, dtype, np.inf, np.inf, scale, tolerance, compared, False, "places")
    far = float(np.max(np.abs(a[plain] - b[plain]), initial=0))
    beyond = finite & ~plain
    error = max(far / scale, float(np.max(np.abs(a[beyond] - b[beyond]) / np.abs(a[beyond]), initial=0)))
    ok = error <= tolerance
    return OutputDifference(name, dtype, error, far, scale, tolerance, compared, ok, None if ok else "value")


def describe(difference: OutputDifference) -> str:
    """What is wrong with an output, in one clause."""
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
