"""Scaled dot-product attention in the spellings of the exporters: softmax(factor·q·kᵀ + mask)·v over heads.

q, k and v are views (see `_layout`) of values with tokens and channels; a factor may stand at q, at kᵀ or behind them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.facts import Dim
from onnxfuse.patterns import Build, NotLegal, Scope, is_op
from onnxfuse.rules._elementwise import multiples
from onnxfuse.rules._known import same_dims
from onnxfuse.rules._layout import Layout, Loop, Origin, readers, whole

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

Sizes = tuple[Dim, Dim, Dim, Dim]  # batch, heads, steps, channels of a head


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """softmax(factor·q·kᵀ + mask)·v; k is given transposed. nodes: all from the scores to `result`."""

    q: gs.Tensor
    k: gs.Tensor
    v: gs.Tensor
    factor: float
    mask: gs.Tensor | None
    result: gs.Tensor
    rank: int
    nodes: tuple[gs.Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """q, k or v as heads of a value with tokens and channels: the loops over its axes, None where the size is 1."""

    origin: Origin
    batch: Loop | None
    heads: Loop | None
    steps: Loop
    size: Loop

    @property
    def sizes(self) -> Sizes:
        """Batch, heads, steps and channels of a head."""
        batch, heads = (1 if loop is None else loop.size for loop in (self.batch, self.heads))
        return batch, heads, self.steps.size, self.size.size

    def columns(self) -> np.ndarray | None:
        """The channels of the origin, head by head; None where a number is not known."""
        first, loops = self.origin.layout.starts[self.size.axis], [n for n in (self.heads, self.size) if n is not None]
        found = np.array([first])
        for loop in loops:
            if not isinstance(loop.size, int) or not isinstance(loop.stride, int):
                return None
            found = (found[:, None] + np.arange(loop.size) * loop.stride).reshape(-1)
        return found if isinstance(first, int) else None


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The result with the heads of each token side by side: (batch, steps, heads·size), or otherwise as told.

    swapped: steps come first. flat: both are one axis. nodes: the views that make it of the result.
    """

    tensor: gs.Tensor
    swapped: bool
    flat: bool
    nodes: tuple[gs.Node, ...]


def core(softmax: gs.Node, scope: Scope) -> Core | None:
    """The attention around a Softmax; None where there is none."""
    editor = scope.editor
    shape = scope.value(softmax.inputs[0]).shape
    if shape is None or len(shape) not in (3, 4):
        return None
    if softmax.attrs.get("axis", -1 if scope.opset >= 13 else 1) % len(shape) != len(shape) - 1:
        return None
    after = [n for n in editor.consumers(softmax.outputs[0]) if is_op(n, "MatMul")]
    if len(after) != 1 or after[0].inputs[0] is not softmax.outputs[0]:
        return None
    sums: list[tuple[gs.Tensor, gs.Tensor | None]] = [(softmax.inputs[0], None)]
    add = editor.producer(softmax.inputs[0])
    if add is not None and is_op(add, "Add"):
        sums += [(add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])]
    products = [(product, mask) for scores, mask in sums if (product := _product(scores, scope)) is not None]
    if not products:
        return None
    (factor, nodes), mask = products[0]
    q, k = nodes[-1].inputs
    v, result = after[0].inputs[1], after[0].outputs[0]
    if any(len(scope.value(t).shape or ()) != len(shape) for t in (q, k, v)):
        return None
    between = [add] if mask is not None and add is not None else []
    return Core(q, k, v, factor, mask, result, len(shape), (after[0], softmax, *between, *nodes))


def _product(scores: gs.Tensor, scope: Scope) -> tuple[float, list[gs.Node]] | None:
    """The factor and the nodes, the MatMul last, where the scores are a product times a number."""
    nodes: list[gs.Node] = []
    for factor, tensor in multiples(scores, scope):
        node = scope.editor.producer(tensor)
        if node is None:
            return None
        nodes.append(node)
        if is_op(node, "MatMul"):
            return factor, nodes
    return None


