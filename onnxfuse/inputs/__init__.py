"""Inputs that the user gives: read, and checked against the interface of the model.

An .npz holds an array for each input by name, an .npy that of the only one, a folder ONNX's own test data (input_0.pb …
in the order of the inputs, output_0.pb … with what the outputs shall be); folders test_data_set_… inside a folder are
taken one by one. Nothing is cast, and nothing is unpickled. Dtypes that numpy lacks (bfloat16, float8, int4) are arrays
of ml_dtypes or, as in an .npz, their bits as bytes or unsigned integers of that size, one element each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxfuse import feeds as fd
from onnxfuse.errors import UsageError
from onnxfuse.inputs import arrays, folders
from onnxfuse.inputs.check import checked, names_checked, solved
from onnxfuse.interface import Interface

__all__ = ["Example", "load", "sizes"]

_WANTED = "a path, a mapping of input names to arrays, or several of these"


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One set of inputs that the user gave.

    name: what the user calls it, the path as given or "inputs[0]". feeds: name → array, or a list of arrays for a
    sequence, None for an optional that is empty. expected: outputs that lie beside the inputs, by name; those of a
    sequence as "y[0]", "y[1]" …
    """

    name: str
    feeds: fd.Feeds
    expected: Mapping[str, np.ndarray] = field(default_factory=dict)


def load(inputs: object, interface: Interface) -> tuple[Example, ...]:
    """The sets of inputs that the user gave, in order; () for None.

    inputs: a path (.npz, .npy, or a folder), a mapping of input names to arrays, or a sequence of those.
    Raises UsageError, in one line, for a file that cannot be read or holds something else, an input that is missing or
    unknown, another dtype or shape than the model's, and dimensions of one name with different sizes.
    """
    if inputs is None:
        return ()
    several = isinstance(inputs, Sequence) and not isinstance(inputs, (str, bytes))
    given: Sequence[Any] = inputs if several else [inputs]  # type: ignore[assignment]
    found: list[Example] = []
    for i, one in enumerate(given):
        if isinstance(one, (str, os.PathLike)):
            found += _of_path(one, interface)
        elif isinstance(one, Mapping):
            name = f"inputs[{i}]"
            found.append(Example(name, _checked(name, one, interface)))
        else:
            where = f"inputs[{i}]" if several else "inputs"
            raise UsageError(f"{where} is of type {type(one).__name__}; give {_WANTED}")
    return tuple(found)


def sizes(examples: Sequence[Example], interface: Interface, dims: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the free dimensions by key: those of `dims` and those that follow from the first example.

    dims: by key or "<input>.<axis>". A size may be 0. The parts of a sum such as "past + seq" that stand nowhere else
    stay open. Raises UsageError for an unknown dimension, and where the example contradicts `dims`.
    """
    given = fd.resolve(interface, dims)
    if not examples:
        return given
    first = examples[0]
    keys = set(fd.free_dims(interface))
    return {key: n for key, n in solved(first.name, first.feeds, interface, given).items() if key in keys}


def _checked(name: str, values: Mapping[Any, Any], interface: Interface) -> fd.Feeds:
    names_checked(name, values, interface)
    feeds = {port.name: checked(name, port, values[port.name]) for port in interface.inputs if port.name in values}
    solved(name, feeds, interface, {})
    return feeds


def _of_path(given: str | os.PathLike[str], interface: Interface) -> list[Example]:
    text = os.fspath(given)
    if not isinstance(text, str):
        raise UsageError(f"{text!r}: give the path as text")
    path = Path(text)
    found = []
    with arrays.reading(text):
        if path.is_dir():
            for folder, name in folders.data_sets(path, text):
                values, expected = folders.read(folder, name, interface)
                found.append(Example(name, _checked(name, values, interface), expected))
        elif path.suffix.lower() == ".npy":
            found.append(Example(text, _checked(text, arrays.single(path, text, interface), interface)))
        elif path.suffix.lower() == ".npz" or not path.exists():
            found.append(Example(text, _checked(text, arrays.archive(path, text, interface), interface)))
        else:
            raise UsageError(f"{text}: no such kind of inputs; give an .npz, an .npy, or a folder of ONNX test data")
    return found
