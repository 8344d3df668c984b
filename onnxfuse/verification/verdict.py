"""What verification answers, made from the differences of all cases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onnxfuse.jsonable import plain
from onnxfuse.verification.differences import OutputDifference, describe

ROUNDING = "rounding of the inputs alone moves it too far"
NOT_FINITE = "it is NaN or infinite throughout in every case"
UNSTEADY = "it differs between two runs of the original on the same inputs"


@dataclass(frozen=True, slots=True)
class Unjudged:
    """An output that no case says anything about, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Focus:
    """Where a result was seen to fail. case: its number, None where the model does not load; names: the outputs that
    differ, none where it does not run.
    """

    level: str
    case: int | None
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: ok, the largest error of all outputs, the cases judged, and the first problem (None where ok).

    outputs: the worst difference of each output over the cases, `compared` summed over them.
    judged: False where neither was shown, that both are the same nor that they differ: the original does not run at
        these sizes, or nothing can be told from what it gives.
    unjudged: outputs that nothing can be told of; the others are judged.
    levels: onnxruntime's optimization levels at which both models ran, "disabled" and "all", its default.
    provider: where they ran at the default level, "cpu" or "cuda".
    """

    ok: bool
    max_error: float
    outputs: tuple[OutputDifference, ...]
    cases: int
    reason: str | None
    judged: bool = True
    unjudged: tuple[Unjudged, ...] = ()
    levels: tuple[str, ...] = ()
    provider: str = "cpu"
    _focus: Focus | None = field(default=None, compare=False)

    @property
    def focus(self) -> Focus | None:
        """Where the result was seen to fail; None where it did not, or not by running."""
        return self._focus

    def to_json(self) -> dict[str, Any]:
        """The same names in a dict for JSON; an infinite error is null."""
        data: dict[str, Any] = plain(self)
        return data


@dataclass(frozen=True, slots=True)
class Row:
    """What one case says at one level; None for an output that it is too rough to judge by."""

    level: str
    case: int
    text: str
    found: Mapping[str, OutputDifference | None]

    @property
    def failed(self) -> frozenset[str]:
        """The outputs that differ."""
        return frozenset(name for name, d in self.found.items() if d is not None and not d.ok)

    @property
    def focus(self) -> Focus:
        """Where to look again."""
        return Focus(self.level, self.case, self.failed)


def refused(reason: str, focus: Focus | None = None, *, judged: bool = True) -> Verdict:
    """The verdict where nothing was compared."""
    return Verdict(False, math.inf, (), 0, reason, judged, _focus=focus)


def combine(
    rows: Iterable[Row], names: Iterable[str], inner: frozenset[str], filled: frozenset[str], unsteady: frozenset[str]
) -> Verdict:
    """The verdict of all rows, of models that run.

    names: all outputs; inner: those that are values inside the model. filled: those that have elements in some case.
    unsteady: those that differ between two runs of the original.
    """
    rows = tuple(rows)
    worst: dict[str, OutputDifference] = {}
    for row in rows:
        for d in filter(None, row.found.values()):
            seen = worst.get(d.name, replace(d, compared=0))
            further = max(seen, d, key=lambda d: (not d.ok, d.max_error))
            worst[d.name] = replace(further, compared=seen.compared + d.compared)
    unjudged = tuple(
        Unjudged(name, reason)
        for name in names
        if name not in inner and (reason := _why_unjudged(name, worst, filled, unsteady))
    )
    left_out = {one.name for one in unjudged}
    outputs = tuple(d for name, d in worst.items() if name not in left_out)
    failing = next((row for row in rows if row.failed - left_out), None)
    problem = None
    if failing:
        wrong = next(d for d in failing.found.values() if d and d.name in failing.failed - left_out)
        problem = f"{describe(wrong)} ({failing.text})"
    elif not any(d.compared for d in outputs if d.name not in inner):
        first = next(iter(unjudged), None)
        problem = (
            f"output '{first.name}' cannot be judged: {first.reason}"
            if first
            else "nothing to compare: every output is empty in every case"
        )
    return Verdict(
        problem is None,
        max((d.max_error for d in outputs), default=0.0),
        outputs,
        len({row.case for row in rows if any(d is not None for d in row.found.values())}),
        problem,
        problem is None or failing is not None,
        unjudged,
        tuple(dict.fromkeys(row.level for row in rows)),
        _focus=failing.focus if failing else None,
    )


def _why_unjudged(
    name: str, worst: Mapping[str, OutputDifference], filled: frozenset[str], unsteady: frozenset[str]
) -> str | None:
    if name in unsteady:
        return UNSTEADY
    if name not in worst:
        return ROUNDING
    d = worst[name]
    return NOT_FINITE if d.ok and not d.compared and name in filled else None
