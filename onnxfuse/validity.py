"""Which models are worked on at all.

Refused is what onnx's checker refuses, less what runtimes take and an edit cannot harm: a graph without a name, doubled
metadata keys, an output without a type, inputs and outputs of unknown rank, initializers that are no inputs before
IR 4, opset imports before IR 3, no opset import for onnxruntime's own domains, its own operators in the default domain,
and "ai.onnx" for that domain in the main graph (onnxruntime does not take it in bodies and functions). Nodes out of
order (`Model.load` sorts them), names defined twice, unknown operators and attributes are refused: no rewrite could be
trusted there.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext
from functools import cache
from itertools import chain
from pathlib import Path

import onnx
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from onnx import TensorProto, checker, defs

from onnxfuse import ir
from onnxfuse.errors import ModelError
from onnxfuse.storage import serialized, tensors, utf8

_RUNTIME_DOMAINS = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")  # onnxruntime imports them itself
# What onnxruntime runs under a name of the default domain, at opsets where ONNX has no such operator. Its optimizers
# write the first two. In functions it does not take them: some end the process.
_RUNTIME_OPERATORS = (
    "SimplifiedLayerNormalization", "LayerNormalization", "MeanVarianceNormalization", "ThresholdedRelu",
    "MemcpyFromHost", "MemcpyToHost",
)  # fmt: skip
_VARIADIC = ("Concat", "Einsum", "Max", "Mean", "Min", "SequenceConstruct", "Sum")  # onnxruntime ends the process
_LARGE = 1 << 12  # bytes of a tensor
_CHECKED_FROM = 4  # IR version: the checker's older rules only bind names that runtimes do not need


def check(proto: onnx.ModelProto, name: str) -> None:
    """Raises ModelError for a model that no edit should be tried on."""
    try:
        _strict().FromString(serialized(proto))
    except DecodeError as error:
        if "UTF-8" not in str(error):
            raise MemoryError from error  # the message was parsed before
        raise ModelError(f"{name}: is not a valid ONNX model: it has text that is not UTF-8") from error
    if not proto.HasField("graph"):
        raise ModelError(f"{name}: is not an ONNX model: it has no graph")
    if not proto.ir_version:
        raise ModelError(f"{name}: is not a valid ONNX model: it has no ir_version")
    if not proto.opset_import:
        raise ModelError(f"{name}: is not a valid ONNX model: it imports no opset")
    opset = ir.opsets(proto.opset_import).get("", 0)
    if opset > defs.onnx_opset_version() or proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{name}: is of a newer format (opset {opset}, IR {proto.ir_version}) than the installed onnx "
            f"{onnx.__version__} knows (opset {defs.onnx_opset_version()}, IR {onnx.IR_VERSION}); upgrade onnx"
        )
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.elem_type not in TensorProto.DataType.values():
            raise ModelError(f"{name}: '{value.name}' has the unknown dtype {value.type.tensor_type.elem_type}")
        dims = value.type.tensor_type.shape.dim
        if tensors.elements([d.dim_value for d in dims if d.dim_value > 0]) is None:
            raise ModelError(f"{name}: '{value.name}' has more elements than 64 bits can count")
    for node in ir.messages(chain(proto.graph.node, *(f.node for f in proto.functions))):
        if node.op_type in _VARIADIC and ir.domain(node.domain) == "" and "" in node.input:
            raise ModelError(f"{name}: is not a valid ONNX model: {node.op_type} '{node.name}' lacks an input")
    try:
        check_quietly(_checkable(proto))
    except checker.ValidationError as error:
        raise ModelError(f"{name}: is not a valid ONNX model: {line(error)}") from error


@cache
def _strict() -> type[onnx.ModelProto]:
    """A class that parses only models whose text is UTF-8, comments (`doc_string`) excepted.

    protobuf itself takes any bytes for the text of a format as old as ONNX's, and gives what is not UTF-8 as bytes.
    """
    file = FileDescriptorProto()
    onnx.onnx_ml_pb2.DESCRIPTOR.CopyToProto(file)
    file.syntax = "proto3"  # of which parsers look at the text
    messages = list(file.message_type)
    for message in messages:
        messages += message.nested_type
        for field in message.field:
            if field.name == "doc_string":
                field.type = field.TYPE_BYTES
    pool = DescriptorPool()
    pool.Add(file)
    strict: type[onnx.ModelProto] = GetMessageClass(pool.FindMessageTypeByName("onnx.ModelProto"))
    return strict


_stdout = threading.Lock()  # the descriptor is the process's: two at once would keep each other's


def check_quietly(model: onnx.ModelProto | str) -> None:
    """onnx's checker, whose warnings about experimental operators go to the standard output from C++, without them.

    model: a message or a path. Raises what the checker raises.
    """
    with _stdout:
        if sys.stdout is not None:
            sys.stdout.flush()
        kept = os.dup(1)
        silent = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(silent, 1)
            with utf8(Path(model)) if isinstance(model, str) else nullcontext(model) as known:
                checker.check_model(known if isinstance(known, onnx.ModelProto) else str(known))
        except onnx.shape_inference.InferenceError as error:  # it comes from within, too
            raise checker.ValidationError(str(error)) from error
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            os.close(silent)


def problem(proto: onnx.ModelProto) -> str | None:
    """What onnx's checker says against a result, in one line; None if nothing."""
    try:
        check_quietly(_checkable(proto))
    except checker.ValidationError as error:
        return f"optimized model is invalid: {line(error)}"
    return None


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model in which large initializers are empty tensors, as a copy of them takes memory for nothing."""
    copy = onnx.ModelProto()
    _copy_fields(proto, copy, "graph")
    if proto.HasField("graph"):
        _copy_fields(proto.graph, copy.graph, "initializer")
        for tensor in proto.graph.initializer:
            made = copy.graph.initializer.add()
            size = len(tensor.raw_data) if tensor.HasField("raw_data") else 0
            if size > _LARGE and size == tensors.nbytes(tensor):  # of another size the checker has to tell
                made.name, made.data_type, made.raw_data = tensor.name, tensor.data_type, b""
                made.dims.append(0)
            else:
                made.CopyFrom(tensor)
    return copy


def _copy_fields(source: Message, target: Message, without: str) -> None:
    """Copy all fields of a message but one."""
    for field, value in source.ListFields():
        if field.name in (without, "doc_string"):  # a comment need not be text that protobuf takes
            continue
        if hasattr(value, "MergeFrom"):  # a message, or a repeated field
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def _checkable(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model in a form whose check finds only what counts (see the module), and needs no weights."""
    copy = _without_weights(proto)
    copy.ir_version = max(copy.ir_version, _CHECKED_FROM)
    copy.graph.name = copy.graph.name or "graph"
    del copy.metadata_props[:]
    for output in copy.graph.output:
        if not output.HasField("type"):
            output.type.tensor_type.elem_type = TensorProto.FLOAT
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    imported = dict.fromkeys(_RUNTIME_DOMAINS, 1) | ir.opsets(copy.opset_import)
    del copy.opset_import[:]
    for domain, version in imported.items():
        copy.opset_import.add(domain=domain, version=version)
    for node in copy.graph.node:
        if node.domain and not ir.domain(node.domain):
            node.domain = ""
    for node in ir.messages(copy.graph.node):
        if node.op_type in _RUNTIME_OPERATORS and not node.domain and not defs.has(node.op_type, imported.get("", 1)):
            node.domain = _RUNTIME_DOMAINS[0]  # of which the checker knows no operator
    for tensor in tensors.walk(copy):
        if tensor.data_location == TensorProto.EXTERNAL:  # its bytes were checked by `storage.read`
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.dims[:] = [0]
    return copy


def line(error: Exception) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split()) or type(error).__name__
