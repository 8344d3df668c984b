"""What a target executes: merged costs and groups, on hand-made pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from support import graph, ops, optimized, with_weights

from onnxfuse import devices, targets
from onnxfuse.cost import Cost
from onnxfuse.execution import Piece, kernels, merged, run_seconds

SIZES = {"x": 400, "w": 40, "t": 400, "r": 400, "s": 400, "y": 100}


def piece(op: str, inputs: str, outputs: str, flops: int = 100) -> Piece:
    ins, outs = tuple(inputs.split()), tuple(outputs.split())
    cost = Cost(0, flops, 0, sum(SIZES[n] for n in dict.fromkeys(ins)), sum(SIZES[n] for n in outs))
    return Piece(op, op, ins, outs, cost, "fp32", False)


def test_a_merged_node_moves_what_crosses_its_boundary() -> None:
    conv, relu = piece("Conv", "x w", "t"), piece("Relu", "t", "y")
    assert merged([conv, relu], SIZES.get) == Cost(0, 200, 0, 440, 100)


def test_an_outer_value_that_both_read_counts_once() -> None:
    first, second = piece("Relu", "x", "t"), piece("Add", "t x", "y")
    assert merged([first, second], SIZES.get) == Cost(0, 200, 0, 400, 100)


def test_a_middle_value_that_is_needed_outside_is_still_written() -> None:
    first, second = piece("Relu", "x", "t"), piece("Neg", "t", "y")
    assert merged([first, second], SIZES.get, kept={"t"}) == Cost(0, 200, 0, 400, 500)


def test_unknown_sizes_stay_unknown() -> None:
    cost = merged([piece("Relu", "x", "t"), piece("Neg", "t", "y")], lambda name: None)
    assert cost.bytes is None and cost.flops == 200


def test_the_runtime_groups_chains_of_single_uses() -> None:
    target = targets.find("ort-cpu")
    pieces = [piece("Conv", "x w", "t"), piece("Add", "t r", "s"), piece("Relu", "s", "y")]
    grouped = [[p.op_type for p in g] for g in kernels(pieces, target, {"t", "s"})]
    assert grouped == [["Conv", "Add", "Relu"]]
    assert len(kernels(pieces, target, {"s"})) == 3  # t is needed elsewhere; Add + Relu alone is no chain
    assert len(kernels(pieces, targets.find("ort-cuda"), {"t", "s"})) == 3


@pytest.mark.parametrize(("dtype", "count"), [("float", 1), ("float16", 1), ("double", 2)])
def test_the_runtime_merges_only_in_some_dtypes(dtype: str, count: int, tmp_path: Path) -> None:
    """Counted in the graph that onnxruntime itself makes: it casts float16 to float32, and leaves double apart."""
    inputs, outputs = f"{dtype}[2,3] x, {dtype}[3,4] w", f"{dtype}[2,4] y"
    model = with_weights(graph("t = Gemm(x, w) y = Relu(t)", inputs=inputs, outputs=outputs))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "executed.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    executed = [op for op in ops(onnx.load(tmp_path / "executed.onnx")) if op != "Cast"]
    assert len(executed) == count
    assert optimized(model, target="ort-cpu", verify=False).before.kernels == count


def test_time_is_summed_over_kernels_with_a_launch_each() -> None:
    device = devices.find("h200")
    pieces = [piece("Relu", "x", "t"), piece("Neg", "t", "y")]
    apart = run_seconds(pieces, targets.find("ort-cuda"), device, SIZES.get, {"t"})
    assert apart == pytest.approx(2 * device.launch + (800 + 500) / device.bandwidth)  # both are memory-bound
    chained = replace(targets.find("ort-cuda"), chains={("Relu", "Neg"): frozenset({"fp32"})})
    together = run_seconds(pieces, chained, device, SIZES.get, {"t"})
    assert together == pytest.approx(device.launch + 500 / device.bandwidth)
    unknown = replace(pieces[0], cost=Cost(None, None, None, None, None))
    assert run_seconds([unknown], chained, device, SIZES.get, set()) is None


def test_targets_know_their_dtypes() -> None:
    kernel = targets.find("ort-cuda").kernels["com.microsoft", "FusedConv"]
    assert kernel.dtypes == {TensorProto.FLOAT} and kernel.activations == {"Relu"}
