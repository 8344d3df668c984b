"""The original: its sessions, its cases, and how far its outputs move by themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from onnxfuse import feeds as fd
from onnxfuse import inputs as given
from onnxfuse import interface, runtime, storage
from onnxfuse.errors import Finding, OnnxfuseError
from onnxfuse.verification.cases import further_cases
from onnxfuse.verification.movement import Shaken, ways
from onnxfuse.verification.room import Room
from onnxfuse.verification.sessions import BASE, DEFAULT, Sessions, Subject

log = logging.getLogger(__name__)

_CHEAP = 1.5e9  # FLOPs of one run, some 50 ms of two cores, up to which all cases are run


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs, and what the original gives for them. text: the case in words, for a reason."""

    feeds: fd.Feeds
    outputs: runtime.Outputs
    text: str
    inner: bool = True  # whether values inside the model are among the outputs
    expected: Mapping[str, np.ndarray] = field(default_factory=dict)  # what the user says that comes out

    @property
    def bytes(self) -> int:
        """What is kept for it; a sequence counts nothing."""
        arrays = (*self.feeds.values(), *self.outputs.values())
        return sum(getattr(array, "nbytes", 0) for array in arrays)


class Original:
    """The original as it runs.

    base: the level of the reference, "disabled"; "all" for a model that onnxruntime loads at its default level alone.
    cases: with the outputs at that level. sessions: those of the original, and of results.
    """

    def __init__(
        self,
        subject: Subject,
        place: Callable[[str], Path],
        dims: Mapping[str, int],
        seed: int,
        inputs: object,
        sessions: Sessions,
    ) -> None:
        """Open the original and run its cases; arguments and errors as of `Reference`."""
        self.subject, self.sessions = subject, sessions
        stored = storage.read(subject.shown)
        self.interface = interface.of(stored.proto)
        examples = given.load(inputs, self.interface)
        self._dims, self._seed = given.sizes(examples, self.interface, dims), seed
        self._room = Room(stored, self.interface, tuple(subject.inner))
        self._room.require(next(fd.candidates(self.interface, self._dims)))
        self._at_default: dict[int, runtime.Outputs | None] = {}
        sessions.limit(self._room.weights)
        self.base = self._load()
        self._shaken = Shaken(subject.path(self.base), self.base, place("shaken"))
        self.cases = [self._given(example) for example in examples]
        self._generate()

    def at_default(self, i: int) -> runtime.Outputs | None:
        """The outputs of case i at the default level; None where the original does not load or run there."""
        if i not in self._at_default:
            self._at_default[i] = None
            with suppress(Exception):
                self._at_default[i] = self.sessions.run(self.subject.plain, DEFAULT, self.cases[i].feeds)
        return self._at_default[i]

    def again(self, i: int) -> runtime.Outputs:
        """The outputs of case i in another run."""
        return self._run(self.cases[i].feeds, self.cases[i].inner)

    def rounded_otherwise(self, i: int) -> Iterator[runtime.Outputs]:
        """The outputs of case i with inputs and weights rounded in several ways, each run when it is asked for."""
        case = self.cases[i]
        path = self.subject.path(self.base)
        return ways(self.sessions, path, self.base, case.feeds, self._shaken, self.hidden(case.inner))

    def hidden(self, inner: bool) -> frozenset[str]:
        """The outputs that are left out where inner values are not compared."""
        return frozenset() if inner else self.subject.inner

    def _load(self) -> str:
        """The level of the reference: optimizations off; the default one where the model does not load without."""
        log.debug("opening the original in onnxruntime")
        try:
            self.sessions.get(self.subject.shown, BASE)
            return BASE
        except OnnxfuseError:
            raise
        except Exception as error:
            with suppress(Exception):
                self.sessions.get(self.subject.plain, DEFAULT)
                return DEFAULT
            raise Finding(f"onnxruntime does not load the original: {runtime.first_line(error)}") from error

    def _run(self, feeds: fd.Feeds, inner: bool = True) -> runtime.Outputs:
        return self.sessions.run(self.subject.path(self.base), self.base, feeds, self.hidden(inner))

    def _given(self, example: given.Example) -> Case:
        """The case of inputs that the user gave. Raises Finding where the original does not run on them."""
        try:
            outputs = self._run(example.feeds)
        except OnnxfuseError:
            raise
        except Exception as error:
            raise Finding(f"{example.name}: the original does not run: {runtime.first_line(error)}") from error
        return Case(example.feeds, outputs, example.name, expected=example.expected)

    def _generate(self) -> None:
        """Add cases of generated data. Raises Finding where no data are found, and the user gave none."""
        try:
            binding, feeds, outputs = runtime.find_feeds(
                self._run, self.interface, self._dims, self._seed, check=self._room.require
            )
        except Finding:
            if self.cases:
                return
            raise
        self.cases.append(Case(feeds, outputs, _text(binding, fd.NORMAL)))
        thorough = self._room.load(binding).flops <= _CHEAP
        for choices in further_cases(self.interface, self._dims, binding, thorough):
            any(self._add(binding, *choice) for choice in choices)

    def _add(self, base: fd.Binding, binding: fd.Binding, kind: fd.Kind, override: fd.Kind | None = None) -> bool:
        """Whether the original runs so, and there is room for it; then it is a case."""
        kept = sum(case.bytes for case in self.cases)
        inner = self._room.fits(base, binding, kept, inner=True)
        if not inner and not self._room.fits(base, binding, kept, inner=False):
            return False
        log.debug("running the original, case %d: %s", len(self.cases) + 1, _text(binding, kind))
        feeds = fd.make(self.interface, binding, kind, self._seed, draw=len(self.cases), override=override)
        with suppress(Exception):  # sizes or data that the original refuses are no case
            self.cases.append(Case(feeds, self._run(feeds, inner), _text(binding, kind), inner))
            return True
        return False


def _text(binding: fd.Binding, kind: fd.Kind) -> str:
    """A case in words, for a reason: "batch=2, wide data"."""
    return ", ".join(
        [*(f"{key}={size}" for key, size in binding.items() if not key.endswith("=")), f"{kind.name} data"]
    )
