"""Facts of every value of a model: dtype, shape and small contents, in one forward pass.

What the model declares about computed values is not believed: declared shapes of real models are wrong now and then.
A node that is malformed or contradicts itself leaves its outputs unknown; it never stops the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxfuse.errors import ModelError, UsageError
from onnxfuse.facts import (  # noqa: F401  # they register their functions
    arithmetic,
    control,
    elementwise,
    folding,
    indexing,
    layouts,
    linear,
    microsoft,
    microsoft_attention,
    microsoft_data,
    movement,
    reduction,
    resample,
    sequence,
    tabular,
    window,
)
from onnxfuse.facts.expr import Dim, symbol, total
from onnxfuse.facts.scope import Engine, Facts
from onnxfuse.facts.value import Value
from onnxfuse.ir import Node, Program, axis_names, summands

# Little-endian forms of the common types: many times faster than the general reader.
_PLAIN: dict[int, str] = {onnx.TensorProto.FLOAT: "<f4", onnx.TensorProto.INT64: "<i8", onnx.TensorProto.INT32: "<i4"}
_CONTENT = ("int64_data", "int32_data", "uint64_data", "float_data", "double_data")


def _axes(program: Program) -> dict[tuple[str, int], str]:
    """The symbol, or the sum of symbols and numbers, at every free axis of the model's inputs."""
    graph = program.graph
    return axis_names((name, t.dims or ()) for name, t in graph.inputs.items() if name not in graph.initializers)


def free_dims(program: Program) -> dict[str, list[tuple[str, int]]]:
    """The model's symbols and where they stand: (input, axis). An unnamed axis is the symbol "<input>.<axis>", one
    named "past + seq" has two symbols.
    """
    out: dict[str, list[tuple[str, int]]] = {}
    for place, name in _axes(program).items():
        for term in summands(name):
            if isinstance(term, str):
                out.setdefault(term, []).append(place)
    return out


def _bound(axes: Mapping[tuple[str, int], str], dims: Mapping[str, int]) -> dict[str, int]:
    """Symbol values from what the user says: by symbol or by "<input>.<axis>". Raises UsageError."""
    free = dict.fromkeys(t for text in axes.values() for t in summands(text) if isinstance(t, str))
    places = {f"{name}.{axis}": text for (name, axis), text in axes.items()}
    out: dict[str, int] = {}
    for key, value in dims.items():
        text = key if key in free else places.get(key, "")
        if text not in free:
            known = ", ".join(free) or "none, all input shapes are fixed"
            raise UsageError(f"unknown dimension '{key}'; the model's are: {known}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(f"dimension '{key}' is {value!r}; give a whole number of 0 or more")
        if out.setdefault(text, value) != value:
            raise UsageError(f"dimension '{text}' is given twice, as {out[text]} and as {value}")
    return out


def _reader(base_dir: Path | None) -> Callable[[onnx.TensorProto], np.ndarray | None]:
    def read(tensor: onnx.TensorProto) -> np.ndarray | None:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if external and base_dir is None:
            return None
        if not external and not tensor.HasField("raw_data") and not any(len(getattr(tensor, f)) for f in _CONTENT):
            return None  # a skeleton without weights
        try:
            if not external and tensor.data_type in _PLAIN and tensor.HasField("raw_data"):
                return np.frombuffer(tensor.raw_data, _PLAIN[tensor.data_type])
            return numpy_helper.to_array(tensor, str(base_dir or ""))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"initializer '{tensor.name}' cannot be read: {reason}") from error

    return read


def infer(
    program: Program,
    dims: Mapping[str, int] | None = None,
    read: Callable[[onnx.TensorProto], np.ndarray] | None = None,
    *,
    general: bool = False,
) -> Facts:
    """Facts of the main graph and, nested in it, of all bodies.

    dims: sizes of free dimensions, by symbol name or as "<input>.<axis>", 0 for an empty cache; the others stay
        symbols, integers ≥ 1. An axis named as a sum of symbols and numbers ("past + seq", "N + 1") is that sum.
    read: decodes a tensor's elements; asked only for small ones (at most 1,024). Default: from the tensor itself, or
        from its file in the program's folder.

    general: what holds for whatever a caller feeds: an overridable initializer is an input, and an If whose condition
        depends on the data gives what both of its branches have in common. Otherwise the contents of the one are taken
        to be its default, sizes of the other to be the larger ones, and in the target of a Reshape a size that is 0
        for the smallest inputs to be itself, not the sign for another: which is what a cost wants.

    A dimension that depends on data is a symbol ≥ 0 of its own, "<value>.<axis>".
    Raises UsageError for a dimension that the model does not have or a negative size, ModelError for a small tensor
    whose contents are damaged or missing.
    """
    axes = _axes(program)
    sizes = _bound(axes, dims or {})
    engine = Engine(program, read or _reader(program.base_dir), set(free_dims(program)), general)

    def dim(name: str, axis: int, declared: int | str | None) -> Dim:
        if isinstance(declared, int):
            return declared
        text = axes.get((name, axis))
        if text is None:  # an initializer's axis
            return symbol(engine.name_dim(f"{name}.{axis}"))
        return total(t if isinstance(t, int) else sizes[t] if t in sizes else symbol(t) for t in summands(text))

    inputs = {
        name: Value(t.dtype, None if t.dims is None else tuple(dim(name, a, d) for a, d in enumerate(t.dims)))
        for name, t in program.graph.inputs.items()
    }
    facts = engine.graph(program.graph, inputs, program.opsets, None)
    facts.assumed = not general and (engine.assumed or engine.named > 0)
    return facts


def extend(
    facts: Facts,
    nodes: Sequence[Node],
    program: Program,
    read: Callable[[onnx.TensorProto], np.ndarray],
    taken: set[str],
) -> Facts:
    """Facts of new nodes over the values of a scope, as a scope inside it; `facts` itself stays as it is.

    nodes: in order, without bodies. taken: the names of the model's symbols; it grows by those of new dimensions that
    depend on data.
    """
    inner = Facts(tuple(nodes), facts.opsets, outer=facts)
    Engine(program, read, taken, general=True).run(inner, {})
    return inner
