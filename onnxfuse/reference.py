"""The original as a reference, against which any number of optimized models is judged by numbers from onnxruntime.

Always run are normal data, wider data (at another batch size where the batch is free), other sizes where there are free
ones, and a case that sets the overridable initializers, if there are any. A model that is cheap to run gets more: still
other sizes, positive, signed and very wide data. What is cheap is counted in FLOPs, not measured, so that the answer
does not depend on the machine's speed. No case is empty: some of onnxruntime's own kernels end the process there.

A case can be too rough to judge by: where the original's own output moves when its inputs move by a few units in the
last place, or its weights by one (a nearly closed sigmoid, a softmax of large numbers, a hundred layers), an error up
to four times that proves nothing. Such a case is left out for that output; a larger error counts there too; an output
with no other case is not verified. Only cases with an error are tried for this.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from onnxfuse import feeds as fd
from onnxfuse import inputs as given
from onnxfuse import interface, ir, runtime, storage
from onnxfuse.cost import costs
from onnxfuse.differences import OutputDifference, describe, difference
from onnxfuse.errors import Finding, OnnxfuseError
from onnxfuse.facts import free_dims, infer
from onnxfuse.jsonable import plain
from onnxfuse.perturbed import Perturbed
from onnxfuse.validity import check_quietly

log = logging.getLogger(__name__)

# Allowed error of a float output relative to its scale, by the relative step of the coarsest number format on the way
# to it. float32: the project's bar, 84 steps, room for a sum in another order and nothing else; float64: the same bar
# is far below any fault, 1e-12 leaves room for another libm. A float16 or 8-bit value is rounded after each operator
# and a fused chain rounds elsewhere: a few steps of that format may move, more would be another computation.
_TOLERANCE = {2.0**-52: 1e-12, 2.0**-23: 1e-5, 2.0**-10: 8 * 2.0**-10, 2.0**-7: 4 * 2.0**-7}

# Integer, boolean and string outputs must be equal. Where one is cut from floats (ArgMax, a threshold), elements lie on
# the edge: up to 1 % may flip if a quarter as many flip in the original alone when its inputs move by a few ulps.
_FLIPS = 0.01
_ROUGH = 4  # an error of up to so many times the original's own movement is no evidence
_CHEAP = 1.5e9  # FLOPs of one run, some 50 ms of two cores, up to which all cases are run
_SMALL = 20_000  # nodes; of a larger model the FLOPs are not even counted


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: ok, the largest error of all outputs, the cases judged, and the first problem (None where ok).

    outputs: the worst difference of each output over the cases, `compared` summed over them.
    judged: False where neither was shown, that both are the same nor that they differ: the original does not run at
        these sizes, or nothing can be told from what it gives.
    """

    ok: bool
    max_error: float
    outputs: tuple[OutputDifference, ...]
    cases: int
    reason: str | None
    judged: bool = True

    def to_json(self) -> dict[str, Any]:
        """The same names in a dict for JSON; an infinite error is null."""
        data: dict[str, Any] = plain(self)
        return data


@dataclass(frozen=True, slots=True)
class _Case:
    feeds: fd.Feeds
    outputs: runtime.Outputs
    text: str


def open_session(path: Path, level: str = "disabled") -> Any:
    """A session for `compare`; takes long for a large model, and may be opened in another thread."""
    external = storage.tensors.locations(storage.read(path).proto)
    return runtime.cpu_session(path, level, mapped=bool(external))


