"""The original as a reference, against which any number of results is judged by numbers from onnxruntime.

Each result runs twice: with onnxruntime's optimizations off, where inner values are compared too, and as it will run,
at the default level. There it must load and run wherever the original does. It may differ by rounding, and by what the
original itself changes between the two levels.

A case can be too rough to judge by: where the original's own output moves when its inputs move by a few units in the
last place, or its weights by one (a nearly closed sigmoid, a softmax of large numbers, a hundred layers), an error up
to four times that proves nothing. Such a case is left out for that output; a larger error counts there too. Only cases
with an error are tried for this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from onnxfuse import runtime
from onnxfuse.errors import OnnxfuseError
from onnxfuse.verification.differences import OutputDifference, describe, difference
from onnxfuse.verification.movement import Movement
from onnxfuse.verification.original import Case, Original
from onnxfuse.verification.sessions import BASE, DEFAULT, Sessions, Subject
from onnxfuse.verification.verdict import Focus, Row, Verdict, combine, refused

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


class Reference:
    """Judges results by the cases of one original."""

    def __init__(
        self,
        original: Subject,
        place: Callable[[str], Path],
        *,
        dims: Mapping[str, int] | None = None,
        seed: int = 0,
        tolerance: float | None = None,
        inputs: object = None,
        sessions: Sessions | None = None,
    ) -> None:
        """Run the original's cases; arguments and errors as in `compare`. place: paths for files of its own, by name.

        inputs: of the user, run before generated ones (see `inputs.load`).
        sessions: where some may be open already, and which provider runs the default level.
        Raises Finding where onnxruntime does not load the original, or no inputs are found under which it runs.
        Raises OutOfMemory before anything is run where the machine has too little memory.
        """
        self._original = Original(original, place, dims or {}, seed, inputs, sessions or Sessions())
        self._tolerance = tolerance
        self._moves: dict[int, Movement] = {}
        self._unsteady: set[str] = set()
        self._repeated: set[int] = set()
        self._warn_of_unexpected()

    def _warn_of_unexpected(self) -> None:
        """Log where the original itself does not give what the user expects."""
        for case in self._original.cases:
            for name, wanted in case.expected.items():
                if name in case.outputs and not (d := self._difference(name, wanted, case.outputs[name])).ok:
                    log.warning("%s: of the original, %s, compared with the expected one", case.text, describe(d))

    def judge(self, result: Subject, *, quick: bool = False, focus: Focus | None = None) -> Verdict:
        """Judge a result whose interface is right.

        quick: leave out what comes after the first case that differs. focus: look only where another result failed.
        """
        rows: list[Row] = []
        try:
            for level in self._levels() if focus is None else (focus.level,):
                problem = self._judge_at(level, result, rows, quick, focus)
                if problem is not None:
                    return problem
                if any(row.failed for row in rows):
                    break
        finally:
            self._original.sessions.forget(result.plain, result.shown)
        names = [
            name for name in self._original.cases[0].outputs if focus is None or name in focus.names or not focus.names
        ]
        filled = frozenset(name for case in self._original.cases for name, array in case.outputs.items() if array.size)
        self._name_unsteady(rows)
        inner = self._original.subject.inner if focus is None else frozenset()
        verdict = combine(rows, names, inner, filled, frozenset(self._unsteady))
        return replace(verdict, provider=self._original.sessions.provider)

    def _levels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self._original.base, DEFAULT)))

    def _judge_at(
        self, level: str, result: Subject, rows: list[Row], quick: bool, focus: Focus | None
    ) -> Verdict | None:
        """Adds the rows of one level. Returns the verdict where the result does not load or run there."""
        path, at = result.path(level), "" if level == self._original.base else " at onnxruntime's default level"
        try:
            self._original.sessions.get(path, level)
        except OnnxfuseError:
            raise
        except Exception as error:  # noqa: BLE001 - onnxruntime has no one base class
            if level != self._original.base and all(
                self._original.at_default(i) is None for i in range(len(self._original.cases))
            ):
                return None
            return refused(f"optimized model does not load{at}: {runtime.first_line(error)}", Focus(level, None))
        for i, case in enumerate(self._original.cases):
            if focus is not None and i != (focus.case or 0):
                continue
            log.debug("comparing, case %d of %d%s: %s", i + 1, len(self._original.cases), at, case.text)
            try:
                hidden = self._original.hidden(case.inner and level == BASE)
                outputs = self._original.sessions.run(path, level, case.feeds, hidden & result.inner)
            except Exception as error:  # noqa: BLE001
                if level != self._original.base and self._original.at_default(i) is None:
                    continue
                line = runtime.first_line(error)
                return refused(f"optimized model does not run{at} ({case.text}): {line}", Focus(level, i))
            text = case.text if level == self._original.base else f"{case.text}, default level"
            names = [n for n in case.outputs if n in outputs or n not in self._original.subject.inner]
            if focus is not None and focus.names:
                names = [n for n in names if n in focus.names]
            found = {
                d.name: self._weigh(i, level, d, outputs.get(d.name))
                for d in self._differences(case.outputs, outputs, names)
            }
            rows.append(Row(level, i, text, found))
            if level == self._original.base and (missed := self._missed(case, outputs)):
                rows.append(Row(level, i, f"{case.text}, expected output", missed))
            del outputs  # before the next run needs the memory
            if quick and rows[-1].failed:
                break
        return None

    def _missed(self, case: Case, outputs: runtime.Outputs) -> dict[str, OutputDifference | None]:
        """The outputs that are further from what the user expects than those of the original are."""
        missed: dict[str, OutputDifference | None] = {}
        for name in case.expected.keys() & case.outputs.keys():
            d = self._difference(name, case.expected[name], outputs.get(name))
            own = self._difference(name, case.expected[name], case.outputs[name])
            if not d.ok and d.max_error > own.max_error + d.tolerance:
                missed[name] = d
        return missed

    def _differences(self, a: runtime.Outputs, b: runtime.Outputs, names: Iterable[str]) -> Iterator[OutputDifference]:
        for name in names:
            yield self._difference(name, a[name], b.get(name))

    def _difference(self, name: str, a: np.ndarray, b: np.ndarray | None) -> OutputDifference:
        step = self._original.interface.steps.get(name, self._original.interface.step)
        return difference(name, a, b, _TOLERANCE[step] if self._tolerance is None else self._tolerance)

    def _weigh(self, i: int, level: str, d: OutputDifference, value: np.ndarray | None) -> OutputDifference | None:
        """The difference as it counts in case i; None where the original is too rough there to judge by."""
        if d.ok:
            return d
        case = self._original.cases[i]
        if level != self._original.base:
            own = self._original.at_default(i)
            if own is None or d.name not in own:
                return None
            again = self._difference(d.name, own[d.name], value)
            if again.ok:
                return again
            excused = _excused(d, self._difference(d.name, case.outputs[d.name], own[d.name]))
            if excused is not d:
                return excused
        if d.cause in ("dtype", "missing") or d.name not in case.outputs:
            return d
        if i not in self._moves:
            tried, names = self._original.rounded_otherwise(i), tuple(case.outputs)
            self._moves[i] = Movement(tried, lambda outputs: list(self._differences(case.outputs, outputs, names)))
        moved = self._moves[i].of(d.name, lambda own: _excused(d, own) is not d)
        excused = _excused(d, moved) if moved else d
        return None if excused is d and self._is_unsteady(d.name, i) else excused

    def _is_unsteady(self, name: str, i: int) -> bool:
        """Whether an output differs between two runs of the original on the same feeds; case i is run once more."""
        if i not in self._repeated:
            self._repeated.add(i)
            case = self._original.cases[i]
            again = self._differences(case.outputs, self._original.again(i), case.outputs)
            self._unsteady |= {d.name for d in again if not d.ok}
        return name in self._unsteady

    def _name_unsteady(self, rows: Sequence[Row]) -> None:
        """Of outputs that no case can judge find out whether they differ between two runs."""
        names = {name for row in rows for name in row.found} - self._original.subject.inner
        if any(all(row.found.get(name) is None for row in rows) for name in names):
            self._is_unsteady("", 0)


def _excused(d: OutputDifference, own: OutputDifference) -> OutputDifference | None:
    """The difference where the original's own outputs move so far: itself where that explains nothing, None where
    nothing can be told, and a few flips of exact values allowed.
    """
    allowed = _ROUGH * own.max_error
    if d.tolerance == 0 and d.max_error <= min(_FLIPS, allowed):
        return replace(d, tolerance=min(_FLIPS, allowed), ok=True, cause=None)
    return None if d.max_error <= allowed and d.cause in ("value", own.cause) else d
