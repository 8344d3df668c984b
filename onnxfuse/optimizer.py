"""One model under optimization: rewritten by plan, compared with its original, and again without what was wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxfuse import plan, rewrite
from onnxfuse.devices import Device
from onnxfuse.errors import Finding
from onnxfuse.facts import Facts
from onnxfuse.graph import Editor
from onnxfuse.model import Model, Source
from onnxfuse.patterns import Refusal, Rule
from onnxfuse.rewrite import Fusion
from onnxfuse.targets import Target
from onnxfuse.verify import Reference, Verdict, compare, guilty


@dataclass(frozen=True, slots=True, eq=False)
class Optimizer:
    """What planning needs, and the model that is edited in place.

    known, bound: the unedited model's facts, for every binding of its free dims and for the assumed one.
    """

    model: Model
    target: Target
    device: Device
    known: Facts
    bound: Facts
    rules: tuple[Rule, ...]
    max_intensity: float | None

    def rewrite(self, keys: frozenset[plan.Key] | None = None) -> tuple[plan.Plan, tuple[Fusion, ...]]:
        """Plan on the unedited model and make the choices, or those with the given keys."""
        editor = Editor(self.model.graph)
        places = plan.surroundings(self.model, editor, self.known, self.bound, self.target)
        made = plan.make(places, self.rules, self.device, self.max_intensity)
        chosen = [c for c in made.choices if keys is None or c.key in keys]
        return made, rewrite.apply(self.model, editor, chosen) if chosen else ()

    def prove(
        self,
        source: Source,
        made: plan.Plan,
        fusions: tuple[Fusion, ...],
        out: Path | None,
        dims: Mapping[str, int],
        seed: int,
    ) -> tuple[Verdict, tuple[Fusion, ...], tuple[Refusal, ...]]:
        """Compare the edited model with its source; guilty rewrites are rolled back: (verdict, kept, rolled back).

        The candidate is written beside `out`, where external data can be linked. Raises Finding where the original
        does not run, or no result verifies.
        """
        folder = None if out is None else out.absolute().parent
        with tempfile.TemporaryDirectory(prefix=".onnxfuse-", dir=folder) as scratch:
            changed = Path(scratch, "optimized.onnx")
            original = self.model.path or Path(scratch, "original.onnx")
            if self.model.path is None:
                Model.load(source).save(original, link=True)
            self.model.save(changed, link=True)
            verdict = compare(original, changed, dims=dims, seed=seed)
            if verdict.ok:
                return verdict, fusions, ()
            why = f"the model with it did not verify: {verdict.reason}"
            reference = Reference(original, dims=dims, seed=seed)

            def attempt(kept: frozenset[int]) -> tuple[Verdict, tuple[Fusion, ...]]:
                self.model.restore()
                now = self.rewrite(frozenset(made.choices[i].key for i in kept))[1]
                self.model.save(changed, link=True)
                return reference.check(changed), now

            everything = frozenset(range(len(made.choices)))
            bad = guilty(len(made.choices), lambda kept: attempt(kept)[0].ok)
            verdict, left = attempt(everything - bad)
            if not verdict.ok:
                raise Finding(f"not verified, nothing was written: {verdict.reason}")
            return verdict, left, tuple(Refusal(fusions[i].rule, fusions[i].node, why) for i in sorted(bad))
