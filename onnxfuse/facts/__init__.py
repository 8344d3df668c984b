"""What is known of each value of a model: dtype, shape (ints and exact symbolic expressions), small contents."""

from __future__ import annotations

from onnxfuse.facts.evaluation import evaluate, provably_equal, substitute, symbols
from onnxfuse.facts.expr import Dim, Expr, bounds, ceil_div, dmax, dmin, floor_div, provably_nonnegative, symbol
from onnxfuse.facts.infer import extend, free_dims, infer
from onnxfuse.facts.scope import Facts
from onnxfuse.facts.value import UNKNOWN, Shape, Value

__all__ = [
    "UNKNOWN", "Dim", "Expr", "Facts", "Shape", "Value", "bounds", "ceil_div", "dmax", "dmin", "evaluate", "extend",
    "floor_div", "free_dims", "infer", "provably_equal", "provably_nonnegative", "substitute", "symbol", "symbols",
]  # fmt: skip
