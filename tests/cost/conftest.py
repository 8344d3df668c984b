"""`price`: the cost of one operator call, written as text: "f32 2 3" is float32 of 2 x 3, "" an absent value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onnxfuse import ir
from onnxfuse.cost.registry import FORMULAS, Call, Cost
from onnxfuse.facts.expr import symbol
from onnxfuse.facts.value import UNKNOWN, Value

DTYPES = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "str": 8, "bool": 9, "f16": 10, "f64": 11,
    "c64": 14, "bf16": 16, "f8": 17, "u4": 21, "i4": 22, "f4": 23, "i2": 26, "f6": 27,
}  # fmt: skip


def value(text: str) -> Value:
    if text in ("", "?"):
        return UNKNOWN
    dtype, *dims = text.split()
    return Value(DTYPES[dtype], tuple(int(d) if d.lstrip("-").isdigit() else symbol(d) for d in dims))


def call(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], attrs: dict[str, Any], domain: str, opset: int
) -> Call:
    node = ir.Node(
        op_type,
        domain,
        "",
        tuple(f"i{k}" if text else "" for k, text in enumerate(inputs)),
        tuple(f"o{k}" if text else "" for k, text in enumerate(outputs)),
        attrs,
    )
    return Call(node, tuple(map(value, inputs)), tuple(map(value, outputs)), opset)


Price = Callable[..., Cost]


@pytest.fixture
def price() -> Price:
    def run(
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attrs: dict[str, Any] | None = None,
        domain: str = "",
        opset: int = 21,
    ) -> Cost:
        return FORMULAS[domain, op_type].formula(call(op_type, inputs, outputs, attrs or {}, domain, opset))

    return run