def heads(origin: Origin, *, transposed: bool = False) -> Heads | None:
    """A view (batch, heads, steps, size), or (batch·heads, steps, size), as heads; transposed: with steps last."""
    *outer, steps, size = origin.layout.axes
    if transposed:
        steps, size = size, steps
    if len(steps) != 1 or len(size) != 1:
        return None
    loops = [loop for axis in outer for loop in axis]
    head = loops.pop() if loops and loops[-1].axis == size[0].axis else None
    if len(loops) > 1 or (len(outer) == 2 and outer[1] != (() if head is None else (head,))):
        return None
    return Heads(origin, loops[0] if loops else None, head, steps[0], size[0])


def token_axes(of: Heads) -> tuple[int, int] | None:
    """The axes of batch and steps of the origin, a value of three axes that has each of them whole; None otherwise."""
    shape = of.origin.shape
    if len(shape) != 3 or of.size.axis != 2 or of.steps.axis == 2:
        return None
    steps, batch = of.steps.axis, 1 - of.steps.axis
    if of.steps != Loop(steps, shape[steps]) or any(of.origin.layout.starts[:2]):
        return None
    if of.batch is None:
        return (batch, steps) if shape[batch] == 1 else None
    return (batch, steps) if of.batch == Loop(batch, shape[batch]) else None


def joined(of: Core, sizes: Sizes, scope: Scope) -> Joined:
    """Where the result, of these sizes, is joined. Raises NotLegal where it is not."""
    batch, head, steps, size = whole(sizes).axes
    axes = (batch, head, steps, size) if of.rank == 4 else ((*batch, *head), steps, size)
    channels = (*head, *size)
    forms = {
        (batch, steps, channels): (False, False),
        (steps, batch, channels): (True, False),
        ((*batch, *steps), channels): (False, True),
        ((*steps, *batch), channels): (True, True),
    }
    for tensor, layout, nodes in readers(of.result, Layout(axes, (0,) * 4), scope):
        if nodes and layout.axes in forms:
            return Joined(tensor, *forms[layout.axes], nodes)
    raise NotLegal("the heads of a token are not put side by side")


def mask_input(build: Build, of: Core, wanted: Sizes, scope: Scope) -> gs.Tensor | None:
    """The mask as the operators take it: (batch or 1, heads or 1, steps, keys); None without one. Raises NotLegal."""
    if of.mask is None:
        return None
    mask, shape = of.mask, scope.value(of.mask).shape
    if shape is None or len(shape) > of.rank:
        raise NotLegal(f"the shape of the mask '{mask.name}' is not known")
    if of.rank == 3 and len(shape) == 3 and shape[0] != 1:
        raise NotLegal(f"the mask '{mask.name}' has batch and heads in one axis")
    missing = 4 - len(shape)
    for axis, (dim, size) in enumerate(zip((*(1,) * missing, *shape), wanted, strict=True)):
        if not same_dims((dim,), (size,)) and (axis > 1 or dim != 1):
            raise NotLegal(f"the mask '{mask.name}' is {dim} over axis {axis} of the scores, not surely {size}")
    if not missing:
        return mask
    stored = scope.constant(mask)
    if stored is not None:
        return build.constant(stored.reshape((1,) * missing + stored.shape))
    axes = list(range(missing))
    if scope.opset < 13:
        return build("Unsqueeze", mask, axes=axes)
    return build("Unsqueeze", mask, build.constant(np.array(axes, np.int64)))


def check_private(nodes: Collection[gs.Node], result: gs.Tensor, scope: Scope) -> None:
    """Raises NotLegal where a value that these nodes make, but for the result, is needed outside."""
    ids = {id(n) for n in nodes}
    if len({id(scope.editor.owner(n)) for n in nodes}) > 1:
        raise NotLegal("a part of the attention stands in an outer graph")
    for t in (t for n in nodes for t in n.outputs if t.name and t is not result):
        if scope.editor.is_output(t) or t.name in scope.pinned:
            raise NotLegal(f"the value '{t.name}' inside the attention is an output")
        if any(id(n) not in ids for n, _ in scope.editor.uses(t)):
            raise NotLegal(f"the value '{t.name}' inside the attention has other readers")
