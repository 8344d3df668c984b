"""Model: a loaded ONNX model. The proto is the truth; records for analysis and the editable graph are made from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from onnxfuse import arguments, ir, ordering, shadowing, storage, validity
from onnxfuse.errors import ModelError
from onnxfuse.storage import tensors

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

Source = Any  # str | os.PathLike[str] | onnx.ModelProto | gs.Graph (graphsurgeon has no types and is imported late)


# IR versions: functions came with 8; below 4 a weight had to be an input, so that raising the version would make it
# overridable. onnxruntime and onnx read functions at every version.
_FUNCTIONS_FROM, _WEIGHTS_ARE_INPUTS_BELOW = 8, 4


class Model:
    """A model with its weights where they lie. Make one with `Model.load`.

    proto: the ModelProto, without the bytes of big weights; read those with `array`. Its nodes are sorted, and a name
        in a body that hides an outer one is replaced (see `shadowing`). It may be edited in place, by the methods here
        or directly: `save` writes what it says, under the old names.
    path: the file it came from, None if from memory. name: what reports call it, the path as it was given.
    """

    def __init__(
        self, stored: storage.Stored, path: Path | None, name: str | None, hidden: Mapping[str, str] | None = None
    ) -> None:
        self._stored = stored
        self.path = path
        self.name = name
        self._graph: gs.Graph | None = None
        self._hidden = hidden or {}  # what `shadowing.rename` replaced
        self._loaded = _digest(self.proto)
        self._program: ir.Program | None = None
        self._named: dict[str, TensorProto | onnx.SparseTensorProto] | None = None

    @classmethod
    def load(cls, source: Source) -> Model:
        """The model of a path, `onnx.ModelProto` or `gs.Graph`; what is given is never changed.

        Raises ModelError with one line: no such file, not a model, truncated, invalid, a newer format than the
        installed onnx knows, or external data that is missing, too short or outside the model's folder.
        """
        if isinstance(source, onnx.ModelProto):
            path, stored = None, storage.read(source)
        elif isinstance(source, (str, os.PathLike)):
            path = arguments.path("model", source)
            stored = storage.read(path)
        else:
            path, stored = None, storage.read(_export(source))
        hidden = _arranged(stored.proto, str(path) if path else "the model")
        return cls(stored, path, None if path is None else str(path), hidden)

    @property
    def proto(self) -> onnx.ModelProto:
        """The skeleton (see the class)."""
        return self._stored.proto

    @property
    def base_dir(self) -> Path | None:
        """The folder that external data is relative to; None for a model from memory."""
        return self._stored.folder.base if self._stored.folder else None

    @property
    def external(self) -> bool:
        """Whether some weights lie in other files."""
        return bool(storage.tensors.locations(self.proto))

    @property
    def opsets(self) -> Mapping[str, int]:
        """Imported opset versions by domain; "" is ai.onnx."""
        return ir.opsets(self.proto.opset_import)

    def pinned(self) -> frozenset[str]:
        """Value names that something outside the graph refers to: quantization annotations, training information."""
        found = set()
        for note in self.proto.graph.quantization_annotation:
            found |= {note.tensor_name, *(entry.value for entry in note.quant_parameter_tensor_names)}
        for training in self.proto.training_info:
            for node in (*training.initialization.node, *training.algorithm.node):
                found |= {*node.input, *node.output}
            for binding in (*training.initialization_binding, *training.update_binding):
                found |= {binding.key, binding.value}
        return frozenset(found)

    def accepts(self, function: onnx.FunctionProto) -> bool:
        """Whether `add_function` would take it: the model has no other function of that name."""
        known = self._function(function)
        return known is None or known == function

    @property
    def program(self) -> ir.Program:
        """The records of the model as it is now; made anew after `apply` and the other edits here."""
        if self._program is None:
            self._program = ir.read(self.proto, self.base_dir)
        return self._program

    @property
    def graph(self) -> gs.Graph:
        """The editable view; `apply` brings its edits into the proto."""
        if self._graph is None:
            from onnxfuse import bridge

            self._graph = bridge.view(self.proto)
        return self._graph

    def apply(self) -> None:
        """Writes the edits of the view into the proto."""
        if self._graph is not None:
            from onnxfuse import bridge

            bridge.splice(self._graph, self.proto)
            self._forget()

    def close_view(self, removed: Iterable[gs.Node] = ()) -> None:
        """Frees the view, and nodes that were removed from it; all of them are void. `graph` makes a new one."""
        if self._graph is not None:
            from onnxfuse import bridge

            bridge.release(self._graph, removed)
            self._graph = None

    @property
    def changed(self) -> bool:
        """Whether the proto differs from what was loaded."""
        return _digest(self.proto) != self._loaded

    def restore(self) -> None:
        """Takes every edit back: the proto is as loaded, and views and records made before are void."""
        self.proto.CopyFrom(storage.original(self._stored, self.name or "the model"))
        ordering.sort(self.proto.graph)
        self._hidden = shadowing.rename(self.proto.graph)
        self._graph = None
        self._forget()

    def _forget(self) -> None:
        self._program = self._named = None

    def array(self, tensor: str | TensorProto | onnx.SparseTensorProto | gs.Constant) -> np.ndarray:
        """The elements of a tensor of this model, an initializer of the main graph by name, or a `gs.Constant`.

        In its own dtype (ml_dtypes where numpy has none) and shape; may be read-only. Reading changes nothing.
        Raises ModelError.
        """
        if isinstance(tensor, str):
            tensor = self._initializer(tensor)
        elif not isinstance(tensor, (TensorProto, onnx.SparseTensorProto)):
            values = tensor._values  # `values` would decode the weight and keep the decoded form for good
            if isinstance(values, np.ndarray):
                return values
            tensor = values.tensor
        return tensors.array(tensor, self._stored.source, self._stored.folder)

    def keep(self, constant: gs.Constant) -> None:
        """Moves the elements of a new constant out of memory where they are many; `array` reads them as before."""
        if isinstance(constant._values, np.ndarray):
            tensor = storage.keep(self._stored, constant.name, constant._values)
            if tensor is not None:
                from onnxfuse import bridge

                constant._values = bridge.Stored(tensor)

    def _initializer(self, name: str) -> TensorProto | onnx.SparseTensorProto:
        if self._named is None:
            graph = self.proto.graph
            self._named = {t.name: t for t in graph.initializer}
            self._named |= {s.values.name: s for s in graph.sparse_initializer}
        try:
            return self._named[name]
        except KeyError:
            raise ModelError(f"the model has no initializer '{name}'") from None

    def weight_bytes(self) -> int:
        """Bytes of all tensors that the model stores, in every graph and function, as packed as ONNX stores them."""
        return tensors.weight_bytes(self.proto)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model, atomically; unchanged, it is the loaded file byte for byte.

        External data files come along into another folder as copies. Raises OutputError, and then what was at `path`
        before is still there.
        """
        if not self.changed:
            storage.copy(self._stored, Path(path))
            return
        with shadowing.original(self.proto.graph, self._hidden):
            storage.write(self._stored, Path(path))

    def save_showing(self, path: Path, values: Mapping[str, int]) -> None:
        """Writes the model with more outputs: values of the main graph, name → ONNX dtype. The model stays as it is.

        Raises OutputError.
        """
        outputs = self.proto.graph.output
        known, count = {v.name for v in outputs}, len(outputs)
        for name, dtype in values.items():
            if name not in known:
                outputs.add(name=name).type.tensor_type.elem_type = dtype
        try:
            with shadowing.original(self.proto.graph, self._hidden):
                storage.write(self._stored, path)
        finally:
            del outputs[count:]

    def to_proto(self) -> onnx.ModelProto:
        """A new ModelProto with the weights in it; external data stays external. Raises ModelError above 2 GiB."""
        if not self.changed:
            original = storage.original(self._stored, self.name or "the model")
            return storage.whole(replace(self._stored, proto=original))
        with shadowing.original(self.proto.graph, self._hidden):
            return storage.whole(self._stored)

    def add_function(self, function: onnx.FunctionProto) -> None:
        """Adds a local function; one that is there already, and equal, stays. Raises ModelError if it is another."""
        known = self._function(function)
        if known is not None and known != function:
            raise ModelError(f"the model has another function '{function.domain}::{function.name}' already")
        if known is not None:
            return
        if _WEIGHTS_ARE_INPUTS_BELOW <= self.proto.ir_version < _FUNCTIONS_FROM:
            self.proto.ir_version = _FUNCTIONS_FROM
        self.proto.functions.append(function)
        self._forget()

    def _function(self, like: onnx.FunctionProto) -> onnx.FunctionProto | None:
        key = (ir.domain(like.domain), like.name, like.overload)
        return next((f for f in self.proto.functions if (ir.domain(f.domain), f.name, f.overload) == key), None)

    def require_opset(self, domain: str, version: int) -> None:
        """Imports an operator set; a version that is imported already stays as it is."""
        if ir.domain(domain) not in self.opsets:
            self.proto.opset_import.add(domain=domain, version=version)
            self._forget()

    def annotate(self, notes: Sequence[Mapping[str, str]], path: Sequence[tuple[int, str]] = ()) -> None:
        """Sets entries of `metadata_props`, one mapping for each node of a graph, in order.

        path: to a body, by the index of a node and the name of its graph attribute at each level; () is the main graph.
        """
        graph = self.proto.graph
        for index, attribute in path:
            graph = next(a.g for a in graph.node[index].attribute if a.name == attribute)
        for node, note in zip(graph.node, notes, strict=True):
            known = {e.key: e for e in node.metadata_props}
            for key, value in note.items():
                entry = known.get(key) or node.metadata_props.add(key=key)
                entry.value = value


