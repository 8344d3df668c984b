"""What the tests share: models from ONNX text, runs in onnxruntime, and the light zoo of the onnx wheel."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, parser

import onnxfuse
from onnxfuse import targets

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

LIGHT_ZOO = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("light_*.onnx"))
FLOAT_TYPES = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}


@cache
def node_cases() -> tuple[TestCase, ...]:
    """The operator tests of the onnx wheel. They are shared: a test that changes a model changes a copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators provoke overflows and divisions by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        return tuple(case for case in collect_testcases(None) if case.model is not None)


def parse(text: str) -> onnx.ModelProto:
    """A model from ONNX text, checked."""
    model = parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


def graph(body: str, *, inputs: str, outputs: str, opset: int = 17, ir: int = 8, extra: str = "") -> onnx.ModelProto:
    """A model of one graph in ONNX text."""
    return parse(f'<ir_version: {ir}, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {body} }} {extra}')


def random_feeds(model: onnx.ModelProto, seed: int = 0, dims: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Normal data, negative values included, for every input that has no default."""
    rng = np.random.default_rng(seed)
    defaults = {t.name for t in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        if info.name in defaults:
            continue
        tensor = info.type.tensor_type
        shape = [(dims or {}).get(d.dim_param, 2) if d.dim_param else d.dim_value for d in tensor.shape.dim]
        if tensor.elem_type == TensorProto.BOOL:
            feeds[info.name] = np.ones(shape, bool)
        else:
            feeds[info.name] = rng.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


def with_weights(model: onnx.ModelProto, seed: int = 1) -> onnx.ModelProto:
    """The model with every input that is not called x… as a constant of normal data; positive where called v…"""
    feeds = random_feeds(model, seed)
    for info in [i for i in model.graph.input if not i.name.startswith("x")]:
        data = np.abs(feeds[info.name]) if info.name.startswith("v") else feeds[info.name]
        model.graph.initializer.append(numpy_helper.from_array(data, info.name))
        model.graph.input.remove(info)
    return model


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], *, plain: bool = True) -> list[np.ndarray]:
    """Outputs in onnxruntime on the CPU; plain: without its own optimizations."""
    options = ort.SessionOptions()
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def assert_same(a: onnx.ModelProto, b: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """Both models give the same on these feeds: within 1e-5 (float32) of an output's scale, 2e-3 for float16."""
    for left, right in zip(run(a, feeds), run(b, feeds), strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape
        scale = max(float(np.max(np.abs(left), initial=0)), 1e-6)
        # Room for a sum in another order, nothing else: 84 units in the last place of float32, 2 of float16.
        allowed = {np.float16: 2e-3, np.float32: 1e-5, np.float64: 1e-12}.get(left.dtype.type, 0)
        assert np.max(np.abs(left.astype(np.float64) - right.astype(np.float64)), initial=0) <= allowed * scale


def ops(model: onnx.ModelProto) -> list[str]:
    """Operators of the main graph in order, with their domain where it is not ai.onnx."""
    return graph_ops(model.graph)


def graph_ops(graph: onnx.GraphProto) -> list[str]:
    """Operators of one graph in order, with their domain where it is not ai.onnx."""
    return [f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in graph.node]


def optimized(model: onnx.ModelProto, **options: object) -> onnxfuse.Result:
    """`optimize` in memory; verification is on unless said otherwise."""
    return onnxfuse.optimize(model, **options)


def assert_optimizes(
    model: onnx.ModelProto, *, seeds: int = 1, dims: Sequence[dict[str, int]] = ({},), **options: object
) -> dict[str, onnxfuse.Result]:
    """On every target, unverified: the same numbers, the same interface, and a second run changes nothing."""
    feeds = [random_feeds(model, seed, d) for seed in range(seeds) for d in dims]
    results, seen = {}, set()
    for target in targets.names():
        result = results[target] = optimized(model, target=target, verify=False, **options)
        graph = result.model.graph
        assert list(graph.input) == list(model.graph.input) and list(graph.output) == list(model.graph.output)
        data = result.model.SerializeToString(deterministic=True)
        if not result.fusions or data in seen:
            continue
        seen.add(data)
        for feed in feeds:
            assert_same(model, result.model, feed)
        again = optimized(result.model, target=target, verify=False, **options)
        first, second = ([f.rule for f in r.fusions] for r in (result, again))
        assert not second, f"{target}: {second} after {first}"
    return results
