"""The rewriting engine: every rewrite that is legal and pays is made at once, and its neighbours are looked at again.

A worklist holds the nodes at which a rule may start; a rewrite adds what it made and what stands near, so that nothing
is scanned twice. What a value is never changes under its name, so facts hold throughout; new values get theirs from the
same shape functions. A node disappears when nothing reads it any more.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs
from onnx import helper

from onnxfuse import bridge, ir
from onnxfuse.cost import costs, total
from onnxfuse.devices import Device
from onnxfuse.execution import Piece, piece, run_seconds, value_bytes
from onnxfuse.facts import Facts, Value, extend, symbols
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.patterns import NotLegal, Refusal, Rewrite, Rule, is_op, look
from onnxfuse.plan import CROWD, Key, Surroundings, may_merge, neighbours
from onnxfuse.rewrite import Fusion

MOST_GROWTH = 0.01  # of the model's bytes that rewrites may add in all …
LEAST_ROOM = 8192  # … or these, which nobody misses
_NEAR = 4  # steps from a rewrite within which a rule may start whose pattern it completes
_MOST_TIMES = 64  # one rule makes one value otherwise; two rules that undo each other end there
_SMALL = 64  # elements of a constant whose contents facts keep, and which is stored once
_EPSILON = 1e-9  # times closer than this are equal; they are sums of some terms each


class Worklist:
    """Rewrites the view that `editor` edits, stage by stage; `made` and `refused` tell what happened.

    places: the main graph and all bodies, whose facts and records are kept up to date.
    allowed: keys of the only rewrites that may be made; None for all.
    """

    def __init__(
        self,
        model: Model,
        editor: Editor,
        places: Sequence[Surroundings],
        device: Device,
        allowed: Collection[Key] | None = None,
    ) -> None:
        self.model, self.editor, self.device, self.allowed = model, editor, device, allowed
        self.places = {id(place.graph): place for place in places}
        self.made: dict[Key, Fusion] = {}
        self.refused: dict[tuple[str, str, str], Refusal] = {}
        self.removed: list[gs.Node] = []
        self._program = model.program
        self._room = max(LEAST_ROOM, int(MOST_GROWTH * model.weight_bytes()))
        self._repeats: Counter[Key] = Counter()
        self._todo: OrderedDict[int, gs.Node] = OrderedDict()
        dims = (
            d for p in places for v in p.scope.facts.values.values() for d in v.shape or () if not isinstance(d, int)
        )
        self._taken = {name for d in set(dims) for name in symbols(d)}

    def run(self, rules: Iterable[Rule]) -> None:
        """Makes every rewrite of these rules, stage by stage, then brings the view's lists up to date.

        What a stage changes is looked at again by the rules of the stages before it, too.
        """
        stages = defaultdict(list)
        for rule in rules:
            stages[rule.stage].append(rule)
        every: dict[str, list[Rule]] = defaultdict(list)
        for _, stage in sorted(stages.items()):
            fresh: dict[str, list[Rule]] = defaultdict(list)
            for rule in stage:
                for root in sorted(rule.roots):
                    fresh[root].append(rule)
                    every[root].append(rule)
            self._fixpoint(fresh, every)
        if self.made:
            self.editor.finish()

    @property
    def domains(self) -> list[str]:
        """The domains of the nodes that were made."""
        return sorted({n.domain or "" for p in self.places.values() for n in p.made.values()})

    def values(self) -> set[str]:
        """Names of the values that the nodes of the main graph make."""
        main = next(p for p in self.places.values() if not p.path)
        nodes = (n for n in self._nodes() if self._place(n) is main)
        return {t.name for n in nodes for t in n.outputs if t.name}

    @np.errstate(all="ignore")  # rules look at what they computed
    def _fixpoint(self, fresh: dict[str, list[Rule]], every: dict[str, list[Rule]]) -> None:
        """Tries the fresh rules at all nodes, and every rule near each rewrite, until nothing is left to do."""
        self._todo = OrderedDict((id(n), n) for n in self._nodes() if n.op in fresh)
        changed: set[int] = set()
        while self._todo:
            key, node = self._todo.popitem(last=False)
            rules = every[node.op] if key in changed else fresh[node.op]
            changed.discard(key)
            place = self._place(node)
            if place is None or node.domain not in ("", "ai.onnx", None):
                continue
            for rule in rules:
                try:
                    found = look(rule, node, place.scope)
                    if isinstance(found, Rewrite):
                        near = [n for n in self._make(rule, found, place) if n.op in every]
                        self._todo.update((id(n), n) for n in near)
                        changed.update(map(id, near))
                        break
                except NotLegal as reason:
                    refusal = Refusal(rule.name, place.label(node), str(reason))
                    self.refused.setdefault((refusal.rule, refusal.node, refusal.reason), refusal)

    def _nodes(self) -> Iterator[gs.Node]:
        """The nodes of all graphs, also those that the lists of the view do not show yet."""
        for place in self.places.values():
            yield from (n for n in place.graph.nodes if id(n) in place.records)
            listed = {id(n) for n in place.graph.nodes} if place.made else ()
            yield from (n for i, n in place.made.items() if i not in listed)

    def _place(self, node: gs.Node) -> Surroundings | None:
        """Where a node stands; None for one that is gone, or in a body of which nothing is known."""
        try:
            place = self.places.get(id(self.editor.owner(node)))
        except KeyError:
            return None
        return place if place is not None and id(node) in place.records else None

    def _make(self, rule: Rule, found: Rewrite, place: Surroundings) -> list[gs.Node]:
        """Makes a rewrite; gives the nodes near it. Raises NotLegal where it may not be made or does not pay."""
        replaced = [t for n in found.new for t in n.outputs if self.editor.producer(t) is not None]
        gone = [old for old, _ in found.same] + [t for n in found.unread for t in n.outputs]
        self._check_unread(found.unread, place)
        key = self._key(rule, place, (*replaced, *gone))
        if self.allowed is not None and key not in self.allowed:
            raise NotLegal("taken back before")
        read = {id(t) for n in found.new for t in n.inputs} | {id(other) for _, other in found.same}
        dead = self._dead([*replaced, *gone], read, place)
        self._know((other for _, other in found.same), place)
        for old, other in found.same:
            self._check_same(old, other, dead, place)
        known, bound = self._facts(found.new, place)
        for tensor in replaced:
            _check_like(place.scope.facts[tensor.name], known[tensor.name], tensor.name)
        old = [place.piece(n) for n in dead]
        records = tuple(_record(n) for n in found.new)
        prices = costs(bound)
        new = [piece(record, bound, price) for record, price in zip(records, prices, strict=True)]
        t0, t1 = self._seconds(dead, old, found, new, bound, place)
        if new and place.scope.target.name not in rule.measured:
            _check_pays(place.scope.target.name, t0, t1, len(new) < len(old))
        growth = self._growth(dead, found)
        if growth > self._room:
            raise NotLegal(f"the file would grow by {growth:,} bytes; {self._room:,} are left of its allowance")
        self._room -= growth
        self._repeats[rule.name, place.path, key[2].partition("#")[0]] += 1
        left = {id(t): t for n in dead for t in _read(n)}  # have lost a reader
        self._apply(rule, found, dead, place)
        for facts, inner in ((place.scope.facts, known), (place.bound, bound)):
            facts.values.update((k, v) for k, v in inner.values.items() if facts[k].shape is None)
        for n, record, price in zip(found.new, records, prices, strict=True):
            place.records[id(n)] = record, price
            place.made[id(n)] = n
        before, after = total(p.cost for p in old), total(p.cost for p in new)
        self.made[key] = Fusion(
            rule.name,
            old[-1].label,
            tuple(p.label for p in old),
            _difference(before.bytes, after.bytes),
            _difference(before.flops, after.flops),
            (t0 or 0.0) - (t1 or 0.0),
        )
        makers = (self.editor.producer(t) for t in left.values())
        return self._near(found, [*(m for m in makers if m is not None), *self._learn(found, place)])

    def _learn(self, found: Rewrite, place: Surroundings) -> list[gs.Node]:
        """What follows where a value became a constant: is known of the values behind it; gives those nodes."""
        facts = place.scope.facts
        pairs = [(facts[old.name], other) for old, other in found.same]
        todo = [n for old, other in pairs if _tells_more(facts[other.name], old) for n in self._few(other)]
        behind: dict[int, gs.Node] = {}
        while todo:
            node = todo.pop()
            if id(node) in behind or id(node) not in place.records or len(behind) > CROWD:
                continue
            if node.domain not in ("", "ai.onnx", None) or bridge.bodies(node):
                continue
            record, better = place.record(node), False
            for known in (facts,) if place.bound is facts else (facts, place.bound):
                again = extend(known, [record], self._program, self.model.array, set(self._taken))
                for name in filter(None, record.outputs):
                    old, new = known[name], again[name]
                    if _tells_more(new, old):
                        data, constant = old.data if new.data is None else new.data, new.constant or old.constant
                        known.values[name], better = replace(old, data=data, constant=constant), True
            place.records[id(node)] = record, costs(again)[0]  # at the assumed dims; what it reads are weights now
            if better:
                behind[id(node)] = node
                todo += [n for t in node.outputs for n in self._few(t)]
        return list(behind.values())

    def _few(self, tensor: gs.Tensor) -> list[gs.Node]:
        """The readers of a value, none where they are too many to be part of a pattern."""
        return self.editor.consumers(tensor) if self.editor.use_count(tensor) <= CROWD else []

    def _key(self, rule: Rule, place: Surroundings, values: Sequence[gs.Tensor]) -> Key:
        """Rule, graph and first value, numbered where the same comes again."""
        if not values:
            raise ValueError(f"rule {rule.name} replaces nothing")
        name = values[0].name
        times = self._repeats[rule.name, place.path, name]
        if times >= _MOST_TIMES:
            raise NotLegal(f"'{name}' was made otherwise {times} times already")
        return rule.name, place.path, f"{name}#{times}" if times else name

    def _dead(self, values: Sequence[gs.Tensor], read: Collection[int], place: Surroundings) -> list[gs.Node]:
        """The nodes that nothing needs once these values are made otherwise, producers first. Raises NotLegal."""
        editor, pinned, replaced = self.editor, place.scope.pinned, {id(t) for t in values}
        dead: dict[int, gs.Node] = {}

        def needed(tensor: gs.Tensor) -> bool:
            if not tensor.name or id(tensor) in replaced:
                return False
            if id(tensor) in read or editor.is_output(tensor) or tensor.name in pinned:
                return True
            return editor.use_count(tensor) > CROWD or any(id(n) not in dead for n, _ in editor.uses(tensor))

        todo = [editor.producer(t) for t in values]
        roots = {id(n) for n in todo}
        while todo:
            node = todo.pop()
            if node is None or id(node) in dead or id(node) not in place.records:
                continue
            if any(needed(t) for t in node.outputs):
                if id(node) in roots:
                    raise NotLegal(f"another output of {place.label(node)} is needed")
                continue
            dead[id(node)] = node
            todo += [editor.producer(t) for t in node.inputs]
        if any(i not in dead for i in roots):
            raise NotLegal("a value stands in an outer graph")
        return _in_order(dead, editor)

    def _check_unread(self, nodes: Sequence[gs.Node], place: Surroundings) -> None:
        """Raises NotLegal where somebody reads a value of these nodes after all."""
        for node in nodes:
            for t in node.outputs:
                if t.name and (self.editor.use_count(t) or self.editor.is_output(t) or t.name in place.scope.pinned):
                    raise NotLegal(f"'{t.name}' is needed")

    def _check_same(self, old: gs.Tensor, other: gs.Tensor, dead: Sequence[gs.Node], place: Surroundings) -> None:
        """Raises NotLegal where `other` cannot stand for `old`."""
        facts, editor = place.scope.facts, self.editor
        _check_like(facts[old.name], facts[other.name], old.name)
        if old.name in place.scope.pinned:
            raise NotLegal(f"the value '{old.name}' is named by the model's annotations")
        if not editor.is_output(old):
            return
        maker = editor.producer(other)
        if maker is None or editor.is_output(other) or other.name in place.scope.pinned:
            raise NotLegal(f"'{old.name}' is a graph output, and '{other.name}' cannot take its name")
        if id(maker) in {id(n) for n in dead} or self._place(maker) is not place:
            raise NotLegal(f"'{old.name}' is a graph output, and '{other.name}' is made in another graph")

    def _facts(self, new: Sequence[gs.Node], place: Surroundings) -> tuple[Facts, Facts]:
        """Facts of the new nodes' values for every binding, and at the assumed one; those of new constants are set."""
        self._know((t for node in new for t in node.inputs), place)
        if not new:
            return Facts((), {}, outer=place.scope.facts), Facts((), {}, outer=place.bound)
        records = [_record(n) for n in new]
        read: Callable[..., np.ndarray] = self.model.array
        known = extend(place.scope.facts, records, self._program, read, self._taken)
        if place.bound is place.scope.facts:
            return known, known
        return known, extend(place.bound, records, self._program, read, self._taken)

    def _know(self, tensors: Iterable[gs.Tensor], place: Surroundings) -> None:
        for t in tensors:
            if type(t) is gs.Constant and t.name not in place.bound.values:
                place.bound.values[t.name] = place.scope.facts.values[t.name] = self._constant(t, place)

    def _constant(self, constant: gs.Constant, place: Surroundings) -> Value:
        if bridge.stored(constant) is not None:
            return place.bound[constant.name]
        array = self.model.array(constant)
        dtype = int(helper.np_dtype_to_tensor_dtype(array.dtype))
        data = None
        if array.size <= _SMALL:
            data = array.astype(object) if array.dtype.kind in "iub" else array if array.dtype.kind == "f" else None
        return Value(dtype, array.shape, data, True)

    def _seconds(
        self,
        dead: Sequence[gs.Node],
        old: Sequence[Piece],
        found: Rewrite,
        new: Sequence[Piece],
        bound: Facts,
        place: Surroundings,
    ) -> tuple[float | None, float | None]:
        """Seconds of the nodes and of those around them, before and after, as the target executes them."""
        target, editor = place.scope.target, self.editor
        outputs = [t for n in dead for t in n.outputs if t.name]
        near = neighbours(dead, outputs, place)
        if not may_merge((*near[0], *dead, *found.new, *near[1]), target):
            t0 = run_seconds(old, target, self.device, place.nbytes, ())
            return t0, run_seconds(new, target, self.device, place.nbytes, ())
        before, behind = ([p for n in side if (p := place.piece(n)).cost.known] for side in near)
        ids = {id(n) for n in dead}
        touched = {id(t): t for n in (*near[0], *dead, *found.new) for t in (*n.inputs, *n.outputs) if t.name}
        again = Counter(id(t) for n in found.new for t in n.inputs)
        renamed = {id(o): other for o, other in found.same}
        single, then = set(), set()
        for i, t in touched.items():
            if editor.is_output(t) or editor.use_count(t) > CROWD:
                continue
            uses = editor.uses(t)
            if len(uses) == 1:
                single.add(t.name)
            if sum(id(n) not in ids for n, _ in uses) + again[i] == 1 and i not in renamed:
                then.add(t.name)
        t0 = run_seconds([*before, *old, *behind], target, self.device, place.nbytes, single)
        t1 = run_seconds([*before, *new, *behind], target, self.device, lambda n: value_bytes(bound[n]), then)
        return t0, t1

    def _growth(self, dead: Sequence[gs.Node], found: Rewrite) -> int:
        """Bytes of constants that come in, less those that lose their last reader."""
        ids = {id(n) for n in dead}
        read = (*(t for n in found.new for t in n.inputs), *(other for _, other in found.same))
        came = {id(t): t for t in read if type(t) is gs.Constant}
        left = {id(t): t for n in dead for t in n.inputs if type(t) is gs.Constant and id(t) not in came}
        grown = sum(
            self.model.array(t).nbytes
            for t in came.values()
            if bridge.stored(t) is None and not self.editor.use_count(t)
        )
        freed = 0
        for t in left.values():
            if self.editor.use_count(t) <= CROWD and all(id(n) in ids for n, _ in self.editor.uses(t)):
                freed += value_bytes(self.places[id(self.editor.owner(dead[-1]))].bound[t.name]) or 0
        for n in dead:
            if is_op(n, "Constant"):
                freed += value_bytes(self.places[id(self.editor.owner(n))].bound[n.outputs[0].name]) or 0
        return grown - freed

    def _apply(self, rule: Rule, found: Rewrite, dead: Sequence[gs.Node], place: Surroundings) -> None:
        changed: dict[int, gs.Node] = {}
        for old, other in found.same:
            readers = self.editor.consumers(old)
            if self.editor.is_output(old):
                readers += self.editor.consumers(other)
                maker = self.editor.producer(other)
                assert maker is not None  # checked
                changed[id(maker)] = maker
                self.editor.make_instead(old, other)
            else:
                self.editor.rewire(old, other)
            changed.update((id(n), n) for n in readers)
        if found.new:
            last = found.new[-1]
            last.metadata = _notes(rule, dead, place)
        self.editor.replace(dead, found.new)
        if found.new and dead[-1].name:
            found.new[-1].name = dead[-1].name  # free again
        self.removed += dead
        for node in dead:
            del place.records[id(node)]
            place.made.pop(id(node), None)
            self._todo.pop(id(node), None)
        for node in changed.values():
            where = self._place(node)
            if where is not None:
                where.renamed.add(id(node))

    def _near(self, found: Rewrite, others: Sequence[gs.Node]) -> list[gs.Node]:
        """The new nodes and these others, and those within some steps of them, up and down."""
        seen: dict[int, gs.Node] = {id(n): n for n in found.new}
        edge = [*found.new, *others]
        for _, other in found.same:
            maker = self.editor.producer(other)
            edge += [maker] if maker is not None else []
            edge += self._few(other)
        for old, _ in found.same:  # where it took the other's place
            edge += self._few(old)
        seen.update((id(n), n) for n in edge)
        for _ in range(_NEAR):
            reached = []
            for node in edge:
                for t in node.outputs if len(node.outputs) <= CROWD else ():
                    reached += self._few(t)
                for t in node.inputs if len(node.inputs) <= CROWD else ():
                    reached += t.inputs
            edge = [n for n in {id(n): n for n in reached}.values() if id(n) not in seen][:CROWD]
            seen.update((id(n), n) for n in edge)
        return list(seen.values())