@contextmanager
def as_files(*sources: Source) -> Iterator[tuple[Path, ...]]:
    """The sources as files, for runtimes that read files: a path as it is, a model from memory written for the while.

    Raises ModelError for a source that `Model.load` refuses.
    """
    with storage.files.scratch() as scratch:
        paths = []
        for i, source in enumerate(sources):
            model = Model.load(source)
            paths.append(model.path or scratch / f"{i}.onnx")
            if model.path is None:
                model.save(paths[-1])
        yield tuple(paths)


def _arranged(proto: onnx.ModelProto, name: str) -> dict[str, str]:
    """Check a model, sort its nodes where they are out of order, and replace hidden names, in place.

    Returns what `shadowing.original` takes. Raises ModelError.
    """
    try:
        validity.check(proto, name)
    except ModelError:
        try:
            moved = ordering.sort(proto.graph)
        except ValueError as error:
            raise ModelError(f"{name}: is not a valid ONNX model: {error}") from error
        if not moved:
            raise
        hidden = shadowing.rename(proto.graph)
        validity.check(proto, name)
        return hidden
    return shadowing.rename(proto.graph)


def _digest(proto: onnx.ModelProto) -> bytes:
    return blake2b(storage.serialized(proto), digest_size=16).digest()


def _export(source: Source) -> onnx.ModelProto:
    graphsurgeon = sys.modules.get("onnx_graphsurgeon")  # whoever has a gs.Graph has imported it
    if graphsurgeon is None or not isinstance(source, graphsurgeon.Graph):
        raise ModelError(f"cannot load a {type(source).__name__}; give a path, an onnx.ModelProto or a gs.Graph")
    from onnxfuse import bridge  # noqa: F401 - silences graphsurgeon's logger, which writes to stdout

    domains = source.import_domains
    source.import_domains = None if domains is None else list(domains)  # the exporter appends to it
    try:
        exported: onnx.ModelProto = graphsurgeon.export_onnx(source, do_type_check=False)
    except Exception as error:  # graphsurgeon raises whatever comes for what it cannot export
        raise ModelError(f"the gs.Graph cannot be exported by graphsurgeon: {validity.line(error)}") from error
    finally:
        source.import_domains = domains
    return exported
