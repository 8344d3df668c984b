from __future__ import annotations

import pytest

from onnxfuse.cost import Cost

MS = "com.microsoft"

ARITH = {
    "Add": 1, "Sub": 1, "Mul": 1, "Div": 1, "Mod": 1, "Neg": 1, "Abs": 1, "Reciprocal": 1, "Sign": 1, "Relu": 1,
    "Ceil": 1, "Floor": 1, "Round": 1, "ThresholdedRelu": 1, "LeakyRelu": 2, "PRelu": 2, "Clip": 2,
    "Softsign": 3, "Shrink": 3, "HardSigmoid": 4, "HardSwish": 5,
}  # fmt: skip
SPECIAL = [  # one call an element
    "Exp", "Log", "Sqrt", "Pow", "Erf", "Sigmoid", "Tanh", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan",
    "Asinh", "Acosh", "Atanh",
]  # fmt: skip
LOGIC = [
    "And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Where", "IsInf", "IsNaN",
    "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot",
]  # fmt: skip


@pytest.mark.parametrize(("op", "flops"), ARITH.items())
def test_arithmetic(price, op, flops):
    # 24 elements in, 24 out, 4 bytes each
    assert price(op, ["f32 2 3 4"], ["f32 2 3 4"]) == Cost(0, flops * 24, 0, 96, 96)


@pytest.mark.parametrize("op", SPECIAL)
def test_special_function(price, op):
    assert price(op, ["f16 2 3 4"], ["f16 2 3 4"]) == Cost(0, 0, 24, 48, 48)


@pytest.mark.parametrize("op", LOGIC)
def test_logic(price, op):
    # no FLOPs; a bool takes a byte
    assert price(op, ["i32 2 3 4"], ["bool 2 3 4"]) == Cost(0, 0, 0, 96, 24)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "domain", "expected"),
    [
        # 24 elements everywhere: (FLOPs, special functions) an element
        ("Elu", ["f32 24"], {}, "", (1, 1)),
        ("Selu", ["f32 24"], {}, "", (2, 1)),
        ("Celu", ["f32 24"], {}, "", (2, 1)),
        ("Softplus", ["f32 24"], {}, "", (1, 2)),  # exp, 1+, log
        ("Mish", ["f32 24"], {}, "", (1, 3)),  # softplus, tanh, x·
        ("Swish", ["f32 24"], {}, "", (1, 1)),
        ("Swish", ["f32 24"], {"alpha": 2.0}, "", (2, 1)),
        ("SwiGLU", ["f32 24", "f32 24"], {}, "", (2, 1)),
        ("Gelu", ["f32 24"], {}, "", (4, 1)),  # x/√2, erf, 1+, ·x, ·½
        ("Gelu", ["f32 24"], {"approximate": "tanh"}, "", (8, 1)),
        ("Gelu", ["f32 24"], {}, MS, (4, 1)),
        ("QuickGelu", ["f32 24"], {}, MS, (2, 1)),  # x · sigmoid(1.702 x)
        ("QuickGelu", ["f32 24"], {"alpha": 1.0}, MS, (1, 1)),
        ("FastGelu", ["f32 24"], {}, MS, (8, 1)),
    ],
)
def test_activations(price, op, inputs, attrs, domain, expected):
    assert price(op, inputs, ["f32 24"], attrs, domain) == Cost(
        0, expected[0] * 24, expected[1] * 24, 96 * len(inputs), 96
    )


@pytest.mark.parametrize(("op", "flops"), [("BiasGelu", 5), ("FastGelu", 9)])
def test_with_bias(price, op, flops):
    # 2x12 and a bias of 12: 96 + 48 bytes
    assert price(op, ["f32 2 12", "f32 12"], ["f32 2 12"], domain=MS) == Cost(0, flops * 24, 24, 144, 96)


@pytest.mark.parametrize(("op", "flops"), [("Sum", 2), ("Max", 2), ("Min", 2), ("Mean", 3)])
def test_variadic(price, op, flops):
    # three operands: two additions; a mean divides on top
    assert price(op, ["f32 8", "f32 8", "f32 8"], ["f32 8"]) == Cost(0, flops * 8, 0, 96, 32)


@pytest.mark.parametrize("op", ["Sum", "Max", "Min"])
def test_variadic_of_one_computes_nothing(price, op):
    assert price(op, ["f32 8"], ["f32 8"]) == Cost(0, 0, 0, 32, 32)


def test_vector_add_moves_12_bytes_an_element(price):
    cost = price("Add", ["f32 1000", "f32 1000"], ["f32 1000"])
    assert (cost.flops, cost.bytes) == (1000, 12_000)
    assert cost.intensity == 1 / 12


def test_broadcast_operand_is_read_at_its_own_size(price):
    # 2x3 + 3: 6 FLOPs, 24 + 12 bytes
    assert price("Add", ["f32 2 3", "f32 3"], ["f32 2 3"]) == Cost(0, 6, 0, 36, 24)
    assert price("Mul", ["f32 2 1", "f32 1 3"], ["f32 2 3"]) == Cost(0, 6, 0, 20, 24)


def test_same_tensor_twice_is_read_once(price):
    from onnxfuse import ir
    from onnxfuse.cost.registry import FORMULAS, Call
    from onnxfuse.facts.value import Value

    x = Value(1, (8,))
    node = ir.Node("Mul", "", "", ("x", "x"), ("y",), {})
    assert FORMULAS["", "Mul"].formula(Call(node, (x, x), (x,), 21)) == Cost(0, 8, 0, 32, 32)


def test_clip_reads_its_bounds(price):
    assert price("Clip", ["f32 8", "f32", "f32"], ["f32 8"]) == Cost(0, 16, 0, 40, 32)
    assert price("Clip", ["f32 8", "", "f32"], ["f32 8"]) == Cost(0, 16, 0, 36, 32)
