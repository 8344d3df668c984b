"""Tensors of a model: their size, where their bytes are, and their elements.

A tensor's bytes stand in one of three places: inline in its TensorProto; in an external file, named by
`external_data`; or in the source the model was read from, where `read` left them. The last kind is marked by an
`external_data` location that no file can have, so that a copied or renamed TensorProto still knows its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from onnxfuse.errors import ModelError
from onnxfuse.storage.external import Folder, Range, reference
from onnxfuse.storage.source import File, Source

LEFT_OUT = "//onnxfuse/left-in-source"  # absolute, so never a location that `Folder` accepts
_EXPLICIT_INLINE = "data_location"  # key of a mark: the source says data_location = DEFAULT in so many words
_PACKED = {"UINT2": 2, "INT2": 2, "UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}
_BITS: dict[int, int] = {
    number: _PACKED.get(name) or helper.tensor_dtype_to_np_dtype(number).itemsize * 8
    for name, number in TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING")
}
_MOST_DIMS, _MOST_ELEMENTS = 1024, (1 << 63) - 1
_PLAIN = {
    AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.FLOATS, AttributeProto.STRING,
    AttributeProto.STRINGS, AttributeProto.TYPE_PROTO, AttributeProto.TYPE_PROTOS,
}  # fmt: skip


def nbytes(tensor: TensorProto) -> int | None:
    """Bytes of the elements, packed as ONNX stores them (two int4 a byte); of strings, their UTF-8 bytes.

    None for an unknown element type, a negative dim, or more elements than 64 bits can count.
    """
    if tensor.data_type == TensorProto.STRING:
        return sum(len(s) for s in tensor.string_data)
    bits = _BITS.get(tensor.data_type)
    count = elements(tensor.dims)
    return None if bits is None or count is None else -(-count * bits // 8)


def weight_bytes(proto: onnx.ModelProto) -> int:
    """Bytes of all tensors that the model stores, in every graph and function, as packed as ONNX stores them."""
    return sum(nbytes(t) or 0 for t in walk(proto))


def elements(dims: Sequence[int]) -> int | None:
    """The product of the dims; None where one is negative, where there are more than any array has, or where it is
    more than 64 bits can count: what a hostile file holds may be a number of megabytes, and take hours.
    """
    if len(dims) > _MOST_DIMS:
        return None
    if 0 in dims:
        return None if min(dims) < 0 else 0
    count = 1
    for dim in dims:
        count *= dim
        if dim < 0 or count > _MOST_ELEMENTS:
            return None
    return count


def walk(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every tensor stored in the model: initializers and attributes of all graphs, bodies and functions."""
    yield from _of_graph(proto.graph)
    for function in proto.functions:
        yield from _of_nodes(function.node)
        yield from _of_attributes(function.attribute_proto)
    for training in proto.training_info:
        yield from _of_graph(training.initialization)
        yield from _of_graph(training.algorithm)


def _of_graph(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        if node.attribute:
            yield from _of_attributes(node.attribute)


def _of_attributes(attributes: Iterable[AttributeProto]) -> Iterator[TensorProto]:
    for a in attributes:
        if a.type in _PLAIN:
            continue
        if a.HasField("t"):
            yield a.t
        yield from a.tensors
        for sparse in (a.sparse_tensor, *a.sparse_tensors) if a.HasField("sparse_tensor") else a.sparse_tensors:
            yield from (sparse.values, sparse.indices)
        for graph in (a.g, *a.graphs) if a.HasField("g") else a.graphs:
            yield from _of_graph(graph)


def mark(tensor: TensorProto, where: Range) -> None:
    """Says in the tensor that its bytes are `where` in the source of its model."""
    entries = [("location", LEFT_OUT), ("offset", str(where.offset)), ("length", str(where.length))]
    if tensor.HasField("data_location"):
        entries.append((_EXPLICIT_INLINE, "DEFAULT"))
    for key, value in entries:
        tensor.external_data.add(key=key, value=value)
    tensor.data_location = TensorProto.EXTERNAL


def marked(tensor: TensorProto) -> Range | None:
    """Where in the source the bytes of a marked tensor are; None if it is not marked."""
    if tensor.data_location != TensorProto.EXTERNAL or not tensor.external_data:
        return None
    if tensor.external_data[0].value != LEFT_OUT:
        return None
    return Range(int(tensor.external_data[1].value), int(tensor.external_data[2].value))


def unmark(tensor: TensorProto) -> None:
    """Takes the mark away; the bytes are the caller's business."""
    explicit = tensor.external_data[-1].key == _EXPLICIT_INLINE
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    if explicit:
        tensor.data_location = TensorProto.DEFAULT


def check_external(proto: onnx.ModelProto, folder: Folder) -> None:
    """Raises ModelError for the first tensor whose external bytes are missing, outside `folder` or cut off."""
    for tensor in walk(proto):
        if tensor.data_location == TensorProto.EXTERNAL and marked(tensor) is None:
            folder.locate(reference(tensor), nbytes(tensor))


def locations(proto: onnx.ModelProto) -> list[str]:
    """The distinct external files that the model names, in the order of first use."""
    found = (reference(t).location for t in walk(proto) if t.data_location == TensorProto.EXTERNAL and not marked(t))
    return list(dict.fromkeys(found))


def array(tensor: TensorProto | onnx.SparseTensorProto, source: Source | None, folder: Folder | None) -> np.ndarray:
    """The elements, in the tensor's shape; a sparse tensor becomes dense.

    Element types numpy lacks come as ml_dtypes, packed ones with one element a byte; strings as an object array. Bytes
    in a file are mapped, not loaded, so the array may be read-only. The tensor is not changed. Raises ModelError.
    """
    if isinstance(tensor, onnx.SparseTensorProto):
        return _dense(tensor, source, folder)
    try:
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        return _decode(tensor, _bytes_of(tensor, source, folder))
    except (ValueError, TypeError, KeyError) as error:  # what numpy_helper raises for odd or inconsistent tensors
        raise ModelError(f"tensor '{tensor.name}': its elements cannot be read: {error}") from error


def _bytes_of(tensor: TensorProto, source: Source | None, folder: Folder | None) -> memoryview:
    if where := marked(tensor):
        if source is None:
            raise ModelError(f"tensor '{tensor.name}': its bytes are in a model file that is not given")
        return source.view(where.offset, where.length)
    if folder is None:
        raise ModelError(
            f"tensor '{tensor.name}': its data is in a file, '{reference(tensor).location}', and a model given in "
            "memory has no folder; give the path of the model"
        )
    size = nbytes(tensor)
    path, where = folder.locate(reference(tensor), size)
    return File(path).view(where.offset, where.length if size is None else size)


def _decode(tensor: TensorProto, raw: memoryview) -> np.ndarray:
    dims = tuple(tensor.dims)
    if TensorProto.DataType.Name(tensor.data_type) in _PACKED:
        inline = TensorProto(dims=dims, data_type=tensor.data_type, raw_data=bytes(raw))
        return numpy_helper.to_array(inline)
    return np.frombuffer(raw, helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(dims)


def _dense(sparse: onnx.SparseTensorProto, source: Source | None, folder: Folder | None) -> np.ndarray:
    values, indices = array(sparse.values, source, folder), array(sparse.indices, source, folder)
    try:
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        where: Any = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)
        dense[where] = values
    except (IndexError, ValueError) as error:
        raise ModelError(f"sparse tensor '{sparse.values.name}': its indices do not fit its shape: {error}") from error
    return dense
