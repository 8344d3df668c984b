"""One model on every target, verified and not, at every level of onnxruntime's own optimizations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
import onnxruntime as ort
from support import optimized

import onnxfuse
from onnxfuse import targets

LEVELS = (
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
)
Feeds = dict[str, np.ndarray]


def run(model: onnx.ModelProto, feeds: Iterable[Feeds], level: ort.GraphOptimizationLevel) -> list[list[np.ndarray]]:
    """The outputs for each feed, from one session."""
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def assert_same(model: onnx.ModelProto, feeds: list[Feeds], rules: set[str]) -> onnxfuse.Result:
    """Every result gives the original's numbers; one rewrite of each of these rules was made. Gives a result.

    The original runs without onnxruntime's optimizations, the results at every level.
    """
    wanted, seen = run(model, feeds, LEVELS[0]), set()
    for target in targets.names():
        for verify in (True, False):
            result = optimized(model, target=target, verify=verify)
            assert rules <= {f.rule for f in result.fusions} and not result.rolled_back, target
            graph = result.model.graph
            assert list(graph.input) == list(model.graph.input) and list(graph.output) == list(model.graph.output)
            data = result.model.SerializeToString(deterministic=True)
            for level in LEVELS if data not in seen else ():
                for expected, found in zip(wanted, run(result.model, feeds, level), strict=True):
                    for a, b in zip(expected, found, strict=True):
                        assert a.dtype == b.dtype and a.shape == b.shape, (target, level)
                        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5, err_msg=f"{target} {level}")
            seen.add(data)
    return result
