"""One second: the whole path on one tiny model, for use before every commit."""

from __future__ import annotations

from support import graph, ops

import onnxfuse


def test_the_whole_path() -> None:
    model = graph("t = Conv(x, w) y = Relu(t)", inputs="float[N,3,8,8] x, float[4,3,3,3] w", outputs="float[N,4,6,6] y")
    report = onnxfuse.analyze(model, dims={"N": 2})
    # 2·4·6·6 results of 3·3·3 MACs; a Relu each
    assert (report.totals.macs, report.totals.flops) == (288 * 27, 2 * 288 * 27 + 288)
    result = onnxfuse.optimize(model)
    assert ops(result.model) == ["com.microsoft::FusedConv"]
    assert result.verify is not None and result.verify.ok and result.verify.cases > 2