def _in_order(dead: dict[int, gs.Node], editor: Editor) -> list[gs.Node]:
    """The nodes, each behind those whose values it reads."""
    done: dict[int, gs.Node] = {}
    for start in reversed(dead.values()):
        todo = [(start, False)]
        while todo:
            node, ready = todo.pop()
            if id(node) in done:
                continue
            if ready:
                done[id(node)] = node
                continue
            todo.append((node, True))
            makers = (editor.producer(t) for t in node.inputs)
            todo += [(m, False) for m in makers if m is not None and id(m) in dead and id(m) not in done]
    return list(done.values())


def _read(node: gs.Node) -> Iterator[gs.Tensor]:
    """What a node reads, and what its bodies read from outside or inside."""
    yield from node.inputs
    for body in bridge.bodies(node):
        for graph in bridge.walk(body):
            yield from (t for n in graph.nodes for t in n.inputs)


def _check_pays(target: str, t0: float | None, t1: float | None, fewer: bool) -> None:
    """Raises NotLegal unless it takes less time, or as long with fewer nodes."""
    if t0 is None or t1 is None:
        raise NotLegal("its cost is unknown at the assumed dims; bind the free dims with --dim")
    if t1 < t0 * (1 - _EPSILON) or (t1 <= t0 * (1 + _EPSILON) and fewer):
        return
    raise NotLegal(f"no gain: {target} needs {t0 * 1e6:.2f} µs for these nodes and {t1 * 1e6:.2f} µs after it")


