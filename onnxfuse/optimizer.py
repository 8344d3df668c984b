"""One model under optimization: rewritten by plan, compared with its original, and again without what was wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from onnxfuse import ir, plan, rewrite
from onnxfuse.binding import Bound
from onnxfuse.bisection import find_guilty
from onnxfuse.devices import Device
from onnxfuse.errors import Finding
from onnxfuse.facts import Facts
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.patterns import Refusal, Rule
from onnxfuse.rewrite import Fusion
from onnxfuse.roofline import Totals
from onnxfuse.targets import Target
from onnxfuse.verification import Reference, Verdict, compare, open_session


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was rewritten, a key and a fusion each, and what was refused."""

    keys: tuple[plan.Key, ...]
    fusions: tuple[Fusion, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `Optimizer.run` made of a model; verdict and after are None where there was nothing to verify or measure."""

    made: Rewritten
    verdict: Verdict | None
    rolled_back: tuple[Refusal, ...]
    after: Totals | None


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
        self, out: Path | None, dims: Mapping[str, int], seed: int, verify: bool, measure: Callable[[], Totals]
    ) -> Outcome:
        """Rewrite the model, compare it with what it was, and measure it; without a rewrite neither is done.

        Candidates are written beside `out`, where external data can be linked. Raises Finding where the original does
        not run, or no result verifies.
        """
        made = self._plan()
        if not made.choices or not verify:
            result = self._apply(made)
            return Outcome(result, None, (), measure() if result.fusions else None)
        folder = None if out is None else out.absolute().parent
        with tempfile.TemporaryDirectory(prefix=".onnxfuse-", dir=folder) as scratch, ThreadPoolExecutor(2) as pool:
            original, changed = self.model.path or Path(scratch, "original.onnx"), Path(scratch, "optimized.onnx")
            if self.model.path is None:
                self.model.save(original, link=True)
            # A session is opened without the interpreter lock: on the other core, while work goes on here.
            first = pool.submit(open_session, original)
            result = self._apply(made)
            del made  # and with it the view, which takes more memory than all else
            self.model.close_view()
            self.model.save(changed, link=True)
            second = pool.submit(open_session, changed)
            after = measure()
            verdict = compare(original, changed, dims=dims, seed=seed, opening=(first, second))
            if verdict.ok:
                return Outcome(result, verdict, (), after)
            result, verdict, guilty = self._roll_back(result, verdict, original, changed, dims, seed)
            return Outcome(result, verdict, guilty, measure() if result.fusions else None)

    def _plan(self) -> plan.Plan:
        roots = {root for rule in self.rules for root in rule.roots}
        if not any(node.op_type in roots for node in ir.all_nodes(self.model.program.graph)):
            return plan.Plan(None, (), ())
        editor = Editor(self.model.graph)
        places = plan.surroundings(self.model, editor, self.known, self.bound, self.target)
        return plan.make(editor, places, self.rules, self.device, self.max_intensity)

    def _apply(self, made: plan.Plan, keys: frozenset[plan.Key] | None = None) -> Rewritten:
        """Make the choices, or those with the given keys."""
        chosen = [c for c in made.choices if keys is None or c.key in keys]
        fusions = rewrite.apply(self.model, made.editor, chosen) if made.editor and chosen else ()
        return Rewritten(tuple(c.key for c in chosen), fusions, made.refused)

    def _roll_back(
        self, made: Rewritten, verdict: Verdict, original: Path, changed: Path, dims: Mapping[str, int], seed: int
    ) -> tuple[Rewritten, Verdict, tuple[Refusal, ...]]:
        why = f"the model with it did not verify: {verdict.reason}"
        reference = Reference(original, dims=dims, seed=seed)
        if reference.unsteady:
            raise Finding(f"not verified, nothing was written: {verdict.reason}")

        def attempt(kept: frozenset[int]) -> tuple[Rewritten, Verdict]:
            self.model.restore()
            left = self._apply(self._plan(), frozenset(made.keys[i] for i in kept))
            self.model.save(changed, link=True)
            return left, reference.check(changed)

        bad = find_guilty(len(made.keys), lambda kept: attempt(kept)[1].ok)
        left, verdict = attempt(frozenset(range(len(made.keys))) - bad)
        if not verdict.ok:
            raise Finding(f"not verified, nothing was written: {verdict.reason}")
        return left, verdict, tuple(Refusal(made.fusions[i].rule, made.fusions[i].node, why) for i in sorted(bad))
