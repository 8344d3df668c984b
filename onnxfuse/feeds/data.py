"""Seeded data for a model's inputs at given sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from onnxfuse.bounds import Ranges
from onnxfuse.errors import Finding, OutOfMemory
from onnxfuse.feeds.sizes import Binding, is_float, is_integer, size, terms
from onnxfuse.interface import Interface, Port

# Input name → ndarray (strings as object arrays), a list of them for a sequence, or None for an optional.
Feeds = dict[str, Any]

LARGEST = 1 << 28  # elements of one input, 1 GiB in float32
_BLOCK = 1 << 20  # elements that are drawn or moved at a time
_FARTHEST = 1 << 31  # from 0, of numbers inside bounds
_WORDS = ("0", "1", "-2", "3.5")  # strings; some models turn them into numbers
_FEEDABLE = {
    "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
    "COMPLEX64", "COMPLEX128", "BOOL", "STRING",
    "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
    "INT4", "UINT4", "INT2", "UINT2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """How data is drawn: floats normal × scale, or in [½, 1); integers in [low, high); masks all one or random.

    Integers that the graph bounds are drawn from all that it allows, those below 0 where `low` is.
    """

    name: str
    scale: float
    positive: bool
    low: int
    high: int
    full_masks: bool


NORMAL = Kind("normal", 1.0, False, 0, 2, True)
WIDE = Kind("wide", 3.0, False, 0, 8, False)  # beyond the bounds of a ReLU6 or a HardSwish
SCALED = Kind("scaled", 3.0, False, 0, 2, False)  # where ids up to 7 are too many
WIDER = Kind("wider", 8.0, False, 0, 2, False)
WIDEST = Kind("widest", 64.0, False, 0, 2, False)
SIGNED = Kind("signed", 1.0, False, -8, 8, False)
POSITIVE = Kind("positive", 1.0, True, 1, 3, False)  # for roots, logarithms, thresholds and sizes


def make(
    interface: Interface, binding: Binding, kind: Kind, seed: int = 0, *, draw: int = 0, override: Kind | None = None
) -> Feeds:
    """Data for every required input; with `override` for the float overridable initializers too, of that kind.

    The numbers depend on the arguments and the input's position alone, not on the machine. Raises Finding for an
    input that cannot be fed (a map).
    """
    feeds: Feeds = {}
    required = {port.name for port in interface.required}
    for i, port in enumerate(interface.inputs):
        rng = np.random.Generator(np.random.PCG64([seed, draw, i]))
        if port.name in required:
            feeds[port.name] = _draw(port, binding, kind, rng, interface.bounds.get(port.name, ()))
        elif override is not None and port.name in interface.overridable and _can_override(port, binding):
            feeds[port.name] = _draw(port, binding, override, rng)
    return feeds


def nudge(feeds: Feeds, seed: int = 0, steps: int = 4) -> Feeds:
    """The same feeds with every float moved by `steps` × its dtype's epsilon, up or down at random.

    A rewrite rounds otherwise in many layers, not only at the inputs: 4 stands for the root of some 16 of them.
    """
    rng = np.random.Generator(np.random.PCG64(seed))

    def moved(value: Any) -> Any:
        if isinstance(value, list):
            return [moved(v) for v in value]
        if value is None or value.dtype.kind in "biuO" or "int" in value.dtype.name:
            return value
        step = steps * float(ml_dtypes.finfo(value.dtype).eps)  # type: ignore[no-untyped-call]
        wide = np.complex128 if value.dtype.kind == "c" else np.float64
        made = np.empty_like(value)
        source, target = value.reshape(-1), made.reshape(-1)
        for block in _blocks(value.size):
            part = source[block].astype(wide)
            target[block] = part * (1 + step * rng.choice([-1, 1], part.shape))
        return made

    return {name: moved(value) for name, value in feeds.items()}


def _blocks(count: int) -> Iterator[slice]:
    """Parts of a large array: in double precision the whole would take several times its memory."""
    for start in range(0, count, _BLOCK):
        yield slice(start, min(start + _BLOCK, count))


def _can_override(port: Port, binding: Binding) -> bool:
    """Whether there is data for an overridable initializer; it may have a free dim that no required input has."""
    return is_float(port.dtype) and all(isinstance(t, int) or t in binding for t in terms(port))


def _numpy(dtype: int) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(dtype))


def _draw(port: Port, binding: Binding, kind: Kind, rng: np.random.Generator, uses: Sequence[Ranges] = ()) -> Any:
    if port.kind == "other" or TensorProto.DataType.Name(port.dtype) not in _FEEDABLE:
        raise Finding(f"input '{port.name}' of type {port.type} cannot be fed by onnxruntime's Python interface")
    shape = tuple(size(d, binding) for d in port.shape)
    if "sequence" in port.kind:
        return [_array(port, shape, binding, kind, rng, uses) for _ in range(2)]
    return _array(port, shape, binding, kind, rng, uses)


def _array(
    port: Port,
    shape: tuple[int, ...],
    binding: Binding,
    kind: Kind,
    rng: np.random.Generator,
    uses: Sequence[Ranges],
) -> np.ndarray:
    if math.prod(shape) > LARGEST:
        raise OutOfMemory(
            f"input '{port.name}' would have {math.prod(shape):,} elements; give smaller sizes with --dim"
        )
    if port.dtype == TensorProto.STRING:
        return np.array(rng.choice(_WORDS, shape), dtype=object)
    dtype = _numpy(port.dtype)
    if dtype.kind == "b" or is_integer(port.dtype):
        return _whole(port.name, dtype, shape, binding, kind, rng, uses)

    if uses:
        return rng.integers(*_limits(uses, shape, binding, kind, np.dtype(np.int64)), shape).astype(dtype)

    made = np.empty(shape, dtype)
    flat = made.reshape(-1)
    for part in ("real", "imag") if dtype.kind == "c" else (None,):
        values = getattr(flat, part) if part else flat
        for block in _blocks(flat.size):
            n = block.stop - block.start
            values[block] = (rng.random(n) + 1) / 2 if kind.positive else rng.standard_normal(n) * kind.scale
    return made


def _whole(
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    binding: Binding,
    kind: Kind,
    rng: np.random.Generator,
    uses: Sequence[Ranges],
) -> np.ndarray:
    """Whole numbers or booleans: as the binding says, inside the bounds, a mask, an image, or of the kind's range."""
    if (key := f"{name}=") in binding:
        return np.full(shape, binding[key], dtype)
    if uses:
        low, high = _limits(uses, shape, binding, kind, dtype)
        return rng.integers(low, high, shape).astype(dtype)
    is_mask = "mask" in name.lower()
    if is_mask and kind.full_masks:
        return np.ones(shape, dtype)
    if is_mask or dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.isbuiltin != 1 or (dtype.itemsize == 1 and len(shape) > 2):  # a few bits, or an image
        least, most = _extremes(dtype)
        return rng.integers(least, most + 1, shape).astype(dtype)
    return rng.integers(kind.low if dtype.kind == "i" else max(kind.low, 0), kind.high, shape).astype(dtype)


