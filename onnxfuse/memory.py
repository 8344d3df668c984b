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
from functools import cache, partial
from itertools import accumulate, cycle
from operator import le, mul

from onnxfuse import ir
from onnxfuse.cost import kind
from onnxfuse.cost.quantity import BITS
from onnxfuse.cost.registry import NCHWC, Number, bytes_of, bytes_or_none
from onnxfuse.facts import Facts, symbols
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
    size_of = cache(lambda value: bytes_or_none(partial(bytes_of, value)))  # many values are one object
    roots: dict[str, str] = {}  # value -> the value whose memory it uses
    sizes: dict[str, Dim] = {}  # of values with memory of their own
    born: dict[str, int] = {}  # the same values -> the node that makes them
    last: dict[str, int] = {}  # root -> the last node that needs it
    outer = {i for i, _ in facts.bodies}  # nodes with bodies
    for i, node in enumerate(facts.nodes):
        for name in _reads(node) if i in outer else node.inputs:
            last[roots.get(name, name)] = i
        source = node.inputs[0] if node.inputs and kind(node) == "view" else ""
        for name in node.outputs:
            value = facts[name]
            if not name or value.constant:
                continue
            size = size_of(value)
            if source and size == size_of(facts[source]):
                roots[name] = roots.get(source, source)
                continue
            sizes[name] = 0 if size is None else size
            born[name] = last[name] = i
    count = len(facts.nodes)
    for name in outputs:
        last[roots.get(name, name)] = count
    levels = _Levels(count)
    for name, size in sizes.items():
        levels.add(size, born[name], last[name])
    plain: dict[int, Number] = {}  # what a node adds to the level while it runs
    in_place: dict[int, Number] = {}
    for i, node in enumerate(facts.nodes):
        if i in outer:
            plain[i], in_place[i] = _body_peaks(program, facts, i, node)
        if (node.domain, node.op_type) in _IN_PLACE:
            over = _overwritten(node, facts, roots)
            more = in_place.get(i, 0)
            if over in sizes and last[over] == i and last[node.outputs[0]] < count and more is not None:
                in_place[i] = more - sizes[over]  # before and after there is one of the two either way
    return levels.highest(plain), levels.highest(in_place)


def all_sized(general: Facts, sized: Facts) -> bool:
    """Whether all values of known size at fixed dims have one in general too: else general peaks leave some out."""
    for name, value in general.values.items():
        if bytes_or_none(partial(bytes_of, value)) is None:
            number = sized.values.get(name)
            if number is not None and bytes_or_none(partial(bytes_of, number)) is not None:
                return False
    return all(all_sized(body, sized.bodies[key]) for key, body in general.bodies.items() if key in sized.bodies)


def _overwritten(node: ir.Node, facts: Facts, roots: Mapping[str, str]) -> str:
    """The value whose buffer output 0 would take by its kernel and its type, "" if none or if it is read twice."""
    position = _IN_PLACE[node.domain, node.op_type]
    if position >= len(node.inputs) or not node.outputs or not node.inputs[position]:
        return ""
    name = node.inputs[position]
    source, made = facts[name], facts[node.outputs[0]]
    if made.shape is None or source.shape != made.shape or BITS.get(source.dtype) != BITS.get(made.dtype):
        return ""
    root = roots.get(name, name)
    return root if [roots.get(read, read) for read in node.inputs].count(root) == 1 else ""


class _Levels:
    """The sums of live sizes while each of the nodes runs, as the coefficients of their monomials, in columns.

    The first column are the numbers. Sums are compared by their columns, as no monomial is negative.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._columns: dict[Monomial, int] = {(): 0}
        self._changes = [[0] * (nodes + 1)]  # by column and node
        self._parts: dict[Dim, list[tuple[int, int]]] = {}

    def add(self, size: Dim, first: int, last: int) -> None:
        """A size that is live from one node to another one."""
        for column, k in self._split(size):
            changes = self._changes[column]
            changes[first] += k
            if last < self._nodes:
                changes[last + 1] -= k

    def _split(self, size: Dim) -> list[tuple[int, int]]:
        """The columns and coefficients of a size."""
        parts = self._parts.get(size)
        if parts is None:
            terms = (((), size),) if isinstance(size, int) else size.terms
            parts = self._parts[size] = [(self._columns.setdefault(m, len(self._columns)), k) for m, k in terms]
            while len(self._changes) < len(self._columns):
                self._changes.append([0] * (self._nodes + 1))
        return parts

    def highest(self, more: Mapping[int, Number]) -> Number:
        """The largest of the sums, to which some nodes add more, as an expression where sizes are symbolic.

        None where what a node adds is not known, or where the largest is not one of a few.
        """
        splits = {i: None if extra is None else self._split(extra) for i, extra in more.items()}
        columns, width = self._columns, len(self._columns)
        sums = [list(accumulate(changes[: self._nodes])) for changes in self._changes]
        for i, parts in splits.items():
            if parts is None:
                return None
            for column, k in parts:
                sums[column][i] += k
        if width == 1:
            return max(sums[0], default=0)
        if any(atom.low is None or atom.low < 0 for monomial in columns for atom in monomial):
            return None
        kept: list[tuple[int, ...]] = []
        for state in sorted(set(zip(*sums, strict=True)), key=lambda s: (sum(s), s), reverse=True):
            if not any(all(map(le, state, other)) for other in kept):  # what is larger everywhere comes first
                kept.append(state)
            if len(kept) > _COMPARED:
                return None
        monomials: list[Dim] = [Expr(((monomial, 1),)) if monomial else 1 for monomial in columns]
        tops: list[Dim] = [sum(map(mul, state, monomials)) for state in kept]
        if len(kept) > _MOST and _largest_somewhere(tops) > _MOST:
            return None
        top = dmax(*tops)
        lead = top.terms[0][0][0] if isinstance(top, Expr) else None
        return None if lead is not None and lead.kind == "max" and len(lead.args) > _MOST else top


def _largest_somewhere(sums: Sequence[Dim]) -> int:
    """How many of the sums no other one exceeds at all of some sizes: so many a maximum of them has at least."""
    names = sorted(set().union(*map(symbols, sums)))
    sizes = [dict.fromkeys(names, 1), dict.fromkeys(names, 1000)]
    sizes += [dict(zip(names, cycle(few), strict=False)) for few in ((3, 50, 700), (700, 50, 3))]
    try:
        found = {tuple(dim if isinstance(dim, int) else dim.evaluate(at) for at in sizes) for dim in sums}
    except ZeroDivisionError:
        return 0
    return sum(not any(one != other and all(map(le, one, other)) for other in found) for one in found)


def _body_peaks(program: ir.Program, facts: Facts, index: int, node: ir.Node) -> tuple[Number, Number]:
    """Largest peaks of the bodies of a node, 0 without any, or where they never run; None where not known."""
    if node.domain == "onnxfuse" or kind(node) == "attention":  # one kernel: its bodies only say what it computes
        return 0, 0
    if facts.trips.get(index) == 0:
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
