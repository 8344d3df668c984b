"""The elements of small tensors, as exporters compute shapes with them; element-wise ones are in `arithmetic`."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

from onnxfuse.facts.arithmetic import check_ordered
from onnxfuse.facts.call import Call, Unclear, array, elementwise, fold, normal_axis, numbers, prod
from onnxfuse.facts.contents import FLOATS
from onnxfuse.facts.expr import Dim, Expr, dmax, dmin, symbol
from onnxfuse.facts.movement import cut, slice_bounds, slices, split_shapes


@fold("Shape")
def _shape_elements(c: Call) -> np.ndarray:
    return array(cut(c))


@fold("Size")
def _size_elements(c: Call) -> np.ndarray:
    return array([prod(c.shape(0))], ())


@fold("Reshape Flatten Squeeze Unsqueeze")
def _same_elements(c: Call) -> np.ndarray:
    return c.data()  # the engine gives it the output's shape


@fold("Transpose")
def _transpose_elements(c: Call) -> np.ndarray:
    return np.transpose(c.data(), c.attr_ints("perm"))


@fold("Concat")
def _concat_elements(c: Call) -> np.ndarray:
    parts = []
    for i, v in enumerate(c.inputs):
        part = v.data
        if part is None:  # an unknown element among known ones is a symbol of its own
            if v.dtype not in (T.INT64, T.INT32) or v.shape is None or len(v.shape) != 1:
                raise Unclear
            (n,) = v.shape
            if not isinstance(n, int) or n > 16:
                raise Unclear
            name = c.node.inputs[i]
            part = array([symbol(c.name_dim(f"{name}[{k}]"), low=None) for k in range(n)])
        parts.append(part)
    return np.concatenate(parts, c.axis(parts[0].ndim, 1))


@fold("Slice")
def _slice_elements(c: Call) -> np.ndarray:
    data = c.data()
    axes, starts, ends, steps = slices(c)
    if axes is None or starts is None or ends is None or steps is None:
        raise Unclear
    for a, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = normal_axis(a, data.ndim)
        first, last = slice_bounds(start, end, step, data.shape[axis]) or (None, None)
        if not isinstance(first, int) or not isinstance(last, int):
            raise Unclear
        data = data.take(range(first, last, step), axis)
    return data


@fold("Split")
def _split_elements(c: Call) -> list[np.ndarray]:
    data = c.data()
    axis = c.axis(data.ndim, 0)
    ends: list[int] = []
    for shape in split_shapes(c):
        size = shape[axis]
        ends.append((ends[-1] if ends else 0) + (size if isinstance(size, int) else 0))
    return np.split(data, ends[:-1], axis)


@fold("Expand")
def _expand_elements(c: Call) -> np.ndarray:
    data, target = c.data(), c.ints(1)
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(target)))


@fold("Tile")
def _tile_elements(c: Call) -> np.ndarray:
    return np.tile(c.data(), c.ints(1))


@fold("Dropout")
def _dropout_elements(c: Call) -> np.ndarray:
    if c.has(2) or not c.attr("is_test", 1):  # perhaps in training mode
        raise Unclear
    return c.data()


@fold("ReduceProd")
def _product_elements(c: Call) -> np.ndarray:
    return _reduce(c, np.multiply)


@fold("ReduceSum")
def _sum_elements(c: Call) -> np.ndarray:
    return _reduce(c, np.add)


@fold("ReduceMax")
def _max_elements(c: Call) -> np.ndarray:
    return _reduce(c, np.frompyfunc(dmax, 2, 1), np.maximum)


@fold("ReduceMin")
def _min_elements(c: Call) -> np.ndarray:
    return _reduce(c, np.frompyfunc(dmin, 2, 1), np.minimum)


def _reduce(c: Call, function: np.ufunc, of_floats: np.ufunc | None = None) -> np.ndarray:
    """of_floats: the same on floats, where it does not round; without it floats must be whole and stay exact."""
    data, dtype = c.data(), c.value(0).dtype
    if not data.size:
        raise Unclear
    if data.dtype != object:
        check_ordered(data)
    if data.dtype != object and of_floats is not None:
        function = of_floats
    elif dtype in FLOATS:
        data = elementwise(_whole, data)
    axes = c.ints_of("axes", 1)
    if not axes:
        if c.attr("noop_with_empty_axes", 0):
            return data
        axes = list(range(data.ndim))
    if dtype in FLOATS and of_floats is None:
        _check_exact(data, dtype, function)
    out = data
    for axis in sorted({normal_axis(a, data.ndim) for a in axes}, reverse=True):
        out = np.asarray(function.reduce(out, axis=axis), dtype=data.dtype)
    return out


def _whole(x: object) -> Dim:
    if isinstance(x, float) and x.is_integer():
        return int(x)
    if isinstance(x, int | Expr):
        return x
    raise Unclear


def _check_exact(data: np.ndarray, dtype: int, function: np.ufunc) -> None:
    """Raises Unclear where a product or sum of whole floats may be rounded on the way, in whatever order they come."""
    largest = 1 if function is np.multiply else 0
    for d in map(abs, (d for d in data.reshape(-1) if isinstance(d, int))):
        largest = largest * max(d, 1) if function is np.multiply else largest + d
    if largest > _EXACT[dtype]:
        raise Unclear


_EXACT: dict[int, int] = {T.FLOAT16: 2**11, T.FLOAT: 2**24, T.DOUBLE: 2**53}  # whole numbers up to here are floats


def _indices(c: Call, i: int = 1) -> np.ndarray:
    return numbers(c.data(i)).astype(np.int64)


@fold("NonZero")
def _non_zero_indices(c: Call) -> np.ndarray:
    return np.array(np.nonzero(np.atleast_1d(numbers(c.data(0)))))


@fold("Gather")
def _gather_values(c: Call) -> np.ndarray:
    data = c.data(0)
    index = _indices(c)
    return np.asarray(np.take(data, index, axis=c.axis(data.ndim, 0)), dtype=data.dtype)


@fold("GatherElements")
def _gather_element_values(c: Call) -> np.ndarray:
    data = c.data(0)
    return np.asarray(data[_places(c, data)], dtype=data.dtype)


@fold("GatherND")
def _gather_nd_values(c: Call) -> np.ndarray:
    data, index = c.data(0), _indices(c)
    if c.attr("batch_dims", 0):
        raise Unclear
    return np.asarray(data[tuple(np.moveaxis(index, -1, 0))], dtype=data.dtype)


@fold("ScatterND")
def _scatter_nd_values(c: Call) -> np.ndarray:
    if c.text("reduction", "none") != "none":
        raise Unclear
    out, index, updates = c.data(0).copy(), _indices(c), c.data(2)
    if updates.shape != (*index.shape[:-1], *out.shape[index.shape[-1] :]):
        raise Unclear
    out[tuple(np.moveaxis(index, -1, 0))] = updates
    return out


@fold("ScatterElements")
def _scatter_element_values(c: Call) -> np.ndarray:
    if c.text("reduction", "none") != "none":
        raise Unclear
    out = c.data(0).copy()
    places = _places(c, out)
    updates = c.data(2)
    chosen = np.unique(np.ravel_multi_index([p % n for p, n in zip(places, out.shape, strict=True)], out.shape))
    if updates.shape != places[0].shape or chosen.size != updates.size:  # which of two comes last is not said
        raise Unclear
    out[places] = updates
    return out


def _places(c: Call, data: np.ndarray) -> tuple[np.ndarray, ...]:
    """The place of every element of the indices in the data: its own, but for the one along the axis. (numpy's own
    functions broadcast indices, which the operators do not.)
    """
    index = _indices(c)
    if index.ndim != data.ndim or not index.ndim:
        raise Unclear
    places: list[np.ndarray] = list(np.indices(index.shape))
    places[c.axis(data.ndim, 0)] = index
    return tuple(places)


@fold("ConstantOfShape")
def _filled_values(c: Call) -> np.ndarray:
    value = c.node.attrs.get("value")
    if value is not None and not isinstance(value, onnx.TensorProto):
        raise Unclear
    fill = np.zeros(1, np.float32) if value is None else c.read(value)
    if fill is None or fill.size != 1:
        raise Unclear
    return np.full(c.ints(0), fill.reshape(-1)[0], dtype=fill.dtype)


@fold("Constant")
def _constant_values(c: Call) -> np.ndarray:
    for name, value in c.node.attrs.items():
        if isinstance(value, onnx.TensorProto):
            out = c.read(value)
            if out is None:
                raise Unclear
            return out
        if name == "value_int":
            return array([c.attr(name, 0)], ())
        if name == "value_ints":
            return array(c.attr_ints(name) or ())
        if name in ("value_float", "value_floats"):
            return np.asarray(value, dtype=np.float32)
    raise Unclear


@fold("Range")
def _range_values(c: Call) -> np.ndarray:
    start, limit, delta = (c.data(i).reshape(-1)[0] for i in range(3))
    if c.value(0).dtype in (T.INT64, T.INT32, T.INT16):
        if any(isinstance(d, Expr) for d in (limit - start, delta)):
            raise Unclear
        return array([start + i for i in range(0, limit - start, delta)])
    if any(isinstance(d, Expr) for d in (start, limit, delta)):
        raise Unclear
    dtype = helper.tensor_dtype_to_np_dtype(c.value(0).dtype)
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    steps = float(start) + float(delta) * np.arange(count + 1)
    # Some runtimes add up and some multiply: where each step is exact it is all one.
    exact = np.array_equal(steps.astype(dtype), steps) and np.all(np.diff(steps) == float(delta))
    if not exact:
        raise Unclear
    return steps[:count].astype(dtype)
