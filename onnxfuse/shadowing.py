"""Names in bodies (of If, Loop, Scan …) that hide a name of a graph around them.

ONNX forbids them and onnxruntime takes many: an initializer or an input of a body may be called like any outer value,
an output of its nodes like a value that comes later. A rewrite that moves a node or lets it read another value would
meet the wrong one. So `rename` gives such names new ones while a model is worked on, and `original` gives them back
where a model is written: a body that no rewrite touches keeps its bytes.

Where one branch of an If hides a name and the other reads it from outside, onnxruntime (1.32) feeds the outer value to
both, and folds constants with the inner one: results depend on its level. Such a name is `contested`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import onnx

from onnxfuse import ir

# Of each graph around a body, outermost first: its names, each with the node that makes it (-1: none), and which of its
# nodes the body belongs to.
_Around = Sequence[tuple[Mapping[str, int], int]]
_Undo = list[Callable[[], None]]


def contested(graph: onnx.GraphProto) -> str | None:
    """The first name that a body hides and another body of the same node reads from outside; None without one."""
    for body, read, around in _bodies(graph):
        if found := next((name for name in _hiding(body, around) if name in read()), None):
            return found
    return None


def rename(graph: onnx.GraphProto) -> dict[str, str]:
    """Give every name in a body that hides an outer one a name that nothing else has, in place.

    Returns new name → old name; {} where nothing is hidden, or a name is contested. The main graph keeps its names.
    """
    if contested(graph) is not None:
        return {}
    taken: set[str] = set()
    last: dict[str, int] = {}
    renamed: dict[str, str] = {}
    for body, _, around in _bodies(graph):
        if hiding := _hiding(body, around):
            taken = taken or _all_names(graph)
            names = {name: _fresh(name, taken, last) for name in hiding}
            renamed |= {new: old for old, new in names.items()}
            _substitute(body, names, [])
    return renamed


@contextmanager
def original(graph: onnx.GraphProto, renamed: Mapping[str, str]) -> Iterator[None]:
    """For the while, the names that `rename` replaced stand in the graph again, where they still mean the same.

    A name stays replaced where the old one would be contested now, and where an output of a body's node would be called
    like what other nodes around make: onnxruntime refuses that if these come first in an order of its own.
    """
    undo: _Undo = []
    try:
        for body, read, around in _bodies(graph) if renamed else ():
            own = set(ir.defined(body))
            kept = own.union(*(ir.defined(inner) for inner, *_ in _bodies(body)))
            kept |= {renamed.get(name, name) for name in read()}
            outputs = {name for n in body.node for name in n.output}
            names = {}
            for name in own & renamed.keys():
                old = renamed[name]
                if name in outputs and any(places.get(old, at) != at for places, at in around):
                    continue
                if old not in kept:
                    names[name] = old
            if names:
                _substitute(body, names, undo)
        yield
    finally:
        for step in reversed(undo):
            step()


def _hiding(body: onnx.GraphProto, around: _Around) -> list[str]:
    return [name for name in dict.fromkeys(ir.defined(body)) if any(name in places for places, _ in around)]


_Body = tuple[onnx.GraphProto, Callable[[], set[str]], _Around]


def _bodies(graph: onnx.GraphProto) -> Iterator[_Body]:
    """Every body, before those in it; what it and the other bodies of its node read from outside; the graphs around it.

    The names of a graph are looked up when its bodies are reached, and those that are read when they are asked for.
    """
    todo = _inner(graph, ())
    while todo:
        body = todo.pop()
        yield body
        todo += _inner(body[0], body[2])


def _inner(graph: onnx.GraphProto, around: _Around) -> list[_Body]:
    """The bodies of the nodes of one graph, the last one first."""
    inner = [(bodies, i) for i, node in enumerate(graph.node) if (bodies := ir.bodies(node))]
    if not inner:
        return []
    places = dict.fromkeys(ir.defined(graph), -1)
    places |= {name: i for i, node in enumerate(graph.node) for name in node.output}
    return [
        (body, read, (*around, (places, i)))
        for bodies, i in reversed(inner)
        for read in [cache(partial(_read, bodies))]
        for body in reversed(bodies)
    ]


def _read(bodies: Sequence[onnx.GraphProto]) -> set[str]:
    return set[str]().union(*map(ir.read_outside, bodies))


def _all_names(graph: onnx.GraphProto) -> set[str]:
    names = {*ir.defined(graph), *(name for node in graph.node for name in node.input)}
    for body, *_ in _bodies(graph):
        names |= {*ir.defined(body), *ir.read_outside(body)}
    return names


def _fresh(name: str, taken: set[str], last: dict[str, int]) -> str:
    """A name that is not taken: the old one with the next number; `last` holds the last number of each."""
    while (new := f"{name}_{last.get(name, 0) + 1}") in taken:
        last[name] = last.get(name, 0) + 1
    taken.add(new)
    return new


def _substitute(body: onnx.GraphProto, names: Mapping[str, str], undo: _Undo) -> None:
    """Replace names that a body defines, there and in the bodies that read them; `undo` takes it back from its end."""

    def field(message: Any, key: str = "name") -> None:
        old = getattr(message, key)
        if old in names:
            undo.append(partial(setattr, message, key, old))
            setattr(message, key, names[old])

    def texts(values: Any) -> None:
        for i, old in enumerate(list(values)):
            if old in names:
                undo.append(partial(values.__setitem__, i, old))
                values[i] = names[old]

    inner = [g for node in body.node for g in ir.bodies(node)]
    for message in (*body.input, *body.output, *body.value_info, *body.initializer):
        field(message)
    for sparse in body.sparse_initializer:
        field(sparse.values)
    for note in body.quantization_annotation:
        field(note, "tensor_name")
        for entry in note.quant_parameter_tensor_names:
            field(entry, "value")
    for node in body.node:
        texts(node.input)
        texts(node.output)
    for graph in inner:
        left = {old: new for old, new in names.items() if old not in set(ir.defined(graph))}
        if left:
            _substitute(graph, left, undo)
