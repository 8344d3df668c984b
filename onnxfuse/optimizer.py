"""One model under optimization: rewritten by plan, compared with its original, and again without what was wrong."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx_graphsurgeon as gs
from onnx.parser import parse_function

from onnxfuse import interface, ir, plan, rewrite
from onnxfuse.binding import Bound
from onnxfuse.bisection import find_guilty
from onnxfuse.devices import Device
from onnxfuse.errors import Finding
from onnxfuse.facts import Facts
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.patterns import Key, Refusal, Rule
from onnxfuse.plan import Plan
from onnxfuse.reference import Reference, Verdict, open_session
from onnxfuse.rewrite import Fusion
from onnxfuse.roofline import Execution
from onnxfuse.storage import files
from onnxfuse.surroundings import surroundings
from onnxfuse.targets import Target
from onnxfuse.verification import compare
from onnxfuse.worklist import Worklist

log = logging.getLogger(__name__)
UNCHANGED = Verdict(True, 0.0, (), 0, None)  # the same bytes compute the same
OLDEST_OPSET = 7  # before it operators broadcast by attributes, and onnxruntime runs none of them
_ROOM = 30_000  # rewrites; the view and the plan of more take the memory of a session, which then opens later
_SHOWN = 200  # values inside the model that are compared, at most twice as many


@contextmanager
def _candidates(model: Model, out: Path | None) -> Iterator[tuple[Path, Path]]:
    """Paths for the original and the optimized model, gone afterwards: beside `out`, in a folder of their own.

    A model with external data stands in its own folder, where its references hold: nothing is copied, and no other name
    is given to a data file, which onnx would refuse. Raises OutputError.
    """
    folder = None if out is None else out.absolute().parent
    beside = model.base_dir if model.external and model.base_dir and os.access(model.base_dir, os.W_OK) else None
    with files.scratch(beside or folder) as made:
        original, optimized = (Path(f"{made}-{n}") if beside else made / n for n in ("original.onnx", "optimized.onnx"))
        yield original, optimized


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

        Raises Finding where the original does not run, or no result verifies.
        """
        log.debug("looking for what to rewrite")
        made = self._draft()
        log.info("%d rewrites chosen, %d refused", len(made.keys), len(made.refused))
        if not made.keys:
            return Outcome(Rewritten((), (), made.refused), UNCHANGED if verify else None, (), None)
        if not verify:
            return Outcome(self._apply(made), None, (), measure())
        before, shown = interface.of(self.model.proto), self._shown(made)
        with _candidates(self.model, out) as (original, changed), ThreadPoolExecutor(1) as pool:
            self.model.save_showing(original, shown)
            # A session is opened without the interpreter lock, while work goes on here; two at once would only hinder
            # each other.
            first = pool.submit(open_session, original) if len(made.keys) <= _ROOM else None
            packed = pickle.dumps(self._apply(made))
            first = first or pool.submit(open_session, original)
            self.model.close_view(made.removed)
            del made  # with the view gone, this frees more memory than all else takes
            result: Rewritten = pickle.loads(packed)  # anew: what was made amid the view would hold its memory pages
            self.model.save_showing(changed, shown)
            second = pool.submit(open_session, changed)
            after: Execution | None = measure()
            log.info("comparing with the original")
            verdict = compare(original, changed, dims=dims, seed=seed, opening=(first, second), inputs=inputs)
            rolled_back: tuple[Refusal, ...] = ()
            if not verdict.ok:
                result, verdict, rolled_back = self._roll_back(
                    result, verdict, original, changed, shown, dims, seed, inputs
                )
                after = measure() if result.fusions else None
        if problem := interface.difference(before, interface.of(self.model.proto)):
            raise Finding(f"not verified, nothing was written: {problem}")
        return Outcome(result, verdict, rolled_back, after)

    def _shown(self, made: Draft) -> dict[str, int]:
        """Values that are compared beside the outputs: what new nodes of the main graph make in the place of old ones,
        with their dtypes.

        An output may hide an error (a network of constant weights, a pool behind). Of many nodes some are taken.
        """
        left = made.values
        original = {name for node in self.bound.facts.nodes for name in node.outputs}
        wanted = (name.partition("#")[0] for _, path, name in made.keys if not path)
        names = [name for name in dict.fromkeys(wanted) if name in left and name in original]
        dtypes = {name: self.bound.facts[name].dtype for name in names[:: len(names) // _SHOWN + 1]}
        return {name: dtype for name, dtype in dtypes.items() if dtype}

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
        self,
        made: Rewritten,
        verdict: Verdict,
        original: Path,
        changed: Path,
        shown: Mapping[str, int],
        dims: Mapping[str, int],
        seed: int,
        inputs: object,
    ) -> tuple[Rewritten, Verdict, tuple[Refusal, ...]]:
        why = f"the model with it did not verify: {verdict.reason}"
        reference = Reference(original, dims=dims, seed=seed, inputs=inputs)

        def attempt(kept: frozenset[int]) -> tuple[Rewritten, Verdict]:
            self.model.restore()
            left = self._apply(self._draft(frozenset(made.keys[i] for i in kept)))
            self.model.save_showing(changed, shown)
            return left, reference.check(changed, quick=True)

        log.info("the results differ; looking for the rewrite that spoils them")
        bad = find_guilty(len(made.keys), lambda kept: attempt(kept)[1].ok)
        if not bad:
            raise Finding(f"not verified, nothing was written: {verdict.reason}; a second comparison did not find it")
        left, verdict = attempt(frozenset(range(len(made.keys))) - bad)
        if not verdict.ok:
            raise Finding(f"not verified, nothing was written: {verdict.reason}")
        return left, verdict, tuple(Refusal(made.fusions[i].rule, made.fusions[i].node, why) for i in sorted(bad))
