"""What a caller sees of a model: its inputs and outputs as the file declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from onnx import TensorProto

from onnxfuse import bounds, ir, ordering, storage


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output: its type as text ("float[N,3]"), and for a tensor its dtype and dims (keys for free ones).

    In the text a symbol that does not read like a name is in quotes: "float['2',3]" is no "float[2,3]".

    kind: "tensor", "sequence", "optional" or "optional sequence" of tensors, "other" for what cannot be fed.
    """

    name: str
    type: str
    kind: str
    dtype: int
    shape: tuple[int | str, ...]

    @property
    def ranked(self) -> bool:
        """Whether the rank is declared; where it is not, `shape` has two free dims to try."""
        return "[" in self.type


@dataclass(frozen=True, slots=True)
class Interface:
    """What a caller sees of a model, and the coarsest rounding step inside it.

    inputs: every graph input in order, overridable initializers included; overridable: their names. Before IR version 4
        every initializer had to be listed as an input, and runtimes take them for constants: they are no inputs here.
    required: what must be fed.
    step: relative spacing of the coarsest number format that values pass through; steps: the same for each output.
    bounds: which values the graph asks of integer inputs and of scales (see `bounds`), a hint for data to run it with.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    required: tuple[Port, ...]
    overridable: frozenset[str]
    step: float
    steps: Mapping[str, float]
    bounds: bounds.Bounds


def read(path: Path) -> Interface:
    """The interface of a model file; its weights are not read. Raises ModelError."""
    return of(storage.read(path).proto)


def of(model: onnx.ModelProto) -> Interface:
    """The interface of a model."""
    graph = model.graph
    initializers = {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    weights = initializers if model.ir_version < 4 else set()
    declared = {v.name: ir.read_type(v).dims or () for v in graph.input if v.name not in initializers}
    keys = ir.axis_names(declared.items())
    inputs = tuple(_keyed(_port(v), declared.get(v.name, ()), keys) for v in graph.input if v.name not in weights)
    required = tuple(p for p in inputs if p.name not in initializers)
    step = _coarsest(model)
    return Interface(
        inputs,
        tuple(map(_port, graph.output)),
        required,
        frozenset(p.name for p in inputs if p.name in initializers),
        step,
        _steps(model, step),
        bounds.of(model, ((p.name, p.shape if p.ranked else None, p.dtype) for p in required)),
    )


def difference(original: Interface, optimized: Interface) -> str | None:
    """The first difference between two interfaces in one line, or None."""
    for what, a, b in (
        ("input", original.inputs, optimized.inputs),
        ("output", original.outputs, optimized.outputs),
    ):
        names, others = [p.name for p in a], [p.name for p in b]
        if names != others:
            return f"interface differs: {what}s are {', '.join(others) or 'none'}; were {', '.join(names) or 'none'}"
        for p, q in zip(a, b, strict=True):
            if p.type != q.type:
                return f"interface differs: {what} '{p.name}' is {q.type}, was {p.type}"
    for name in sorted(original.overridable ^ optimized.overridable):
        now, before = ("with", "without") if name in optimized.overridable else ("without", "with")
        return f"interface differs: input '{name}' is {now} a default value, was {before}"
    return None


def _keyed(port: Port, dims: tuple[int | str | None, ...], keys: Mapping[tuple[str, int], str]) -> Port:
    """The port with the keys that the facts have, also of a sparse tensor."""
    if not dims:
        return port
    return replace(port, shape=tuple(d if isinstance(d, int) else keys[port.name, i] for i, d in enumerate(dims)))


def _port(info: onnx.ValueInfoProto) -> Port:
    kind, inner = "tensor", info.type
    text = "{}"
    while (which := inner.WhichOneof("value")) in ("sequence_type", "optional_type"):
        wrapper = which.removesuffix("_type")
        kind = {"tensor": wrapper, "optional": f"optional {wrapper}"}.get(kind, "other")
        text = text.format(which.removesuffix("_type") + "({})")
        inner = getattr(inner, which).elem_type
    if which != "tensor_type":
        return Port(info.name, text.format(" ".join(str(inner).split()) or "?"), "other", 0, ())
    dtype, declared = inner.tensor_type.elem_type, inner.tensor_type.shape
    known_dtype = dtype in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(dtype).lower() if known_dtype else f"dtype {dtype}"
    if not inner.tensor_type.HasField("shape"):  # no rank said: two dimensions are tried
        return Port(info.name, text.format(name), kind, dtype, (f"{info.name}.0", f"{info.name}.1"))
    dims = ",".join(map(_dim_text, declared.dim))
    known = ir.read_type(onnx.ValueInfoProto(name=info.name, type=inner)).dims or ()
    shape = tuple(f"{info.name}.{axis}" if d is None else d for axis, d in enumerate(known))
    return Port(info.name, text.format(f"{name}[{dims}]"), kind, dtype, shape)


def _dim_text(dim: onnx.TensorShapeProto.Dimension) -> str:
    if dim.HasField("dim_value"):
        return str(dim.dim_value)
    name: str = dim.dim_param
    return name if not name or len(ir.summands(name)) > 1 else ir.printed(name)


_COARSE: dict[int, float] = {TensorProto.BFLOAT16: 2.0**-7, TensorProto.FLOAT16: 2.0**-10}


def _coarsest(model: onnx.ModelProto) -> float:
    """2^-7 for bfloat16 and 8-bit quantization, 2^-10 for float16, 2^-23 for float32, 2^-52 where all is float64."""
    graph = model.graph
    types = {t.data_type for t in graph.initializer} | {p.dtype for p in map(_port, [*graph.input, *graph.output])}
    bodies = (graph.node, *(f.node for f in model.functions))
    coarse = max((_step(node) for body in bodies for node in ir.messages(body)), default=0.0)
    coarse = max(coarse, *(_COARSE.get(t, 0.0) for t in types), 0.0)
    return coarse or (2.0**-23 if TensorProto.FLOAT in types or TensorProto.DOUBLE not in types else 2.0**-52)


def _step(node: onnx.NodeProto) -> float:
    """The step of the coarse format that a node rounds to, 0 for none."""
    if node.op_type == "Cast":
        return max((_COARSE.get(a.i, 0.0) for a in node.attribute if a.name == "to"), default=0.0)
    return 2.0**-7 if "QuantizeLinear" in node.op_type else 0.0


def _steps(model: onnx.ModelProto, step: float) -> dict[str, float]:
    """For each output the coarsest step on the way to it, at least that of float32 unless the whole model is finer."""
    graph = model.graph
    if step <= 2.0**-23:
        return {v.name: step for v in graph.output}
    own = {function.name for function in model.functions}
    seen = {t.name: _COARSE.get(t.data_type, 0.0) for t in graph.initializer}
    seen |= {v.name: _COARSE.get(v.type.tensor_type.elem_type, 0.0) for v in graph.input}
    for node in ordering.sorted_nodes(graph.node):
        inside = step if node.op_type in ir.WITH_BODIES or node.op_type in own else _step(node)
        reached = max((seen.get(name, 0.0) for name in node.input), default=0.0)
        for name in node.output:
            seen[name] = max(inside, reached)
    return {v.name: seen.get(v.name) or 2.0**-23 for v in graph.output}
