"""Folders of ONNX's own test data: input_0.pb … in the order of the model's inputs, output_0.pb … beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from onnxfuse.errors import UsageError
from onnxfuse.inputs.arrays import regular
from onnxfuse.interface import Interface, Port
from onnxfuse.storage import LIMIT, tensors

_NUMBERED = re.compile(r"(input|output)_(0|[1-9][0-9]{0,8})\.pb")
_SET = re.compile(r"test_data_set_(\d{1,9})")
_MOST_PARTS = 100_000  # tensors of a sequence


def data_sets(folder: Path, name: str) -> list[tuple[Path, str]]:
    """The folder itself, or its folders test_data_set_…, in order, each with what it is called. Raises UsageError."""
    if (folder / "input_0.pb").exists():
        return [(folder, name)]
    sets = [(int(match[1]), path) for path in folder.iterdir() if (match := _SET.fullmatch(path.name))]
    if sets:
        return [(path, str(path)) for _, path in sorted(sets)]
    if any(_NUMBERED.fullmatch(path.name) for path in folder.iterdir()):
        return [(folder, name)]
    raise UsageError(f"{name}: holds no input_0.pb, and no folder test_data_set_0; give a folder of ONNX test data")


def read(folder: Path, name: str, interface: Interface) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inputs by name, and the outputs that lie beside them. Raises UsageError, OSError."""
    ports = {"input": interface.required, "output": interface.outputs}
    files: dict[str, dict[int, Path]] = {"input": {}, "output": {}}
    for path in folder.iterdir():
        if match := _NUMBERED.fullmatch(path.name):
            files[match[1]][int(match[2])] = path
    for kind, numbered in files.items():
        if beyond := sorted(i for i in numbered if i >= len(ports[kind])):
            raise UsageError(f"{name}: holds {kind}_{beyond[0]}.pb, and the model has {len(ports[kind])} {kind}s")
    if absent := [i for i in range(len(ports["input"])) if i not in files["input"]]:
        missing = ports["input"][absent[0]].name
        raise UsageError(f"{name}: input '{missing}' is missing: it holds no input_{absent[0]}.pb")
    found = {port.name: _value(files["input"][i], name, port) for i, port in enumerate(ports["input"])}
    expected: dict[str, np.ndarray] = {}
    for i, path in sorted(files["output"].items()):
        port = interface.outputs[i]
        if port.kind != "other":
            expected |= dict(_flat(port.name, _value(path, name, port)))
    return found, expected


def _flat(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """An output under the names that a run gives it: the parts of a sequence as "y[0]", none as an empty array."""
    if isinstance(value, list):
        for i, part in enumerate(value):
            yield f"{name}[{i}]", part
    else:
        yield name, np.empty(0) if value is None else value


def _value(path: Path, name: str, port: Port) -> Any:
    regular(path, f"{name}/{path.name}")
    if path.stat().st_size > LIMIT:
        raise UsageError(f"{name}: {path.name} is above 2 GiB")
    message: Any = _MESSAGES.get(port.kind, onnx.TensorProto)
    try:
        found = message.FromString(path.read_bytes())
        if len(UnknownFieldSet(found)):
            raise ValueError(f"it is no {message.DESCRIPTOR.name}")
        return _decoded(found)
    except DecodeError as error:
        raise UsageError(f"{name}: {path.name} is no {message.DESCRIPTOR.name}, or cut off") from error
    except (ValueError, TypeError, KeyError) as error:  # what numpy_helper raises for odd or inconsistent tensors
        raise UsageError(f"{name}: {path.name} cannot be read: {error}") from error


_MESSAGES = {"sequence": onnx.SequenceProto, "optional": onnx.OptionalProto, "optional sequence": onnx.OptionalProto}


def _decoded(message: Any) -> Any:
    """An array, a list of arrays, or None."""
    if isinstance(message, onnx.TensorProto):
        if message.data_location == onnx.TensorProto.EXTERNAL:
            raise ValueError("its elements are in another file")
        if tensors.elements(message.dims) is None:
            raise ValueError("a size is negative or too large")
        return onnx.numpy_helper.to_array(message)
    if isinstance(message, onnx.SequenceProto):
        if message.elem_type != onnx.SequenceProto.TENSOR and message.elem_type:
            raise ValueError("it is no sequence of tensors")
        if len(message.tensor_values) > _MOST_PARTS:
            raise ValueError(f"it has more than {_MOST_PARTS:,} parts")
        return [_decoded(tensor) for tensor in message.tensor_values]
    match message.elem_type:
        case onnx.OptionalProto.TENSOR:
            return _decoded(message.tensor_value) if message.HasField("tensor_value") else None
        case onnx.OptionalProto.SEQUENCE:
            return _decoded(message.sequence_value) if message.HasField("sequence_value") else None
        case onnx.OptionalProto.UNDEFINED:
            return None
    raise ValueError("it is no optional tensor or sequence of tensors")
