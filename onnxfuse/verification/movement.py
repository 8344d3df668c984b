"""By how much a model's own outputs move when its inputs and weights are rounded otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx

from onnxfuse import feeds as fd
from onnxfuse import runtime, storage
from onnxfuse.verification.differences import OutputDifference
from onnxfuse.verification.sessions import Sessions

_WEIGHT = 16  # elements from which on a tensor is one of weights
_NUDGED = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}
_HELD = 2**29  # bytes of weights up to which they are written once more, each rounded to a neighbour


class Shaken:
    """The model of a file with every weight rounded to a neighbour, as rewrites that compute with weights round them.

    The model is made when it is first needed, at the path `place`. There is none where the weights are too large,
    or in other files.
    """

    def __init__(self, path: Path, level: str, place: Path) -> None:
        self._source, self._level, self._place = path, level, place
        self._path: Path | None = None
        self._known = False

    def outputs(self, sessions: Sessions, feeds: fd.Feeds, without: frozenset[str]) -> Iterator[runtime.Outputs]:
        """The outputs, less those named, once; nothing where there is no such model."""
        if not self._known:
            self._known, self._path = True, self._make()
        if self._path is not None:
            yield sessions.run(self._path, self._level, feeds, without)

    def _make(self) -> Path | None:
        stored = storage.read(self._source)
        if storage.tensors.weight_bytes(stored.proto) > _HELD or storage.tensors.locations(stored.proto):
            return None
        proto = storage.whole(stored)
        for i, tensor in enumerate(storage.tensors.walk(proto)):
            _nudge(tensor, i)
        self._place.write_bytes(storage.serialized(proto))
        return self._place


class Movement:
    """The movement of one case's outputs. Each way to round is tried only when those before do not explain enough."""

    def __init__(self, ways: Iterator[runtime.Outputs], compare: Callable[[runtime.Outputs], list[OutputDifference]]):
        self._ways, self._compare = ways, compare
        self._most: dict[str, OutputDifference] = {}

    def of(self, name: str, enough: Callable[[OutputDifference], bool]) -> OutputDifference | None:
        """How far an output moves: the first movement that is enough, else the largest of all ways."""
        while not (name in self._most and enough(self._most[name])):
            outputs = next(self._ways, None)
            if outputs is None:
                break
            for d in self._compare(outputs):
                self._most[d.name] = max(self._most.get(d.name, d), d, key=lambda d: d.max_error)
        return self._most.get(name)


def ways(
    sessions: Sessions, path: Path, level: str, feeds: fd.Feeds, shaken: Shaken, without: frozenset[str]
) -> Iterator[runtime.Outputs]:
    """The outputs of a model, less those named, on its feeds nudged three ways, and of its shaken weights."""
    yield sessions.run(path, level, fd.nudge(feeds, 0), without)
    yield from shaken.outputs(sessions, feeds, without)
    for way in (1, 2):
        yield sessions.run(path, level, fd.nudge(feeds, way), without)


def _nudge(tensor: onnx.TensorProto, seed: int) -> None:
    """Moves the elements of a float weight by one step; a small tensor may be a bound, an exponent or the scales of a
    Resize, which decide more than a value.
    """
    if tensor.data_type not in _NUDGED or math.prod(tensor.dims) < _WEIGHT:
        return
    array = onnx.numpy_helper.to_array(tensor)
    tensor.CopyFrom(onnx.numpy_helper.from_array(fd.nudge({"": array}, seed, steps=1)[""], tensor.name))
