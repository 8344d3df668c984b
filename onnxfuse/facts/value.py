"""What is known of a value: dtype, shape, and the elements of a small constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfuse.facts.expr import Dim

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Facts of one value; every one of them may be unknown.

    dtype: ONNX `TensorProto.DataType` number, 0 = unknown or not a tensor.
    shape: dims, each an int or an `Expr` over the model's symbols; None = rank unknown.
    data:  the elements, where known: an object array of int/bool/Expr for integer and bool tensors, a float array for
           float tensors (an object array while one of its elements is symbolic: an `Expr` or a `Ratio`); its numpy
           shape equals `shape`. Only small tensors carry it.
    constant: True for an initializer that no caller can override and for what is computed from such alone. An
           overridable one has its default as `data`, so ask for both before removing anything.
    items: the tensors of a sequence, where all of them are known; dtype and shape say nothing then.
    """

    dtype: int = 0
    shape: Shape | None = None
    data: np.ndarray | None = None
    constant: bool = False
    items: tuple[Value, ...] | None = None


UNKNOWN = Value()
