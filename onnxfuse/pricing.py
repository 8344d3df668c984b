"""What a rewrite saves: seconds of its nodes and of those around them as the target executes them, bytes of the file.

What the runtime would merge by itself, neighbours included, takes the time of one kernel before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from onnxfuse import bridge
from onnxfuse.cost import total
from onnxfuse.devices import Device
from onnxfuse.execution import Bytes, Piece, run_seconds, value_bytes
from onnxfuse.patterns import CROWD, NotLegal, Rewrite, is_op
from onnxfuse.surroundings import Surroundings, few
from onnxfuse.targets import Target

UNKNOWN_COST = "its cost is unknown at the assumed dims; bind the free dims with --dim"
_CHAIN = 2  # nodes before another that a runtime may execute together with it
_EPSILON = 1e-9  # times closer than this are equal; they are sums of some terms each


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """Some nodes and what would stand for them, and the seconds of both, neighbours included; None where unknown."""

    old: Sequence[Piece]
    new: Sequence[Piece]
    before: float | None
    after: float | None

    @property
    def seconds_saved(self) -> float:
        """Seconds saved; what is unknown counts as nothing."""
        return (self.before or 0.0) - (self.after or 0.0)

    def saved(self) -> tuple[int, int]:
        """Bytes that are not moved and FLOPs that are not done any more; 0 where unknown."""
        before, after = (total(p.cost for p in side) for side in (self.old, self.new))
        return _difference(before.bytes, after.bytes), _difference(before.flops, after.flops)

    def check(self, target: Target, *, or_fewer: bool = False) -> None:
        """Raises NotLegal unless it takes less time, or, `or_fewer`, as long with fewer nodes."""
        t0, t1 = self.before, self.after
        if t0 is None or t1 is None:
            raise NotLegal(UNKNOWN_COST)
        fewer = or_fewer and len(self.new) < len(self.old)
        if not (t1 < t0 * (1 - _EPSILON) or (t1 <= t0 * (1 + _EPSILON) and fewer)):
            times = f"{t0 * 1e6:.2f} µs for these nodes and {t1 * 1e6:.2f} µs after it"
            raise NotLegal(f"no gain: {target.name} needs {times}")


def _difference(a: object, b: object) -> int:
    return a - b if isinstance(a, int) and isinstance(b, int) else 0


def gain(
    nodes: Sequence[gs.Node],
    old: Sequence[Piece],
    new: Sequence[Piece],
    nbytes: Bytes,
    place: Surroundings,
    device: Device,
    elsewhere: Collection[str] = (),
) -> Gain:
    """What it saves to put `new` where `nodes` stand, whose pieces are `old`.

    nbytes: sizes of the values that the new pieces read and make. elsewhere: values that are read by another name then.
    """
    target = place.scope.target
    near = _neighbours(nodes, place)
    starts = {chain[0] for chain in target.chains}
    if starts.isdisjoint(p.op_type for p in (*old, *new)) and starts.isdisjoint(n.op for side in near for n in side):
        t0, t1 = (run_seconds(pieces, target, device, nbytes, ()) for pieces in (old, new))
        return Gain(old, new, t0, t1)
    before, behind = ([p for n in side if (p := place.piece(n)).cost.known] for side in near)
    now, then = _inner((*near[0], *nodes), nodes, new, elsewhere, place)
    t0 = run_seconds([*before, *old, *behind], target, device, place.nbytes, now)
    t1 = run_seconds([*before, *new, *behind], target, device, nbytes, then)
    return Gain(old, new, t0, t1)


def _inner(
    around: Iterable[gs.Node],
    nodes: Sequence[gs.Node],
    new: Sequence[Piece],
    elsewhere: Collection[str],
    place: Surroundings,
) -> tuple[set[str], set[str]]:
    """Names of the values around these nodes that are read once, inside the graph, before and after: what lies between
    nodes that the runtime may merge.
    """
    editor, ids = place.scope.editor, {id(n) for n in nodes}
    values = {t.name: t for n in around for t in (*n.inputs, *n.outputs) if t.name}
    reads = Counter(name for p in new for name in p.inputs)
    now: set[str] = set()
    then = {name for p in new for name in p.outputs if name not in values and reads[name] == 1}
    for name, t in values.items():
        if editor.is_output(t) or editor.use_count(t) > CROWD:
            continue
        readers = [id(n) for n, _ in editor.uses(t)]
        if len(readers) == 1:
            now.add(name)
        if sum(i not in ids for i in readers) + reads[name] == 1 and name not in elsewhere:
            then.add(name)
    return now, then


def _neighbours(nodes: Sequence[gs.Node], place: Surroundings) -> tuple[list[gs.Node], list[gs.Node]]:
    """The nodes before these and behind what they make, which the runtime may execute together with them."""
    ids = {id(n) for n in nodes}
    before: dict[int, gs.Node] = {}
    behind: dict[int, gs.Node] = {}
    edge = list(nodes)
    for _ in range(_CHAIN):
        makers = {id(m): m for n in edge if len(n.inputs) <= CROWD for t in n.inputs for m in t.inputs}
        edge = [m for i, m in makers.items() if i in place.records and i not in ids and i not in before]
        before = {id(m): m for m in edge} | before
    for tensor in (t for n in nodes for t in n.outputs if t.name):
        behind.update((id(n), n) for n in few(tensor, place.scope.editor) if len(n.inputs) <= CROWD)
    behind = {i: n for i, n in behind.items() if i in place.records and i not in ids}
    return list(before.values()), list(behind.values())


def growth(dead: Sequence[gs.Node], found: Rewrite, place: Surroundings) -> int:
    """Bytes of constants and names that come into the file, less those that go with the dead nodes.

    Attributes are not counted, nor is a node's own name, which the metadata of what stands for it keeps.
    """
    editor, ids = place.scope.editor, {id(n) for n in dead}
    read = (*(t for n in found.new for t in n.inputs), *(other for _, other in found.same))
    came = {id(t): t for t in read if type(t) is gs.Constant}
    left = {id(t): t for n in dead for t in n.inputs if type(t) is gs.Constant and id(t) not in came}
    fresh = (t for t in came.values() if bridge.stored(t) is None and not editor.use_count(t))
    lost = [t for t in left.values() if editor.use_count(t) <= CROWD and all(id(n) in ids for n, _ in editor.uses(t))]
    lost += [n.outputs[0] for n in dead if is_op(n, "Constant")]
    stored = sum(place.scope.array(t).nbytes for t in fresh) - sum(value_bytes(place.bound[t.name]) or 0 for t in lost)
    return stored + _names(found.new) - _names(dead)


def _names(nodes: Sequence[gs.Node]) -> int:
    """Bytes in the file of the operators and of the names that nodes read and make, each behind its tag and length."""
    return sum(2 + len(text.encode()) for n in nodes for text in (n.op, *(t.name for t in (*n.inputs, *n.outputs))))
