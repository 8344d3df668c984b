"""The elements of small tensors through operators that work element by element, as runtimes compute them.

Integers are Python's and expressions, so exact. Floats are numpy's in their own dtype: one correct rounding an
operation. Where runtimes differ, the result is Unclear: float16 with a rounding (some keep float32 between two nodes),
extremes of NaN and −0, powers, functions that are not rounded correctly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from onnxfuse.facts import fraction, integers
from onnxfuse.facts.call import Call, Unclear, array, elementwise, fold, numbers
from onnxfuse.facts.contents import FLOATS
from onnxfuse.facts.elementwise import target
from onnxfuse.facts.expr import Dim, Expr, floor_div
from onnxfuse.facts.fraction import Ratio

INTEGERS = frozenset({T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64})


# Floats --------------------------------------------------------------------------------------------------------------


def _float_power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """As onnxruntime has it: squares and cubes are products, and its `powf` is rounded once. Others only those."""
    if base.dtype != np.float32 and not np.isin(exponent, (1, 2)).all():
        raise Unclear
    wide = np.power(base.astype(np.float64), exponent.astype(np.float64))
    out = np.where(exponent == 3, base * base * base, wide.astype(base.dtype))
    return np.where(exponent == 2, base * base, out)


def _float_sum(*arrays: np.ndarray) -> np.ndarray:
    out = arrays[0]
    for a in arrays[1:]:
        out = out + a
    if len(arrays) > 2 and not np.array_equal(out, sum(a.astype(np.longdouble) for a in arrays)):
        raise Unclear  # the order decides
    return out


def check_ordered(*arrays: np.ndarray) -> None:
    """Raises Unclear where a NaN or a −0 is among these: runtimes differ in what the least and largest are then."""
    for a in arrays:
        if a.dtype.kind == "f" and (np.isnan(a).any() or np.any((a == 0) & np.signbit(a))):
            raise Unclear


def least(*arrays: np.ndarray) -> np.ndarray:
    """The least of each place. Raises Unclear (see `check_ordered`)."""
    check_ordered(*arrays)
    return np.asarray(np.minimum.reduce(np.broadcast_arrays(*arrays)))


def largest(*arrays: np.ndarray) -> np.ndarray:
    """The largest of each place. Raises Unclear (see `check_ordered`)."""
    check_ordered(*arrays)
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*arrays)))


_FLOAT: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Mod": np.fmod,
    "Pow": _float_power,
    "Neg": np.negative,
    "Abs": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Sum": _float_sum,
    "Sign": np.sign,
    "Relu": lambda a: largest(a, np.zeros((), a.dtype)),
    "Identity": lambda a: a,
    "Min": least,
    "Max": largest,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
}


def computed(function: Callable[..., Any], arrays: list[np.ndarray]) -> np.ndarray:
    """An element-wise function of arrays of one float dtype; bools as objects. Unclear where float16 is rounded."""
    with np.errstate(all="ignore"):
        out = np.asarray(function(*arrays))
        if arrays[0].dtype == np.float16:
            wide = np.asarray(function(*[a.astype(np.float64) for a in arrays]))
            if not np.array_equal(out, wide, equal_nan=out.dtype != bool):
                raise Unclear
    return out.astype(object) if out.dtype == bool else out


# Floats with symbols -------------------------------------------------------------------------------------------------


def _plain(x: Any) -> Any:
    """A number as a Python int where it is whole, a symbolic value as it is."""
    if isinstance(x, float):
        return int(x) if x.is_integer() else x
    return x


def _whole(x: Any) -> Dim:
    """What must be a whole number to be compared with a symbol."""
    if isinstance(x, float | Ratio):
        raise Unclear
    whole: Dim = x
    return whole


def _mixed_product(a: Any, b: Any, dtype: int) -> object:
    if isinstance(a, int | float):
        a, b = b, a
    if isinstance(b, int | float) and isinstance(a, Expr | Ratio):
        return fraction.times(a, float(b), dtype)
    return _whole(a) * _whole(b)


def _mixed_quotient(a: Any, b: Any, dtype: int) -> object:
    if isinstance(b, int | float) and isinstance(a, Expr | Ratio):
        return fraction.divided(a, float(b), dtype)
    quotient = floor_div(_whole(a), _whole(b))
    if quotient * b != a or integers.sign_of(b) == 0:  # an exact quotient is not rounded; 0/0 is no number
        raise Unclear
    return quotient


_SYMBOLIC: dict[str, Callable[..., object]] = {
    "Add": lambda a, b, _: fraction.plus(a, b),
    "Sub": lambda a, b, _: fraction.plus(a, fraction.negated(b)),
    "Mul": _mixed_product,
    "Div": _mixed_quotient,
    "Neg": lambda a, _: fraction.negated(a),
    "Floor": lambda a, _: fraction.floor(a),
    "Ceil": lambda a, _: fraction.ceil(a),
    "Round": lambda a, _: fraction.nearest(a),
    "Identity": lambda a, _: a,
}


def _with_symbols(op: str, arrays: list[np.ndarray], dtype: int) -> np.ndarray:
    """Elements of a float dtype of which some are symbolic; the others are numbers of that dtype."""
    number = helper.tensor_dtype_to_np_dtype(dtype).type

    def one(*x: Any) -> object:
        if any(isinstance(a, Expr | Ratio) for a in x):
            x = tuple([_plain(a) for a in x])
            return _SYMBOLIC[op](*x, dtype) if op in _SYMBOLIC else integers.TABLE[op](*map(_whole, x))
        return computed(_FLOAT[op], [np.asarray(a, number) for a in x]).item()

    if op not in _FLOAT or op in ("Mod", "Pow", "Sqrt", "Reciprocal", "Sign"):
        raise Unclear
    return elementwise(one, *arrays)


# Operators -----------------------------------------------------------------------------------------------------------

_ARITY = {"Sqrt": 1, "Reciprocal": 1} | {
    name: f.__code__.co_argcount for name, f in integers.TABLE.items() if name not in ("Sum", "Min", "Max")
}


@fold(" ".join(dict.fromkeys([*integers.TABLE, *_FLOAT])))
def _elements(c: Call) -> np.ndarray:
    arrays = [v.data for v in c.inputs if v.data is not None]
    op, dtype = c.node.op_type, c.value(0).dtype
    if _ARITY.get(op, len(arrays)) != len(arrays):
        raise Unclear
    truncates = op == "Mod" and bool(c.attr("fmod", 0))
    if all(a.dtype != object for a in arrays):
        if op not in _FLOAT or (op == "Mod" and not truncates):
            raise Unclear
        return computed(_FLOAT[op], arrays)
    if any(v.dtype in FLOATS for v in c.inputs):
        if not all(v.dtype == dtype for v in c.inputs):
            raise Unclear
        return _with_symbols(op, arrays, dtype)
    if op not in integers.TABLE:
        raise Unclear
    return elementwise(integers.truncating_mod if truncates else integers.TABLE[op], *arrays)


@fold("Where")
def _where_elements(c: Call) -> np.ndarray:
    condition, *values = (numbers(c.data(0)), c.data(1), c.data(2))
    if all(a.dtype != object for a in values):
        return np.where(condition.astype(bool), *values)
    return elementwise(lambda q, a, b: a if q else b, condition, *values)


@fold("Clip")
def _clipped_elements(c: Call) -> np.ndarray:
    data = c.data(0)
    for name, i, op in (("min", 1, "Max"), ("max", 2, "Min")):
        limit: Any = c.node.attrs.get(name)
        if limit is None and c.has(i):
            (limit,) = c.data(i).reshape(-1).tolist()
        if limit is None or (isinstance(limit, float) and np.isinf(limit)):
            continue
        if c.value(0).dtype not in FLOATS:
            data = elementwise(integers.TABLE[op], data, array([limit], ()))
        elif data.dtype == object or isinstance(limit, Expr | Ratio):
            data = _with_symbols(op, [data, array([limit], ())], c.value(0).dtype)
        else:
            data = computed(_FLOAT[op], [data, np.asarray(limit, data.dtype)])
    return data


@fold("Cast CastLike")
def _cast_elements(c: Call) -> np.ndarray:
    data = c.inputs[0].data
    given, to = c.inputs[0].dtype, target(c) if c.node.op_type == "Cast" else c.value(1).dtype
    if data is None or to == 0:
        raise Unclear
    elements = data.reshape(-1).tolist() if data.dtype == object else []
    if to in FLOATS:
        if any(isinstance(d, Ratio) and not d.exact for d in elements) and to != T.DOUBLE:
            raise Unclear  # rounded twice
        # A symbol stays an exact integer; the other elements beside it too.
        return data if any(isinstance(d, Expr | Ratio) for d in elements) else _as_floats(data, given, to)
    if to == T.BOOL:
        if data.dtype == object:
            return elementwise(lambda d: integers.sign_of(d) != 0, data)
        return np.asarray(data != 0).astype(object)
    if to not in INTEGERS:
        raise Unclear
    if data.dtype != object and not np.isfinite(data).all():
        raise Unclear
    return elementwise(lambda d: fraction.truncated(d) if isinstance(d, Expr | Ratio) else int(d), data)


def _as_floats(data: np.ndarray, given: int, to: int) -> np.ndarray:
    """Elements in another dtype. What is rounded twice on the way, as some runtimes do it, is Unclear."""
    with np.errstate(all="ignore"):
        out = data.astype(helper.tensor_dtype_to_np_dtype(to))
        wide = data.astype(np.float64)
        once = to == T.DOUBLE or given in (T.FLOAT, to) or (to == T.FLOAT and given == T.DOUBLE)
        if not once and not np.array_equal(out.astype(np.float64), wide, equal_nan=True):
            raise Unclear
        if data.dtype == object and any(int(w) != d for w, d in zip(wide.flat, data.flat, strict=True)):
            raise Unclear
    return out
