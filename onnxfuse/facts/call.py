"""What a shape function sees of one operator call, and the registry of the shape functions.

A shape function gets a `Call` and returns the shape of the only output, or a list with one shape (or None) an output.
Whatever it cannot know or what does not fit together it answers with `Unclear`; the engine makes that "unknown".
A fold computes the elements of a small output from those of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnxfuse.facts.expr import Dim, Expr, dmax, dmin, symbol
from onnxfuse.facts.value import UNKNOWN, Shape, Value
from onnxfuse.ir import Node

MOST_AXES = 64  # numpy's bound; runtimes stop earlier


class Unclear(Exception):
    """A needed fact is not known, or the node contradicts itself."""


@dataclass(slots=True)
class Call:
    """One operator call: its node, the facts of its inputs, the opset version of its domain.

    `name_dim(text)` makes a symbol name unique in the model; `read` decodes a tensor attribute (None: not readable).
    estimate: the facts are for a cost, so that a size that may be 0 is taken to be more.
    """

    node: Node
    inputs: Sequence[Value]
    version: int
    name_dim: Callable[[str], str]
    read: Callable[[onnx.TensorProto], np.ndarray | None]
    estimate: bool = False

    def has(self, i: int) -> bool:
        """Is the optional input there?"""
        return i < len(self.node.inputs) and self.node.inputs[i] != ""

    def value(self, i: int) -> Value:
        """Facts of input i; UNKNOWN where it is absent."""
        return self.inputs[i] if i < len(self.inputs) else UNKNOWN

    def shape(self, i: int) -> Shape:
        """Shape of input i; Unclear where its rank is unknown."""
        shape = self.value(i).shape
        if shape is None:
            raise Unclear
        return shape

    def dims(self, i: int) -> list[Dim]:
        """The elements of an integer input, flattened; Unclear where unknown."""
        data = self.value(i).data
        if data is None or data.dtype != object or any(isinstance(d, float) for d in data.flat):
            raise Unclear
        return list(data.reshape(-1))

    def data(self, i: int = 0) -> np.ndarray:
        """The elements of input i; Unclear where unknown."""
        data = self.value(i).data
        if data is None:
            raise Unclear
        return data

    def ints(self, i: int) -> list[int]:
        """The same, all of them numbers."""
        out = self.dims(i)
        if not all(isinstance(d, int) for d in out):
            raise Unclear
        return out  # type: ignore[return-value]  # just checked

    def attr(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.node.attrs.get(name, default)
        if not isinstance(value, int):
            raise Unclear
        return value

    def attr_ints(self, name: str) -> tuple[int, ...] | None:
        """An attribute that lists integers; None where it is absent."""
        value = self.node.attrs.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            raise Unclear
        return value

    def text(self, name: str, default: str) -> str:
        """A text attribute."""
        value = self.node.attrs.get(name, default)
        if not isinstance(value, str):
            raise Unclear
        return value

    def ints_of(self, name: str, i: int) -> list[int] | None:
        """A list that is an attribute in old versions and input i in new ones; None where it is absent."""
        given = self.attr_ints(name)
        if given is not None:
            return list(given)
        return self.ints(i) if self.has(i) else None

    def axis(self, rank: int, default: int) -> int:
        """The attribute `axis`, counted from the front of that rank."""
        return normal_axis(self.attr("axis", default), rank)

    def fresh(self, output: int, axis: int, low: int | None = 0) -> Expr:
        """A new symbol for a dimension that depends on data: `<output name>.<axis>`."""
        name = self.node.outputs[output] if output < len(self.node.outputs) else ""
        return symbol(self.name_dim(f"{name or self.node.op_type}.{axis}"), low)

    def fresh_shape(self, output: int, rank: int) -> Shape:
        """A shape of new symbols: only the rank is known; Unclear for one that no tensor has."""
        if rank > MOST_AXES:
            raise Unclear
        return tuple(self.fresh(output, axis) for axis in range(rank))


Result = Shape | list[Shape | None]
DType = int | Callable[[Call], int]
ShapeFunction = Callable[[Call], Result]
Fold = Callable[[Call], np.ndarray | list[np.ndarray]]  # a list has the elements of each output


@dataclass(frozen=True, slots=True)
class Rule:
    """shape: the shape function; dtypes: one an output, the last one repeated; random: not a function of its inputs."""

    shape: ShapeFunction
    dtypes: tuple[DType, ...]
    random: bool


RULES: dict[str, Rule] = {}
FOLDS: dict[str, Fold] = {}


def like(i: int) -> Callable[[Call], int]:
    """The dtype of input i."""
    return lambda c: c.value(i).dtype


SAME = like(0)


def rule(names: str, *dtypes: DType, random: bool = False) -> Callable[[ShapeFunction], ShapeFunction]:
    """Registers a shape function for operators: "Conv com.microsoft:FusedConv" (no domain: ai.onnx)."""

    def register(function: ShapeFunction) -> ShapeFunction:
        for name in names.split():
            RULES[name] = Rule(function, dtypes or (SAME,), random)
        return function

    return register


def fold(names: str) -> Callable[[Fold], Fold]:
    """Registers how to compute the elements of the only output, or of each."""

    def register(function: Fold) -> Fold:
        for name in names.split():
            FOLDS[name] = function
        return function

    return register


# Helpers that many families use --------------------------------------------------------------------------------------


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front; Unclear where it does not exist."""
    if not -rank <= axis < rank:
        raise Unclear
    return axis + rank if axis < 0 else axis


def prod(dims: Iterable[Dim]) -> Dim:
    """Their product; 1 of none."""
    return math.prod(dims)


def same_dim(dims: Iterable[Dim]) -> Dim:
    """The one dimension that all of these are, if the model runs at all; a number is preferred."""
    best: Dim | None = None
    for d in dims:
        if isinstance(best, int):
            if isinstance(d, int) and d != best:
                raise Unclear
        elif best is None or isinstance(d, int):
            best = d
    if best is None:
        raise Unclear
    return best


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Numpy's multidirectional broadcasting. Unclear where it is impossible."""
    first = shapes[0]
    for s in shapes:
        if s is not first and s != first:
            break
    else:
        return first
    rank = max(map(len, shapes))
    out: list[Dim] = []
    for axis in range(rank):
        best: Dim = 1
        for shape in shapes:
            k = axis - rank + len(shape)
            if k < 0:
                continue
            d = shape[k]
            if d == best or d == 1:
                continue
            if best == 1:
                best = d
            elif isinstance(d, int):
                if isinstance(best, int):
                    raise Unclear
                best = d
            elif not isinstance(best, int):  # one of them is 1, or they are equal
                # The larger one, but 0 where one is 0. Neither is negative where the model runs.
                best = dmax(best, d, 0) * dmax(dmin(best, d, 1), 0)
        out.append(best)
    return tuple(out)


def array(elements: Sequence[object], shape: Sequence[int] | None = None) -> np.ndarray:
    """An object array of ints, bools and Exprs."""
    out = np.empty(len(elements), dtype=object)
    out[:] = elements
    return out if shape is None else out.reshape(shape)


def numbers(data: np.ndarray) -> np.ndarray:
    """The elements, none of which is symbolic; Unclear otherwise."""
    if data.dtype == object and any(isinstance(d, Expr) for d in data.reshape(-1)):
        raise Unclear
    return data


def elementwise(function: Callable[..., object], *arrays: np.ndarray) -> np.ndarray:
    """The function over broadcast object arrays."""
    out = np.frompyfunc(function, len(arrays), 1)(*arrays)
    return out if isinstance(out, np.ndarray) else array([out], ())
