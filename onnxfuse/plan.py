"""The plan: which of the legal rewrites are made, because they pay on the target, and why the others are not.

The gain of a rewrite is seconds(before) - seconds(after) of the nodes as the target executes them, neighbours that the
runtime would fuse included. Rewrites that want the same node exclude each other; of every such cluster the subset with
the largest total gain is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import onnx_graphsurgeon as gs

from onnxfuse import ir
from onnxfuse.binding import Bound
from onnxfuse.candidates import compute_bound_reason
from onnxfuse.cost import Cost, costs, node_cost, total
from onnxfuse.devices import Device
from onnxfuse.execution import Bytes, Piece, label, merged, piece, run_seconds, value_bytes
from onnxfuse.facts import Facts
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.patterns import Match, NotLegal, Refusal, Rule, Scope, look
from onnxfuse.targets import ONNXFUSE, Target

Key = tuple[str, str, str]
_CHAIN = 2  # nodes before another that a runtime may execute together with it
CROWD = 64  # readers of a value, and inputs of a node, beyond which it is no part of a pattern
EXACT_CLUSTER = 16  # clusters up to this size are solved exactly (at most 2^16 subsets), larger ones greedily


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A rewrite with its gain. key: rule, scope and result, the same whenever the same model is planned."""

    key: Key
    match: Match
    node: str
    sources: tuple[str, ...]
    bytes_saved: int
    flops_saved: int
    seconds_saved: float
    intensity: float


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What will be rewritten, from the lowest intensity up, and what was refused.

    editor: knows the view in which the choices' nodes stand; None where there was nothing to look at.
    """

    editor: Editor | None

    choices: tuple[Choice, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """One graph or body: what holds for every binding (`scope`), and what it costs at the assumed one.

    path: where a body stands, "" for the main graph; records: id of a node → its record and its cost; renamed: ids of
    nodes whose record has to be read anew, as they read or make other values now; made: the nodes that rewrites have
    brought, by id. The last three, and the facts, change with the graph.
    """

    graph: gs.Graph
    path: str
    scope: Scope
    bound: Facts
    records: dict[int, tuple[ir.Node, Cost]]
    made: dict[int, gs.Node] = field(default_factory=dict)
    renamed: set[int] = field(default_factory=set)

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

    def nbytes(self, name: str) -> int | None:
        """Bytes of a value at the assumed dims."""
        return value_bytes(self.bound[name])


def surroundings(model: Model, editor: Editor, known: Facts, bound: Bound, target: Target) -> list[Surroundings]:
    """The main graph and all bodies inside it, each with its facts and costs. A body without facts is left out.

    The facts are copies, which rewrites keep up to date; those of the model as it was stay as they are.
    """
    sized = _copied(bound.facts, None)
    general = sized if known is bound.facts else _copied(known, None)
    todo, found = [(model.graph, "", general, sized, bound.costs)], []
    opset, pinned = model.opsets.get("", 1), model.pinned()
    while todo:
        here, path, general, at, table = todo.pop()
        records = {id(n): (record, cost) for n, record, cost in zip(here.nodes, at.nodes, table, strict=True)}
        scope = Scope(editor, general, opset, target, pinned, model.array)
        found.append(Surroundings(here, path, scope, at, records))
        for i, node in enumerate(here.nodes):
            for name, value in node.attrs.items():
                key = (i, name)
                if isinstance(value, gs.Graph) and key in general.bodies and key in at.bodies:
                    body = at.bodies[key]
                    todo.append((value, f"{path}/{i}.{name}", general.bodies[key], body, costs(body)))
    return found


def _copied(facts: Facts, outer: Facts | None) -> Facts:
    copied = replace(facts, values=dict(facts.values), bodies={}, outer=outer)
    for (index, name), body in facts.bodies.items():
        copied.bodies[index, name] = _copied(body, copied) if body.outer is facts else body
    return copied


def make(
    editor: Editor,
    places: Sequence[Surroundings],
    rules: Sequence[Rule],
    device: Device,
    max_intensity: float | None = None,
    accepts: Callable[[str], bool] | None = None,
) -> Plan:
    """Match every rule everywhere, price what matches, choose what pays.

    accepts: whether the model can take a definition; asked once for each.
    """
    foreign = cache(lambda definition: accepts is not None and not accepts(definition))
    choices: list[Choice] = []
    refused: list[Refusal] = []
    by_root = defaultdict(list)
    for rule in rules:
        for root in rule.roots:
            by_root[root].append(rule)
    for place in places:
        for node in place.graph.nodes:
            for rule in by_root.get(node.op, ()):
                try:
                    match = look(rule, node, place.scope)
                    if isinstance(match, Match):
                        if match.definition is not None and foreign(match.definition):
                            raise NotLegal(f"the model has another function '{ONNXFUSE}::{match.new.op_type}'")
                        choices.append(_price(rule, match, place, device, max_intensity))
                except NotLegal as reason:
                    refused.append(Refusal(rule.name, place.label(node), str(reason)))
    chosen, beaten = _choose(choices)
    return Plan(editor, tuple(sorted(chosen, key=lambda c: c.intensity)), (*refused, *beaten))


def _price(rule: Rule, match: Match, place: Surroundings, device: Device, max_intensity: float | None) -> Choice:
    """The choice with its gain. Raises NotLegal where it does not pay."""
    target, old = place.scope.target, [place.piece(n) for n in match.old]
    if any(p.cost.intensity is None for p in old):
        raise NotLegal("its cost is unknown at the assumed dims; bind the free dims with --dim")
    if reason := compute_bound_reason(old, device, max_intensity):
        raise NotLegal(reason)
    new, nbytes = _replacement(match, old, place)
    near = neighbours(match.old, match.new.outputs, place)
    if may_merge((*near[0], *match.old, *near[1]), target):
        nodes = (*near[0], *match.old)
        single = {t.name for n in nodes for t in (*n.inputs, *n.outputs) if t.name and inner(t, place)}
        before, behind = ([place.piece(n) for n in side] for side in near)
        new_inner = single | {name for p in new for name in p.outputs if name in match.like}
        t0 = run_seconds([*before, *old, *behind], target, device, place.nbytes, single)
        t1 = run_seconds([*before, *new, *behind], target, device, nbytes, new_inner)
    else:
        t0, t1 = (run_seconds(pieces, target, device, nbytes, ()) for pieces in (old, new))
    cost0, cost1 = _sum(old), _sum(new)
    if t0 is None or t1 is None or cost0.bytes is None or cost1.bytes is None:
        raise NotLegal("its cost is unknown at the assumed dims; bind the free dims with --dim")
    if t1 >= t0:
        raise NotLegal(f"no gain: {target.name} needs {t0 * 1e6:.2f} µs for these nodes and {t1 * 1e6:.2f} µs after it")
    return Choice(
        (rule.name, place.path, old[-1].outputs[0]),
        match,
        old[0].label,
        tuple(p.label for p in old),
        int(cost0.bytes) - int(cost1.bytes),  # type: ignore[arg-type]
        int(cost0.flops) - int(cost1.flops),  # type: ignore[arg-type]
        t0 - t1,
        min(p.cost.intensity for p in old if p.cost.intensity is not None),
    )


def _sum(pieces: Iterable[Piece]) -> Cost:
    return total(tuple(p.cost for p in pieces))


def inner(tensor: gs.Tensor, place: Surroundings) -> bool:
    """Whether a value has one use and nobody outside sees it."""
    editor = place.scope.editor
    return not editor.is_output(tensor) and editor.use_count(tensor) == 1


def may_merge(nodes: Iterable[gs.Node], target: Target) -> bool:
    """Whether the runtime may execute some of these nodes as one kernel: one of them is of a kind that starts such."""
    starts = _starts(target.chains)
    return any(node.op in starts for node in nodes)


@cache
def _starts(chains: frozenset[tuple[str, ...]]) -> frozenset[str]:
    return frozenset(chain[0] for chain in chains)


def neighbours(
    old: Sequence[gs.Node], outputs: Iterable[gs.Tensor], place: Surroundings
) -> tuple[list[gs.Node], list[gs.Node]]:
    """The nodes before `old` and behind what they make, which the runtime may execute together with them."""
    editor, ids = place.scope.editor, {id(n) for n in old}
    before: dict[int, gs.Node] = {}
    behind: dict[int, gs.Node] = {}
    edge = list(old)
    for _ in range(_CHAIN):
        makers = {id(m): m for n in edge if len(n.inputs) <= CROWD for t in n.inputs for m in t.inputs}
        edge = [m for i, m in makers.items() if i in place.records and i not in ids and i not in before]
        before = {id(m): m for m in edge} | before
    for tensor in outputs:
        if editor.use_count(tensor) <= CROWD:
            behind.update((id(n), n) for n in editor.consumers(tensor) if len(n.inputs) <= CROWD)
    behind = {i: n for i, n in behind.items() if i in place.records and i not in ids}
    return list(before.values()), list(behind.values())


def _replacement(match: Match, old: Sequence[Piece], place: Surroundings) -> tuple[list[Piece], Bytes]:
    """The pieces that the target executes for the new node, and a size lookup that knows their values."""
    new, target = match.new, place.scope.target
    names = {name for node in match.body for name in (*node.inputs, *node.outputs) if name}
    values = {name: place.bound[match.like.get(name, name)] for name in names}
    body = Facts(match.body, place.bound.opsets, values)
    if new.domain == ONNXFUSE and not target.functions_are_kernels:
        made = [piece(n, body, node_cost(i, body)) for i, n in enumerate(match.body)]
        return made, lambda name: value_bytes(body[name] if name in values else place.bound[name])
    lead = next((p for p in old if p.cost.macs), old[0])
    inputs, outputs = (tuple(t.name for t in tensors) for tensors in (new.inputs, new.outputs))
    cost = merged(old, place.nbytes)
    if match.body:  # a fused node's operations are its body's
        inside = total(tuple(node_cost(i, body) for i in range(len(match.body))))
        cost = replace(inside, bytes_read=cost.bytes_read, bytes_written=cost.bytes_written)
    return [Piece(lead.label, new.op_type, inputs, outputs, cost, *lead.units)], place.nbytes


def _choose(choices: Sequence[Choice]) -> tuple[list[Choice], list[Refusal]]:
    """The subset without a shared node and with the largest total gain, and a refusal for each that lost."""
    users = defaultdict(list)
    for choice in choices:
        for node in choice.match.old:
            users[id(node)].append(choice)
    rivals = {id(c): {id(r): r for n in c.match.old for r in users[id(n)] if r is not c} for c in choices}
    taken: set[int] = set()
    seen: set[int] = set()
    for choice in choices:
        if id(choice) not in seen:
            cluster = _cluster(choice, rivals)
            seen.update(map(id, cluster))
            taken.update(id(c) for c in _best(cluster, rivals))
    beaten = []
    for choice in choices:
        if id(choice) not in taken:
            winner = next(r for i, r in rivals[id(choice)].items() if i in taken)
            mine, its = (f"{c.seconds_saved * 1e6:.2f} µs" for c in (choice, winner))
            figures = f"saves as much ({its})" if mine == its else f"saves {its} against {mine}"
            reason = f"{winner.key[0]} at {winner.node} takes a node of it and {figures}"
            beaten.append(Refusal(choice.key[0], choice.node, reason))
    return [c for c in choices if id(c) in taken], beaten


def _cluster(start: Choice, rivals: dict[int, dict[int, Choice]]) -> list[Choice]:
    found, todo = {id(start): start}, [start]
    while todo:
        for key, rival in rivals[id(todo.pop())].items():
            if key not in found:
                found[key] = rival
                todo.append(rival)
    return list(found.values())


def _best(cluster: list[Choice], rivals: dict[int, dict[int, Choice]]) -> list[Choice]:
    """A heaviest independent set: exact by branching for small clusters, by falling gain for large ones."""
    ordered = sorted(cluster, key=lambda c: -c.seconds_saved)
    if len(ordered) > EXACT_CLUSTER:
        picked: dict[int, Choice] = {}
        for choice in ordered:
            if not picked.keys() & rivals[id(choice)].keys():
                picked[id(choice)] = choice
        return list(picked.values())

    def heaviest(rest: list[Choice]) -> tuple[float, list[Choice]]:
        if not rest:
            return 0.0, []
        head, tail = rest[0], rest[1:]
        gain, kept = heaviest([c for c in tail if id(c) not in rivals[id(head)]])
        gain, kept = gain + head.seconds_saved, [head, *kept]
        if not any(id(c) in rivals[id(head)] for c in tail):
            return gain, kept
        other = heaviest(tail)
        return (gain, kept) if gain >= other[0] else other

    return heaviest(ordered)[1]
