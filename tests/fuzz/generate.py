"""A graph from a seed: inputs of odd shapes, then moves, then a choice of outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from . import moves_attention, moves_dense, moves_elementwise, moves_linear, moves_norm, moves_shape
from .builder import LARGEST, Builder

_MOVES: dict[Callable[[Builder], None], int] = {
    move: weight
    for part in (moves_linear, moves_elementwise, moves_shape, moves_dense, moves_norm, moves_attention)
    for move, weight in part.MOVES.items()
}
_OPSETS = (7, 8, 9, 9, 10, 11, 12, 13, 14, 15, 17, 17, 17, 18, 18, 20, 21, 22, 23)


@dataclass(frozen=True)
class Case:
    """A graph to look at. shapes: of every input for the first run; special: whether NaN, infinities and the like are
    among its constants; huge: whether something overflowed, so that the results say little.
    """

    seed: int
    model: onnx.ModelProto
    shapes: dict[str, tuple[int, ...]]
    special: bool
    huge: bool


def generate(seed: int) -> Case:
    """The graph of a seed, the same on every machine."""
    rng = np.random.default_rng([seed, 2024])
    opset = int(rng.choice(_OPSETS))
    dtype = rng.choice([np.float32] * 8 + [np.float64, np.float16])
    special = bool(rng.random() < 0.25)
    ir_version = 3 if opset == 9 and rng.random() < 0.5 else int(rng.choice([4, 8, 8, 10]))
    b = Builder(rng, opset, dtype, min(ir_version, 10), special)
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        shape = _shape(b)
        for symbol, p in (("N", 0.35), ("M", 0.1)):
            size = int(shape[0] if symbol == "N" else b.choose(shape)) if shape else 0
            if b.chance(p) and size and symbol not in b.symbols.values():
                b.symbols.setdefault(size, symbol)
        b.input(rng.standard_normal(shape).astype(dtype))
    moves, weights = list(_MOVES), np.array(list(_MOVES.values()), float)
    if b.chance(0.5):  # some moves more than others, so that they meet
        weights *= rng.choice([0.1, 1, 4], len(weights))
    wanted = int(rng.integers(1, 9))
    tries = 0
    while wanted and tries < 40:
        tries += 1
        wanted -= b.attempt(moves[int(rng.choice(len(moves), p=weights / weights.sum()))])
    model = _model(b)
    huge = b.huge and any(_overflows(a) for a in b.values.values())
    return Case(seed, model, {n: b.values[n].shape for n, _, _ in b.inputs}, special, huge)


def _overflows(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" and bool(array.size) and not np.max(np.abs(array.astype(np.float64))) < 1e35


def _shape(b: Builder) -> list[int]:
    kind = b.rng.random()
    if kind < 0.6:
        channels, side = b.choose([1, 2, 3, 4, 8, 8, 16, 18]), b.choose([1, 3, 4, 5, 6, 8])
        batch = channels if b.chance(0.1) else b.choose([1, 1, 2, 3])
        width = side if b.chance(0.6) else b.choose([1, 4, 7, channels])
        return [batch if batch * channels * side * width <= LARGEST else 1, channels, side, width]
    if kind < 0.75:
        return [b.choose([1, 2]), b.choose([3, 4, 7]), b.choose([4, 8])]
    if kind < 0.85:
        return [b.choose([1, 2, 4]), b.choose([4, 8])]
    rank = b.choose([0, 1, 1, 2, 3, 4, 5])
    return [b.choose([0, 1, 1, 2, 2, 3, 4]) for _ in range(rank)]


def _model(b: Builder) -> onnx.ModelProto:
    read = {n for node in b.nodes for n in node.input}
    for node in b.nodes:
        read |= {n for a in node.attribute if a.HasField("g") for inner in a.g.node for n in inner.input}
    made = [n for node in b.nodes for n in node.output if node.op_type != "Constant"]
    leaves = [n for n in made if n not in read] or made[-1:]
    outputs = [n for n in leaves if b.chance(0.8)] or leaves
    outputs += [n for n in made if n not in outputs and b.chance(0.06)]
    if not outputs:
        outputs = [b.nodes[-1].output[0]] if b.nodes else []
    if not outputs:  # no move was possible
        name = b.inputs[0][0]
        outputs = [b("Identity", name)]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(t), dims) for n, t, dims in b.inputs]
    stored = [numpy_helper.from_array(a, n) for n, a in b.constants.items()]
    for n in b.constants if b.ir_version < 4 else b.overridable:
        a = b.constants[n]
        infos.append(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape))
    exact = b.chance(0.5) and not any(d is None or isinstance(d, str) for _, _, dims in b.inputs for d in dims)
    results = []
    for n in outputs:
        a = b.values[n]
        results.append(
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape if exact else [None] * a.ndim
            )
        )
    graph = helper.make_graph(b.nodes, "fuzz", infos, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", b.opset)], ir_version=b.ir_version)
