"""How much memory a model's activations need while its nodes run in file order.

In-place reuse is that of onnxruntime's CPU provider (FindReusableInput in core/framework/allocation_planner.cc): an
output takes the buffer of an input of the same shape and element size, where the kernel is registered with MayInplace
and that buffer has no other use left. Buffers of graph inputs, graph outputs and weights are not taken. Which kernels
are, was measured with onnxruntime 1.31.1, operator by operator: the growth of the process's peak resident memory over
a 64 MB tensor, that only the operator reads, is 64 MB in place and 128 MB otherwise. Add, Mul and BatchNormalization
are not among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from operator import le, mul

from onnxfuse import ir
from onnxfuse.cost import kind
from onnxfuse.cost.quantity import BITS
from onnxfuse.cost.registry import NCHWC, Number, bytes_of, bytes_or_none
from onnxfuse.facts import Facts, symbols
from onnxfuse.facts.evaluation import evaluate
from onnxfuse.facts.expr import Dim, Expr, dmax
from onnxfuse.facts.terms import Monomial

# (domain, operator) -> the input whose buffer output 0 may take
_IN_PLACE: Mapping[tuple[str, str], int] = {
    **{("", name): 0 for name in (
        "Cast", "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "ScatterElements", "Selu",
        "Shrink", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh", "ThresholdedRelu", "Trilu",
    )},
    ("com.microsoft", "FusedConv"): 3,  # the residual
    (NCHWC, "Conv"): 3,
}  # fmt: skip

_MOST = 8  # formulas of which none is always the largest; a maximum of more says nothing to a reader
_COMPARED = 16  # more are not compared, as that takes long


def peaks(program: ir.Program, facts: Facts, outputs: Sequence[str]) -> tuple[Number, Number]:
    """Largest sum, in bytes, of the sizes of live node outputs while the nodes of a graph run in file order, and the
    same with in-place reuse.

    A view shares the memory of its input, a body adds its own peak to its node's, and what is computed from constants
    alone belongs to the weights. Unknown sizes count 0. Symbolic sizes make the peak an expression; None where no
    maximum of a few expressions is the largest. Takes time linear in the nodes.
    """
    roots: dict[str, str] = {}  # value -> the value whose memory it uses
    sizes: dict[str, Dim] = {}  # of values with memory of their own
    last: dict[str, tuple[int, int]] = {}  # root -> the last node that needs it, and how often that reads it
    born: list[list[str]] = []
    outer = {i for i, _ in facts.bodies}  # nodes with bodies
    for i, node in enumerate(facts.nodes):
        for name in _reads(node) if i in outer else node.inputs:
            root = roots.get(name, name)
            before = last.get(root)
            last[root] = (i, before[1] + 1 if before and before[0] == i else 1)
        born.append([])
        source = node.inputs[0] if node.inputs and kind(node) == "view" else ""
        for name in filter(None, node.outputs):
            value = facts[name]
            if value.constant:
                continue
            size = bytes_or_none(partial(bytes_of, value))
            if source and size == bytes_or_none(partial(bytes_of, facts[source])):
                roots[name] = roots.get(source, source)
                continue
            sizes[name] = 0 if size is None else size
            last[name] = (i, 0)
            born[i].append(name)
    for name in outputs:
        last[roots.get(name, name)] = (len(born), 0)
    dying: list[list[str]] = [[] for _ in range(len(born) + 1)]
    for name in sizes:
        dying[last[name][0]].append(name)

    level = _Level()
    plain, in_place = _Highest(level), _Highest(level)
    for i, node in enumerate(facts.nodes):
        for name in born[i]:
            level.add(sizes[name])
        inside = _body_peaks(program, facts, i, node) if i in outer else (0, 0)
        over = _overwritten(node, facts, roots) if (node.domain, node.op_type) in _IN_PLACE else ""
        reuses = over in sizes and last[over] == (i, 1) and last[node.outputs[0]][0] < len(born)
        plain.mark(inside[0])
        in_place.mark(inside[1], sizes[over] if reuses else 0)  # before and after there is one of the two either way
        for name in dying[i]:
            level.add(sizes[name], -1)
    return plain.result(), in_place.result()


def _overwritten(node: ir.Node, facts: Facts, roots: Mapping[str, str]) -> str:
    """The value whose buffer output 0 would take by its kernel and its type, "" if none."""
    position = _IN_PLACE[node.domain, node.op_type]
    if position >= len(node.inputs) or not node.outputs or not node.inputs[position]:
        return ""
    name = node.inputs[position]
    source, made = facts[name], facts[node.outputs[0]]
    same = source.shape == made.shape and BITS.get(source.dtype) == BITS.get(made.dtype)
    return roots.get(name, name) if same and made.shape is not None else ""


class _Level:
    """A sum of sizes that goes up and down, as the coefficients of its monomials, in columns; the first are numbers."""

    def __init__(self) -> None:
        self.columns: dict[Monomial, int] = {(): 0}
        self.now = [0]

    def add(self, size: Dim, times: int = 1) -> None:
        """Adds a size that many times."""
        if isinstance(size, int):
            self.now[0] += times * size
            return
        for monomial, coefficient in size.terms:
            column = self.columns.setdefault(monomial, len(self.now))
            if column == len(self.now):
                self.now.append(0)
            self.now[column] += times * coefficient


class _Highest:
    """The largest of the states that were marked; states are compared by their columns, as no monomial is negative."""

    def __init__(self, level: _Level) -> None:
        self._level = level
        self._number = 0  # the highest state while there is one column
        self._seen: set[tuple[int, ...]] = set()
        self._unknown = False

    def mark(self, more: Number, less: Dim = 0) -> None:
        """The present state, so much higher and lower, is a candidate; None = not known how much."""
        if more is None:
            self._unknown = True
            return
        level, change = self._level, more - less
        if change:
            level.add(change)
        if len(level.now) == 1:
            self._number = max(self._number, level.now[0])
        else:
            self._seen.add(tuple(level.now))
        if change:
            level.add(change, -1)

    def result(self) -> Number:
        """The largest candidate, as an expression where sizes are symbolic; None if unknown or not one of a few."""
        columns, width = self._level.columns, len(self._level.now)
        if self._unknown:
            return None
        if width == 1:
            return self._number
        if any(atom.low is None or atom.low < 0 for monomial in columns for atom in monomial):
            return None
        kept: list[tuple[int, ...]] = []
        states = {state + (0,) * (width - len(state)) for state in (*self._seen, (self._number,))}
        for state in sorted(states, key=lambda s: (sum(s), s), reverse=True):  # what is larger everywhere comes first
            if not any(all(map(le, state, other)) for other in kept):
                kept.append(state)
            if len(kept) > _COMPARED:
                return None
        monomials: list[Dim] = [Expr(((monomial, 1),)) if monomial else 1 for monomial in columns]
        sums: list[Dim] = [sum(map(mul, state, monomials)) for state in kept]
        if len(kept) > _MOST and _largest_somewhere(sums) > _MOST:
            return None
        top = dmax(*sums)
        lead = top.terms[0][0][0] if isinstance(top, Expr) else None
        return None if lead is not None and lead.kind == "max" and len(lead.args) > _MOST else top


def _largest_somewhere(sums: Sequence[Dim]) -> int:
    """How many of the sums no other one exceeds at all of some sizes: so many a maximum of them has at least."""
    names = sorted(set().union(*map(symbols, sums)))
    sizes = [dict.fromkeys(names, 1), dict.fromkeys(names, 1000)]
    sizes += [dict(zip(names, cycle(few), strict=False)) for few in ((3, 50, 700), (700, 50, 3))]
    try:
        found = {tuple(evaluate(dim, at) for at in sizes) for dim in sums}
    except ZeroDivisionError:
        return 0
    return sum(not any(one != other and all(map(le, one, other)) for other in found) for one in found)


def _body_peaks(program: ir.Program, facts: Facts, index: int, node: ir.Node) -> tuple[Number, Number]:
    """Largest peaks of the bodies of a node, 0 without any; None where not known."""
    if node.domain == "onnxfuse":  # one kernel: what its body says of values in between is only a definition
        return 0, 0
    bodies = [(attribute, body.outputs) for attribute, body in ir.subgraphs(node)]
    function = program.functions.get((node.domain, node.op_type, node.overload))
    if function is not None:
        bodies.append(("", function.outputs))
    found = [peaks(program, facts.bodies[key], outputs) for a, outputs in bodies if (key := (index, a)) in facts.bodies]
    plain, in_place = _largest(p for p, _ in found), _largest(p for _, p in found)
    return plain, in_place


def _largest(values: Iterable[Number]) -> Number:
    known: list[Dim] = [0]
    for value in values:
        if value is None:
            return None
        known.append(value)
    return dmax(*known)


def _reads(node: ir.Node) -> Iterator[str]:
    """Names that a node reads, those captured by its bodies included."""
    yield from node.inputs
    for _, body in ir.subgraphs(node):
        for inner in body.nodes:
            yield from _reads(inner)
        yield from body.outputs
