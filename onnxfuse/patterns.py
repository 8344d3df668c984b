"""Pieces to match with: the surroundings of a node, and what a rule answers about it.

A rule looks at one root node and answers `Match` (nodes that one fused node may stand for) or `Rewrite` (values that
may be computed otherwise), None (not the pattern), or raises NotLegal (nearly the pattern, but not legal, and why).
Legality only: whether it pays is the engine's business.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import defs

from onnxfuse import ir
from onnxfuse.errors import OnnxfuseError, one_line
from onnxfuse.facts import Facts, Value
from onnxfuse.targets import Target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

    from onnxfuse.graph import Editor


log = logging.getLogger(__name__)


class NotLegal(Exception):
    """Raised inside a rule where the pattern stands but may not be replaced; the engine makes it a Refusal."""


Key = tuple[str, str, str]  # of a rewrite: rule, path of the graph, value that it makes; the same in every run
CROWD = 64  # readers of a value, and inputs of a node, beyond which it is no part of a pattern
_LARGEST = 2**24  # elements of a constant that a rule makes; a file may declare any size
_MOST_READ = 2**26  # elements of a constant that a rule looks at: a quarter of a gigabyte in float32


def check_size(*dims: int) -> None:
    """Raises NotLegal where a constant of such a shape would take too much memory."""
    if math.prod(dims) > _LARGEST:
        raise NotLegal("a constant of so many elements would take too much memory")


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


@dataclass(frozen=True, slots=True, eq=False)
class Rewrite:
    """Values of the graph may be computed otherwise; what only served the old way disappears with it.

    new:  the nodes of the new way, producers first; a value of the graph that one of them makes is replaced.
    same: (old value, other value) pairs: who reads the old one may read the other, which may be a new constant.
    unread: nodes whose values nobody reads.
    alike: whether the rule itself has shown that dtypes and shapes stay, where facts do not tell them (as of Identity).
    """

    new: tuple[gs.Node, ...] = ()
    same: tuple[tuple[gs.Tensor, gs.Tensor], ...] = ()
    unread: tuple[gs.Node, ...] = ()
    alike: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that nearly matched or did not pay: the rule, the node it is about, and why, for `--explain`."""

    rule: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite: `match` is called for every node whose operator is in `roots` (default domain).

    pairs: of a rule that answers `Match`, the neighbouring operators that it makes one node of on a target; None for
        one that answers `Rewrite`.
    stage: the rewrites of a stage are made until none is left, then those of the next one.
    measured: targets on which a measurement, told in `doc`, says that it pays, whatever the roofline says.
    """

    name: str
    roots: frozenset[str]
    pairs: Callable[[Target], frozenset[tuple[str, str]]] | None
    match: Callable[[gs.Node, Scope], Match | Rewrite | None]
    doc: str
    stage: int = 0
    measured: frozenset[str] = frozenset()


MISFIT = "misfit"  # a field of a node whose inputs, attributes and shapes do not fit each other (see `misfits`)
INTERNAL = "internal error of this rule"
survive_errors = True  # of rules; tests and fuzzers set it to False, so that a fault of ours is seen there
_reported: set[str] = set()  # rules whose error was logged


def look(rule: Rule, node: gs.Node, scope: Scope) -> Match | Rewrite | None:
    """Ask a rule about a node. Raises NotLegal, also where the rule itself fails.

    Such an error is a bug of the rule and costs only this rewrite: it is logged once per rule, and refused. With
    `survive_errors` off it propagates. Errors that are not the rule's (memory, unreadable weights) always propagate.
    """
    if MISFIT in vars(node):
        raise NotLegal("inputs, attributes and shapes of this node do not fit each other")
    try:
        return rule.match(node, scope)
    except (NotLegal, OnnxfuseError, MemoryError):
        raise
    except Exception as error:
        if not survive_errors:
            raise
        text = f"{type(error).__name__}: {error}"
        if rule.name not in _reported:
            _reported.add(rule.name)
            log.warning("rule %s failed and was skipped (%s); please report it", rule.name, one_line(text))
        raise NotLegal(f"{INTERNAL} ({one_line(text)})") from error


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """One graph or body with what is known of it: facts hold for every binding of the model's free dims.

    pinned: names that something outside the graphs refers to. array: reads the elements of a stored constant.
    """

    editor: Editor
    facts: Facts
    opset: int
    target: Target
    pinned: frozenset[str]
    array: Callable[[gs.Constant], np.ndarray]

    def value(self, tensor: gs.Tensor) -> Value:
        """Facts of a tensor."""
        return self.facts[tensor.name]

    def supports(self, op_type: str) -> bool:
        """Whether the model's opset has an operator."""
        return bool(defs.has(op_type, self.opset, ""))

    def constant(self, tensor: gs.Tensor) -> np.ndarray | None:
        """The elements of a value that no caller can change: an initializer, a Constant node; None for any other, and
        for one of more elements than are read here.
        """
        if math.prod(d for d in self.value(tensor).shape or () if isinstance(d, int)) > _MOST_READ:
            return None
        if _is_stored(tensor):
            return self.array(tensor)
        value = self.value(tensor)
        if value.constant and value.data is not None and value.data.dtype != object:
            return value.data
        producer = self.editor.producer(tensor)
        if producer is None or not value.constant:
            return None
        if is_op(producer, "Identity"):
            return self.constant(producer.inputs[0])
        held = producer.attrs.get("value") if is_op(producer, "Constant") else None
        return self.array(held) if _is_stored(held) else _numbers(value)

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
    """Whether a node is one of these operators of the default domain, and its inputs and attributes fit."""
    if node is None or node.op not in op_types or (node.domain or "") not in ("", "ai.onnx"):
        return False
    return MISFIT not in vars(node)


def _is_stored(tensor: Any) -> bool:
    return type(tensor).__name__ == "Constant"  # gs.Constant, without importing graphsurgeon


def _numbers(value: Value) -> np.ndarray | None:
    """Known integers as an array of their dtype; None where one is symbolic."""
    from onnx import helper

    if value.data is None or not all(isinstance(d, int) for d in value.data.reshape(-1)):
        return None
    return value.data.astype(helper.tensor_dtype_to_np_dtype(value.dtype))


class Build:
    """The new nodes of a `Rewrite` in the making, named after a node of the old way.

    build = Build(scope, node); build("Add", build("Mul", x, build.constant(s)), b, out=y); return build.rewrite()
    """

    def __init__(self, scope: Scope, like: gs.Node) -> None:
        self._scope, self._name = scope, like.name or like.op
        self.nodes: list[gs.Node] = []

    def __call__(
        self, op_type: str, *inputs: gs.Tensor | None, out: gs.Tensor | None = None, domain: str = "", **attrs: Any
    ) -> gs.Tensor:
        """Adds a node; gives its output, a new value unless `out` says which. An input None is absent."""
        from onnx_graphsurgeon import Variable

        editor = self._scope.editor
        if out is None:
            out = editor.value(f"{self._name}/{op_type}")
        given = [Variable.empty() if t is None else t for t in inputs]
        self.nodes.append(editor.node(op_type, given, [out], attrs=attrs, name=self._name, domain=domain))
        return out

    def constant(self, array: np.ndarray | np.generic) -> gs.Constant:
        """A new constant in the array's own dtype."""
        return self._scope.editor.constant(f"{self._name}/constant", array)

    def rewrite(self, *same: tuple[gs.Tensor, gs.Tensor], alike: bool = False) -> Rewrite:
        """The nodes so far, and values that others may stand for; alike: see `Rewrite`."""
        return Rewrite(tuple(self.nodes), same, alike=alike)
