"""Elementwise operators: a number of FLOPs and of special functions for each element of the output.

Counts follow the operators' definitions in the ONNX specification (Operators.md) with XLA's division of labour:
+ − × ÷ |x| min max and rounding are 1 FLOP, special functions are counted apart. Comparisons, boolean and bit operators
and selections have no FLOPs. A broadcast operand is read once, at its own size.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, bytes_of, op

# operator -> (FLOPs, special functions) an output element
_COUNTS: dict[str, tuple[int, int]] = {
    # one operation
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Reciprocal", "Sign", "Relu"), (1, 0)),
    **dict.fromkeys(("Ceil", "Floor", "Round", "ThresholdedRelu", "Scale"), (1, 0)),
    "LeakyRelu": (2, 0),  # compare, multiply
    "PRelu": (2, 0),
    "Clip": (2, 0),  # max, min
    "Softsign": (3, 0),  # x / (1 + |x|)
    "Shrink": (3, 0),  # two comparisons, x ± bias
    "HardSigmoid": (4, 0),  # α·x + β, max, min
    "HardSwish": (5, 0),  # x · HardSigmoid(x)
    "ImageScaler": (2, 0),
    "Affine": (2, 0),
    # one special function, alone
    **dict.fromkeys(("Exp", "Log", "Sqrt", "Pow", "Erf", "Sigmoid", "Tanh", "Sin", "Cos", "Tan"), (0, 1)),
    **dict.fromkeys(("Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"), (0, 1)),
    # with arithmetic around it
    "Elu": (1, 1),
    "Selu": (2, 1),  # γ·Elu
    "Celu": (2, 1),  # Elu of x/α
    "Softplus": (1, 2),  # log(1 + exp(x))
    "Mish": (1, 3),  # x · tanh(softplus(x))
    "SwiGLU": (2, 1),  # a · sigmoid(a) · b
    "ScaledTanh": (2, 1),
    "ParametricSoftplus": (3, 2),
    # no FLOPs: comparisons, logic, bits, selection
    **dict.fromkeys(("And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), (0, 0)),
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Where"), (0, 0)),
    **dict.fromkeys(("IsInf", "IsNaN"), (0, 0)),
}

# the same for com.microsoft
_COUNTS_MS: dict[str, tuple[int, int]] = {
    "Gelu": (4, 1),  # x · 0.5 · (1 + erf(x / √2))
    "BiasGelu": (5, 1),
    "BiasSplitGelu": (7, 1),  # (a + bias) · Gelu(b + bias)
    "ScaledSiLU": (2, 1),  # z · sigmoid(z), z = scale · x
    "QLinearSigmoid": (0, 1),
    "QLinearAdd": (1, 0),
    "QLinearMul": (1, 0),
    "QLinearLeakyRelu": (2, 0),
    "QLinearWhere": (0, 0),
    "IsAllFinite": (0, 0),
    "QOrderedGelu": (4, 1),
    "ComplexMul": (3, 0),  # 4 multiplications and 2 additions for a pair of output elements
    "ComplexMulConj": (3, 0),
}


@op(*_COUNTS, kind="elementwise")
def elementwise(call: Call) -> Cost:
    """Table row x output elements."""
    arith, special = _COUNTS[call.node.op_type]
    n = call.out_size()
    return call.cost(arith=arith * n, transcendentals=special * n)


@op(*_COUNTS_MS, kind="elementwise", domain="com.microsoft")
def elementwise_ms(call: Call) -> Cost:
    """Table row x output elements."""
    arith, special = _COUNTS_MS[call.node.op_type]
    n = call.out_size()
    return call.cost(arith=arith * n, transcendentals=special * n)


@op("Sum", "Max", "Min", kind="elementwise")
def variadic(call: Call) -> Cost:
    """n − 1 operations on n operands."""
    return call.cost(arith=(len(call.node.inputs) - 1) * call.out_size())


@op("Mean", kind="elementwise")
def mean(call: Call) -> Cost:
    """Additions, and one multiplication by 1/count."""
    return call.cost(arith=len(call.node.inputs) * call.out_size())


@op("Swish", kind="elementwise")
@op("QuickGelu", kind="elementwise", domain="com.microsoft")
def swish(call: Call) -> Cost:
    """x · sigmoid(α·x); α = 1 costs no multiplication. The default α is 1 for Swish, 1.702 for QuickGelu."""
    n = call.out_size()
    alpha = call.attr("alpha", 1.702 if call.node.domain else 1.0)
    return call.cost(arith=n if alpha == 1 else 2 * n, transcendentals=n)


@op("Gelu", kind="elementwise")
def gelu(call: Call) -> Cost:
    """erf form: ÷√2, 1+, two multiplications; tanh form: x³ (2), ·0.044715, +, ·√(2/π), 1+, ·x, ·0.5."""
    n = call.out_size()
    return call.cost(arith=(8 if call.attr("approximate", "none") == "tanh" else 4) * n, transcendentals=n)


@op("FastGelu", kind="elementwise", domain="com.microsoft")
def fast_gelu(call: Call) -> Cost:
    """Gelu in its tanh form of x + bias."""
    n = call.out_size()
    return call.cost(arith=(9 if call.has(1) else 8) * n, transcendentals=n)


@op("BiasDropout", "BitmaskBiasDropout", kind="elementwise", domain="com.microsoft")
def bias_dropout(call: Call) -> Cost:
    """x + bias (+ residual); at inference nothing is dropped."""
    return call.cost(arith=(1 + call.has(2)) * call.out_size())


@op("MulInteger", kind="elementwise", domain="com.microsoft")
def mul_integer(call: Call) -> Cost:
    """(a − its zero point) · (b − its zero point): a, zero point, b, zero point."""
    zeros = sum(call.size(i) for i in (0, 2) if call.has(i + 1))
    return call.cost(arith=call.out_size() + zeros)


@op("DisentangledAttention_TRT", kind="elementwise")
def disentangled_attention(call: Call) -> Cost:
    """(content·content + gathered content·position + gathered position·content) · factor."""
    gathered = 2 * bytes_of(call.output())
    return call.cost(arith=3 * call.out_size(), read=bytes_of(call.input(0)) + gathered)


@op("GRUUnit", kind="rnn")
def gru_unit(call: Call) -> Cost:
    """h (N, D), gates (N, 3·D), lengths, step: h · σ(u) + tanh(o) · (1 − σ(u)); the product with r came before."""
    n = call.out_size()
    return call.cost(arith=4 * n, transcendentals=2 * n)


@op("BiasAdd", kind="elementwise", domain="com.microsoft")
def bias_add(call: Call) -> Cost:
    """x + bias + skip."""
    return call.cost(arith=2 * call.out_size())
