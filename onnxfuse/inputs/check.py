"""Whether arrays are what a model's inputs take: names, dtypes, ranks, fixed sizes, and one size for each symbol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxfuse import ir
from onnxfuse.errors import UsageError
from onnxfuse.interface import Interface, Port


def names_checked(name: str, given: Iterable[Any], interface: Interface) -> None:
    """Raises UsageError where an input is missing, or given and unknown."""
    known = [port.name for port in interface.inputs]
    if unknown := [text for text in given if text not in known]:
        raise UsageError(f"{name}: the model has no input {unknown[0]!r}; its inputs: {', '.join(known) or 'none'}")
    present = set(given)
    if missing := [port.name for port in interface.required if port.name not in present]:
        raise UsageError(f"{name}: input '{missing[0]}' is missing; the model takes {_list(interface.required)}")


def dtype_of(port: Port) -> np.dtype:
    """The dtype of an input's arrays; object for strings."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(port.dtype))


def fits(name: str, port: Port, dtype: np.dtype, shape: Sequence[int]) -> None:
    """Raises UsageError for an array of another dtype, rank or fixed size than the input's.

    Text, and the bits of a dtype that numpy lacks, fit; see `checked`.
    """
    wanted, text, dtype = dtype_of(port), port.dtype == TensorProto.STRING, dtype.newbyteorder("=")
    foreign = wanted.isbuiltin != 1 and dtype in (np.dtype(f"V{wanted.itemsize}"), np.dtype(f"u{wanted.itemsize}"))
    same = dtype.kind in "OSU" if text else dtype == wanted or foreign
    declared = [d if isinstance(d, int) else None for d in port.shape]
    if not same:
        raise UsageError(f"{name}: input '{port.name}' is {_numpy_name(dtype)}; the model takes {_name(port)}")
    if port.ranked and (
        len(shape) != len(declared) or any(d not in (None, n) for d, n in zip(declared, shape, strict=True))
    ):
        raise UsageError(f"{name}: input '{port.name}' has the shape {list(shape)}; the model takes {port.type}")


def checked(name: str, port: Port, value: Any) -> Any:
    """The value as it is fed: an array of the input's own dtype (strings as an object array), a list of them, or None.

    Raises UsageError.
    """
    if port.kind == "other":
        raise UsageError(f"{name}: input '{port.name}' of type {port.type} cannot be given")
    if value is None:
        if not port.kind.startswith("optional"):
            raise UsageError(f"{name}: input '{port.name}' is empty; the model takes {port.type}")
        return None
    if port.kind.endswith("sequence"):
        if not isinstance(value, (list, tuple)):
            raise UsageError(f"{name}: input '{port.name}' takes a sequence; give a list of arrays")
        return [_array(name, port, part) for part in value]
    return _array(name, port, value)


def _array(name: str, port: Port, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # whatever an object that is not quite an array raises
        raise UsageError(f"{name}: input '{port.name}' is no array: {error}") from error
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    fits(name, port, array.dtype, array.shape)
    if port.dtype == TensorProto.STRING:
        return _text(name, port, array)
    wanted = dtype_of(port)
    return np.ascontiguousarray(array).reshape(array.shape).view(wanted) if array.dtype != wanted else array


def _text(name: str, port: Port, array: np.ndarray) -> np.ndarray:
    """Strings as onnxruntime takes them."""
    made = np.empty(array.shape, object)
    for i, one in enumerate(array.flat):
        try:
            made.flat[i] = one.decode() if isinstance(one, bytes) else one
        except UnicodeDecodeError:
            raise UsageError(f"{name}: input '{port.name}' holds text that is not UTF-8") from None
        if not isinstance(made.flat[i], str):
            raise UsageError(f"{name}: input '{port.name}' holds a {type(one).__name__}; the model takes strings")
    return made


def solved(name: str, feeds: Mapping[str, Any], interface: Interface, given: Mapping[str, int]) -> dict[str, int]:
    """Sizes by key, those of `given` included. Raises UsageError where two inputs, or one and `given`, contradict.

    Of a sum with one unknown part that part is what is left.
    """
    found = dict(given)
    sizes: list[tuple[Port, int, str, int]] = []
    for port in interface.inputs:
        value = feeds.get(port.name)
        if port.kind not in ("tensor", "optional") or value is None or value.ndim != len(port.shape):
            continue
        dims = enumerate(zip(port.shape, value.shape, strict=True))
        sizes += [(port, axis, d, n) for axis, (d, n) in dims if isinstance(d, str)]
    sizes.sort(key=lambda entry: len(ir.summands(entry[2])))  # single symbols first
    for _ in sizes:
        before = len(found)
        for port, axis, dim, n in sizes:
            _solve(f"{name}: axis {axis} of input '{port.name}'", dim, n, found)
        if len(found) == before:
            break
    return found


def _solve(where: str, dim: str, n: int, found: dict[str, int]) -> None:
    terms = ir.summands(dim)
    left = n - sum(t if isinstance(t, int) else found.get(t, 0) for t in terms)
    unknown = [t for t in terms if isinstance(t, str) and t not in found]
    if len(set(unknown)) > 1:
        return
    if unknown and left >= 0 and left % len(unknown) == 0:
        found[unknown[0]] = left // len(unknown)
    elif unknown or left:
        known = ", ".join(f"{t}={found[t]}" for t in dict.fromkeys(terms) if t in found)
        raise UsageError(f"{where} ({dim}) has the size {n}, which does not fit {known or dim}")


def _list(ports: Sequence[Port]) -> str:
    return ", ".join(f"{port.name} ({port.type})" for port in ports)


def _name(port: Port) -> str:
    return "strings" if port.dtype == TensorProto.STRING else f"{_numpy_name(dtype_of(port))} ({port.type})"


def _numpy_name(dtype: np.dtype) -> str:
    return "text" if dtype.kind in "SU" else dtype.name
