"""A node of a graph that is walked, with what is known of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxfuse.bounds.ranges import Dim, Ranges
from onnxfuse.storage import tensors

_READ = 1024  # elements of a constant that is read
_LISTED = 64  # elements of a list of sizes or axes


@dataclass(frozen=True, slots=True)
class Origin:
    """Elements of an input plus a number from `least` to `most`; whole: all of them, in order."""

    input: str
    least: int = 0
    most: int = 0
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a value."""

    dims: tuple[Dim, ...] | None = None
    origins: tuple[Origin, ...] = ()
    tensor: TensorProto | None = None


NOTHING = Seen()
Attributes = Mapping[str, onnx.AttributeProto]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A node, with what is known of its inputs; given: the attributes of the call of the function that it is in."""

    node: onnx.NodeProto
    inputs: list[Seen]
    given: Attributes

    @property
    def outputs(self) -> int:
        """How many outputs the node has."""
        return len(self.node.output)

    def seen(self, i: int) -> Seen:
        """What is known of an input."""
        return self.inputs[i] if i < len(self.inputs) else NOTHING

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, also one that the function's call gives."""
        for a in self.node.attribute:
            if a.name == name:
                found = self.given.get(a.ref_attr_name) if a.ref_attr_name else a
                return default if found is None else helper.get_attribute_value(found)
        return default

    def dims(self, i: int) -> tuple[Dim, ...] | None:
        """The dims of an input; None where the rank is unknown."""
        return self.seen(i).dims

    def size(self, i: int, axis: Any) -> Dim:
        """The size of an axis of an input."""
        dims = self.dims(i)
        return dims[axis] if dims is not None and isinstance(axis, int) and -len(dims) <= axis < len(dims) else None

    def count(self, i: int) -> int | None:
        """How many elements a list of sizes or axes has."""
        size = self.size(i, 0)
        return size if isinstance(size, int) and 0 < size <= _LISTED and len(self.dims(i) or ()) == 1 else None

    def numbers(self, i: int) -> list[int] | None:
        """The elements of a small constant input, in order."""
        tensor = self.seen(i).tensor
        count = None if tensor is None else tensors.elements(tensor.dims)
        if tensor is None or count is None or count > _READ or tensor.data_location == TensorProto.EXTERNAL:
            return None
        with suppress(ValueError, TypeError, KeyError):  # odd or inconsistent
            array = numpy_helper.to_array(tensor)
            return [int(x) for x in array.reshape(-1)] if array.dtype.kind in "iu" else None
        return None


Use = Iterable[tuple[int, Ranges]]  # (position of an input, ranges of its elements)
