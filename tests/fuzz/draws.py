"""Inputs for a graph of the fuzzer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .generate import Case
from .sessions import Feeds


def draws(case: Case) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Inputs to run on: normal data, odd numbers, huge ones, other sizes of the free dims, other defaults."""
    rng = np.random.default_rng([case.seed, 7])
    yield "normal", make_feeds(case, rng, {})
    yield "NaN", make_feeds(case, rng, {}, [np.nan, -0.0, 1e-42])
    yield "infinite", make_feeds(case, rng, {}, [np.nan, np.inf, -np.inf, -0.0, 1e-42])
    if case.seed % 3 == 0:
        yield "huge", make_feeds(case, rng, {}, [1e30, -3e38, 1e-30])
    free = {d.dim_param for i in case.model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    for size in (1, 5) if free else ():  # a free dim of 0 is not promised
        feeds = make_feeds(case, rng, dict.fromkeys(free, size))
        if is_valid(case.model, feeds):
            yield f"normal at {size}", feeds
    for name in sorted(free) if len(free) > 1 else ():
        feeds = make_feeds(case, rng, {name: 3})
        if is_valid(case.model, feeds):
            yield f"normal at {name} 3", feeds
    defaults = [t for t in case.model.graph.initializer if t.name in {i.name for i in case.model.graph.input}]
    if defaults and case.model.ir_version >= 4:
        other = {}
        for t in defaults:
            array = numpy_helper.to_array(t)
            if array.dtype.kind == "f" and rng.random() < 0.7:
                other[t.name] = np.asarray(rng.uniform(0.5, 2, array.shape)).astype(array.dtype)
        yield "normal with other defaults", make_feeds(case, rng, {}) | other


def make_feeds(
    case: Case, rng: np.random.Generator, sizes: Mapping[str, int], odd: Sequence[float] = ()
) -> dict[str, np.ndarray]:
    """Normal data with whole numbers in integer inputs, every tenth number one of the odd ones. sizes: of free dims."""
    feeds = {}
    stored = {t.name for t in case.model.graph.initializer}
    for info in case.model.graph.input:
        if info.name in stored:
            continue
        tensor = info.type.tensor_type
        shape = [sizes.get(d.dim_param, n) for d, n in zip(tensor.shape.dim, case.shapes[info.name], strict=True)]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "b":
            array = np.asarray(rng.random(shape) < 0.5)
        elif dtype.kind in "iu":
            array = np.asarray(rng.integers(-5, 6, shape))
        else:
            array = np.asarray(rng.standard_normal(shape))
            if odd:
                array = np.where(rng.random(shape) < 0.1, rng.choice(odd, shape), array)
        with np.errstate(all="ignore"):
            feeds[info.name] = np.asarray(array).astype(dtype)
    return feeds


def is_valid(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether shapes fit at these sizes. onnxruntime runs some nodes whose shapes do not, and leaves results unset."""
    if any(n.op_type == "Slice" for n in model.graph.node):
        return all(
            n.op_type != "Concat" for n in model.graph.node
        )  # onnx 1.23 ends the process where there is nothing to take from
    sized = onnx.ModelProto.FromString(model.SerializeToString())
    for info in sized.graph.input:
        if info.name in feeds:
            for d, size in zip(info.type.tensor_type.shape.dim, feeds[info.name].shape, strict=True):
                d.dim_value = size
    try:
        inferred = onnx.shape_inference.infer_shapes(sized, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return False
    empty = {
        v.name for v in inferred.graph.value_info for d in v.type.tensor_type.shape.dim
        if d.HasField("dim_value") and not d.dim_value
    }  # fmt: skip
    return not any(("Pool" in n.op_type or "Conv" in n.op_type) and n.output[0] in empty for n in sized.graph.node)
