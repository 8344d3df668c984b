"""Sizes for the free dimensions of a model's inputs, and values for its scalar ones.

A free dimension has a key: its `dim_param`, or "<input>.<axis>" where no usable name is given; a name such as
"past + seq" is the sum of two keys. One key gets one number on all inputs. Which numbers a model accepts is not written
in the file: small sensible ones are tried, in fixed order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations, islice, product

from onnx import TensorProto

from onnxfuse import ir
from onnxfuse.errors import UsageError
from onnxfuse.interface import Interface, Port

Binding = Mapping[str, int]  # key of a free dimension → size; "<input>=" → the value of all elements of that input

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
    "switch": (1, 0),
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
_ORDER = ("batch", "channel", "past", "spatial", "volume", "sequence", "rate", "scalar", "switch")
_INTEGERS = {
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
    TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2,
}  # fmt: skip
_TRIALS = 200
_COMBINED = 3  # switches of which every combination is tried


def candidates(interface: Interface, dims: Mapping[str, int], *, typical: bool = False) -> Iterator[Binding]:
    """Bindings to try, likely ones first, at most 200; those of `dims` are kept. Raises UsageError for an unknown key.

    First every kind of dimension at its first choice, then one kind at another, then two; last all at one size.
    """
    fixed = resolve(interface, dims)
    open_keys = {k: role for k, role in _roles(interface).items() if k not in fixed}
    sizes = {role: _choices(role, typical) for role in sorted(set(open_keys.values()), key=_ORDER.index)}
    for chosen in _trials(sizes):
        yield {k: chosen[role] for k, role in open_keys.items()} | fixed


def uniform(
    interface: Interface, dims: Mapping[str, int], most: int = 10, *, typical: bool = False
) -> Iterator[Binding]:
    """The `most` likeliest bindings with every integer 0, then with every integer 1; of no integers none."""
    whole = [p for p in interface.required if is_integer(p.dtype)]
    for value in (0, 1) if whole else ():
        for binding in islice(candidates(interface, dims, typical=typical), most):
            yield {**binding, **{f"{port.name}=": value for port in whole}}


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
        if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**31:
            raise UsageError(f"dimension '{name}' is {given!r}; give a whole number from 0 to 2147483647")
        if keys[name] in found:
            raise UsageError(f"dimension '{keys[name]}' is given twice, the second time as '{name}'")
        found[keys[name]] = given
    return found


def variants(interface: Interface, dims: Mapping[str, int], base: Binding) -> Iterator[Binding]:
    """Other bindings near one that runs: another batch size, all sizes larger, sizes that differ from each other, other
    scalars and another number of channels; see also `switched`."""
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


def switched(interface: Interface, base: Binding) -> Iterator[Binding]:
    """Bindings that may take other branches of an If: other values of the boolean scalars, 0 as the integer ones.

    Of up to three booleans every combination, of more each alone and all, at most 8.
    """
    roles = _roles(interface)
    keys = [k for k, role in roles.items() if role == "switch" and k in base]
    changes: list[tuple[str, ...]] = [(key,) for key in keys[:7]]
    if len(keys) <= _COMBINED:
        changes += [some for n in range(2, len(keys) + 1) for some in combinations(keys, n)]
    else:
        changes.append(tuple(keys))
    for change in changes:
        yield {**base, **{key: 1 - base[key] for key in change}}
    numbers = [k for k, role in roles.items() if role == "scalar" and base.get(k, 0)]
    if numbers:
        yield {**base, **dict.fromkeys(numbers, 0)}


def free_dims(interface: Interface) -> list[str]:
    """The keys of the free dimensions, in the order of the inputs; of a sum those of its parts."""
    dims = [d for port in interface.required for d in port.shape if isinstance(d, str)]
    return list(dict.fromkeys(t for d in dims for t in ir.summands(d) if isinstance(t, str)))


def size(dim: int | str, binding: Binding) -> int:
    """The size of a dim, or of a sum of dims, under a binding."""
    if isinstance(dim, int):
        return dim
    return sum(t if isinstance(t, int) else binding[t] for t in ir.summands(dim))


def terms(port: Port) -> Iterator[int | str]:
    """The sizes and keys in the dims of a port."""
    for dim in port.shape:
        yield from ir.summands(dim) if isinstance(dim, str) else (dim,)


def _roles(interface: Interface) -> dict[str, str]:
    """What each key seems to be, by its name, else by its place; of several places the first in `_ORDER` counts."""
    found: dict[str, str] = {}
    for port in interface.required:
        if is_scalar(port) and port.name not in interface.bounds:
            is_rate = re.search(r"rate|^sr$|sampl", port.name.lower())
            found[f"{port.name}="] = "switch" if port.dtype == TensorProto.BOOL else "rate" if is_rate else "scalar"
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
        alone = rank == 1 and (is_float(port.dtype) or port.dtype == TensorProto.STRING)
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


def is_float(dtype: int) -> bool:
    """Whether numbers of a dtype are drawn as floats."""
    return dtype in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def is_integer(dtype: int) -> bool:
    """Whether a dtype is one of whole numbers."""
    return dtype in _INTEGERS


def is_scalar(port: Port) -> bool:
    """Whether an input is one boolean or one whole number that may be a size, a rate or a position."""
    if port.dtype == TensorProto.BOOL:
        return port.kind == "tensor" and all(d == 1 for d in port.shape)
    return port.dtype in (TensorProto.INT64, TensorProto.INT32) and port.shape in ((), (1,))
