"""Inputs to run a model with: sizes for its free dimensions, seeded data.

A free dimension has a key: its `dim_param`, or "<input>.<axis>" where no usable name is given; a name such as
"past + seq" is the sum of two keys. One key gets one number on all inputs. Which numbers a model accepts is not written
in the file: small sensible ones are tried, in fixed order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from onnxfuse import ir
from onnxfuse.errors import Finding, UsageError
from onnxfuse.interface import Interface, Port

Feeds = dict[str, Any]  # input name → ndarray (bytes and strings as object arrays), or a list of them for a sequence
Binding = Mapping[str, int]  # key of a free dimension → size; "<input>=" → value of an integer scalar

# Sizes to try, most common first, by what the dimension seems to be. They are small because verification needs many
# values, not large ones; 224, 299, 640 … are what networks with fixed position tables were exported for.
_SIZES: Mapping[str, tuple[int, ...]] = {
    "batch": (1, 2, 3, 4, 8, 16),
    "channel": (3, 1, 4, 2, 16, 64),
    "spatial": (64, 224, 96, 32, 128, 256, 48, 299, 320, 512, 640, 416, 800, 28, 16, 8),
    "volume": (16, 32, 8, 64, 4),
    "sequence": (16, 128, 1, 64, 512, 32, 8, 4, 3, 2, 80, 256, 768, 1024, 16000),
    "past": (0, 16, 1, 128),  # keys already in a cache
    "rate": (16000, 8000, 22050, 44100, 1),  # samples per second
    "scalar": (1, 0, 2, 16000, 16, 64),
}
# Tried first to measure time. An empty cache, which costs nothing, is not what a decoder works with.
_TYPICAL: Mapping[str, tuple[int, ...]] = {"spatial": (224, 640), "sequence": (128,), "past": (128,)}
_NAMES = (
    ("past", r"past"),
    ("batch", r"batch|^(b|bs)$"),
    ("spatial", r"height|width|^(h|w)$"),
    ("channel", r"channel|^c$"),
    ("sequence", r"seq|len|time|frame|token|^(t|s|l)$"),
)
_ORDER = ("batch", "channel", "past", "spatial", "volume", "sequence", "rate", "scalar")
_TRIALS = 200
_LARGEST = 1 << 28  # elements of one input, 1 GiB in float32
_WORDS = ("0", "1", "-2", "3.5")  # strings; some models turn them into numbers
_FEEDABLE = {
    "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
    "COMPLEX64", "COMPLEX128", "BOOL", "STRING",
    "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """How data is drawn: floats normal × scale, or in [½, 1); integers in [low, high); masks all one or random."""

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


def candidates(interface: Interface, dims: Mapping[str, int], *, typical: bool = False) -> Iterator[Binding]:
    """Bindings to try, likely ones first, at most 200; those of `dims` are kept. Raises UsageError for an unknown key.

    First every kind of dimension at its first choice, then one kind at another, then two; last all at one size.
    """
    fixed = resolve(interface, dims)
    open_keys = {k: role for k, role in _roles(interface).items() if k not in fixed}
    sizes = {role: _choices(role, typical) for role in sorted(set(open_keys.values()), key=_ORDER.index)}
    for chosen in _trials(sizes):
        yield {k: chosen[role] for k, role in open_keys.items()} | fixed


def resolve(interface: Interface, dims: Mapping[str, int]) -> dict[str, int]:
    """`dims` by key; "<input>.<axis>" may also name a dimension with a symbol. Raises UsageError for an unknown one."""
    keys = {key: key for key in free_dims(interface)}
    sums: dict[str, str] = {}
    for port in interface.required:
        for axis, dim in enumerate(port.shape):
            if dim in keys:
                keys.setdefault(f"{port.name}.{axis}", str(dim))
            elif isinstance(dim, str):
                sums[dim] = sums[f"{port.name}.{axis}"] = dim
    if unknown := sorted(set(dims) - set(keys)):
        if unknown[0] in sums:
            whole = sums[unknown[0]]
            parts = ", ".join(dict.fromkeys(t for t in ir.summands(whole) if isinstance(t, str)))
            raise UsageError(f"dimension '{unknown[0]}' is the sum {whole}; give the sizes of its parts: {parts}")
        free = ", ".join(free_dims(interface)) or "none"
        raise UsageError(f"no input has a free dimension '{unknown[0]}'; free dimensions: {free}")
    found: dict[str, int] = {}
    for name, given in dims.items():
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given < 2**31:
            raise UsageError(f"dimension '{name}' is {given!r}; give a whole number from 1 to 2147483647")
        if keys[name] in found:
            raise UsageError(f"dimension '{keys[name]}' is given twice, the second time as '{name}'")
        found[keys[name]] = given
    return found


def variants(interface: Interface, dims: Mapping[str, int], base: Binding) -> Iterator[Binding]:
    """Other bindings near one that runs: another batch size, all sizes larger, sizes that differ from each other, other
    scalars and another number of channels."""
    fixed = resolve(interface, dims)
    keys = {k: role for k, role in _roles(interface).items() if k not in fixed}
    grow = {"batch": 2, "spatial": 32, "volume": 8, "sequence": 5, "past": 3}
    batch = {k: base[k] + grow["batch"] for k, role in keys.items() if role == "batch"}
    larger = {k: base[k] + grow[role] for k, role in keys.items() if role in grow and role != "batch"}
    uneven = {k: base[k] + grow[keys[k]] * (i + 1) for i, k in enumerate(larger)}
    others = {k: base[k] + 1 for k, role in keys.items() if role in ("scalar", "channel")}
    if batch:
        yield {**base, **batch}
    if larger:
        yield {**base, **{k: v + 2 for k, v in batch.items()}, **larger}
        if len(larger) > 1:
            yield {**base, **uneven}
    if others:
        yield {**base, **others}


def free_dims(interface: Interface) -> list[str]:
    """The keys of the free dimensions, in the order of the inputs; of a sum those of its parts."""
    dims = [d for port in interface.required for d in port.shape if isinstance(d, str)]
    return list(dict.fromkeys(t for d in dims for t in ir.summands(d) if isinstance(t, str)))


def make(
    interface: Interface, binding: Binding, kind: Kind, seed: int = 0, *, draw: int = 0, override: Kind | None = None
) -> Feeds:
    """Data for every required input; with `override` for the float overridable initializers too, of that kind.

    The numbers depend on the arguments and the input's position alone, not on the machine. Raises Finding for an
    input that cannot be fed (a map, a sub-byte tensor).
    """
    feeds: Feeds = {}
    required = {port.name for port in interface.required}
    for i, port in enumerate(interface.inputs):
        rng = np.random.Generator(np.random.PCG64([seed, draw, i]))
        if port.name in required:
            feeds[port.name] = _draw(port, binding, kind, rng)
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
        if value.dtype.kind in "biuO":
            return value
        wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
        eps = float(ml_dtypes.finfo(value.dtype).eps)  # type: ignore[no-untyped-call]
        step = steps * eps * rng.choice([-1, 1], value.shape)
        return np.asarray(wide * (1 + step)).astype(value.dtype)

    return {name: moved(value) for name, value in feeds.items()}


def size(dim: int | str, binding: Binding) -> int:
    """The size of a dim, or of a sum of dims, under a binding."""
    if isinstance(dim, int):
        return dim
    return sum(t if isinstance(t, int) else binding[t] for t in ir.summands(dim))


def _roles(interface: Interface) -> dict[str, str]:
    """What each key seems to be, by its name, else by its place; of several places the first in `_ORDER` counts."""
    found: dict[str, str] = {}
    for port in interface.required:
        if _is_scalar(port):
            found[f"{port.name}="] = "rate" if re.search(r"rate|^sr$|sampl", port.name.lower()) else "scalar"
        for axis, dim in enumerate(port.shape):
            for key in ir.summands(dim) if isinstance(dim, str) else ():
                if isinstance(key, int):
                    continue
                named = next((role for role, pattern in _NAMES if re.search(pattern, key.lower())), None)
                role = named or _place(port, axis)
                found[key] = min(role, found.get(key, role), key=_ORDER.index)
    return found


def _place(port: Port, axis: int) -> str:
    rank = len(port.shape)
    channels_last = rank >= 4 and port.shape[-1] in (1, 3, 4)
    if axis == 0:
        alone = rank == 1 and (_is_float(port.dtype) or port.dtype == TensorProto.STRING)
        return "sequence" if alone else "batch"
    if rank < 4:
        return "sequence"
    if axis == (rank - 1 if channels_last else 1):
        return "channel"
    return "spatial" if rank == 4 else "volume"


def _choices(role: str, typical: bool) -> tuple[int, ...]:
    first = _TYPICAL.get(role, ()) if typical else ()
    return (*first, *(s for s in _SIZES[role] if s not in first))


def _trials(sizes: Mapping[str, tuple[int, ...]]) -> Iterator[Mapping[str, int]]:
    first = {role: choice[0] for role, choice in sizes.items()}
    trials: list[Mapping[str, int]] = [first]
    for changed in (1, 2):
        rows = [
            (sum(positions), {**first, **{r: sizes[r][p] for r, p in zip(roles, positions, strict=True)}})
            for roles in combinations(sizes, changed)
            for positions in product(*(range(1, len(sizes[r])) for r in roles))
        ]
        trials += [row for _, row in sorted(rows, key=lambda row: row[0])]
        if changed == 1 and len(sizes) > 1:
            trials += [dict.fromkeys(sizes, size) for size in (2, 4, 8, 16, 64)]
    yield from trials[:_TRIALS]


def _is_float(dtype: int) -> bool:
    return dtype in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _can_override(port: Port, binding: Binding) -> bool:
    """Whether there is data for an overridable initializer; it may have a free dim that no required input has."""
    terms = (t for d in port.shape if isinstance(d, str) for t in ir.summands(d))
    return _is_float(port.dtype) and all(isinstance(t, int) or t in binding for t in terms)


def _is_scalar(port: Port) -> bool:
    return port.dtype in (TensorProto.INT64, TensorProto.INT32) and port.shape in ((), (1,))


def _numpy(dtype: int) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(dtype))


def _draw(port: Port, binding: Binding, kind: Kind, rng: np.random.Generator) -> Any:
    if port.kind == "other" or TensorProto.DataType.Name(port.dtype) not in _FEEDABLE:
        raise Finding(f"input '{port.name}' of type {port.type} cannot be fed by onnxruntime's Python interface")
    shape = tuple(size(d, binding) for d in port.shape)
    if port.kind == "sequence":
        return [_array(port, shape, binding, kind, rng) for _ in range(2)]
    return _array(port, shape, binding, kind, rng)


def _array(port: Port, shape: tuple[int, ...], binding: Binding, kind: Kind, rng: np.random.Generator) -> np.ndarray:
    if math.prod(shape) > _LARGEST:
        raise Finding(f"input '{port.name}' would have {math.prod(shape):,} elements; give smaller sizes with --dim")
    if port.dtype == TensorProto.STRING:
        return np.array(rng.choice(_WORDS, shape), dtype=object)
    dtype = _numpy(port.dtype)
    is_mask = "mask" in port.name.lower() and kind.full_masks
    if dtype.kind == "b":
        return np.ones(shape, bool) if is_mask else rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        if _is_scalar(port):
            return np.full(shape, binding[f"{port.name}="], dtype)
        if "mask" in port.name.lower():
            return np.ones(shape, dtype) if is_mask else rng.integers(0, 2, shape).astype(dtype)
        if dtype.itemsize == 1 and len(shape) > 2:  # an image
            info = np.iinfo(dtype)
            return rng.integers(info.min, info.max + 1, shape).astype(dtype)
        low = kind.low if dtype.kind == "i" else max(kind.low, 0)
        return rng.integers(low, kind.high, shape).astype(dtype)

    def real() -> np.ndarray:
        return np.asarray((rng.random(shape) + 1) / 2 if kind.positive else rng.standard_normal(shape) * kind.scale)

    return (real() + 1j * real() if dtype.kind == "c" else real()).astype(dtype)
