"""How much memory verification takes of a model, known before anything is run.

The bound: `optimize` takes at most 3 × (weights + peak activations) + 300 MB. It does not depend on the machine, so the
cases do not either. A machine that has less gets fewer cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from onnxfuse import feeds as fd
from onnxfuse import headroom, ir, storage
from onnxfuse.cost import costs
from onnxfuse.cost.quantity import BITS, Number, bytes_of, bytes_or_none
from onnxfuse.errors import OutOfMemory
from onnxfuse.facts import Facts, free_dims, infer
from onnxfuse.interface import Interface
from onnxfuse.memory import peaks

_SLACK = 24 << 20  # bytes of the 300 MB that Python, the packages and onnxruntime leave
_SESSION = 1.6  # bytes that a session takes for each byte of weights; the result may hold each once more
_MOST_NODES = 20_000  # a larger model is not foreseen: that takes seconds
_SHOWN = 200  # inner values that are compared, at most twice as many
_GROWTH = 2  # a run grows at most with the square of its inputs, as attention does


@dataclass(frozen=True, slots=True)
class Load:
    """What one run takes. Sizes that are not known count 0.

    inputs, outputs, inner: bytes of the inputs, the outputs and the inner values that are shown. peak: bytes of all
        node outputs that are alive at a time, where the inner values are dropped as they die. flops: of the run.
    """

    inputs: int = 0
    outputs: int = 0
    inner: int = 0
    peak: int = 0
    flops: float = 0.0

    def held(self, inner: bool) -> int:
        """What is held while a result runs, and the same values of the original are kept beside it."""
        return self.inputs + self.peak + self.outputs + (2 * self.inner if inner else 0)


class Room:
    """The memory that verifying one model may take.

    stored: the model, with its inner values as further outputs. interface: of that. inner: the names of those values.
    """

    def __init__(self, stored: storage.Stored, interface: Interface, inner: Sequence[str] = ()) -> None:
        self._stored, self._interface, self._inner = stored, interface, frozenset(inner)
        self._left = headroom.available()
        self._loads: dict[tuple[tuple[str, int], ...], Load] = {}
        self._passed = -1  # the largest inputs, in bytes, whose run fits in the machine
        self.weights = storage.tensors.weight_bytes(stored.proto)

    def require(self, binding: fd.Binding) -> None:
        """Raises OutOfMemory where one run at these sizes does not fit in what the machine leaves."""
        inputs = self._inputs(binding)
        if self._left is None or inputs <= self._passed:
            return
        load = self.load(binding)
        need = int(_SESSION * self.weights) + load.held(inner=False)
        if need > self._left:
            raise OutOfMemory(
                f"not enough memory to verify: about {_mb(need)} are needed (weights {_mb(self.weights)}, activations "
                f"{_mb(load.peak)}) and {_mb(self._left)} are left; give smaller sizes with --dim, or use --no-verify"
            )
        self._passed = inputs

    def fits(self, base: fd.Binding, binding: fd.Binding, kept: int, *, inner: bool) -> bool:
        """Whether a case at `binding`, with or without inner values, fits beside `kept` bytes of other cases.

        base: the sizes of the first case, which the bound is for.
        """
        first = self.load(base)
        bound = 3 * first.peak + (2 - _SESSION) * self.weights + _SLACK - kept
        if self._left is not None:
            bound = min(bound, self._left - _SESSION * self.weights - kept)
        growth = max(1.0, self._inputs(binding) / max(first.inputs, 1)) ** _GROWTH
        return growth * first.held(inner) <= bound or self.load(binding).held(inner) <= bound

    def load(self, binding: fd.Binding) -> Load:
        """What a run at these sizes takes."""
        key = tuple(binding.items())
        if key not in self._loads:
            self._loads[key] = self._foresee(binding)
        return self._loads[key]

    def _foresee(self, binding: fd.Binding) -> Load:
        inputs = self._inputs(binding)
        if len(self._stored.proto.graph.node) > _MOST_NODES:
            return Load(inputs, flops=math.inf)
        program = ir.read(self._stored.proto)
        sizes = {name: fd.size(name, binding) for name in free_dims(program)}
        facts = infer(program, sizes, lambda t: storage.tensors.array(t, self._stored.source, self._stored.folder))
        sizes_of = {name: _size(facts, name) for name in program.graph.outputs}
        inner = sum(size for name, size in sizes_of.items() if name in self._inner)
        own = [name for name in program.graph.outputs if name not in self._inner]
        peak = _number(peaks(program, facts, own)[0])
        flops = sum(cost.flops for cost in costs(facts) if isinstance(cost.flops, int))
        return Load(inputs, sum(sizes_of.values()) - inner, inner, peak, float(flops))

    def _inputs(self, binding: fd.Binding) -> int:
        ports = self._interface.required
        shapes = (math.prod(fd.size(d, binding) for d in port.shape) for port in ports)
        return sum(n * _item(port.dtype) for n, port in zip(shapes, ports, strict=True))


def choose_shown(names: Sequence[str], facts: Facts, outputs: Sequence[str], peak: int) -> list[str]:
    """Choose the inner values to compare: some hundred, spread over the model, of a size that the bound allows.

    Each is held of the original and of the result. facts: of the model at usual sizes; peak: its activations, in bytes.
    """
    room = (peak + _SLACK) // 3 - sum(_size(facts, name) for name in outputs)
    chosen = []
    for name in names[:: len(names) // _SHOWN + 1]:
        size = _size(facts, name)
        if size <= room:
            room -= size
            chosen.append(name)
    return chosen


def _size(facts: Facts, name: str) -> int:
    return _number(bytes_or_none(partial(bytes_of, facts[name])))


def _number(count: Number) -> int:
    """A count of bytes as a number; 0 where it is unknown or depends on the data."""
    return count if isinstance(count, int) else 0


def _item(dtype: int) -> int:
    """Bytes of an element of an input."""
    return max(1, (BITS.get(dtype) or 64) // 8)


def _mb(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB"
