"""Extreme graphs: the result is right, the work grows as the graph does, and memory is bounded (docs/scale.md)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import onnx
import pytest
from benchmarks import scale

import onnxfuse

Shape = Callable[[int], onnx.ModelProto]
# how many rewrites are made, by hand from what the shapes say of themselves
MADE: dict[Shape, Callable[[int], int]] = {
    scale.chain: lambda n: n // 3,
    scale.blocks: lambda n: n // 4,
    scale.inputs: lambda n: n,
    scale.readers: lambda n: 0,
    scale.initializers: lambda n: n // 2,
    scale.copies: lambda n: n,
    scale.merged: lambda n: n - 1,
    scale.parts: lambda n: n,
    scale.branches: lambda n: 2 * n,
    scale.nested: lambda n: 2 * n,
    scale.external: lambda n: n // 512 + 1,  # and the addition of 0
}
every_shape = pytest.mark.parametrize("shape", MADE, ids=lambda shape: shape.__name__)


def test_every_shape_of_the_table_is_tested() -> None:
    assert scale.SHAPES.keys() == MADE.keys()


@every_shape
def test_what_can_be_rewritten_is(shape: Shape, tmp_path: Path) -> None:
    n = 1024 if shape is scale.external else 24
    path = scale.save(shape(n), tmp_path)
    result = onnxfuse.optimize(path, tmp_path / "out.onnx")
    assert len(result.fusions) == MADE[shape](n)
    assert result.verdict is not None and result.verdict.ok


def work(call: Callable[[], object]) -> int:
    """Calls that are made: the same on every machine, unlike the time that they take."""
    count: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        count[event] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count["call"] + count["c_call"]


@pytest.mark.parametrize(
    "shape", [s for s in MADE if s not in (scale.nested, scale.external)], ids=lambda shape: shape.__name__
)
def test_the_work_grows_as_the_graph_does(shape: Shape) -> None:
    """Four times the graph is about four times the work; what grows with its square shows from some hundred nodes on,
    more than the 64 readers or inputs of a node where searches end.
    """

    def optimize(model: onnx.ModelProto) -> int:
        return work(lambda: (onnxfuse.analyze(model), onnxfuse.optimize(model, target="ort-cpu", verify=False)))

    small, large = shape(150), shape(600)
    optimize(small)  # imports
    assert optimize(large) < 5 * optimize(small)


BASE, OF_A_NODE = 120e6, 10e3  # bytes: the interpreter with its libraries, and what a node, its values and records take


@pytest.mark.slow
@every_shape
def test_memory_is_bounded(shape: Shape, tmp_path: Path) -> None:
    """That of the command, without onnxruntime. No weight is held: 10 GB of them do not show."""
    n = scale.SHAPES[shape][1] if shape in (scale.nested, scale.external) else scale.SHAPES[shape][0] // 5
    model = shape(n)
    path = scale.save(model, tmp_path)
    for command in (("analyze",), ("optimize", "--no-verify")):
        _, peak = scale.measure(command, path)
        assert peak < BASE + OF_A_NODE * len(model.graph.node), command
    onnx.checker.check_model(tmp_path / "out.onnx")
    before, after = (
        sum(1 for _ in nodes(m.graph)) for m in (model, onnx.load(tmp_path / "out.onnx", load_external_data=False))
    )
    assert after == before - MADE[shape](n)


def nodes(graph: onnx.GraphProto) -> Any:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes(attribute.g)


def test_too_deep_for_protobuf_is_said_in_one_line(tmp_path: Path) -> None:
    """protobuf reads 100 messages in one another, and an If is three (node, attribute, graph): 32 are too many."""
    with pytest.raises(onnxfuse.OnnxfuseError) as caught:
        onnxfuse.analyze(scale.save(scale.nested(32), tmp_path))
    assert len(str(caught.value).splitlines()) == 1
