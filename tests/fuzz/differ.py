"""What is wrong with the numbers of one output, where they are others than rounding makes."""

from __future__ import annotations

import numpy as np
import onnx

from .generate import Case
from .rounding import epsilon, rerounded, sensitivity
from .sessions import Feeds, values_of

# ∞·a + ∞·b is NaN where a and b differ in sign, and ∞·(a + b) is not: rules that put terms of one value together.
TOGETHER = {
    "parallel_convs", "factored_sum", "affine_chain", "affine_into_previous", "affine_into_next", "pool_before_conv",
    "product_chain", "conv_of_conv",
}  # fmt: skip
# Documented: an infinity gives NaN, as 0·∞ is.
SPOILED = {"prelu_depthwise", "prelu_channels", "aligned_channels", "conv_of_conv"}


def differ(
    case: Case,
    name: str,
    feeds: Feeds,
    index: int,
    expected: np.ndarray,
    own: np.ndarray,
    found: np.ndarray,
    fired: set[str],
) -> tuple[str, str] | None:
    """What is wrong with one output on one draw: kind and text."""
    if expected.shape != own.shape:
        return None
    if expected.dtype != found.dtype or own.shape != found.shape:
        return "shape", f"{expected.dtype}{expected.shape} became {found.dtype}{found.shape}"
    if expected.dtype.kind != "f":
        same = np.array_equal(expected, found) or not np.array_equal(expected, own)
        same = same or case.special or not name.startswith("normal")  # indices of equal maxima
        return None if same else ("numbers", f"{expected} became {found}")
    if case.huge or name.startswith("huge"):
        return None
    with np.errstate(all="ignore"):
        return _floats(case, name, feeds, index, (expected, own, found), fired)


def _floats(
    case: Case, name: str, feeds: Feeds, index: int, values: tuple[np.ndarray, ...], fired: set[str]
) -> tuple[str, str] | None:
    expected = values[0]
    a, o, f = (v.astype(np.float64) for v in values)
    odd, infinite = case.special or not name.startswith("normal"), case.special or name.startswith("infinite")
    if odd and any("MaxPool" in n.op_type for n in case.model.graph.node):
        return None  # which number it takes where one is NaN depends on the kernel
    together = infinite and fired & TOGETHER
    became = np.isnan(a) & np.isnan(o) & np.isfinite(f)
    if np.any(became) and not together and not _overflows(case.model, feeds):
        again = list(rerounded(case.model, feeds, index, fired))
        if all(r is not None and np.array_equal(np.isnan(r), np.isnan(a)) for r in again):
            return "nan", f"NaN became a number: {a[became][:8]} {f[became][:8]}"
        # else which ones are NaN is a matter of rounding: a power of what is around 0
    finite = np.isfinite(a) & np.isfinite(o)
    largest = float(np.max(np.abs(a[finite]), initial=0))
    limit = float(np.finfo(expected.dtype).max)
    if fired & SPOILED and infinite:
        return None
    if odd and "parallel_convs" in fired:
        together = True  # documented: a kernel that is wider than the one it was has zeros, and 0·NaN is NaN
    # In blocks of channels those that fill the last block become 0·∞, and the next convolution multiplies them by 0.
    blocked = infinite and name.endswith("all") and any(n.op_type == "Conv" for n in case.model.graph.node)
    gone = finite & ~np.isfinite(f)
    if np.any(gone) and largest < limit / 1e4 and not (together or blocked):
        if fired & SPOILED and _meets_infinity(case.model, feeds):
            return None
        if sensitivity(case.model, feeds, index, expected, fired) < 1e-3 * largest:  # else it divides by what cancels
            return "finite", f"a number became none: {a[gone][:4]} → {f[gone][:4]}"
        return None
    both = finite & np.isfinite(f)
    difference = float(np.max(np.abs(a - f)[both], initial=0))
    # Sums in another order, and weights that are rounded once more: some units in the last place of the largest.
    allowed = 64 * epsilon(case.model) * largest + 1e-30
    if difference <= allowed:
        return None
    if "mish" in fired and any(n.op_type == "Log" for n in case.model.graph.node):
        allowed += 1e-3 * largest  # log(1 + eˣ) has lost the digits of small eˣ, which the rewrite keeps
    allowed += 2 * float(np.max(np.abs(a - o)[both], initial=0))
    if difference <= allowed:
        return None
    allowed += 8 * sensitivity(case.model, feeds, index, expected, fired)
    if difference <= allowed or not np.isfinite(allowed):
        return None
    if together and _meets_infinity(case.model, feeds):
        return None  # NaN in one of them, and HardSigmoid makes a number of it
    return "numbers", f"differs by {difference:.3g} of {largest:.3g}, {allowed:.3g} allowed"


def _meets_infinity(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether a value between the inputs and the outputs is infinite."""
    return any(np.isinf(v).any() for v in values_of(model, feeds).values() if v.dtype.kind == "f")


def _overflows(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether a value is so large that its square, or a sum of a few, is infinite: a Clip makes such of infinities."""
    floats = [v for v in values_of(model, feeds).values() if v.dtype.kind == "f" and v.size]
    return any(np.max(np.abs(v[np.isfinite(v)]), initial=0) > np.sqrt(np.finfo(v.dtype).max) for v in floats)
