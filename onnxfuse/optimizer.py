"""One model under optimization: rewritten by plan, compared with its original, and again without what was wrong."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx_graphsurgeon as gs
from onnx.parser import parse_function

from onnxfuse import gpu, ir, plan, rewrite, runtime
from onnxfuse.binding import Bound
from onnxfuse.devices import Device
from onnxfuse.errors import Finding
from onnxfuse.facts import Facts
from onnxfuse.graph import Editor
from onnxfuse.memory import peaks
from onnxfuse.model import Model
from onnxfuse.patterns import Key, Refusal, Rule
from onnxfuse.plan import Plan
from onnxfuse.rewrite import Fusion
from onnxfuse.roofline import Execution
from onnxfuse.storage import files
from onnxfuse.surroundings import surroundings
from onnxfuse.targets import Target
from onnxfuse.verification import BASE, Focus, Sessions, Trial, Verdict, choose_shown, find_guilty
from onnxfuse.worklist import Worklist

log = logging.getLogger(__name__)
UNCHANGED = Verdict(True, 0.0, (), 0, None)  # the same bytes compute the same
OLDEST_OPSET = 7  # before it operators broadcast by attributes, and onnxruntime runs none of them
_ROOM = 30_000  # rewrites; the view and the plan of more take the memory of a session, which then opens later
_ROUNDS = 8  # of roll-back: each takes back what spoils one output, and all are compared again


@contextmanager
def _candidates(model: Model, out: Path | None) -> Iterator[Callable[[str], Path]]:
    """Paths by name for the models that are compared, gone afterwards: beside `out`, in a folder of their own.

    A model with external data stands in its own folder, where its references hold: nothing is copied, and no other name
    is given to a data file, which onnx would refuse. Raises OutputError.
    """
    folder = None if out is None else out.absolute().parent
    beside = model.base_dir if model.external and model.base_dir and os.access(model.base_dir, os.W_OK) else None
    with files.scratch(beside or folder) as made:
        yield (lambda name: Path(f"{made}-{name}.onnx")) if beside else (lambda name: made / f"{name}.onnx")


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What was rewritten in the view, and the fusions that are planned there."""

    work: Worklist | None
    plan: Plan

    @property
    def keys(self) -> tuple[Key, ...]:
        """A key for each rewrite and each fusion, in order."""
        return (*(self.work.made if self.work else ()), *(choice.key for choice in self.plan.choices))

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What was nearly a rewrite or did not pay."""
        return (*(self.work.refused.values() if self.work else ()), *self.plan.refused)

    @property
    def removed(self) -> Iterator[gs.Node]:
        """The nodes that the view lost."""
        yield from self.work.removed if self.work else ()
        yield from (node for choice in self.plan.choices for node in choice.match.old)

    @property
    def values(self) -> frozenset[str]:
        """Names of the values that the nodes of the main graph will make."""
        made = self.work.values() if self.work else set()
        inner = {t.name for c in self.plan.choices for n in c.match.old for t in n.outputs}
        return frozenset(made - inner | {t.name for c in self.plan.choices for t in c.match.new.outputs})


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was rewritten, a key and a fusion each, and what was refused."""

    keys: tuple[Key, ...]
    fusions: tuple[Fusion, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `Optimizer.run` made of a model; verdict is None without verification, after without a rewrite."""

    made: Rewritten
    verdict: Verdict | None
    rolled_back: tuple[Refusal, ...]
    after: Execution | None


@dataclass(frozen=True, slots=True, eq=False)
class Optimizer:
    """What planning needs, and the model that is edited in place.

    known: the unedited model's facts for every binding of its free dims; bound: its facts and costs at one.
    """

    model: Model
    target: Target
    device: Device
    known: Facts
    bound: Bound
    rules: tuple[Rule, ...]
    max_intensity: float | None

    def run(
        self,
        out: Path | None,
        dims: Mapping[str, int],
        seed: int,
        verify: bool,
        measure: Callable[[], Execution],
        inputs: object = None,
    ) -> Outcome:
        """Rewrite the model, compare it with what it was, and measure it; without a rewrite neither is done.

        Raises Finding where the original does not run, or no result verifies; OutOfMemory before anything is run where
        the machine has too little memory to verify.
        """
        log.debug("looking for what to rewrite")
        made = self._draft()
        log.info("%d rewrites chosen, %d refused", len(made.keys), len(made.refused))
        if not made.keys:
            return Outcome(Rewritten((), (), made.refused), UNCHANGED if verify else None, (), None)
        if not verify:
            return Outcome(self._apply(made), None, (), measure())
        shown = self._shown(made)
        with _candidates(self.model, out) as place:
            trial = self._trial(place, shown)
            # A session is opened without the interpreter lock, while work goes on here.
            if len(made.keys) <= _ROOM:
                trial.sessions.prepare(trial.original.shown, BASE)
            packed = pickle.dumps(self._apply(made))
            self.model.close_view(made.removed)
            del made  # with the view gone, this frees more memory than all else takes
            result: Rewritten = pickle.loads(packed)  # anew: what was made amid the view would hold its memory pages
            trial.write()
            after: Execution | None = measure()
            log.info("comparing with the original")
            trial.start(dims, seed, inputs)
            verdict = trial.judge()
            rolled_back: tuple[Refusal, ...] = ()
            if not verdict.ok:
                result, verdict, rolled_back = self._roll_back(result, verdict, trial)
                after = measure() if result.fusions else None
        return Outcome(result, verdict, rolled_back, after)

    def _trial(self, place: Callable[[str], Path], shown: Mapping[str, int]) -> Trial:
        """The original in files, as it will be compared."""
        sessions = Sessions(self._provider())
        sessions.limit(self.model.weight_bytes())
        return Trial(self.model, place, shown, sessions)

    def _provider(self) -> str:
        """Where results run at the default level: the target's provider if it is here, else the CPU in its place."""
        if self.target.provider == "cuda" and gpu.usable(runtime.onnxruntime()):
            return "cuda"
        return "cpu"

    def _shown(self, made: Draft) -> dict[str, int]:
        """Values that are compared beside the outputs: what new nodes of the main graph make in the place of old ones,
        with their dtypes.

        An output may hide an error (a network of constant weights, a pool behind). Of many or large values some are
        taken.
        """
        left, facts = made.values, self.bound.facts
        original = {name for node in facts.nodes for name in node.outputs}
        wanted = (name.partition("#")[0] for _, path, name in made.keys if not path)
        names = [name for name in dict.fromkeys(wanted) if name in left and name in original and facts[name].dtype]
        peak = peaks(self.model.program, facts, self.model.program.graph.outputs)[0]
        chosen = choose_shown(names, facts, self.model.program.graph.outputs, peak if isinstance(peak, int) else 0)
        return {name: facts[name].dtype for name in chosen}

    def _draft(self, allowed: frozenset[Key] | None = None) -> Draft:
        """Rewrite the view, and plan the fusions of what is there then; only those of these keys, None for all."""
        roots = {root for rule in self.rules for root in rule.roots}
        graph = self.model.program.graph
        opset = self.model.opsets.get("", OLDEST_OPSET)
        if opset < OLDEST_OPSET:
            log.warning("opset %d: nothing is rewritten before opset %d", opset, OLDEST_OPSET)
            return Draft(None, Plan(None, (), ()))
        if not graph.outputs or not any(node.op_type in roots for node in ir.all_nodes(graph)):
            return Draft(None, Plan(None, (), ()))
        editor = Editor(self.model.graph)
        places = surroundings(self.model, editor, self.known, self.bound, self.target)
        work = Worklist(self.model, editor, places, self.device, allowed)
        work.run(rule for rule in self.rules if rule.pairs is None)
        fusions = [rule for rule in self.rules if rule.pairs is not None]
        made = plan.make(editor, places, fusions, self.device, self.max_intensity, self._accepts)
        if allowed is not None:
            made = Plan(editor, tuple(c for c in made.choices if c.key in allowed), made.refused)
        return Draft(work, made)

    def _accepts(self, definition: str) -> bool:
        return self.model.accepts(parse_function(definition))

    def _apply(self, made: Draft) -> Rewritten:
        """Bring what was drafted into the model."""
        first = tuple(made.work.made.values()) if made.work else ()
        then: tuple[Fusion, ...] = ()
        if made.plan.editor and made.keys:
            domains = made.work.domains if made.work else ()
            then = rewrite.apply(self.model, made.plan.editor, made.plan.choices, domains)
        return Rewritten(made.keys, (*first, *then), made.refused)

    def _roll_back(
        self, made: Rewritten, verdict: Verdict, trial: Trial
    ) -> tuple[Rewritten, Verdict, tuple[Refusal, ...]]:
        """Take back the rewrites that spoil the result. Raises Finding where no rest verifies."""
        log.info("the results differ; looking for the rewrite that spoils them")

        def rewritten(kept: Collection[int]) -> Rewritten:
            self.model.restore()
            return self._apply(self._draft(frozenset(made.keys[i] for i in kept)))

        def verifies(kept: frozenset[int], focus: Focus | None) -> bool:
            rewritten(kept)
            return trial.verifies(focus)

        why: dict[int, str] = {}  # rewrites that were taken back → the reason
        left = made
        for _ in range(_ROUNDS):
            focus = verdict.focus
            names = focus.names if focus else frozenset[str]()
            items = [i for i in range(len(made.keys)) if i not in why]
            suspects = {i for i in items if made.keys[i][2].partition("#")[0] in names}
            bad = find_guilty(items, partial(verifies, focus=focus), suspects)
            why |= dict.fromkeys(bad, f"the model with it did not verify: {verdict.reason}")
            left = rewritten([i for i in items if i not in bad])
            trial.write()
            verdict = trial.judge()
            if verdict.ok:
                back = (Refusal(made.fusions[i].rule, made.fusions[i].node, why[i]) for i in sorted(why))
                return left, verdict, tuple(back)
            if not left.keys:
                break
        raise Finding(f"not verified, nothing was written: {verdict.reason}")
