"""What the tests of the rules share: their own examples, and models after a rule, compared with what they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import product

import onnx
from onnx import numpy_helper
from support import assert_same, ops, optimized, parse, random_feeds

from onnxfuse import targets


def example(rule: str, which: str) -> onnx.ModelProto:
    """BEFORE or AFTER of a rule."""
    return parse(str(getattr(import_module(f"onnxfuse.rules.{rule}"), which)))


def target(rule: str) -> str:
    """The first target on which the rule makes its BEFORE another graph."""
    before = example(rule, "BEFORE")
    found = [t for t in ("ort-cpu", *targets.names()) if optimized(before, rules=[rule], target=t).fusions]
    assert found, f"{rule} is not made on any target"
    return found[0]


def check_same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """The same interface and, on three draws, the same results; and a valid model."""
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    onnx.checker.check_model(after, full_check=True)
    for seed in range(3):
        assert_same(before, after, random_feeds(before, seed))


def middles(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The values of the main graph that are no outputs, as they would be if they were."""
    outputs = {o.name for o in model.graph.output}
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    return [v for v in inferred if v.name not in outputs]


def renamed(info: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    """A value of the same type under another name."""
    other = onnx.ValueInfoProto()
    other.CopyFrom(info)
    other.name = name
    return other


def held(model: onnx.ModelProto) -> list[object]:
    """The elements of all initializers."""
    return [numpy_helper.to_array(t).tolist() for t in model.graph.initializer]


def made(
    model: onnx.ModelProto,
    target: str = "ort-cpu",
    *,
    rule: str,
    dims: Sequence[Mapping[str, int]] = ({},),
    scales: Sequence[float] = (1, 5),
    planned: Mapping[str, int] | None = None,
) -> list[str]:
    """Operators after the rule, with which a second run finds nothing more to do.

    The results are those of the original, for normal data times each of these scales and of each of these sizes.
    planned: the sizes for which the costs are taken.
    """
    run = partial(optimized, rules=[rule], target=target, dims=dict(planned or {}))
    first = run(model)
    result = first.model
    if first.fusions:
        onnx.checker.check_model(result, full_check=True)
    for seed, (sizes, scale) in enumerate(product(dims, scales)):
        feeds = random_feeds(model, seed, dict(sizes))
        assert_same(model, result, {k: v if v.dtype == bool else v * v.dtype.type(scale) for k, v in feeds.items()})
    assert not run(result).fusions
    return ops(result)
