"""The elements of small tensors: what is read, what is kept, and in which form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

from onnxfuse.facts.call import array
from onnxfuse.facts.expr import Expr, bounds
from onnxfuse.facts.fraction import Ratio
from onnxfuse.facts.value import Shape

INTEGER_LIMIT, FLOAT_LIMIT = 1024, 64  # no larger tensor is read or computed
LONGEST = 600  # characters of the expressions that are followed

_RANGES: dict[int, tuple[int, int]] = {
    T.INT8: (-(2**7), 2**7 - 1), T.INT16: (-(2**15), 2**15 - 1), T.INT32: (-(2**31), 2**31 - 1),
    T.INT64: (-(2**63), 2**63 - 1), T.UINT8: (0, 2**8 - 1), T.UINT16: (0, 2**16 - 1), T.UINT32: (0, 2**32 - 1),
    T.UINT64: (0, 2**64 - 1), T.BOOL: (0, 1),
}  # fmt: skip
FLOATS = frozenset({T.FLOAT, T.DOUBLE, T.FLOAT16})

Read = Callable[[onnx.TensorProto], np.ndarray | None]


def content(tensor: onnx.TensorProto, read: Read) -> np.ndarray | None:
    """Elements of a small numeric tensor: an object array of ints or bools, or a float array; None otherwise."""
    dtype = tensor.data_type
    size = math.prod(tensor.dims)
    if size > (INTEGER_LIMIT if dtype in _RANGES else FLOAT_LIMIT if dtype in FLOATS else -1):
        return None
    data = read(tensor) if size else np.zeros(0, helper.tensor_dtype_to_np_dtype(dtype))
    if data is None or data.size != size:
        return None
    data = data.reshape(tuple(tensor.dims))
    return data.astype(object) if dtype in _RANGES else data


def count(shape: Shape) -> int:
    """Number of elements of a shape without symbols."""
    return math.prod(d for d in shape if isinstance(d, int))


def fitted(data: np.ndarray, dtype: int, shape: Shape | None) -> np.ndarray | None:
    """The elements in the form `Value.data` promises; None where they overflow or do not fit the shape."""
    if shape is None or data.size != count(shape):
        return None
    data = data.reshape(tuple(d for d in shape if isinstance(d, int)))
    if dtype in _RANGES:
        low, high = _RANGES[dtype]
        elements = data.reshape(-1).tolist()
        if not all(_holds(dtype, d) if isinstance(d, Expr) else low <= d <= high for d in elements):
            return None
        return array([bool(d) for d in elements] if dtype == T.BOOL else elements, data.shape)
    if dtype not in FLOATS or data.size > FLOAT_LIMIT:
        return None
    numpy_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    if data.dtype != object:
        return data
    numbers = np.array([d for d in data.reshape(-1) if not isinstance(d, Expr | Ratio)], np.float64)
    with np.errstate(over="ignore"):
        if not np.array_equal(numbers.astype(numpy_dtype), numbers, equal_nan=True):
            return None
    if numbers.size == data.size:
        return data.astype(numpy_dtype)
    return data if all(_holds(dtype, d) for d in data.reshape(-1) if isinstance(d, Expr | Ratio)) else None


def _holds(dtype: int, d: Expr | Ratio) -> bool:
    """Whether a dtype holds a size exactly. Models that compute sizes in int32 do so for sizes that fit, products too,
    and those in float32 for single dimensions below 2²⁴; in narrower types it must be proved.
    """
    if isinstance(d, Ratio):
        return dtype in (T.FLOAT, T.DOUBLE) and _holds(dtype, d.top)
    if d.length > LONGEST:
        return False
    if dtype in (T.INT64, T.INT32, T.DOUBLE):
        return True
    if dtype == T.FLOAT:
        return all(len(monomial) <= 1 for monomial, _ in d.terms)
    least, most = _RANGES.get(dtype, (-(2**11), 2**11))  # float16
    low, high = bounds(d)
    if dtype in (T.UINT32, T.UINT64):
        return low is not None and low >= 0
    return low is not None and high is not None and least <= low and high <= most