class Reference:
    """The original: its session, feeds and outputs, against which any number of optimized models is judged."""

    def __init__(
        self,
        path: Path,
        *,
        dims: Mapping[str, int] | None = None,
        seed: int = 0,
        tolerance: float | None = None,
        level: str = "disabled",
        opened: Callable[[], Any] | None = None,
        inputs: object = None,
    ) -> None:
        """Open the original and run its cases; arguments and errors as in `compare`.

        Raises Finding where onnxruntime does not load the original, or no inputs are found under which it runs.
        """
        self.path = path
        model = storage.read(path)
        self.interface = interface.of(model.proto)
        examples = given.load(inputs, self.interface)
        self._dims = given.sizes(examples, self.interface, dims or {})
        self._seed, self._level = seed, level
        self._tolerance = tolerance
        self._own: dict[int, dict[str, OutputDifference]] = {}
        self.unsteady: str | None = None  # an output that differs between two runs on the same feeds, once seen
        log.debug("opening the original in onnxruntime")
        try:
            self._session = opened() if opened else open_session(path, level)
        except OnnxfuseError:
            raise
        except Exception as error:
            raise Finding(f"onnxruntime does not load the original: {runtime.first_line(error)}") from error
        self._perturbed = Perturbed(path, self._session, level)
        self._cases: list[_Case] = []
        for example in examples:
            try:
                self._cases.append(_Case(example.feeds, self._run(example.feeds), example.name))
            except Exception as error:
                raise Finding(f"{example.name}: the original does not run: {runtime.first_line(error)}") from error
        try:
            binding, feeds, outputs = runtime.find_feeds(self._run, self.interface, self._dims, seed)
        except Finding:
            if self._cases:
                return
            raise
        self._cases.append(_Case(feeds, outputs, _text(binding, fd.NORMAL)))
        for other in fd.switched(self.interface, binding):
            self._add(other, fd.NORMAL)
        self._add_cases(binding, len(model.proto.graph.node) <= _SMALL and _flops(model, binding) <= _CHEAP)

    def check(self, optimized: Path, *, quick: bool = False) -> Verdict:
        """Judge an optimized model; quick: what comes after the first case that differs is left out."""
        if problem := static_problem(self.path, self.interface, optimized):
            return refused(problem)
        return self.judge(lambda: open_session(optimized, self._level), quick)

    def _run(self, feeds: fd.Feeds) -> runtime.Outputs:
        return runtime.run(self._session, feeds)

    def _add(self, binding: fd.Binding, kind: fd.Kind, override: fd.Kind | None = None) -> bool:
        """Whether the original runs so; then it is a case."""
        log.debug("running the original, case %d: %s", len(self._cases) + 1, _text(binding, kind))
        feeds = fd.make(self.interface, binding, kind, self._seed, draw=len(self._cases), override=override)
        with suppress(Exception):  # sizes or data that the original refuses are no case
            self._cases.append(_Case(feeds, self._run(feeds), _text(binding, kind)))
            return True
        return False

    def _add_cases(self, base: fd.Binding, thorough: bool) -> None:
        if not self.interface.inputs:
            return
        others = list(fd.variants(self.interface, self._dims, base))
        wide = (fd.WIDE, fd.SCALED, fd.NORMAL)
        any(self._add(binding, kind) for binding in (*others[:1], base) for kind in wide)
        if self.interface.overridable:
            self._add(base, fd.NORMAL, override=fd.POSITIVE)
        for binding in others[1:] if thorough else others[1:2]:
            self._add(binding, fd.NORMAL)
        if thorough:
            for kind in (fd.POSITIVE, fd.SIGNED, fd.WIDER, fd.WIDEST):
                self._add(base, kind)
            if self.interface.overridable:
                self._add(base, fd.NORMAL, override=fd.NORMAL)

    def judge(self, session: Callable[[], Any], quick: bool = False) -> Verdict:
        """As `check`, of an open session; its interface is taken to be right. Of a session that fails the reason."""
        try:
            opened = session()
        except OnnxfuseError:
            raise
        except Exception as error:  # noqa: BLE001 - onnxruntime has no one base class
            return refused(f"optimized model does not load: {runtime.first_line(error)}")
        rows: list[list[OutputDifference | None]] = []
        for i, case in enumerate(self._cases):
            log.debug("comparing, case %d of %d: %s", i + 1, len(self._cases), case.text)
            try:
                outputs = runtime.run(opened, case.feeds)
            except Exception as error:  # noqa: BLE001
                return refused(f"optimized model does not run ({case.text}): {runtime.first_line(error)}")
            rows.append([self._weigh(i, d) for d in self._differences(case.outputs, outputs)])
            if quick and any(d is not None and not d.ok for d in rows[-1]):
                break
        return self._verdict(rows)

    def _differences(self, a: runtime.Outputs, b: runtime.Outputs) -> Iterator[OutputDifference]:
        for name, original in a.items():
            step = self.interface.steps.get(name, self.interface.step)
            allowed = _TOLERANCE[step] if self._tolerance is None else self._tolerance
            yield difference(name, original, b.get(name), allowed)

    def _weigh(self, i: int, d: OutputDifference) -> OutputDifference | None:
        """The difference as it counts in case i; None where the original is too rough there to judge by."""
        if d.ok or d.cause in ("dtype", "missing"):
            return d
        own = self._movement(i)[d.name]
        allowed = _ROUGH * own.max_error
        if d.tolerance == 0 and d.max_error <= min(_FLIPS, allowed):
            return replace(d, tolerance=min(_FLIPS, allowed), ok=True, cause=None)
        rough = d.max_error <= allowed and d.cause in ("value", own.cause)
        return None if rough else d

    def _movement(self, i: int) -> dict[str, OutputDifference]:
        """By how much the original's own outputs move in case i, where inputs and weights are rounded otherwise."""
        if i not in self._own:
            case = self._cases[i]
            again = self._differences(case.outputs, self._run(case.feeds))
            self.unsteady = self.unsteady or next((d.name for d in again if not d.ok), None)
            own: dict[str, OutputDifference] = {}
            for outputs in self._perturbed.outputs(case.feeds):
                for d in self._differences(case.outputs, outputs):
                    own[d.name] = max(own.get(d.name, d), d, key=lambda d: d.max_error)
            self._own[i] = own
        return self._own[i]

    def _filled(self) -> set[str]:
        """Outputs that have elements in some case."""
        return {name for case in self._cases for name, array in case.outputs.items() if array.size}

    def _verdict(self, rows: list[list[OutputDifference | None]]) -> Verdict:
        worst: dict[str, OutputDifference] = {}
        problems = []
        for case, row in zip(self._cases, rows, strict=False):  # a quick judgement has fewer rows
            for d in filter(None, row):
                if not d.ok:
                    problems.append(f"{describe(d)} ({case.text})")
                seen = worst.get(d.name, replace(d, compared=0))
                further = max(seen, d, key=lambda d: (not d.ok, d.max_error))
                worst[d.name] = replace(further, compared=seen.compared + d.compared)
        if self.unsteady:
            problems.insert(0, f"output '{self.unsteady}' of the original differs between two runs on the same inputs")
        problems += [
            f"output '{name}' cannot be judged: rounding of the inputs alone moves it too far"
            for name in self._cases[0].outputs
            if name not in worst
        ]
        bare = [d.name for d in worst.values() if not d.compared and d.name in self._filled()]
        if not problems and bare:
            problems.append(f"output '{bare[0]}' cannot be judged: it is NaN or infinite throughout in every case")
        if not problems and not any(d.compared for d in worst.values()):
            problems.append("nothing to compare: every output is empty in every case")
        return Verdict(
            not problems,
            max((d.max_error for d in worst.values()), default=0.0),
            tuple(worst.values()),
            sum(None not in row for row in rows),
            problems[0] if problems else None,
            not problems or (not self.unsteady and any(not d.ok for d in worst.values())),
        )


