"""One model under optimization: rewritten by plan, compared with its original, and again without what was wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxfuse import ir, plan, rewrite
from onnxfuse.cost import Cost
from onnxfuse.devices import Device
from onnxfuse.errors import Finding
from onnxfuse.facts import Facts
from onnxfuse.graph import Editor
from onnxfuse.model import Model, Source
from onnxfuse.patterns import Refusal, Rule
from onnxfuse.rewrite import Fusion
from onnxfuse.targets import Target
from onnxfuse.verify import Reference, Verdict, compare, guilty


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was rewritten, a key and a fusion each, and what was refused."""

    keys: tuple[plan.Key, ...]
    fusions: tuple[Fusion, ...]
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Optimizer:
    """What planning needs, and the model that is edited in place.

    known, bound: the unedited model's facts, for every binding of its free dims and for the assumed one.
    prices: its node costs at the assumed one.
    """

    model: Model
    target: Target
    device: Device
    known: Facts
    bound: Facts
    prices: tuple[Cost, ...]
    rules: tuple[Rule, ...]
    max_intensity: float | None

    def rewrite(self, keys: frozenset[plan.Key] | None = None) -> Rewritten:
        """Plan on the unedited model and make the choices, or those with the given keys."""
        roots = {root for rule in self.rules for root in rule.roots}
        if not any(node.op_type in roots for node in ir.all_nodes(self.model.program.graph)):
            return Rewritten((), (), ())
        editor = Editor(self.model.graph)
        places = plan.surroundings(self.model, editor, self.known, self.bound, self.prices, self.target)
        made = plan.make(places, self.rules, self.device, self.max_intensity)
        chosen = [c for c in made.choices if keys is None or c.key in keys]
        fusions = rewrite.apply(self.model, editor, chosen) if chosen else ()
        self.model.close_view()  # it takes more memory than all else, and the proto has the edits now
        return Rewritten(tuple(c.key for c in chosen), fusions, made.refused)

    def prove(
        self, source: Source, made: Rewritten, out: Path | None, dims: Mapping[str, int], seed: int
    ) -> tuple[Verdict, Rewritten, tuple[Refusal, ...]]:
        """Compare the edited model with its source; guilty rewrites are rolled back: (verdict, what is left, they).

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
                return verdict, made, ()
            why = f"the model with it did not verify: {verdict.reason}"
            reference = Reference(original, dims=dims, seed=seed)
            if reference.unsteady:
                raise Finding(f"not verified, nothing was written: {verdict.reason}")

            def attempt(kept: frozenset[int]) -> tuple[Verdict, Rewritten]:
                self.model.restore()
                left = self.rewrite(frozenset(made.keys[i] for i in kept))
                self.model.save(changed, link=True)
                return reference.check(changed), left

            everything = frozenset(range(len(made.keys)))
            bad = guilty(len(made.keys), lambda kept: attempt(kept)[0].ok)
            verdict, left = attempt(everything - bad)
            if not verdict.ok:
                raise Finding(f"not verified, nothing was written: {verdict.reason}")
            culprits = (made.fusions[i] for i in sorted(bad))
            return verdict, left, tuple(Refusal(f.rule, f.node, why) for f in culprits)
