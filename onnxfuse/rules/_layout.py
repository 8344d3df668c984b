"""Values that are views of another one: which of its elements stand where, through Reshape, Transpose, Split, Gather …

A view of a value is described by loops over the axes of that value. Of x [B, S, 3·H·D], Reshape to [B, S, 3, H, D],
Transpose to [3, B, H, S, D] and Gather of part 1 make a view whose axes are B steps over axis 0, H steps of D over axis
2, S steps over axis 1 and D steps over axis 2; it starts at place H·D of axis 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from onnxfuse.facts import Dim, Shape, floor_div, provably_equal
from onnxfuse.patterns import Scope, is_op
from onnxfuse.rules._elementwise import multiples
from onnxfuse.rules._known import perm_of
from onnxfuse.rules._pick import Pick
from onnxfuse.rules._pick import read as read_pick

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_DEEPEST = 16  # nodes that are followed


@dataclass(frozen=True, slots=True)
class Loop:
    """`size` places of one axis of the source, `stride` apart."""

    axis: int
    size: Dim
    stride: Dim = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The loops of each axis of a view, outermost first; starts: where its first element stands, by source axis.

    An axis of size 1 has no loop.
    """

    axes: tuple[tuple[Loop, ...], ...]
    starts: tuple[Dim, ...]

    def permuted(self, perm: Sequence[int]) -> Layout:
        """What Transpose makes of it."""
        return replace(self, axes=tuple(self.axes[p] for p in perm))

    def reshaped(self, shape: Sequence[Dim]) -> Layout | None:
        """What Reshape makes of it; None where an axis would hold a part of a loop that no stride describes."""
        loops = [loop for axis in self.axes for loop in axis][::-1]
        axes: list[tuple[Loop, ...]] = []
        if 0 in shape:
            return None
        for rest in shape:
            axis: list[Loop] = []
            while rest != 1:
                if not loops:
                    return None
                loop = loops.pop()
                inner, times = _quotient(rest, loop.size), _quotient(loop.size, rest)
                if inner is not None:
                    axis.append(loop)
                    rest = inner
                elif times is not None:
                    axis.append(Loop(loop.axis, rest, loop.stride * times))
                    loops.append(Loop(loop.axis, times, loop.stride))
                    rest = 1
                else:
                    return None
            axes.append(tuple(axis))
        return None if loops else replace(self, axes=tuple(axes))

    def part(self, axis: int, first: int, count: int) -> Layout | None:
        """What Split or Slice takes of an axis; None where that is no range of its outermost loop."""
        if not self.axes[axis]:
            return self
        loop, *inner = self.axes[axis]
        for each in inner:
            if not isinstance(each.size, int) or first % each.size or count % each.size:
                return None
            first, count = first // each.size, count // each.size
        starts = list(self.starts)
        starts[loop.axis] = starts[loop.axis] + loop.stride * first
        kept = (replace(loop, size=count), *inner) if count != 1 else tuple(inner)
        return Layout((*self.axes[:axis], kept, *self.axes[axis + 1 :]), tuple(starts))


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A value of this shape, and how another is a view of it, times a factor.

    steps: values from the view to this one, each made from the next; nodes: those that make them.
    """

    tensor: gs.Tensor
    shape: Shape
    layout: Layout
    factor: float
    steps: tuple[gs.Tensor, ...]
    nodes: tuple[gs.Node, ...]

    def as_rows_of(self, shape: Shape, scope: Scope) -> Origin | None:
        """The same where the value, which has two axes, is another shape whose first axes were made one."""
        start = whole(shape).reshaped(self.shape)
        layout = None if start is None else _follow(start, self.steps, scope)
        return None if layout is None else replace(self, shape=shape, layout=layout)


def whole(shape: Sequence[Dim]) -> Layout:
    """A value as the view of itself."""
    return Layout(tuple(() if d == 1 else (Loop(i, d),) for i, d in enumerate(shape)), (0,) * len(shape))


def origins(tensor: gs.Tensor, scope: Scope) -> list[Origin]:
    """The value itself and all of which it is a view, nearest first."""
    steps: list[gs.Tensor] = [tensor]  # each is made from the next one
    nodes: list[gs.Node] = []
    found: list[Origin] = []
    factor = 1.0
    while len(steps) <= _DEEPEST:
        shape = scope.value(steps[-1]).shape
        layout = None if shape is None else _follow(whole(shape), steps, scope)
        if shape is None or layout is None:
            break
        found.append(Origin(steps[-1], shape, layout, factor, tuple(steps), tuple(nodes)))
        node = scope.editor.producer(steps[-1])
        multiple = next(islice(multiples(steps[-1], scope), 1, None), None)
        if node is None or not (multiple or _is_view(node)):
            break
        factor *= multiple[0] if multiple else 1
        steps.append(multiple[1] if multiple else node.inputs[0])
        nodes.append(node)
    return found


def readers(tensor: gs.Tensor, layout: Layout, scope: Scope) -> Iterator[tuple[gs.Tensor, Layout, tuple[gs.Node, ...]]]:
    """A value of this layout and the views of it that are read by nobody else, one after the other."""
    nodes: list[gs.Node] = []
    while len(nodes) <= _DEEPEST:
        yield tensor, layout, tuple(nodes)
        node = scope.editor.only_use(tensor)
        if node is None or not _is_view(node) or node.inputs[0] is not tensor:
            return
        following = _through(layout, node, node.outputs[0], scope)
        if following is None:
            return
        tensor, layout = node.outputs[0], following
        nodes.append(node)


def _follow(layout: Layout | None, steps: Sequence[gs.Tensor], scope: Scope) -> Layout | None:
    """The layout of the first of these values, each of which is made from the next, where that of the last is given."""
    for tensor in steps[-2::-1]:
        node = scope.editor.producer(tensor)
        if layout is None or node is None:
            return None
        layout = _through(layout, node, tensor, scope) if _is_view(node) else layout
    return layout


def _is_view(node: gs.Node) -> bool:
    return is_op(node, "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Split", "Gather", "Slice")


def _through(layout: Layout, node: gs.Node, output: gs.Tensor, scope: Scope) -> Layout | None:
    """The layout of an output of a node that reads a value of this layout."""
    shape = scope.value(output).shape
    if shape is None:
        return None
    if is_op(node, "Transpose"):
        perm = perm_of(node, scope)
        return None if perm is None else layout.permuted(perm)
    if is_op(node, "Split"):
        return _split(layout, node, output, scope)
    if is_op(node, "Gather", "Slice"):
        pick = read_pick(node, scope)
        return None if pick is None else _picked(layout, pick, node, scope)
    return layout.reshaped(shape)


def _split(layout: Layout, node: gs.Node, output: gs.Tensor, scope: Scope) -> Layout | None:
    axis, first = node.attrs.get("axis", 0) % len(layout.axes), 0
    for other in node.outputs:
        shape = scope.value(other).shape
        size = None if shape is None else shape[axis]
        if not isinstance(size, int):
            return None
        if other is output:
            return layout.part(axis, first, size)
        first += size
    return None


def _picked(layout: Layout, pick: Pick, node: gs.Node, scope: Scope) -> Layout | None:
    shape = scope.value(node.inputs[0]).shape
    size = None if shape is None else shape[pick.axis]
    if not isinstance(size, int):
        return None
    taken = [i % size for i in pick.index] if pick.bounds is None else range(*slice(*pick.bounds).indices(size))
    if not taken or list(taken) != list(range(taken[0], taken[0] + len(taken))):
        return None
    part = layout.part(pick.axis, taken[0], len(taken))
    if part is None or not pick.scalar:
        return part
    return replace(part, axes=part.axes[: pick.axis] + part.axes[pick.axis + 1 :])


def _quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b where it comes out even."""
    if isinstance(a, int) and isinstance(b, int):
        return None if not b or a % b else a // b
    if a == b or provably_equal(a, b):
        return 1
    if isinstance(a, int):
        return None
    found = floor_div(a, b)
    return found if provably_equal(found * b, a) else None
