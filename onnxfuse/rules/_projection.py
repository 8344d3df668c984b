"""Heads of a projection x·W + b by constant weights, and weights of several of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Scope, is_op
from onnxfuse.rules._attention import Heads, heads, token_axes
from onnxfuse.rules._known import given, same_dims
from onnxfuse.rules._layout import Origin, origins

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """x·weight + bias; turned: the weight is given transposed. nodes: from the result upwards."""

    x: gs.Tensor
    weight: gs.Tensor
    bias: gs.Tensor | None
    turned: bool
    nodes: tuple[gs.Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Heads of a product. columns: of its weight, head by head. nodes: from the heads upwards."""

    heads: Heads
    columns: np.ndarray
    product: _Product
    nodes: tuple[gs.Node, ...]

    @property
    def x(self) -> gs.Tensor:
        """What is projected: [batch, steps, channels] or [steps, batch, channels]."""
        return self.product.x


def projection(tensor: gs.Tensor, scope: Scope, *, transposed: bool) -> Projection:
    """The projection that a value takes its heads from. Raises NotLegal."""
    found = origins(tensor, scope)
    product = _product(found[-1].tensor, scope) if found else None
    if product is None:
        raise NotLegal(f"'{tensor.name}' is made of no product with a constant matrix")
    origin: Origin | None = found[-1]
    if len(found[-1].shape) == 2:
        origin, product = _of_rows(found[-1], product, scope)
    of = heads(origin, transposed=transposed) if origin is not None else None
    columns = None if of is None else of.columns()
    if of is None or columns is None or token_axes(of) is None:
        raise NotLegal(f"'{tensor.name}' is not surely the heads of '{found[-1].tensor.name}'")
    return Projection(of, columns, product, (*of.origin.nodes, *product.nodes))


def _product(y: gs.Tensor, scope: Scope) -> _Product | None:
    """The product with a constant matrix, and the bias of one number a column, that make a value."""
    node, bias = scope.editor.producer(y), None
    nodes = [] if node is None else [node]
    if node is not None and is_op(node, "Gemm"):
        plain = {"alpha": 1, "beta": 1, "transA": 0}
        bias = given(node, 2)
        if any(node.attrs.get(k, v) != v for k, v in plain.items()) or not (bias is None or _is_bias(bias, y, scope)):
            return None
    elif node is not None and is_op(node, "Add"):
        sides = [(a, b) for a, b in (node.inputs, node.inputs[::-1]) if _is_bias(b, y, scope)]
        node, bias = (scope.editor.producer(sides[0][0]), sides[0][1]) if sides else (None, None)
        if node is None or not is_op(node, "MatMul"):
            return None
        nodes.append(node)
    if node is None or not is_op(node, "MatMul", "Gemm"):
        return None
    x, weight = node.inputs[:2]
    if scope.constant(weight) is None or len(scope.value(weight).shape or ()) != 2:
        return None
    return _Product(x, weight, bias, bool(node.attrs.get("transB", 0)), tuple(nodes))


def _is_bias(tensor: gs.Tensor, y: gs.Tensor, scope: Scope) -> bool:
    shape = scope.value(y).shape
    return shape is not None and scope.value(tensor).shape == shape[-1:] and scope.constant(tensor) is not None


def _of_rows(origin: Origin, product: _Product, scope: Scope) -> tuple[Origin | None, _Product]:
    """Those of the three axes of which a Reshape made the rows that are multiplied."""
    reshape = scope.editor.producer(product.x)
    if reshape is None or not is_op(reshape, "Reshape"):
        return None, product
    x, rows = reshape.inputs[0], scope.value(product.x).shape
    shape = scope.value(x).shape
    if shape is None or rows is None or len(shape) != 3 or not same_dims(shape[2:], rows[1:]):
        return None, product
    wide = (*shape[:2], origin.shape[1])
    return origin.as_rows_of(wide, scope), replace(product, x=x, nodes=(*product.nodes, reshape))


def side_by_side(build: Build, parts: Sequence[Projection], scope: Scope) -> tuple[gs.Tensor, gs.Tensor]:
    """Weight and bias of all of them, head by head: those that are there, or new ones."""
    first, order = parts[0].product, np.concatenate([p.columns for p in parts])
    whole = (scope.value(first.weight).shape or (0, 0))[1] == len(order)
    turned = any(p.product.turned for p in parts)
    in_order = whole and not turned and np.array_equal(order, np.arange(len(order)))
    weight, bias = first.weight, first.bias
    if not in_order or any(p.product.weight is not weight for p in parts):
        weight = build.constant(np.concatenate([_weight(p, scope) for p in parts], axis=1))
    if not in_order or bias is None or any(p.product.bias is not bias for p in parts):
        bias = build.constant(np.concatenate([_bias(p, scope) for p in parts]))
    return weight, bias


def _weight(part: Projection, scope: Scope) -> np.ndarray:
    weight = scope.constant(part.product.weight)
    assert weight is not None  # as found
    return weight[part.columns].T if part.product.turned else weight[:, part.columns]


def _bias(part: Projection, scope: Scope) -> np.ndarray:
    bias = None if part.product.bias is None else scope.constant(part.product.bias)
    return np.zeros(len(part.columns), _weight(part, scope).dtype) if bias is None else bias[part.columns]
