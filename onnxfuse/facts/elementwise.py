"""Shapes of operators that work element by element, with and without broadcasting; elements are in `arithmetic`."""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.facts.call import SAME, Call, Result, Unclear, broadcast, like, rule


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


def target(c: Call) -> int:
    """The dtype that a Cast makes; 0 where it names none."""
    to = c.node.attrs.get("to", 0)
    if isinstance(to, str):  # opset 1 names the type
        return getattr(T, to, 0) if to in tuple(T.DataType.keys()) else 0
    return to if isinstance(to, int) else 0


@rule("Cast BitCast", target)
def _cast(c: Call) -> Result:
    return c.shape(0)


@rule("CastLike", like(1))
def _cast_like(c: Call) -> Result:
    return c.shape(0)


@rule("Dropout", SAME, lambda c: T.BOOL if c.version >= 10 else c.value(0).dtype, random=True)
def _dropout(c: Call) -> Result:
    return [c.shape(0), c.shape(0)]