def _tells_more(new: Value, old: Value) -> bool:
    return (new.constant and not old.constant) or (new.data is not None and old.data is None)


def _check_like(old: Value, new: Value, name: str) -> None:
    """Raises NotLegal where two values that should be one are known to differ, or are not known to agree."""
    if old.dtype != new.dtype and old.dtype and new.dtype:
        raise NotLegal(f"'{name}' would be of another dtype")
    if old.shape is None or new.shape is None:
        return
    if len(old.shape) != len(new.shape):
        raise NotLegal(f"'{name}' would be of another rank")
    for a, b in zip(old.shape, new.shape, strict=True):
        if isinstance(a, int) and isinstance(b, int) and a != b:
            raise NotLegal(f"'{name}' would be of another shape")


def _record(node: gs.Node) -> ir.Node:
    """The record of a new node, whose attributes are numbers, texts and lists of them."""
    attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in node.attrs.items()}
    inputs, outputs = (tuple(t.name for t in side) for side in (node.inputs, node.outputs))
    return ir.Node(node.op, ir.domain(node.domain or ""), node.name, inputs, outputs, attrs)


def _notes(rule: Rule, dead: Sequence[gs.Node], place: Surroundings) -> dict[str, str]:
    """Metadata of the node that makes the result: what the old nodes said, the rule, and all nodes it stands for."""
    notes: dict[str, str] = {}
    sources: dict[str, None] = {}
    for node in dead:
        said = bridge.metadata(node)
        sources.update(dict.fromkeys(json.loads(said.get("onnxfuse.sources", "[]")) or [place.label(node)]))
        notes = {k: v for k, v in said.items() if not k.startswith("onnxfuse.")} | notes
    return notes | {
        "onnxfuse.rule": rule.name,
        "onnxfuse.sources": json.dumps(list(sources), ensure_ascii=False),
    }


def _difference(a: object, b: object) -> int:
    return a - b if isinstance(a, int) and isinstance(b, int) else 0