def _extremes(dtype: np.dtype) -> tuple[int, int]:
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _limits(
    uses: Sequence[Ranges], shape: tuple[int, ...], binding: Binding, kind: Kind, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest value, plus 1, of every element that all uses allow; below `kind.low` only where
    nothing else is allowed. The bounds of elements whose number is another one hold for all.
    """
    least, most = (0, 1) if dtype.kind == "b" else _extremes(dtype)
    least, most = max(least, -_FARTHEST), min(most, _FARTHEST)

    def inside(number: int, of: str | None) -> int:
        return min(max(number + (size(of, binding) if of else 0), least), most + 1)

    low, high = np.full(shape, least), np.full(shape, most + 1)
    for ranges in uses:
        lows = [inside(r.low, r.low_of) for r in ranges]
        highs = [inside(r.high, r.high_of) for r in ranges]
        if len(ranges) == math.prod(shape):
            low = np.maximum(low, np.reshape(lows, shape))
            high = np.minimum(high, np.reshape(highs, shape))
        else:
            low, high = np.maximum(low, max(lows)), np.minimum(high, min(highs))
    low = np.minimum(low, most)
    wanted = np.maximum(low, min(kind.low, 1)) if kind.low >= 0 else low
    low = np.where(wanted < high, wanted, low)
    return low, np.maximum(high, low + 1)
