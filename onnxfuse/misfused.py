"""Normalizations that onnxruntime would fuse wrongly once a rewrite is made.

From its extended level on, onnxruntime fuses ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add into a layer
normalization, and the part from Pow to Mul into an RMS normalization. It does not ask whether the Mul widens the
normalized value. Of a value with one axis it may take the value itself for the scale or the bias. Its kernel then
refuses to run (1.32). A graph has this form as soon as the last node that hides it is gone: every rewrite is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_graphsurgeon as gs

from onnxfuse.facts import Facts, Shape, provably_equal
from onnxfuse.patterns import NotLegal, Rewrite, is_op
from onnxfuse.surroundings import Surroundings, few

_FORM = ("ReduceMean", "Sub", "Pow", "Add", "Sqrt", "Div")
_COPIES = (
    "Identity", "Dropout", "Cast", "Slice", "Pad", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Transpose",
)  # fmt: skip
_MAY_BE_NEUTRAL = ("Mul", "Add", "Sub", "Div")
_HIDDEN = 4  # nodes between two of the form that onnxruntime may take away
_STEPS = 12  # from what a rewrite touches to the product that may be taken for a scale


def check_scales(found: Rewrite, dead: Sequence[gs.Node], known: Facts, place: Surroundings) -> None:
    """Raises NotLegal where a normalization would stand before a product that onnxruntime takes for its scale.

    dead: the nodes that go; known: facts of the new ones' values.
    """
    after = _After(found, dead, known, place)
    if any(after.is_misread(product) for product in after.products()):
        raise NotLegal("onnxruntime would take the product behind a normalization for its scale, and could not run it")


class _After:
    """The graph as a rewrite will leave it."""

    def __init__(self, found: Rewrite, dead: Sequence[gs.Node], known: Facts, place: Surroundings) -> None:
        self._found, self._dead, self._known, self._editor = found, dead, known, place.scope.editor
        self._gone = {id(n) for n in dead}
        self._new = {id(t): n for n in found.new for t in n.outputs}
        self._instead = {id(old): other for old, other in found.same}

    def products(self) -> Iterator[gs.Node]:
        """The Mul nodes that the rewrite touches, and those shortly behind."""
        touched = [other for _, other in self._found.same]
        touched += [t for n in self._found.new for t in (*n.inputs, *n.outputs)]
        touched += [t for n in self._dead for t in n.inputs]  # have one reader less
        edge = [n for t in touched for n in (self._maker(t), *self._readers(t)) if n is not None]
        seen: set[int] = set()
        for _ in range(_STEPS):
            edge = [n for i, n in {id(n): n for n in edge}.items() if i not in seen]
            seen.update(map(id, edge))
            yield from (n for n in edge if is_op(n, "Mul"))
            through = [n for n in edge if is_op(n, *_FORM, *_COPIES) or self._handed_on(n) is not None]
            edge = [reader for n in through for t in n.outputs for reader in self._readers(t)]

    def is_misread(self, product: gs.Node) -> bool:
        """Whether onnxruntime would take the Mul for the scale of what it multiplies, and it is not."""
        result = self._known[product.outputs[0].name].shape
        for normalized in product.inputs:
            shape = self._known[normalized.name].shape
            if (not _same(shape, result) or len(shape or ()) == 1) and self._is_normalized(normalized):
                return True
        return False

    def _is_normalized(self, tensor: gs.Tensor) -> bool:
        """Whether the value is n/sqrt(mean(Pow) + ε) in the form that onnxruntime knows."""
        return any(
            True
            for quotient in self._quotients(tensor)
            for root in self._above(quotient.inputs[1], "Sqrt")
            for total in self._above(root.inputs[0], "Add")
            for summand in total.inputs
            for mean in self._above(summand, "ReduceMean")
            for _ in self._above(mean.inputs[0], "Pow")
        )

    def _quotients(self, tensor: gs.Tensor) -> Iterator[gs.Node]:
        """The Div nodes that make a value; also of (1/b)·a, of which onnxruntime makes a/b."""
        yield from self._above(tensor, "Div")
        for product in self._above(tensor, "Mul"):
            inverse = (n for t in product.inputs for n in self._above(t, "Div"))
            yield from (n for n in inverse if self._known[n.inputs[0].name].constant)

    def _above(self, tensor: gs.Tensor, op_type: str) -> Iterator[gs.Node]:
        """The nodes of this type that make a value, through nodes that onnxruntime may take away."""
        for _ in range(_HIDDEN):
            node = self._maker(tensor)
            if node is None:
                return
            if is_op(node, op_type):
                yield node
            before = self._handed_on(node)
            if before is None:
                return
            tensor = before

    def _handed_on(self, node: gs.Node) -> gs.Tensor | None:
        """The value that a node hands on, if it turns out to be a copy, or to add 0 or multiply by 1."""
        if is_op(node, *_COPIES):
            return node.inputs[0]
        if is_op(node, *_MAY_BE_NEUTRAL):
            for value, other in (node.inputs, node.inputs[::-1]):
                facts = self._known[other.name]
                if facts.constant and facts.shape is not None and all(d == 1 for d in facts.shape):
                    return value
        return None

    def _maker(self, tensor: gs.Tensor) -> gs.Node | None:
        tensor = self._instead.get(id(tensor), tensor)
        return self._new.get(id(tensor)) or self._editor.producer(tensor)

    def _readers(self, tensor: gs.Tensor) -> list[gs.Node]:
        old = [o for o, other in self._found.same if other is tensor]
        there = [n for t in (tensor, *old) for n in few(t, self._editor) if id(n) not in self._gone]
        return [*there, *(n for n in self._found.new if any(t is tensor for t in n.inputs))]


def _same(a: Shape | None, b: Shape | None) -> bool:
    return a is not None and b is not None and len(a) == len(b) and all(map(provably_equal, a, b))
