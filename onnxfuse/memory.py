"""How much memory a model's activations need while its nodes run in file order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from onnxfuse import ir
from onnxfuse.cost import kind
from onnxfuse.cost.registry import Number, bytes_of, bytes_or_none
from onnxfuse.facts import Facts


def peak_activation_bytes(program: ir.Program, facts: Facts, outputs: Sequence[str]) -> Number:
    """Largest sum of the sizes of live node outputs while the nodes of a graph run in file order.

    A view shares the memory of its input, a body adds its own peak to its node's, nothing is reused in place, and what
    is computed from constants alone belongs to the weights. Unknown sizes count 0; None when a size is symbolic.
    """
    roots: dict[str, str] = {}  # value -> the value whose memory it uses
    sizes: dict[str, int] = {}  # of values with memory of their own
    last: dict[str, int] = {}  # root -> the last node that needs it
    born: list[list[str]] = []
    outer = {i for i, _ in facts.bodies}  # nodes with bodies
    for i, node in enumerate(facts.nodes):
        for name in _reads(node) if i in outer else node.inputs:
            last[roots.get(name, name)] = i
        born.append([])
        source = node.inputs[0] if node.inputs and kind(node) == "view" else ""
        for name in filter(None, node.outputs):
            value = facts[name]
            if value.constant:
                continue
            size = bytes_or_none(partial(bytes_of, value))
            if not isinstance(size, int | None):
                return None
            if source and size == bytes_or_none(partial(bytes_of, facts[source])):
                roots[name] = roots.get(source, source)
                continue
            sizes[name] = size or 0
            last[name] = i
            born[i].append(name)
    for name in outputs:
        last[roots.get(name, name)] = len(born)
    dying: list[list[str]] = [[] for _ in range(len(born) + 1)]
    for name in sizes:
        dying[last[name]].append(name)
    live = highest = 0
    for i, node in enumerate(facts.nodes):
        live += sum(sizes[name] for name in born[i])
        inner = _body_peak(program, facts, i, node) if i in outer else 0
        if inner is None:
            return None
        highest = max(highest, live + inner)
        live -= sum(sizes[name] for name in dying[i])
    return highest


def _body_peak(program: ir.Program, facts: Facts, index: int, node: ir.Node) -> int | None:
    """Largest peak of the bodies of a node, 0 without any; None when it is symbolic."""
    if node.domain == "onnxfuse":  # one kernel: what its body says of values in between is only a definition
        return 0
    bodies = [(attribute, body.outputs) for attribute, body in ir.subgraphs(node)]
    function = program.functions.get((node.domain, node.op_type, node.overload))
    if function is not None:
        bodies.append(("", function.outputs))
    highest = 0
    for attribute, outputs in bodies:
        if (index, attribute) in facts.bodies:
            inner = peak_activation_bytes(program, facts.bodies[index, attribute], outputs)
            if not isinstance(inner, int):
                return None
            highest = max(highest, inner)
    return highest


def _reads(node: ir.Node) -> Iterator[str]:
    """Names that a node reads, those captured by its bodies included."""
    yield from node.inputs
    for _, body in ir.subgraphs(node):
        for inner in body.nodes:
            yield from _reads(inner)
        yield from body.outputs
