"""The rewriting engine: every rewrite that is legal and pays is made at once, and its neighbours are looked at again.

A worklist holds the nodes at which a rule may start; a rewrite adds what it made and what stands near, so that nothing
is scanned twice. A node disappears when nothing reads it any more.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from onnxfuse import bridge, legality, pricing, rewrite
from onnxfuse.cost import costs
from onnxfuse.devices import Device
from onnxfuse.execution import graph_pieces, value_bytes
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.patterns import CROWD, Key, NotLegal, Refusal, Rewrite, Rule, look
from onnxfuse.pricing import Gain
from onnxfuse.rewrite import Fusion
from onnxfuse.surroundings import Surroundings, few
from onnxfuse.targets import Target

MOST_GROWTH = 0.01  # of the model's bytes that rewrites may add in all …
LEAST_ROOM = 8192  # … or these, which nobody misses
_NEAR = 4  # steps from a rewrite within which a rule may start whose pattern it completes
_MOST_TIMES = 64  # one rule makes one value otherwise; two rules that undo each other end there …
_MOST_A_NODE = 8  # … and here, where each time brings a value of another name


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
        self._room = max(LEAST_ROOM, int(MOST_GROWTH * model.weight_bytes()))
        self._repeats: Counter[Key] = Counter()
        self._by_rule: Counter[str] = Counter()
        self._most = _MOST_TIMES + _MOST_A_NODE * sum(len(p.records) for p in places)
        self._todo: OrderedDict[int, gs.Node] = OrderedDict()

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
            for place in self.places.values():
                rewrite.note(place)
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
        values = legality.lost(found, self.editor)
        key = self._key(rule, place, values)
        change = legality.check(found, values, place)
        dead, bound, prices = change.dead, change.bound, costs(change.bound)
        old, new = [place.piece(n) for n in dead], graph_pieces(bound, prices)
        elsewhere = {t.name for t, _ in found.same}
        gain = pricing.gain(dead, old, new, lambda name: value_bytes(bound[name]), place, self.device, elsewhere)
        _check_pays(gain, rule, place.scope.target)
        self._take_room(pricing.growth(dead, found, place))
        self._repeats[rule.name, place.path, values[0].name] += 1
        self._by_rule[rule.name] += 1
        left = {id(t): t for n in dead for t in _read(n)}  # have lost a reader
        changed = rewrite.exchange(rule.name, found, dead, place)
        self._forget(dead, place)
        for node in changed:
            if (where := self._place(node)) is not None:
                where.renamed.add(id(node))
        place.add(found.new, change.known, bound, prices)
        for t in (*(t for n in found.new for t in n.inputs), *(other for _, other in found.same)):
            if type(t) is gs.Constant:
                self.model.keep(t)
        sources = tuple(p.label for p in old)
        self.made[key] = Fusion(rule.name, sources[-1], sources, *gain.saved(), gain.seconds_saved)
        makers = (self.editor.producer(t) for t in left.values())
        return self._near(found, [*(m for m in makers if m is not None), *place.learn(found)])

    def _key(self, rule: Rule, place: Surroundings, values: Sequence[gs.Tensor]) -> Key:
        """Rule, graph and first value, numbered where the same comes again. Raises NotLegal where it may not."""
        if not values:
            raise ValueError(f"rule {rule.name} replaces nothing")
        name = values[0].name
        times = self._repeats[rule.name, place.path, name]
        if times >= _MOST_TIMES:
            raise NotLegal(f"'{name}' was made otherwise {times} times already")
        if self._by_rule[rule.name] >= self._most:
            raise NotLegal(f"it was made {self._most} times already, and what it makes must end somewhere")
        key = rule.name, place.path, f"{name}#{times}" if times else name
        if self.allowed is not None and key not in self.allowed:
            raise NotLegal("taken back before")
        return key

    def _take_room(self, growth: int) -> None:
        """Raises NotLegal where the file would grow too much by so many bytes."""
        if growth > self._room:
            raise NotLegal(f"the file would grow by {growth:,} bytes; {self._room:,} are left of its allowance")
        self._room -= growth

    def _forget(self, dead: Sequence[gs.Node], place: Surroundings) -> None:
        self.removed += dead
        place.remove(dead)
        for node in dead:
            self._todo.pop(id(node), None)

    def _near(self, found: Rewrite, others: Sequence[gs.Node]) -> list[gs.Node]:
        """The new nodes and these others, and those within some steps of them, up and down."""
        editor = self.editor
        seen: dict[int, gs.Node] = {id(n): n for n in found.new}
        edge = [*found.new, *others]
        for tensor in (t for pair in found.same for t in pair):  # a graph output took the other's place
            maker = editor.producer(tensor)
            edge += [*([] if maker is None else [maker]), *few(tensor, editor)]
        seen.update((id(n), n) for n in edge)
        for _ in range(_NEAR):
            reached = []
            for node in edge:
                for t in node.outputs if len(node.outputs) <= CROWD else ():
                    reached += few(t, editor)
                for t in node.inputs if len(node.inputs) <= CROWD else ():
                    reached += t.inputs
            edge = [n for n in {id(n): n for n in reached}.values() if id(n) not in seen][:CROWD]
            seen.update((id(n), n) for n in edge)
        return list(seen.values())


def _check_pays(gain: Gain, rule: Rule, target: Target) -> None:
    """Raises NotLegal where new nodes neither take less time, nor as long for more, nor were measured to pay."""
    if gain.new and target.name not in rule.measured:
        gain.check(target, or_fewer=True)


def _read(node: gs.Node) -> Iterator[gs.Tensor]:
    """What a node reads, and what its bodies read from outside or inside."""
    yield from node.inputs
    for body in bridge.bodies(node):
        for graph in bridge.walk(body):
            yield from (t for n in graph.nodes for t in n.inputs)
