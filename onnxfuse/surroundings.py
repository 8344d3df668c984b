"""One graph or body while it is rewritten: what is known of its values and what its nodes cost, kept up to date.

What a value is never changes under its name, so facts hold throughout; new values get theirs from the same shape
functions. A value that became a constant tells more of what is computed from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import onnx_graphsurgeon as gs
from onnx import helper

from onnxfuse import bridge, ir, shadowing
from onnxfuse.binding import Bound
from onnxfuse.cost import Cost, costs
from onnxfuse.execution import Piece, label, piece, value_bytes
from onnxfuse.facts import Facts, Value, extend, symbols
from onnxfuse.facts.expr import Expr
from onnxfuse.graph import Editor
from onnxfuse.misfits import mark
from onnxfuse.model import Model
from onnxfuse.patterns import CROWD, NotLegal, Rewrite, Scope
from onnxfuse.targets import Target

log = logging.getLogger(__name__)
_SMALL = 64  # elements of a constant whose contents facts keep


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """What a new node stands for: the rule that made it, the names of nodes of the model, and in the place of those
    that rewrites made, their origins. So a chain of n nodes that become one takes n steps, and not n².
    """

    rule: str
    parts: tuple[str | Origin, ...]

    def names(self) -> list[str]:
        """All names, in order."""
        found, todo = [], list(reversed(self.parts))
        while todo:
            part = todo.pop()
            if isinstance(part, str):
                found.append(part)
            else:
                todo += reversed(part.parts)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """One graph or body: what holds for every binding (`scope`), and what it costs at the assumed one.

    path: where a body stands, "" for the main graph; records: id of a node → its record and its cost; program, taken:
    the model without its weights, and the names of all symbols in it; renamed: ids of nodes whose record has to be read
    anew, as they read or make other values now; made: the nodes that rewrites have brought, by id, and origins what
    they stand for; better: names of values of which the last rewrite told more. All but the first two and the program
    change with the graph.
    """

    graph: gs.Graph
    path: str
    scope: Scope
    bound: Facts
    records: dict[int, tuple[ir.Node, Cost]]
    program: ir.Program
    taken: set[str]
    made: dict[int, gs.Node] = field(default_factory=dict)
    renamed: set[int] = field(default_factory=set)
    origins: dict[int, Origin] = field(default_factory=dict)
    better: set[str] = field(default_factory=set)

    def record(self, node: gs.Node) -> ir.Node:
        """A node as it is now. Its record is brought up to date when it is asked for, as a node may read thousands of
        values, each of which is renamed.
        """
        record, cost = self.records[id(node)]
        if id(node) in self.renamed:
            self.renamed.discard(id(node))
            inputs, outputs = (tuple([t.name for t in side]) for side in (node.inputs, node.outputs))
            record = ir.Node(record.op_type, record.domain, record.name, inputs, outputs, record.attrs, record.overload)
            self.records[id(node)] = record, cost
        return record

    def label(self, node: gs.Node) -> str:
        """How a node is called in reports; the text is the record's, so that keeping it does not keep the view."""
        return label(self.record(node))

    def piece(self, node: gs.Node) -> Piece:
        """A node as a piece."""
        return piece(self.record(node), self.bound, self.records[id(node)][1])

    def check_foreign(self, domain: str, op_type: str) -> None:
        """Raises NotLegal where the model has a function of this name: it is another operator there."""
        if any((domain, op_type) == key[:2] for key in self.program.functions):
            raise NotLegal(f"the model has another function '{domain}::{op_type}'")

    def nbytes(self, name: str) -> int | None:
        """Bytes of a value at the assumed dims."""
        return value_bytes(self.bound[name])

    def know(self, tensors: Iterable[gs.Tensor]) -> None:
        """Sets the facts of those that are new constants."""
        for t in tensors:
            if type(t) is gs.Constant and t.name not in self.bound.values:
                self.bound.values[t.name] = self.scope.facts.values[t.name] = self._constant(t)

    def _constant(self, constant: gs.Constant) -> Value:
        if bridge.stored(constant) is not None:
            return self.bound[constant.name]
        array = self.scope.array(constant)
        dtype = int(helper.np_dtype_to_tensor_dtype(array.dtype))
        data = None
        if array.size <= _SMALL:
            data = array.astype(object) if array.dtype.kind in "iub" else array if array.dtype.kind == "f" else None
        return Value(dtype, array.shape, data, True)

    def extended(self, nodes: Sequence[gs.Node]) -> tuple[Facts, Facts]:
        """Facts of what new nodes will make, and their records, for every binding and at the assumed one."""
        self.know(t for node in nodes for t in node.inputs)
        records = [_record(n) for n in nodes]
        known = self._extended(self.scope.facts, records, self.taken)
        return known, known if self.bound is self.scope.facts else self._extended(self.bound, records, self.taken)

    def _extended(self, facts: Facts, records: Sequence[ir.Node], taken: set[str]) -> Facts:
        return extend(facts, records, self.program, self.scope.array, taken) if records else Facts((), {}, outer=facts)

    def add(self, nodes: Sequence[gs.Node], known: Facts, bound: Facts, prices: Sequence[Cost]) -> None:
        """Takes in new nodes with what `extended` said of them, also of values that were there before."""
        for facts, new in ((self.scope.facts, known), (self.bound, bound)):
            for name, value in new.values.items():
                old = facts[name]
                if old.shape is None:
                    facts.values[name] = value
                elif _tells_more(value, old):
                    facts.values[name] = _both(value, old)
                    self.better.add(name)
        for node, record, price in zip(nodes, bound.nodes, prices, strict=True):
            self.records[id(node)] = record, price
            self.made[id(node)] = node

    def remove(self, nodes: Iterable[gs.Node]) -> None:
        """Forgets nodes that are gone."""
        for node in nodes:
            del self.records[id(node)]
            self.made.pop(id(node), None)
            self.origins.pop(id(node), None)

    def learn(self, found: Rewrite) -> list[gs.Node]:
        """What is known behind a value that turned out to be a constant, or of known size; gives the nodes there."""
        facts = self.scope.facts
        pairs = [(facts[old.name], other) for old, other in found.same]
        told = [other for old, other in pairs if _tells_more(facts[other.name], old)]
        told += [t for n in found.new for t in n.outputs if t.name in self.better]
        self.better.clear()
        todo = [n for t in told for n in few(t, self.scope.editor)]
        behind: dict[int, gs.Node] = {}
        while todo:
            node = todo.pop()
            if id(node) in behind or id(node) not in self.records or len(behind) > CROWD:
                continue
            if node.domain not in ("", "ai.onnx", None) or bridge.bodies(node):
                continue
            if self._learn(node):
                behind[id(node)] = node
                todo += [n for t in node.outputs for n in few(t, self.scope.editor)]
        return list(behind.values())

    def _learn(self, node: gs.Node) -> bool:
        """Whether more is known of what a node makes than before; its cost, too, is worked out anew."""
        record, better, facts = self.record(node), False, self.scope.facts
        for known in (facts,) if self.bound is facts else (facts, self.bound):
            again = self._extended(known, [record], set(self.taken))
            for name in filter(None, record.outputs):
                old, new = known[name], again[name]
                if _tells_more(new, old):
                    known.values[name], better = _both(new, old), True
        self.records[id(node)] = record, costs(again)[0]  # at the assumed dims; what it reads are weights now
        return better


