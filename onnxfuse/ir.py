"""Read-only records of an ONNX model, the form in which analysis sees it.

`read` turns a `ModelProto` into plain frozen records once, so that facts and cost never touch protobuf and need no
graph-surgery import. The editable view is another thing (`bridge.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto as A

from onnxfuse.errors import ModelError

_SUMMAND = re.compile(r"\w+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_MOST_SUMMANDS = 16

Attribute = Any  # int | float | str | bytes | tuple of those | onnx.TensorProto | Graph | (other protos, as they are)


@dataclass(frozen=True, slots=True)
class Node:
    """One operator call: value names, "" where an optional one is absent; domain "" is ai.onnx."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attribute]
    overload: str = ""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A declared type: ONNX dtype enum (0 = not a tensor or not said) and dims (None = rank not said).

    A dim is an int, a `dim_param` string, or None where nothing usable is said (absent, negative, "" or "?"). A
    `dim_param` is a symbol even where it reads like a number ("2", "1+1").
    """

    dtype: int
    dims: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph or a subgraph body. `inputs` leaves out nothing: an overridable initializer stands in both."""

    name: str
    nodes: tuple[Node, ...]
    inputs: Mapping[str, ValueType]
    outputs: tuple[str, ...]
    initializers: Mapping[str, onnx.TensorProto]
    declared: Mapping[str, ValueType]  # value_info and outputs: a hint, never believed over a computed type


@dataclass(frozen=True, slots=True)
class Function:
    """A model-local function; attributes that refer to the caller's stand in `attrs` as `Ref`."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]
    defaults: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ref:
    """An attribute of a function body whose value is the calling node's attribute `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Program:
    """A whole model: the main graph, its functions by (domain, name, overload), opset versions by domain.

    Functions of the default domain are left out: onnxruntime runs its own operator of that name, or nothing.
    overridable: initializers of the main graph that a caller may replace, as they are inputs too. Before IR version 4
    every initializer had to be one, and runtimes take them for constants.
    """

    graph: Graph
    functions: Mapping[tuple[str, str, str], Function]
    opsets: Mapping[str, int]
    base_dir: Path | None  # where external data lies
    overridable: frozenset[str] = frozenset()


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


_READ: dict[int, Callable[[A], Attribute]] = {
    A.INT: lambda a: a.i,
    A.INTS: lambda a: tuple(a.ints),
    A.FLOAT: lambda a: a.f,
    A.FLOATS: lambda a: tuple(a.floats),
    A.STRING: lambda a: _text(a.s),
    A.STRINGS: lambda a: tuple(_text(s) for s in a.strings),
    A.TENSOR: lambda a: a.t,
    A.GRAPH: lambda a: read_graph(a.g),
    A.SPARSE_TENSOR: lambda a: a.sparse_tensor,
    A.TYPE_PROTO: lambda a: a.tp,
    A.GRAPHS: lambda a: tuple(read_graph(g) for g in a.graphs),
    A.TENSORS: lambda a: tuple(a.tensors),
    A.TYPE_PROTOS: lambda a: tuple(a.type_protos),
    A.SPARSE_TENSORS: lambda a: tuple(a.sparse_tensors),
}


def _attribute(a: A) -> Attribute:
    if a.ref_attr_name:
        return Ref(a.ref_attr_name)
    read_one = _READ.get(a.type)
    return read_one(a) if read_one else None


def domain(name: str) -> str:
    """The operator domain in its normal spelling: "ai.onnx" and "" are one domain."""
    return "" if name == "ai.onnx" else name


def opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Opset versions by domain. Of several imports of one domain the last one counts, as in onnxruntime."""
    return {domain(o.domain): o.version for o in imports}


def read_node(proto: onnx.NodeProto) -> Node:
    """The record of a node."""
    attrs = {a.name: _attribute(a) for a in proto.attribute}
    return Node(
        proto.op_type, domain(proto.domain), proto.name, tuple(proto.input), tuple(proto.output), attrs, proto.overload
    )


def _dim(d: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if d.HasField("dim_value"):
        return d.dim_value if d.dim_value >= 0 else None
    return d.dim_param if d.dim_param not in ("", "?") else None


def summands(name: str) -> tuple[int | str, ...]:
    """The symbols and numbers of which a `dim_param` such as "past + seq" or "N + 1" is the sum.

    Exporters name so what a decoder concatenates. Any other text is one symbol: also a very long sum, and a number or a
    sum of numbers alone ("2", "1+1"), as runtimes take every `dim_param` for a name.
    """
    parts = [part.strip() for part in name.split("+")] if "+" in name else [name]
    if len(parts) == 1 or len(parts) > _MOST_SUMMANDS or not all(map(_SUMMAND.fullmatch, parts)):
        return (name,)
    terms = tuple(int(p) if _NUMBER.fullmatch(p) else p for p in parts)
    return terms if any(isinstance(t, str) for t in terms) else (name,)


def printed(symbol: str) -> str:
    """A symbol as formulas and types show it: "N" as it is, what does not read like a name in quotes ("'2'")."""
    return symbol if _NAME.fullmatch(symbol) else repr(symbol)


def axis_names(
    inputs: Iterable[tuple[str, tuple[int | str | None, ...]]],
) -> dict[tuple[str, int], str]:
    """What every free axis of these inputs (name, dims) is called, by (input, axis): a symbol, or a sum (`summands`).

    An axis without a usable name is "<input>.<axis>", with "#" behind it where another axis is called so.
    """
    listed = list(inputs)
    named = {term for _, dims in listed for d in dims if isinstance(d, str) for term in summands(d)}
    out: dict[tuple[str, int], str] = {}
    for name, dims in listed:
        for axis, d in enumerate(dims):
            if isinstance(d, str):
                out[name, axis] = d
            elif d is None:
                text = f"{name}.{axis}"
                while text in named:
                    text += "#"
                out[name, axis] = text
    return out


def read_type(info: onnx.ValueInfoProto) -> ValueType:
    """The declared type of a value."""
    kind = info.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return ValueType(0, None)
    tensor = getattr(info.type, kind)
    dims = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
    return ValueType(tensor.elem_type, dims)


def read_graph(proto: onnx.GraphProto) -> Graph:
    """The record of a graph, bodies included."""
    outputs = {v.name: read_type(v) for v in proto.output}
    return Graph(
        proto.name,
        tuple(map(read_node, proto.node)),
        {v.name: read_type(v) for v in proto.input},
        tuple(v.name for v in proto.output),
        {t.name: t for t in proto.initializer} | {s.values.name: s for s in proto.sparse_initializer},
        {v.name: read_type(v) for v in proto.value_info} | outputs,
    )


def read_function(proto: onnx.FunctionProto) -> Function:
    """The record of a local function."""
    return Function(
        tuple(proto.input),
        tuple(proto.output),
        tuple(map(read_node, proto.node)),
        opsets(proto.opset_import),
        {a.name: _attribute(a) for a in proto.attribute_proto},
    )


def read(proto: onnx.ModelProto, base_dir: Path | None = None) -> Program:
    """The records of a model; no weight is decoded and no external file is opened.

    Raises ModelError where a node outside of all functions has an attribute that only a function's call gives.
    """
    graph = read_graph(proto.graph)
    for node in all_nodes(graph):
        if any(isinstance(value, Ref) for value in node.attrs.values()):
            raise ModelError(f"node '{node.name}' ({node.op_type}) takes an attribute from a function and is in none")
    return Program(
        graph,
        {(f.domain, f.name, f.overload): read_function(f) for f in proto.functions if domain(f.domain)},
        opsets(proto.opset_import),
        base_dir,
        frozenset(graph.inputs.keys() & graph.initializers.keys() if proto.ir_version >= 4 else ()),
    )


def subgraphs(node: Node) -> Iterator[tuple[str, Graph]]:
    """(attribute name, body) of every graph attribute of a node."""
    for name, value in node.attrs.items():
        if isinstance(value, Graph):
            yield name, value


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of all bodies inside it."""
    todo = [graph]
    while todo:
        here = todo.pop()
        yield from here.nodes
        todo += [body for node in here.nodes for _, body in subgraphs(node)]


def captured(graph: Graph) -> set[str]:
    """Names that bodies inside a graph may read from it: whatever they use and do not define themselves."""
    found: set[str] = set()
    todo = [body for node in graph.nodes for _, body in subgraphs(node)]
    while todo:
        body = todo.pop()
        own = {*body.inputs, *body.initializers, *(name for node in body.nodes for name in node.outputs)}
        found |= {name for node in body.nodes for name in node.inputs} - own
        found |= set(body.outputs) - own
        todo += [inner for node in body.nodes for _, inner in subgraphs(node)]
    return found


WITH_BODIES = ("If", "Loop", "Scan", "SequenceMap")


def messages(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """These nodes of a model, and those in their bodies."""
    for node in nodes:
        yield node
        if node.op_type in WITH_BODIES:
            for attribute in node.attribute:
                yield from messages(attribute.g.node)


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The messages of the graphs in a node's attributes."""
    if node.op_type not in WITH_BODIES and not node.domain:
        return []
    found = [a.g for a in node.attribute if a.type == A.GRAPH]
    return found + [g for a in node.attribute if a.type == A.GRAPHS for g in a.graphs]


def defined(graph: onnx.GraphProto) -> list[str]:
    """The names that a graph gives: inputs, initializers, and outputs of its own nodes; not those of its bodies."""
    stored = (*graph.initializer, *(s.values for s in graph.sparse_initializer))
    return [*(v.name for v in (*graph.input, *stored)), *(name for n in graph.node for name in n.output if name)]


def read_outside(graph: onnx.GraphProto) -> set[str]:
    """The names that a body, and the bodies in it, take from the graphs around it."""
    names = {name for node in graph.node for name in node.input} | {v.name for v in graph.output} | {""}
    for node in graph.node:
        for body in bodies(node):
            names |= read_outside(body)
    return names - {"", *defined(graph)}
