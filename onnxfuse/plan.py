"""The plan: which of the legal rewrites are made, because they pay on the target, and why the others are not.

Rewrites that want the same node exclude each other; of every such cluster the subset with the largest total gain is
taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from onnxfuse import pricing, quantized
from onnxfuse.candidates import compute_bound_reason
from onnxfuse.cost import node_cost, total
from onnxfuse.devices import Device
from onnxfuse.execution import Bytes, Piece, merged, piece, value_bytes
from onnxfuse.facts import Facts, Value
from onnxfuse.graph import Editor
from onnxfuse.patterns import Key, Match, NotLegal, Refusal, Rule, look
from onnxfuse.surroundings import Surroundings
from onnxfuse.targets import ONNXFUSE

EXACT_CLUSTER = 16  # clusters up to this size are solved exactly (at most 2^16 subsets), larger ones greedily


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A rewrite with its gain. key: rule, scope and result, the same whenever the same model is planned.

    values: what is known of the new node's outputs, at every size of the free dimensions.
    """

    key: Key
    match: Match
    node: str
    sources: tuple[str, ...]
    bytes_saved: int
    flops_saved: int
    seconds_saved: float
    intensity: float
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What will be rewritten, from the lowest intensity up, and what was refused.

    editor: knows the view in which the choices' nodes stand; None where there was nothing to look at.
    """

    editor: Editor | None

    choices: tuple[Choice, ...]
    refused: tuple[Refusal, ...]


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
                        if match.definition is None:
                            place.check_foreign(match.new.domain, match.new.op_type)
                        quantized.check(match.old, editor)
                        choices.append(_price(rule, match, place, device, max_intensity))
                except NotLegal as reason:
                    refused.append(Refusal(rule.name, place.label(node), str(reason)))
    chosen, beaten = _choose(choices)
    return Plan(editor, tuple(sorted(chosen, key=lambda c: c.intensity)), (*refused, *beaten))


def _price(rule: Rule, match: Match, place: Surroundings, device: Device, max_intensity: float | None) -> Choice:
    """The choice with its gain. Raises NotLegal where it does not pay."""
    old = [place.piece(n) for n in match.old]
    if any(p.cost.intensity is None for p in old):
        raise NotLegal(pricing.UNKNOWN_COST)
    if reason := compute_bound_reason(old, device, max_intensity):
        raise NotLegal(reason)
    new, nbytes = _replacement(match, old, place)
    gain = pricing.gain(match.old, old, new, nbytes, place, device)
    gain.check(place.scope.target)
    return Choice(
        (rule.name, place.path, old[-1].outputs[0]),
        match,
        old[0].label,
        tuple(p.label for p in old),
        *gain.saved(),
        gain.seconds_saved,
        min(p.cost.intensity for p in old if p.cost.intensity is not None),
        tuple(place.scope.value(t) for t in match.new.outputs),
    )


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