def _flops(model: storage.Stored, binding: fd.Binding) -> float:
    """FLOPs of one run as far as they are known; a node of unknown cost counts nothing."""
    program = ir.read(model.proto)
    sizes = {name: fd.size(name, binding) for name in free_dims(program)}
    facts = infer(program, sizes, lambda tensor: storage.tensors.array(tensor, model.source, model.folder))
    return float(sum(cost.flops for cost in costs(facts) if isinstance(cost.flops, int)))


def static_problem(original: Path, known: interface.Interface, optimized: Path) -> str | None:
    """What is wrong without running: the interface, or what onnx's checker says of the optimized model alone."""
    if found := interface.difference(known, interface.read(optimized)):
        return found
    try:
        check_quietly(str(optimized))
    except onnx.checker.ValidationError as error:
        with suppress(onnx.checker.ValidationError):  # what the original is guilty of too does not count
            check_quietly(str(original))
            return f"optimized model is invalid: {runtime.first_line(error)}"
    return None


def refused(reason: str) -> Verdict:
    """The verdict where nothing was compared."""
    return Verdict(False, math.inf, (), 0, reason)


def _text(binding: fd.Binding, kind: fd.Kind) -> str:
    """A case in words, for a reason: "batch=2, wide data"."""
    return ", ".join(
        [*(f"{key}={size}" for key, size in binding.items() if not key.endswith("=")), f"{kind.name} data"]
    )
