"""What a rewrite saves: hand-made pieces and sizes, and nodes next to others."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import pytest
from support import ops, optimized

from onnxfuse import targets
from onnxfuse.cost import Cost
from onnxfuse.execution import Piece
from onnxfuse.patterns import NotLegal
from onnxfuse.pricing import Gain

TARGET = targets.find("ort-cpu")


def pieces(*costs: Cost) -> Sequence[Piece]:
    return [Piece(str(i), "Relu", ("x",), ("y",), cost, "fp32", False) for i, cost in enumerate(costs)]


ONE, TWO = pieces(Cost(0, 50, 0, 400, 400)), pieces(Cost(0, 50, 0, 400, 400), Cost(0, 20, 0, 400, 100))


def test_what_is_saved_is_the_difference_of_the_sums() -> None:
    saved = Gain(TWO, ONE, 3e-6, 1e-6)
    assert saved.saved() == (500, 20) and saved.seconds_saved == pytest.approx(2e-6)
    assert Gain(TWO, pieces(Cost(None, None, None, None, None)), 3e-6, None).saved() == (0, 0)


@pytest.mark.parametrize(
    ("gain", "reason"),
    [
        (Gain(TWO, ONE, 2e-6, 1e-6), None),
        (Gain(TWO, ONE, 1e-6, 1e-6), "no gain: ort-cpu needs 1.00 µs for these nodes and 1.00 µs after it"),
        (Gain(TWO, ONE, 1e-6, 1e-6 * (1 - 1e-12)), "no gain"),  # the same, but for rounding
        (Gain(TWO, ONE, 1e-6, 2e-6), "no gain"),
        (Gain(TWO, ONE, None, 1e-6), "its cost is unknown"),
        (Gain(TWO, ONE, 1e-6, None), "its cost is unknown"),
    ],
)
def test_it_pays_if_it_takes_less_time(gain: Gain, reason: str | None) -> None:
    if reason is None:
        gain.check(TARGET)
    else:
        with pytest.raises(NotLegal, match=reason):
            gain.check(TARGET)


def test_as_long_with_fewer_nodes_pays_where_that_is_enough() -> None:
    Gain(TWO, ONE, 1e-6, 1e-6 * (1 + 1e-12)).check(TARGET, or_fewer=True)
    with pytest.raises(NotLegal, match="no gain"):
        Gain(ONE, ONE, 1e-6, 1e-6).check(TARGET, or_fewer=True)
    with pytest.raises(NotLegal, match="no gain"):
        Gain(TWO, ONE, 1e-6, 2e-6).check(TARGET, or_fewer=True)


def test_a_neighbour_of_unknown_cost_is_no_reason_against_it() -> None:
    """Nobody knows what the other operator costs, but it costs the same before and after."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "other" : 1]> g (float[1,3,8,8] x, float[4,3,3,3] w)'
        " => (float[1,4,6,6] y) { c = Conv(x, w) r = Relu(c) y = other.Thing(r) }"
    )
    result = optimized(model, target="ort-cuda", verify=False)
    assert ops(result.model) == ["com.microsoft::FusedConv", "other::Thing"]
