"""Pieces to match with: the surroundings of a node, and what a rule answers about it.

A rule looks at one root node and answers `Match` (what may be replaced by what), `Refusal` (this is nearly the pattern,
but not legal, and why) or None (not the pattern). Legality only: whether it pays is the plan's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnxfuse import ir
from onnxfuse.facts import Facts, Value
from onnxfuse.targets import Target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

    from onnxfuse.graph import Editor


class NotLegal(Exception):
    """Raised inside a rule where the pattern stands but may not be replaced; the engine makes it a Refusal."""


@dataclass(frozen=True, slots=True, eq=False)
class NewNode:
    """The fused node to be made; tensors are those of the graph that is edited."""

    op_type: str
    domain: str
    inputs: tuple[gs.Tensor, ...]
    outputs: tuple[gs.Tensor, ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """`old` may be replaced by `new`.

    old:    the nodes that disappear, producers first; the first one that is costly gives the new node its name.
    new:    the node that stands for them.
    definition: the new node as a function, in ONNX text, where no runtime is sure to know it (design §6).
    body:   what that function executes where it is inlined: nodes over value names of the graph, and over new names.
    like:   new name in `body` → the existing value that has the same dtype and shape.
    """

    old: tuple[gs.Node, ...]
    new: NewNode
    definition: str | None = None
    body: tuple[ir.Node, ...] = ()
    like: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that nearly matched or did not pay: the rule, the node it is about, and why, for `--explain`."""

    rule: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite: `match` is called for every node whose operator is in `roots` (default domain).

    pairs: the neighbouring operators that it makes one node of on a target.
    """

    name: str
    roots: frozenset[str]
    pairs: Callable[[Target], frozenset[tuple[str, str]]]
    match: Callable[[gs.Node, Scope], Match | None]
    doc: str


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """One graph or body with what is known of it: facts hold for every binding of the model's free dims.

    pinned: names that something outside the graphs refers to.
    """

    editor: Editor
    facts: Facts
    opset: int
    target: Target
    pinned: frozenset[str]

    def value(self, tensor: gs.Tensor) -> Value:
        """Facts of a tensor."""
        return self.facts[tensor.name]

    def sole_consumer(self, node: gs.Node) -> gs.Node | None:
        """The one node that reads the node's first output; None when several do.

        Raises NotLegal when the value is seen from outside: a graph output, or captured by a branch.
        """
        tensor = node.outputs[0]
        if self.editor.is_output(tensor):
            raise NotLegal(f"the value '{tensor.name}' between the nodes is a graph output")
        if tensor.name in self.pinned:
            raise NotLegal(f"the value '{tensor.name}' between the nodes is named by the model's annotations")
        uses = self.editor.use_count(tensor)
        if uses > 1:
            raise NotLegal(f"the value '{tensor.name}' between the nodes has {uses} uses")
        if not uses:
            return None
        (consumer,) = self.editor.consumers(tensor)
        if self.editor.owner(consumer) is not self.editor.owner(node):
            raise NotLegal(f"the value '{tensor.name}' between the nodes is captured by a branch or loop body")
        return consumer


def is_op(node: gs.Node | None, *op_types: str) -> bool:
    """Whether a node is one of these operators of the default domain."""
    return node is not None and node.op in op_types and (node.domain or "") in ("", "ai.onnx")
