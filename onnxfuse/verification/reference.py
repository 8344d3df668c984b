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
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnxfuse import feeds as fd
from onnxfuse import interface, runtime, storage
from onnxfuse.errors import Finding, OnnxfuseError
from onnxfuse.verification.cases import further_cases
from onnxfuse.verification.differences import OutputDifference, difference
from onnxfuse.verification.movement import Movement, Shaken, ways
from onnxfuse.verification.room import Room
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
_CHEAP = 1.5e9  # FLOPs of one run, some 50 ms of two cores, up to which all cases are run


@dataclass(frozen=True, slots=True)
class _Case:
    feeds: fd.Feeds
    outputs: runtime.Outputs
    text: str
    inner: bool = True  # whether values inside the model are among the outputs

    @property
    def bytes(self) -> int:
        """What is kept for it; a sequence counts nothing."""
        arrays = (*self.feeds.values(), *self.outputs.values())
        return sum(getattr(array, "nbytes", 0) for array in arrays)


class Reference:
    """The original: its sessions, its cases with their outputs, and how far those move by themselves."""

    def __init__(
        self,
        original: Subject,
        place: Callable[[str], Path],
        *,
        dims: Mapping[str, int] | None = None,
        seed: int = 0,
        tolerance: float | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """Run the original's cases; arguments and errors as in `compare`. place: paths for files of its own, by name.

        sessions: where some may be open already, and which provider runs the default level.
        Raises Finding where onnxruntime does not load the original, or no inputs are found under which it runs.
        Raises OutOfMemory before anything is run where the machine has too little memory.
        """
        self.original = original
        stored = storage.read(original.shown)
        self.interface = interface.of(stored.proto)
        self._dims, self._seed, self._tolerance = dict(dims or {}), seed, tolerance
        self._room = Room(stored, self.interface, tuple(original.inner))
        self._sessions = sessions or Sessions()
        self._moves: dict[int, Movement] = {}
        self._unsteady: set[str] = set()
        self._again: set[int] = set()
        self._default: dict[int, runtime.Outputs | None] = {}  # the original's outputs at the default level
        first = next(fd.candidates(self.interface, self._dims))
        self._room.require(first)
        self._sessions.limit(self._room.weights)
        self._base = self._load()
        self._shaken = Shaken(original.path(self._base), self._base, place("shaken"))
        binding, feeds, outputs = runtime.find_feeds(
            self._run, self.interface, self._dims, seed, check=self._room.require
        )
        self._cases = [_Case(feeds, outputs, _text(binding, fd.NORMAL))]
        thorough = self._room.load(binding).flops <= _CHEAP
        for choices in further_cases(self.interface, self._dims, binding, thorough):
            any(self._add(binding, *choice) for choice in choices)

    def _load(self) -> str:
        """The level of the reference: optimizations off; the default one where the model does not load without."""
        log.debug("opening the original in onnxruntime")
        try:
            self._sessions.get(self.original.shown, BASE)
            return BASE
        except OnnxfuseError:
            raise
        except Exception as error:
            with suppress(Exception):
                self._sessions.get(self.original.plain, DEFAULT)
                return DEFAULT
            raise Finding(f"onnxruntime does not load the original: {runtime.first_line(error)}") from error

    def _run(self, feeds: fd.Feeds, inner: bool = True) -> runtime.Outputs:
        return self._sessions.run(self.original.path(self._base), self._base, feeds, self._hidden(inner))

    def _hidden(self, inner: bool) -> frozenset[str]:
        """The outputs that are left out where inner values are not compared."""
        return frozenset() if inner else self.original.inner

    def _add(self, base: fd.Binding, binding: fd.Binding, kind: fd.Kind, override: fd.Kind | None = None) -> bool:
        """Whether the original runs so, and there is room for it; then it is a case."""
        kept = sum(case.bytes for case in self._cases)
        inner = self._room.fits(base, binding, kept, inner=True)
        if not inner and not self._room.fits(base, binding, kept, inner=False):
            return False
        log.debug("running the original, case %d: %s", len(self._cases) + 1, _text(binding, kind))
        feeds = fd.make(self.interface, binding, kind, self._seed, draw=len(self._cases), override=override)
        with suppress(Exception):  # sizes or data that the original refuses are no case
            self._cases.append(_Case(feeds, self._run(feeds, inner), _text(binding, kind), inner))
            return True
        return False

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
            self._sessions.forget(result.plain, result.shown)
        names = [name for name in self._cases[0].outputs if focus is None or name in focus.names or not focus.names]
        filled = frozenset(name for case in self._cases for name, array in case.outputs.items() if array.size)
        self._name_unsteady(rows)
        inner = self.original.inner if focus is None else frozenset()
        verdict = combine(rows, names, inner, filled, frozenset(self._unsteady))
        return replace(verdict, provider=self._sessions.provider)

    def _levels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self._base, DEFAULT)))

    def _judge_at(
        self, level: str, result: Subject, rows: list[Row], quick: bool, focus: Focus | None
    ) -> Verdict | None:
        """Adds the rows of one level. Returns the verdict where the result does not load or run there."""
        path, at = result.path(level), "" if level == self._base else " at onnxruntime's default level"
        try:
            self._sessions.get(path, level)
        except OnnxfuseError:
            raise
        except Exception as error:  # noqa: BLE001 - onnxruntime has no one base class
            if level != self._base and all(self._own(i) is None for i in range(len(self._cases))):
                return None
            return refused(f"optimized model does not load{at}: {runtime.first_line(error)}", Focus(level, None))
        for i, case in enumerate(self._cases):
            if focus is not None and i != (focus.case or 0):
                continue
            log.debug("comparing, case %d of %d%s: %s", i + 1, len(self._cases), at, case.text)
            try:
                hidden = self._hidden(case.inner and level == BASE)
                outputs = self._sessions.run(path, level, case.feeds, hidden & result.inner)
            except Exception as error:  # noqa: BLE001
                if level != self._base and self._own(i) is None:
                    continue
                line = runtime.first_line(error)
                return refused(f"optimized model does not run{at} ({case.text}): {line}", Focus(level, i))
            text = case.text if level == self._base else f"{case.text}, default level"
            names = [n for n in case.outputs if n in outputs or n not in self.original.inner]
            if focus is not None and focus.names:
                names = [n for n in names if n in focus.names]
            found = {
                d.name: self._weigh(i, level, d, outputs.get(d.name))
                for d in self._differences(case.outputs, outputs, names)
            }
            rows.append(Row(level, i, text, found))
            if quick and rows[-1].failed:
                break
        return None

    def _differences(self, a: runtime.Outputs, b: runtime.Outputs, names: Iterable[str]) -> Iterator[OutputDifference]:
        for name in names:
            yield self._difference(name, a[name], b.get(name))

    def _difference(self, name: str, a: np.ndarray, b: np.ndarray | None) -> OutputDifference:
        step = self.interface.steps.get(name, self.interface.step)
        return difference(name, a, b, _TOLERANCE[step] if self._tolerance is None else self._tolerance)

    def _weigh(self, i: int, level: str, d: OutputDifference, value: np.ndarray | None) -> OutputDifference | None:
        """The difference as it counts in case i; None where the original is too rough there to judge by."""
        if d.ok:
            return d
        case = self._cases[i]
        if level != self._base:
            own = self._own(i)
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
            path = self.original.path(self._base)
            tried = ways(self._sessions, path, self._base, case.feeds, self._shaken, self._hidden(case.inner))
            names = tuple(case.outputs)
            self._moves[i] = Movement(tried, lambda outputs: list(self._differences(case.outputs, outputs, names)))
        moved = self._moves[i].of(d.name, lambda own: _excused(d, own) is not d)
        excused = _excused(d, moved) if moved else d
        return None if excused is d and d.name in self._repeated(i) else excused

    def _own(self, i: int) -> runtime.Outputs | None:
        """The original's outputs at the default level; None where it does not load or run there."""
        if i not in self._default:
            self._default[i] = None
            with suppress(Exception):
                self._default[i] = self._sessions.run(self.original.plain, DEFAULT, self._cases[i].feeds)
        return self._default[i]

    def _repeated(self, i: int) -> set[str]:
        """The outputs seen to differ between two runs of the original on the same feeds; case i is run once more."""
        if i not in self._again:
            self._again.add(i)
            case = self._cases[i]
            again = self._differences(case.outputs, self._run(case.feeds, case.inner), case.outputs)
            self._unsteady |= {d.name for d in again if not d.ok}
        return self._unsteady

    def _name_unsteady(self, rows: Sequence[Row]) -> None:
        """Of outputs that no case can judge find out whether they differ between two runs."""
        names = {name for row in rows for name in row.found} - self.original.inner
        if any(all(row.found.get(name) is None for row in rows) for name in names):
            self._repeated(0)


def _excused(d: OutputDifference, own: OutputDifference) -> OutputDifference | None:
    """The difference where the original's own outputs move so far: itself where that explains nothing, None where
    nothing can be told, and a few flips of exact values allowed.
    """
    allowed = _ROUGH * own.max_error
    if d.tolerance == 0 and d.max_error <= min(_FLIPS, allowed):
        return replace(d, tolerance=min(_FLIPS, allowed), ok=True, cause=None)
    return None if d.max_error <= allowed and d.cause in ("value", own.cause) else d


def _text(binding: fd.Binding, kind: fd.Kind) -> str:
    """A case in words, for a reason: "batch=2, wide data"."""
    return ", ".join(
        [*(f"{key}={size}" for key, size in binding.items() if not key.endswith("=")), f"{kind.name} data"]
    )
