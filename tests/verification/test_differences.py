"""The error of one output, by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxfuse.verification.differences import describe, difference


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_an_error_is_relative_to_the_largest_value():
    d = difference("y", f32(0, -8, 1), f32(0.25, -8, 1), 1e-5)
    assert (d.max_error, d.max_abs_error, d.scale, d.compared) == (0.25 / 8, 0.25, 8, 3)
    assert not d.ok
    assert describe(d) == "output 'y' is off by 3.1e-02 of its scale (tolerance 1e-05)"
    assert difference("y", f32(0, -8, 1), f32(0.25, -8, 1), 0.25 / 8).ok  # the bar itself is allowed


def test_the_scale_never_falls_below_its_floor():
    d = difference("y", f32(0, 0), f32(0, 5e-7), 1e-5)
    assert d.scale == 1e-6
    assert d.max_error == pytest.approx(0.5, rel=1e-6)
    assert not d.ok


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ((np.nan, 1), (np.nan, 1), True),
        ((np.inf, 1), (np.inf, 1), True),
        ((np.inf, 1), (-np.inf, 1), False),
        ((np.nan, 1), (np.inf, 1), False),
        ((np.nan, 1), (1, 1), False),
        ((1, 1), (np.nan, 1), False),
    ],
)
def test_places_of_nan_and_inf(a, b, same):
    d = difference("y", f32(*a), f32(*b), 1e-5)
    assert d.ok is same
    assert d.compared == 1
    assert d.cause == (None if same else "places")


def test_an_infinity_does_not_widen_the_scale():
    assert difference("y", f32(np.inf, 1), f32(np.inf, 1.1), 1e-2).cause == "value"


def test_integers_booleans_and_strings_are_compared_exactly():
    d = difference("y", np.array([1, 2, 3, 4]), np.array([1, 2, 9, 4]), 0.5)
    assert (d.max_error, d.max_abs_error, d.ok) == (0.25, 6, False)
    assert describe(d) == "output 'y' differs in 25.00% of its elements"
    assert not difference("y", np.array([True]), np.array([False]), 1).ok
    assert not difference("y", np.array(["a"], object), np.array(["b"], object), 1).ok
    assert difference("y", np.array(["a"], object), np.array(["a"], object), 1).ok
    large = np.array([2**63 - 1])  # one apart is the same number in float64
    assert not difference("y", large, large - 1, 1).ok


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.complex64, ml_dtypes.bfloat16])
def test_other_float_types(dtype):
    a = np.array([1, 2]).astype(dtype)
    assert difference("y", a, a, 1e-9).ok
    assert difference("y", a, np.array([1, 3]).astype(dtype), 1e-9).max_error == 0.5


def test_shape_dtype_and_absence():
    a = f32(1, 2)
    assert describe(difference("y", a, f32(1, 2, 3), 1)) == "output 'y' has another shape"
    assert describe(difference("y", a, a.reshape(1, 2), 1)) == "output 'y' has another shape"
    assert describe(difference("y", a, a.astype(np.float64), 1)) == "output 'y' has another dtype"
    assert describe(difference("y", a, None, 1)) == "output 'y' is missing"


def test_an_empty_output_compares_nothing():
    d = difference("y", np.empty((0, 6), np.float32), np.empty((0, 6), np.float32), 1e-5)
    assert (d.ok, d.compared, d.max_error) == (True, 0, 0)
