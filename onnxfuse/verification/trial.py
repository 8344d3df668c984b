"""A result on trial: the model as it is now, in files, against its original."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from onnxfuse import interface, validity
from onnxfuse.model import Model
from onnxfuse.verification.reference import Reference
from onnxfuse.verification.sessions import BASE, LEVELS, Sessions, Subject
from onnxfuse.verification.verdict import Focus, Verdict, refused


class Trial:
    """Compares a model under optimization with what it was when this was made.

    place: paths for files by name. shown: inner values to compare beside the outputs, with their dtypes.
    """

    def __init__(
        self, model: Model, place: Callable[[str], Path], shown: Mapping[str, int], sessions: Sessions
    ) -> None:
        self._model, self._place, self._shown = model, place, shown
        self._interface = interface.of(model.proto)
        self._reference: Reference | None = None
        self.sessions = sessions
        self.original = self._saved("original", shown, model.path)

    def write(self) -> None:
        """Write the model as it is now, and open its sessions in the background where there is room."""
        self._result = self._saved("optimized", self._shown)
        for level in LEVELS:
            self.sessions.prepare(self._result.path(level), level)

    def start(self, dims: Mapping[str, int], seed: int, inputs: object = None) -> None:
        """Run the original's cases. Raises Finding where it does not run, OutOfMemory where there is no room."""
        self._reference = Reference(
            self.original, self._place, dims=dims, seed=seed, inputs=inputs, sessions=self.sessions
        )

    def judge(self) -> Verdict:
        """The verdict on what was written last."""
        assert self._reference is not None
        problem = self._static_problem()
        return refused(problem) if problem else self._reference.judge(self._result, quick=True)

    def verifies(self, focus: Focus | None) -> bool:
        """Whether the model as it is now is right where another result failed; None: in its form."""
        assert self._reference is not None
        if self._static_problem():
            return False
        if focus is None:
            return True
        shown = {name: dtype for name, dtype in self._shown.items() if name in focus.names}
        result = self._saved("trial", shown if focus.level == BASE else {})
        return self._reference.judge(result, quick=True, focus=focus).ok

    def _static_problem(self) -> str | None:
        """What is wrong with the model as it is now without running it: its interface, or what onnx's checker says."""
        proto = self._model.proto
        return interface.difference(self._interface, interface.of(proto)) or validity.problem(proto)

    def _saved(self, name: str, shown: Mapping[str, int], plain: Path | None = None) -> Subject:
        """The model as it is now, in files. plain: where it lies already without the shown values."""
        if plain is None:
            plain = self._place(name)
            self._model.save_showing(plain, {})
        path = self._place(f"{name}-shown") if shown else plain
        if shown:
            self._model.save_showing(path, shown)
        self.sessions.forget(plain, path)
        return Subject(plain, path, frozenset(shown) - {v.name for v in self._model.proto.graph.output})
