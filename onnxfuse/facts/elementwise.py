"""Shapes and values of operators that work element by element, with and without broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto as T
from onnx import helper

from onnxfuse.facts.call import SAME, Call, Result, Unclear, broadcast, elementwise, fold, like, rule
from onnxfuse.facts.contents import FLOATS
from onnxfuse.facts.expr import Dim, Expr, dmax, dmin, floor_div, provably_nonnegative


def _either(c: Call) -> int:
    return next((v.dtype for v in c.inputs if v.dtype), 0)


@rule(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh CumSum CumProd Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish Hardmax Identity LeakyRelu Log LogSoftmax Mish Neg Not PRelu Reciprocal Relu Round Selu "
    "Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu ReverseSequence "
    "StringConcat SwiGLU MemcpyFromHost MemcpyToHost Affine ImageScaler ParametricSoftplus ScaledTanh Scale "
    "com.microsoft:QuickGelu com.microsoft:Gelu com.microsoft:BiasGelu com.microsoft:FastGelu com.microsoft:Trilu "
    "com.microsoft:QLinearSigmoid com.microsoft:QLinearLeakyRelu com.microsoft:QLinearSoftmax com.microsoft:Inverse "
    "com.microsoft:BiasSoftmax com.microsoft:BiasDropout"
)
def _unary(c: Call) -> Result:
    return c.shape(0)


@rule("IsInf IsNaN RegexFullMatch", T.BOOL)
def _test(c: Call) -> Result:
    return c.shape(0)


@rule("Add Sub Mul Div Pow", _either)
def _arithmetic(c: Call) -> Result:
    if c.version < 7 and c.attr("broadcast", 0):  # before opset 7, B is stretched to A
        return c.shape(0)
    return broadcast((c.shape(0), c.shape(1)))


@rule("Mod BitShift BitwiseAnd BitwiseOr BitwiseXor", _either)
def _integer_arithmetic(c: Call) -> Result:
    return broadcast((c.shape(0), c.shape(1)))


@rule("And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual", T.BOOL)
def _logic(c: Call) -> Result:
    return _arithmetic(c)


@rule("Max Min Mean Sum", _either)
def _variadic(c: Call) -> Result:
    if not c.inputs:
        raise Unclear
    return broadcast([c.shape(i) for i in range(len(c.inputs))])


@rule("Where", lambda c: c.value(1).dtype or c.value(2).dtype)
def _where(c: Call) -> Result:
    return broadcast((c.shape(0), c.shape(1), c.shape(2)))


@rule("com.microsoft:QLinearAdd com.microsoft:QLinearMul")
def _quantized_arithmetic(c: Call) -> Result:
    return broadcast((c.shape(0), c.shape(3)))


def _target(c: Call) -> int:
    to = c.node.attrs.get("to", 0)
    if isinstance(to, str):  # opset 1 names the type
        return getattr(T, to, 0) if to in tuple(T.DataType.keys()) else 0
    return to if isinstance(to, int) else 0


@rule("Cast BitCast", _target)
def _cast(c: Call) -> Result:
    return c.shape(0)


@rule("CastLike", like(1))
def _cast_like(c: Call) -> Result:
    return c.shape(0)


@rule("Dropout", SAME, lambda c: T.BOOL if c.version >= 10 else c.value(0).dtype, random=True)
def _dropout(c: Call) -> Result:
    return [c.shape(0), c.shape(0)]


# Elements ------------------------------------------------------------------------------------------------------------


def _sign(d: Dim) -> int:
    """−1, 0 or 1 where the sign is the same for all values of the symbols; else Unclear."""
    if isinstance(d, Expr):
        if provably_nonnegative(d - 1):
            return 1
        if provably_nonnegative(-d - 1):
            return -1
        raise Unclear
    return (d > 0) - (d < 0)


def truncating_div(a: Dim, b: Dim) -> Dim:
    """Integer division that rounds toward zero, as ONNX has it."""
    if a == 0:
        return 0
    negative_a, negative_b = (not provably_nonnegative(x) and provably_nonnegative(-x) for x in (a, b))
    if not (negative_a or provably_nonnegative(a)) or not (negative_b or provably_nonnegative(b)):
        raise Unclear
    quotient = floor_div(-a if negative_a else a, -b if negative_b else b)
    return quotient if negative_a == negative_b else -quotient


def _mod(a: Dim, b: Dim) -> Dim:
    return a - b * floor_div(a, b)  # the sign of the divisor, as Python


def _whole(x: Any) -> Any:
    """A float next to a symbol must be a whole number to stay exact."""
    if isinstance(x, float):
        if not x.is_integer():
            raise Unclear
        return int(x)
    return x


def _power(a: Dim, b: Dim) -> Dim:
    if not isinstance(b, int) or not 0 <= b <= 8:
        raise Unclear
    out: Dim = 1
    for _ in range(b):
        out = out * a
    return out


_INTEGER: dict[str, Callable[..., object]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": truncating_div,
    "Mod": _mod,
    "Pow": _power,
    "Neg": lambda a: -a,
    "Abs": lambda a: a * _sign(a),
    "Sign": _sign,
    "Sum": lambda *a: sum(a[1:], a[0]),
    "Min": dmin,
    "Max": dmax,
    "Floor": lambda a: a,
    "Ceil": lambda a: a,
    "Round": lambda a: a,
    "Identity": lambda a: a,
    "Relu": lambda a: dmax(a, 0),
    "Equal": lambda a, b: a == b if isinstance(a, bool) and isinstance(b, bool) else _sign(a - b) == 0,
    "Greater": lambda a, b: _sign(a - b) > 0,
    "Less": lambda a, b: not provably_nonnegative(a - b) and _sign(a - b) < 0,
    "GreaterOrEqual": lambda a, b: provably_nonnegative(a - b) or _sign(a - b) >= 0,
    "LessOrEqual": lambda a, b: provably_nonnegative(b - a) or _sign(a - b) <= 0,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Xor": lambda a, b: a != b,
    "Not": lambda a: not a,
    "Where": lambda q, a, b: a if q else b,
}


def _float_power(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """As onnxruntime has it: squares and cubes are products, and its `powf` is rounded once. Others only those."""
    if base.dtype != np.float32 and not np.isin(exponent, (1, 2)).all():
        raise Unclear
    wide = np.power(base.astype(np.float64), exponent.astype(np.float64))
    out = np.where(exponent == 3, base * base * base, wide.astype(base.dtype))
    return np.where(exponent == 2, base * base, out)


_FLOAT: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": _float_power,
    "Neg": np.negative,
    "Abs": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Identity": lambda a: a,
    "Min": lambda *a: np.minimum.reduce(np.broadcast_arrays(*a)),
    "Max": lambda *a: np.maximum.reduce(np.broadcast_arrays(*a)),
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
}


_ARITY = {"Sqrt": 1, "Reciprocal": 1} | {
    name: f.__code__.co_argcount for name, f in _INTEGER.items() if name not in ("Sum", "Min", "Max")
}


@fold(" ".join(dict.fromkeys([*_INTEGER, *_FLOAT])))
def _elements(c: Call) -> np.ndarray:
    arrays = [v.data for v in c.inputs if v.data is not None]
    op = c.node.op_type
    if _ARITY.get(op, len(arrays)) != len(arrays):
        raise Unclear
    if op in ("Mod", "Pow") and (c.attr("fmod", 0) or any(v.dtype in FLOATS for v in c.inputs[1:])) and op == "Mod":
        raise Unclear
    values = arrays[1:] if op == "Where" else arrays
    if all(a.dtype != object for a in values) and op != "Where":
        function = _FLOAT.get(op)
        if function is None:
            raise Unclear
        if op in ("Min", "Max"):
            check_ordered(*arrays)
        with np.errstate(all="ignore"):
            out = np.asarray(function(*arrays))
        return out.astype(object) if out.dtype == bool else out
    if op == "Where" and all(a.dtype != object for a in values):
        return np.where(arrays[0].astype(bool), *values)
    if op not in _INTEGER or (op in ("Div", "Pow", "Reciprocal") and any(v.dtype in FLOATS for v in c.inputs)):
        raise Unclear
    if any(v.dtype in FLOATS for v in c.inputs):  # symbolic whole numbers among floats
        arrays = [elementwise(_whole, a) for a in arrays]
    return elementwise(_INTEGER[op], *arrays)


@fold("Cast CastLike")
def _cast_elements(c: Call) -> np.ndarray:
    data = c.inputs[0].data
    to = _target(c) if c.node.op_type == "Cast" else c.value(1).dtype
    if data is None or to == 0:
        raise Unclear
    symbolic = data.dtype == object and any(isinstance(d, Expr) for d in data.reshape(-1))
    if to in FLOATS:
        # A symbol stays an exact integer; the other elements beside it too.
        return data if symbolic else _as_floats(data, c.inputs[0].dtype, to)
    if to == T.BOOL:
        return elementwise(lambda d: _sign(d) != 0, data) if data.dtype == object else (data != 0).astype(object)
    if to not in INTEGERS:
        raise Unclear
    if data.dtype != object and not np.isfinite(data).all():
        raise Unclear
    return elementwise(lambda d: d if isinstance(d, Expr) else int(d), data)


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


def check_ordered(*arrays: np.ndarray) -> None:
    """Raises Unclear where a NaN or a −0 is among these: runtimes differ in what the least and largest are then."""
    for a in arrays:
        if np.isnan(a).any() or np.any((a == 0) & np.signbit(a)):
            raise Unclear


INTEGERS = frozenset({T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64})
