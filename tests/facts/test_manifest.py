"""Real models: shapes without sizes, and the same ones in onnxruntime at two bindings of the free dimensions.

Needs a folder of models (ONNXFUSE_MODELS: <name>.onnx), but for the small one that shows that errors are seen.
"""

from __future__ import annotations

import os
from functools import cache, reduce
from operator import add
from pathlib import Path

import onnx
import pytest
from benchmarks import shapes

from onnxfuse import ir
from onnxfuse.cost import kind
from onnxfuse.facts import infer

MODELS = os.environ.get("ONNXFUSE_MODELS")
PATHS = sorted(Path(MODELS).glob("*.onnx")) if MODELS else []
EXAMPLE = Path(__file__).parents[2] / "models" / "small_resnet.onnx"
needs_models = pytest.mark.skipif(not PATHS, reason="set ONNXFUSE_MODELS to a folder of models")

measured = cache(shapes.measure)


@pytest.mark.slow
@needs_models
@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_no_shape_is_wrong(path: Path) -> None:
    found = measured(path)
    assert found.wrong == ()
    assert found.checked
    assert found.runs == 2 or not shapes.free_dims(ir.read(onnx.load(path, load_external_data=False)))


@pytest.mark.slow
@needs_models
def test_nearly_all_costly_nodes_have_shapes() -> None:
    every = reduce(add, map(measured, PATHS))
    assert every.found >= 0.98 * every.costly, every.unresolved


def test_a_wrong_shape_is_seen() -> None:
    found = shapes.measure(EXAMPLE)
    model = onnx.load(EXAMPLE)
    assert (found.runs, found.wrong, found.unresolved) == (2, (), ())
    assert found.costly == sum(kind(node) in shapes.COSTLY for node in ir.read(model).graph.nodes)
    assert found.checked == 4 * len(model.graph.node)  # each output twice at each binding

    shapes.number(model.graph)
    _, events = next(shapes.executions(EXAMPLE, model))
    facts = infer(ir.read(model))
    assert shapes.compare(facts, events, {"N": 1}) == (len(model.graph.node), [])
    assert len(shapes.compare(facts, events, {"N": 2})[1]) == len(model.graph.node)
