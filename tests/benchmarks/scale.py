"""Time and memory of `onnxfuse optimize`, the whole command with verification, on synthetic graphs.

    python tests/benchmarks/scale.py [NODES …]        default: 25000 50000 100000

Two kinds of graph: a chain of Add, Relu, Mul in which nothing fuses, and blocks of Conv, Relu, Add, Sigmoid in which
every fourth node does. Runs alone on an idle machine; Linux.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def chain(n: int) -> onnx.ModelProto:
    nodes, weights, x = [], [], "x"
    for i in range(n):
        op = ("Add", "Relu", "Mul")[i % 3]
        if op != "Relu":
            weights.append(numpy_helper.from_array(np.full(8, 1.0 if op == "Mul" else 0.01, np.float32), f"c{i}"))
        inputs = [x] if op == "Relu" else [x, f"c{i}"]
        nodes.append(helper.make_node(op, inputs, [f"v{i}"], name=f"n{i}"))
        x = f"v{i}"
    return model(nodes, weights, x, [8])


def blocks(n: int) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    draws = (rng.standard_normal((4, 4, 1, 1)) / 2 for _ in range(8))
    weights = [numpy_helper.from_array(w.astype(np.float32), f"w{j}") for j, w in enumerate(draws)]
    nodes, x = [], "x"
    for i in range(0, n, 4):
        for op, inputs, output in (
            ("Conv", [x, f"w{i // 4 % 8}"], "a"),
            ("Relu", [f"a{i}"], "b"),
            ("Add", [f"b{i}", "x"], "c"),
            ("Sigmoid", [f"c{i}"], "d"),
        ):
            nodes.append(helper.make_node(op, inputs, [f"{output}{i}"], name=f"{op.lower()}{i}"))
        x = f"d{i}"
    return model(nodes, weights, x, [4, 4, 4])


def model(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], y: str, dims: list[int]) -> onnx.ModelProto:
    x, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *dims]) for name in ("x", y))
    graph = helper.make_graph(nodes, "g", [x], [out], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(path: Path) -> tuple[float, int, str]:
    """Seconds, peak bytes and last line of output of the command on one model."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "onnxfuse", "optimize", str(path), f"{folder}/out.onnx"]
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, output
        return time.perf_counter() - start, usage.ru_maxrss * 1024, output.strip().splitlines()[-1]


if __name__ == "__main__":
    for make in (chain, blocks):
        for n in [int(a) for a in sys.argv[1:]] or [25_000, 50_000, 100_000]:
            with tempfile.TemporaryDirectory() as scratch:
                path = Path(scratch, "model.onnx")
                onnx.save(make(n), path)
                seconds, peak, last = measure(path)
            print(f"{make.__name__:7s} {n:8,d} nodes {seconds:6.1f} s {peak / 1e6:6.0f} MB   {last}", flush=True)
