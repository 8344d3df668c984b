"""What a model gives when its inputs and weights are rounded otherwise: how much its outputs move by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from onnxfuse import feeds as fd
from onnxfuse import runtime, storage

_WEIGHT = 16  # elements from which on a tensor is one of weights
_NUDGED = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}
_HELD = 2**29  # bytes of weights that are held once more to see how much their rounding moves a result


class Perturbed:
    """The model of a file, open in `session`; a second session with nudged weights is opened when first needed."""

    def __init__(self, path: Path, session: Any, level: str) -> None:
        self._path, self._session, self._level = path, session, level
        self._shaken: Any = None
        self._too_large = False

    def outputs(self, feeds: fd.Feeds) -> Iterator[runtime.Outputs]:
        """The outputs on feeds nudged three ways, and with every weight rounded to a neighbour, as a rewrite that
        computes with weights rounds them; the latter not where the weights are too large to hold once more.
        """
        for way in range(3):
            yield runtime.run(self._session, fd.nudge(feeds, way))
        if self._shaken is None and not self._too_large:
            self._shake()
        if self._shaken is not None:
            yield runtime.run(self._shaken, feeds)

    def _shake(self) -> None:
        stored = storage.read(self._path)
        weights = sum(storage.tensors.nbytes(t) or 0 for t in storage.tensors.walk(stored.proto))
        self._too_large = weights > _HELD or bool(storage.tensors.locations(stored.proto))
        if not self._too_large:
            proto = storage.whole(stored)
            for i, tensor in enumerate(storage.tensors.walk(proto)):
                _nudge(tensor, i)
            self._shaken = runtime.cpu_session(proto.SerializeToString(), self._level)


def _nudge(tensor: onnx.TensorProto, seed: int) -> None:
    """Moves the elements of a float weight by one step; a small tensor may be a bound, an exponent or the scales of a
    Resize, which decide more than a value.
    """
    if tensor.data_type not in _NUDGED or math.prod(tensor.dims) < _WEIGHT:
        return
    array = onnx.numpy_helper.to_array(tensor)
    tensor.CopyFrom(onnx.numpy_helper.from_array(fd.nudge({"": array}, seed, steps=1)[""], tensor.name))
