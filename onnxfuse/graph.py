"""Edits of a view by identity: who makes a value, who reads it, replace, rewire, fresh names, order.

gs compares nodes and tensors by name and keeps its lists in step by linear searches; with 50,000 readers of one value
that takes minutes. An `Editor` works around both: each step costs what it touches, and `finish` brings the lists of gs
up to date, once for all edits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxfuse import bridge

Use = tuple[gs.Node, int]
_MANY = 16  # inputs of a node


class Editor:
    """Edits a view in place; structure is changed here alone while an editor is at work.

    An attribute, an operator name or `node.metadata` may be set directly. The answers of an editor are always up to
    date; the lists of gs (`graph.nodes`, `tensor.outputs`) are so after `finish`.
    """

    def __init__(self, graph: gs.Graph) -> None:
        self.graph = graph
        self._owner: dict[int, gs.Graph] = {}
        self._parent: dict[int, gs.Graph] = {}  # id(body) → the graph that holds its node
        self._outputs: dict[int, gs.Tensor] = {}
        self._results: dict[int, list[Use]] = {}  # id(output of a body) → the node that holds it, and its number
        self._uses: dict[int, tuple[gs.Tensor, dict[tuple[int, int], gs.Node]]] = {}  # of tensors touched by edits only
        self._before: dict[int, list[gs.Node]] = {}  # id(node) → new nodes that go where it stands or stood
        self._removed: dict[int, tuple[gs.Node, gs.Graph]] = {}  # with the graph that held it
        self._touched: dict[int, gs.Graph] = {}
        self._value_names = bridge.value_names(graph)
        self._node_names: set[str] = set()
        self._last: dict[str, int] = {}  # base name → the last number given to it
        self._places: dict[int, dict[int, list[int]]] = {}  # id(node of many inputs) → id(tensor) → where it reads it
        for g in bridge.walk(graph):
            self._outputs.update((id(t), t) for t in g.outputs)
            for node in g.nodes:
                self._owner[id(node)] = g
                self._node_names.add(node.name)
                self._adopt(node, g)

    # --- questions ---

    def producer(self, tensor: gs.Tensor) -> gs.Node | None:
        """The node that makes a value; None for an input, a constant, an absent one."""
        return tensor.inputs[0] if tensor.inputs else None

    def uses(self, tensor: gs.Tensor) -> list[Use]:
        """Every (node, input index) that reads a value, in the graph or in a body."""
        if id(tensor) in self._uses:
            return [(node, index) for (_, index), node in self._uses[id(tensor)][1].items()]
        readers = {id(node): node for node in tensor.outputs}  # gs lists a node once for each input
        return [(node, i) for node in readers.values() for i in self._where(node, tensor)]

    def _where(self, node: gs.Node, tensor: gs.Tensor) -> Sequence[int]:
        """The inputs of a node that are a tensor which no edit has touched. Many inputs are looked through once."""
        if len(node.inputs) <= _MANY:
            return [i for i, t in enumerate(node.inputs) if t is tensor]
        if id(node) not in self._places:
            places = self._places[id(node)] = {}
            for i, t in enumerate(node.inputs):
                places.setdefault(id(t), []).append(i)
        return self._places[id(node)][id(tensor)]

    def consumers(self, tensor: gs.Tensor) -> list[gs.Node]:
        """The nodes that read a value, in the graph or in a body, each once."""
        readers = self._uses[id(tensor)][1].values() if id(tensor) in self._uses else tensor.outputs
        return list({id(node): node for node in readers}.values())

    def use_count(self, tensor: gs.Tensor) -> int:
        """How many inputs read a value, `len(uses(tensor))` without listing them."""
        return len(self._uses[id(tensor)][1]) if id(tensor) in self._uses else len(tensor.outputs)

    def is_output(self, tensor: gs.Tensor) -> bool:
        """Whether a value is an output of the main graph or of a body."""
        return id(tensor) in self._outputs

    def results(self, tensor: gs.Tensor) -> list[Use]:
        """Every (node, index) of which a body gives a value as its output of that number."""
        return [(node, i) for node, i in self._results.get(id(tensor), ()) if id(node) in self._owner]

    def owner(self, node: gs.Node) -> gs.Graph:
        """The graph or body that holds a node. Raises KeyError for a node that is in none."""
        return self._owner[id(node)]

    def only_use(self, tensor: gs.Tensor) -> gs.Node | None:
        """The one node that reads a value, once, in the graph that makes it; None too where the value is an output."""
        producer = self.producer(tensor)
        if producer is None or self.is_output(tensor):
            return None
        if id(tensor) not in self._uses and len(tensor.outputs) != 1:
            return None
        uses = self.uses(tensor)
        if len(uses) != 1 or self.owner(uses[0][0]) is not self.owner(producer):
            return None
        return uses[0][0]

    # --- new things ---

    def value(
        self, base_name: str, dtype: int | None = None, shape: Sequence[int | str | None] | None = None
    ) -> gs.Variable:
        """A new value of a fresh name; dtype is an ONNX enum number, and both are written as its declared type."""
        return gs.Variable(self._fresh(base_name, self._value_names), dtype, None if shape is None else tuple(shape))

    def constant(self, base_name: str, array: np.ndarray | np.generic) -> gs.Constant:
        """A new constant of a fresh name; in the model it becomes an initializer of the main graph."""
        return gs.Constant(self._fresh(base_name, self._value_names), np.asarray(array))

    def node(
        self,
        op_type: str,
        inputs: Iterable[gs.Tensor],
        outputs: Iterable[gs.Tensor],
        *,
        attrs: Mapping[str, Any] | None = None,
        name: str = "",
        domain: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> gs.Node:
        """A new node of a unique name, for `replace` or `insert`; until then its tensors know nothing of it."""
        node = gs.Node(op_type, self._fresh(name or op_type, self._node_names), dict(attrs or {}), domain=domain)
        list.extend(node.inputs, inputs)
        list.extend(node.outputs, outputs)
        if metadata:
            node.metadata = dict(metadata)
        return node

    def _fresh(self, base: str, taken: set[str]) -> str:
        name = base
        while name in taken:
            self._last[base] = self._last.get(base, 0) + 1
            name = f"{base}_{self._last[base]}"
        taken.add(name)
        return name

    # --- edits ---

    def replace(self, old: Sequence[gs.Node], new: Sequence[gs.Node]) -> None:
        """Removes `old` and puts `new` where the last of `old` stood; nodes that are in both stay as they are.

        A new node may make a value that an old one made: its name, and its place among the outputs, are kept that way.
        """
        kept = {id(n) for n in old} & {id(n) for n in new}
        for node in old:
            if id(node) not in kept:
                self._detach(node)
        self.insert([n for n in new if id(n) not in kept], before=old[-1])

    def insert(self, new: Sequence[gs.Node], *, before: gs.Node) -> None:
        """Puts new nodes before a node, or where it stood if it was removed since `finish`. Raises ValueError."""
        graph = self._owner.get(id(before)) or self._removed.get(id(before), (None, None))[1]
        if graph is None:
            raise ValueError(f"node '{before.name}' is not in the graph: nothing can be put before it")
        for node in new:
            if id(node) in self._owner or id(node) in self._removed:
                raise ValueError(f"node '{node.name}' is or was in the graph already: make a new one")
            self._attach(node, graph)
        self._before.setdefault(id(before), []).extend(new)
        self._touched[id(graph)] = graph

    def set_input(self, node: gs.Node, index: int, tensor: gs.Tensor) -> None:
        """Lets one input of a node read another value."""
        del self._readers(node.inputs[index])[id(node), index]
        list.__setitem__(node.inputs, index, tensor)
        self._readers(tensor)[id(node), index] = node
        graph = self.owner(node)
        self._touched[id(graph)] = graph

    def rewire(self, old: gs.Tensor, new: gs.Tensor) -> None:
        """Lets every node that reads `old` read `new`; where `old` is an output of a graph, it stays that output."""
        for node, index in self.uses(old):
            self.set_input(node, index, new)

    def make_instead(self, tensor: gs.Tensor, other: gs.Tensor) -> None:
        """Lets the node that makes `other` make `tensor`, which keeps its name and place, and be read instead."""
        maker = other.inputs[0]
        index = next(i for i, t in enumerate(maker.outputs) if t is other)
        list.__setitem__(maker.outputs, index, tensor)
        _assign(other.inputs, ())
        list.append(tensor.inputs, maker)
        self.rewire(other, tensor)
        graph = self.owner(maker)
        self._touched[id(graph)] = graph

    def finish(self) -> None:
        """Brings gs's lists up to date and mends the order of nodes where an edit broke it: ready for `splice`.

        A node moves only if it has to: up, right before the first one that needs it. Raises ValueError for a cycle.
        """
        for tensor, readers in self._uses.values():
            _assign(tensor.outputs, readers.values())
        self._uses.clear()
        self._places.clear()
        check = dict(self._touched)
        for graph in self._touched.values():
            self._relist(graph)
            outer = self._parent.get(id(graph))
            while outer is not None:  # what a body captures orders the node that holds it
                check[id(outer)] = outer
                outer = self._parent.get(id(outer))
        if self._before:
            raise ValueError("nodes were put before a node of a body that moved to another node meanwhile")
        self._touched.clear()
        self._removed.clear()
        for graph in check.values():
            if not self._ordered(graph):
                self._sort(graph)

    def _readers(self, tensor: gs.Tensor) -> dict[tuple[int, int], gs.Node]:
        """The uses of a tensor that an edit touches, by (id(node), input index): to take one out is then cheap."""
        if id(tensor) not in self._uses:
            self._uses[id(tensor)] = tensor, {(id(node), i): node for node, i in self.uses(tensor)}
        return self._uses[id(tensor)][1]

    def _with_bodies(self, node: gs.Node, graph: gs.Graph) -> Iterator[tuple[gs.Node, gs.Graph]]:
        yield node, graph
        for body in bridge.bodies(node):
            for inner in bridge.walk(body):
                if id(inner) in self._touched:
                    self._relist(inner)
                for n in inner.nodes:
                    yield n, inner

    def _adopt(self, node: gs.Node, graph: gs.Graph) -> None:
        for body in bridge.bodies(node):
            self._parent[id(body)] = graph
            for i, t in enumerate(body.outputs):
                self._results.setdefault(id(t), []).append((node, i))

    def _detach(self, node: gs.Node) -> None:
        graph = self._owner[id(node)]
        for n, holder in self._with_bodies(node, graph):
            self._touched.pop(id(holder), None)
            for i, t in enumerate(n.inputs):
                del self._readers(t)[id(n), i]
            for t in n.outputs:
                _assign(t.inputs, [p for p in t.inputs if p is not n])
            del self._owner[id(n)]
        self._removed[id(node)] = node, graph
        self._touched[id(graph)] = graph

    def _attach(self, node: gs.Node, graph: gs.Graph) -> None:
        for n, holder in self._with_bodies(node, graph):
            self._touched[id(holder)] = holder
            for i, t in enumerate(n.inputs):
                self._readers(t)[id(n), i] = n
            for t in n.outputs:
                list.append(t.inputs, n)
            self._owner[id(n)] = holder
            self._adopt(n, holder)

    # --- lists and their order ---

    def _relist(self, graph: gs.Graph) -> None:
        """Applies what was removed from and inserted in a graph to its node list."""
        nodes = []
        for slot in graph.nodes:
            todo = [(slot, False)]
            while todo:
                node, expanded = todo.pop()
                if not expanded and id(node) in self._before:
                    todo.append((node, True))
                    todo += [(n, False) for n in reversed(self._before.pop(id(node)))]
                elif id(node) not in self._removed:
                    nodes.append(node)
        graph.nodes = nodes

    def _needs(self, node: gs.Node) -> list[gs.Node]:
        """The nodes of the same graph that make what a node, or a body in it, reads."""
        graph = self._owner[id(node)]
        tensors = list(node.inputs)
        for body in bridge.bodies(node):
            for inner in bridge.walk(body):
                for n in inner.nodes:
                    tensors += n.inputs
        return [t.inputs[0] for t in tensors if t.inputs and self._owner.get(id(t.inputs[0])) is graph]

    def _ordered(self, graph: gs.Graph) -> bool:
        done: set[int] = set()
        for node in graph.nodes:
            if any(id(p) not in done for p in self._needs(node)):
                return False
            done.add(id(node))
        return True

    def _sort(self, graph: gs.Graph) -> None:
        nodes: list[gs.Node] = []
        done: set[int] = set()
        waiting: set[int] = set()
        for root in graph.nodes:
            todo = [root]
            while todo:
                node = todo[-1]
                needs = [p for p in self._needs(node) if id(p) not in done] if id(node) not in done else []
                if not needs:
                    todo.pop()
                    if id(node) not in done:
                        nodes.append(node)
                        done.add(id(node))
                elif id(node) in waiting:
                    raise ValueError(f"an edit made a cycle through node '{node.name}' ({node.op})")
                else:
                    waiting.add(id(node))
                    todo += reversed(needs)
        graph.nodes = nodes


def _assign(synchronized: Any, items: Iterable[Any]) -> None:
    """Sets the content of one of gs's lists without the searches that its own methods do."""
    items = list(items)
    list.clear(synchronized)
    list.extend(synchronized, items)
