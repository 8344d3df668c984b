"""Parts of a value along one axis: what Gather with known indices and Slice take, and equal takes of the same value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.facts import Dim
from onnxfuse.patterns import Build, Scope, is_op
from onnxfuse.rules._known import ints, listed

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs


@dataclass(frozen=True, slots=True)
class Pick:
    """Elements `index` of an axis, or from `start` to `end` in steps. scalar: the axis disappears (Gather of one)."""

    axis: int
    index: tuple[int, ...] = ()
    bounds: tuple[int, int, int] | None = None
    scalar: bool = field(default=False, compare=False)

    def count(self, size: Dim) -> int | None:
        """How many elements of so many it takes; None where that depends on a free dim."""
        if self.bounds is None:
            return len(self.index)
        return len(range(*slice(*self.bounds).indices(size))) if isinstance(size, int) else None

    def take(self, array: np.ndarray, axis: int) -> np.ndarray:
        """What it takes of an array."""
        where: list[slice | list[int]] = [slice(None)] * array.ndim
        where[axis] = list(self.index) if self.bounds is None else slice(*self.bounds)
        return np.ascontiguousarray(array[tuple(where)])


def read(node: gs.Node, scope: Scope) -> Pick | None:
    """What a node takes of its first input; None where it is something else, or not known."""
    shape = scope.value(node.inputs[0]).shape if node.inputs else None
    if shape is None:
        return None
    if is_op(node, "Gather"):
        index, of = ints(node.inputs[1], scope), scope.value(node.inputs[1]).shape
        if index is None or of is None or len(of) > 1:
            return None
        return Pick(node.attrs.get("axis", 0) % len(shape), tuple(index), scalar=not of)
    if not is_op(node, "Slice"):
        return None
    starts, ends = (listed(node, name, i, scope) for i, name in ((1, "starts"), (2, "ends")))
    axes = listed(node, "axes", 3, scope) if len(node.inputs) > 3 or "axes" in node.attrs else [0]
    steps = listed(node, "steps", 4, scope) if len(node.inputs) > 4 else [1]
    if not (starts and ends and axes and steps) or {len(starts), len(ends), len(axes), len(steps)} != {1}:
        return None
    if steps[0] < 1:
        return None
    return Pick(axes[0] % len(shape), bounds=(starts[0], ends[0], steps[0]))


def write(build: Build, scope: Scope, tensor: gs.Tensor, pick: Pick, axis: int) -> gs.Tensor:
    """The part of another value along another of its axes: a constant, a value that is there already, or a new node."""
    stored = scope.constant(tensor)
    if stored is not None:
        return build.constant(pick.take(stored, axis))
    wanted = Pick(axis, pick.index, pick.bounds)
    for node in scope.editor.consumers(tensor):
        takes = is_op(node, "Gather", "Slice") and node.inputs[0] is tensor and not is_scalar(node, scope)
        if takes and read(node, scope) == wanted:
            return node.outputs[0]
    if pick.bounds is None:
        return build("Gather", tensor, build.constant(np.array(pick.index, np.int64)), axis=axis)
    start, end, step = pick.bounds
    if scope.opset < 10:
        return build("Slice", tensor, starts=[start], ends=[end], axes=[axis])
    constants = [build.constant(np.array([n], np.int64)) for n in (start, end, axis, step)]
    return build("Slice", tensor, *constants)


def is_scalar(node: gs.Node, scope: Scope) -> bool:
    """Whether a Gather takes away the axis."""
    return is_op(node, "Gather") and scope.value(node.inputs[1]).shape == ()