def few(tensor: gs.Tensor, editor: Editor) -> list[gs.Node]:
    """The readers of a value, none where they are too many to be part of a pattern."""
    return editor.consumers(tensor) if editor.use_count(tensor) <= CROWD else []


def _tells_more(new: Value, old: Value) -> bool:
    both = _both(new, old)
    return both.constant != old.constant or both.shape != old.shape or _numbers(both) > _numbers(old)


def _numbers(value: Value) -> int:
    """Elements that are known, plus one where any account of them is."""
    return 0 if value.data is None else 1 + sum(not isinstance(e, Expr) for e in value.data.flat)


def _both(new: Value, old: Value) -> Value:
    """What two accounts of one value tell together; a symbol of the new one may name another dim elsewhere."""
    shape, data = old.shape, old.data
    if shape is None:
        shape = new.shape if all(isinstance(d, int) for d in new.shape or ()) else None
    elif new.shape is not None:
        shape = tuple(n if isinstance(n, int) else o for n, o in zip(new.shape, shape, strict=True))
    if data is None or (new.data is not None and _numbers(new) > _numbers(old)):
        data = new.data
    return replace(old, shape=shape, data=data, constant=new.constant or old.constant)


def _record(node: gs.Node) -> ir.Node:
    """The record of a new node, whose attributes are numbers, texts and lists of them."""
    attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in node.attrs.items()}
    inputs, outputs = (tuple(t.name for t in side) for side in (node.inputs, node.outputs))
    return ir.Node(node.op, ir.domain(node.domain or ""), node.name, inputs, outputs, attrs)


def surroundings(model: Model, editor: Editor, known: Facts, bound: Bound, target: Target) -> list[Surroundings]:
    """The main graph and all bodies inside it, each with its facts and costs. A body without facts is left out.

    None is given where a name in a body is contested (see `shadowing`): no rewrite could keep what runtimes make of it.
    The facts are copies, which rewrites keep up to date; those of the model as it was stay as they are.
    """
    if (name := shadowing.contested(model.proto.graph)) is not None:
        log.warning("one branch hides the outer value '%s' and another reads it: nothing is rewritten", name)
        return []
    sized = _copied(bound.facts, None)
    general = sized if known is bound.facts else _copied(known, None)
    todo, found = [(model.graph, "", general, sized, bound.costs)], []
    opset, pinned, taken = model.opsets.get("", 1), model.pinned(), set[str]()
    while todo:
        here, path, facts, at, table = todo.pop()
        records = {id(n): (record, cost) for n, record, cost in zip(here.nodes, at.nodes, table, strict=True)}
        scope = Scope(editor, facts, opset, target, pinned, model.array)
        mark(here.nodes, scope)
        found.append(Surroundings(here, path, scope, at, records, model.program, taken))
        for i, node in enumerate(here.nodes):
            for name, value in node.attrs.items():
                key = (i, name)
                if isinstance(value, gs.Graph) and key in facts.bodies and key in at.bodies:
                    body = at.bodies[key]
                    todo.append((value, f"{path}/{i}.{name}", facts.bodies[key], body, costs(body)))
    dims = {d for p in found for v in p.scope.facts.values.values() for d in v.shape or () if not isinstance(d, int)}
    taken.update(name for d in dims for name in symbols(d))
    return found


def _copied(facts: Facts, outer: Facts | None) -> Facts:
    copied = replace(facts, values=dict(facts.values), bodies={}, outer=outer)
    for (index, name), body in facts.bodies.items():
        copied.bodies[index, name] = _copied(body, copied) if body.outer is facts else body
    return copied
