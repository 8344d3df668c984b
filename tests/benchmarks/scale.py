"""CPU time and memory of the commands on extreme graphs, each at two sizes: the table of docs/scale.md.

    python tests/benchmarks/scale.py [SHAPE …]

Linux. The large external data is a hole in a sparse file of the temporary folder (TMPDIR) and takes no room there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

COMMANDS = (("analyze",), ("optimize", "--no-verify"), ("optimize",))


def chain(n: int) -> onnx.ModelProto:
    """Add, Relu, Mul over and over, every Mul by 1: a third of the nodes goes. Two initializers for three nodes."""
    nodes, weights, x = [], [], "x"
    for i in range(n):
        op = ("Add", "Relu", "Mul")[i % 3]
        if op != "Relu":
            weights.append(_constant(f"c{i}", np.full(8, 1.0 if op == "Mul" else 0.01)))
        nodes.append(helper.make_node(op, [x] if op == "Relu" else [x, f"c{i}"], [f"v{i}"], name=f"n{i}"))
        x = f"v{i}"
    return _model(nodes, weights, [_value("x", "N", 8)], [_value(x, "N", 8)])


def blocks(n: int) -> onnx.ModelProto:
    """Blocks of Conv, Relu, Add, Sigmoid, in which every fourth node is fused; few initializers."""
    rng = np.random.default_rng(0)
    weights = [_constant(f"w{j}", rng.standard_normal((4, 4, 1, 1)) / 2) for j in range(8)]
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
    return _model(nodes, weights, [_value("x", "N", 4, 4, 4)], [_value(x, "N", 4, 4, 4)])


def inputs(n: int) -> onnx.ModelProto:
    """A graph of n inputs, each through Relu and a multiplication by 1 that goes, into one Concat."""
    nodes = []
    for i in range(n):
        nodes.append(helper.make_node("Relu", [f"x{i}"], [f"r{i}"]))
        nodes.append(helper.make_node("Mul", [f"r{i}", "one"], [f"m{i}"]))
    nodes.append(helper.make_node("Concat", [f"m{i}" for i in range(n)], ["y"], axis=1))
    given = [_value(f"x{i}", "N", 4) for i in range(n)]
    return _model(nodes, [_constant("one", np.ones(1))], given, [_value("y", "N", 4 * n)])


def readers(n: int) -> onnx.ModelProto:
    """One value that n nodes read."""
    nodes, x = [helper.make_node("Relu", ["x"], ["v"])], "x"
    for i in range(n):
        nodes.append(helper.make_node(("Add", "Min")[i % 2], [x, "v"], [f"y{i}"]))
        x = f"y{i}"
    return _model(nodes, [], [_value("x", "N", 8)], [_value(x, "N", 8)])


def initializers(n: int) -> onnx.ModelProto:
    """Convolutions and the multiplications behind them, each with weights of its own: the latter go into the former."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(n // 2):
        weights.append(_constant(f"w{i}", rng.standard_normal((4, 4, 1, 1)) / 2))
        weights.append(_constant(f"s{i}", rng.uniform(0.5, 1.5, (4, 1, 1))))
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Mul", [f"a{i}", f"s{i}"], [f"b{i}"]))
        nodes.append(helper.make_node("Tanh", [f"b{i}"], [f"c{i}"]))
        x = f"c{i}"
    return _model(nodes, weights, [_value("x", "N", 4, 4, 4)], [_value(x, "N", 4, 4, 4)])


def nested(depth: int) -> onnx.ModelProto:
    """If inside If; in every branch a multiplication by 1 of the value outside."""
    graph = None
    for level in reversed(range(depth)):
        branches = []
        for name, body in (("then", graph), ("else", None)):
            out = f"{name}{level}"
            nodes = [helper.make_node("Mul", ["x", "one"], [f"{out}_1"]), helper.make_node("Relu", [f"{out}_1"], [out])]
            if body is not None:
                call = helper.make_node("If", ["c"], [f"{out}_2"], then_branch=body[0], else_branch=body[1])
                nodes[1] = helper.make_node("Add", [f"{out}_1", f"{out}_2"], [out])
                nodes.insert(0, call)
            branches.append(helper.make_graph(nodes, out, [], [_value(out, "N", 8)]))
        graph = branches
    assert graph is not None
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=graph[0], else_branch=graph[1])]
    given = [_value("x", "N", 8), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    return _model(nodes, [_constant("one", np.ones(8))], given, [_value("y", "N", 8)])


def copies(n: int) -> onnx.ModelProto:
    """Copies of one value, n multiplications by 1, added up: whatever goes leaves its readers to the one value."""
    nodes, x = [helper.make_node("Relu", ["x"], ["v"])], "x"
    for i in range(n):
        nodes.append(helper.make_node("Mul", ["v", "one"], [f"m{i}"]))
        nodes.append(helper.make_node("Max", [x, f"m{i}"], [f"y{i}"]))
        x = f"y{i}"
    return _model(nodes, [_constant("one", np.ones(1))], [_value("x", "N", 8)], [_value(x, "N", 8)])


def merged(n: int) -> onnx.ModelProto:
    """n Relus behind one another, of which one stays, and stands for all."""
    names = ["x", *(f"v{i}" for i in range(n))]
    nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]]) for i in range(n)]
    return _model(nodes, [], [_value("x", "N", 8)], [_value(names[-1], "N", 8)])


def parts(n: int) -> onnx.ModelProto:
    """One node with n outputs and one with n inputs, between them a multiplication by 1 that goes, n times."""
    nodes = [helper.make_node("Split", ["x"], [f"s{i}" for i in range(n)], axis=1)]
    for i in range(n):
        nodes.append(helper.make_node("Mul", [f"s{i}", "one"], [f"m{i}"]))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"t{i}"]))
    nodes.append(helper.make_node("Concat", [f"t{i}" for i in range(n)], ["y"], axis=1))
    return _model(nodes, [_constant("one", np.ones(1))], [_value("x", "N", 4 * n)], [_value("y", "N", 4 * n)])


def branches(n: int) -> onnx.ModelProto:
    """If after If, each with a multiplication by 1 in both branches."""
    nodes, x = [], "x"
    for i in range(n):
        bodies = []
        for name, op in (("then", "Relu"), ("else", "Tanh")):
            out = f"{name}{i}"
            inner = [helper.make_node("Mul", [x, "one"], [f"{out}_1"]), helper.make_node(op, [f"{out}_1"], [out])]
            bodies.append(helper.make_graph(inner, out, [], [_value(out, "N", 8)]))
        nodes.append(helper.make_node("If", ["c"], [f"y{i}"], then_branch=bodies[0], else_branch=bodies[1]))
        x = f"y{i}"
    given = [_value("x", "N", 8), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    return _model(nodes, [_constant("one", np.ones(8))], given, [_value(x, "N", 8)])


def external(megabytes: int) -> onnx.ModelProto:
    """Tables of 512 MB in an external file, from which rows are taken; what is multiplied by 1 behind each goes."""
    tables = megabytes // 512
    rows, width = 2**17, 1024
    weights, nodes, x = [_constant("one", np.ones(1))], [], "zero"
    weights.append(_constant("zero", np.zeros((1, width))))
    for i in range(tables):
        table = TensorProto(name=f"t{i}", data_type=TensorProto.FLOAT, dims=[rows, width])
        table.data_location = TensorProto.EXTERNAL
        size = rows * width * 4
        for key, value in (("location", "model.data"), ("offset", str(i * size)), ("length", str(size))):
            table.external_data.add(key=key, value=value)
        weights.append(table)
        nodes.append(helper.make_node("Gather", [f"t{i}", "ids"], [f"g{i}"]))
        nodes.append(helper.make_node("Mul", [f"g{i}", "one"], [f"m{i}"]))
        nodes.append(helper.make_node("Add", [x, f"m{i}"], [f"a{i}"]))
        x = f"a{i}"
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"])
    return _model(nodes, weights, [ids], [_value(x, "N", width)])


SHAPES: dict[Callable[[int], onnx.ModelProto], tuple[int, int]] = {
    chain: (100_000, 200_000),
    blocks: (100_000, 200_000),
    inputs: (5_000, 10_000),
    readers: (25_000, 50_000),
    initializers: (5_000, 10_000),
    copies: (25_000, 50_000),
    merged: (25_000, 50_000),
    parts: (5_000, 10_000),
    branches: (5_000, 10_000),
    nested: (15, 30),
    external: (5_120, 10_240),
}


def _constant(name: str, array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(array.astype(np.float32), name)


def _value(name: str, *dims: int | str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def _model(
    nodes: Sequence[NodeProto],
    weights: Sequence[TensorProto],
    given: Sequence[ValueInfoProto],
    results: Sequence[ValueInfoProto],
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", given, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(model: onnx.ModelProto, folder: Path) -> Path:
    """Writes the model, and a sparse file in the place of its external data."""
    size = sum(int(entry.value) for t in model.graph.initializer for entry in t.external_data if entry.key == "length")
    if size:
        with Path(folder, "model.data").open("wb") as file:
            file.truncate(size)
    path = Path(folder, "model.onnx")
    onnx.save(model, path)
    return path


# Peak memory is inherited by a process that is started: from this small one, not from one that holds a model.
_LAUNCH = """
import os, subprocess, sys
process = subprocess.Popen([sys.executable, "-m", "onnxfuse", *sys.argv[1:]], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
process.returncode = os.waitstatus_to_exitcode(status)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
sys.exit(process.returncode)
"""


def measure(command: Sequence[str], path: Path) -> tuple[float, int]:
    """CPU seconds and peak bytes of one command on one model; a result comes beside it."""
    words = [command[0], str(path), *([str(path.with_name("out.onnx"))] if command[0] == "optimize" else [])]
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCH, *words, *command[1:]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds, peak = done.stdout.split()
    return float(seconds), int(peak)


if __name__ == "__main__":
    print("| graph | size | " + " | ".join(f"`{' '.join(c)}`" for c in COMMANDS) + " |")
    print("|---|---:|" + "---:|" * len(COMMANDS))
    for make, sizes in SHAPES.items():
        if sys.argv[1:] and make.__name__ not in sys.argv[1:]:
            continue
        for n in sizes:
            with tempfile.TemporaryDirectory() as scratch:
                path = save(make(n), Path(scratch))
                found = [measure(command, path) for command in COMMANDS]
            cells = " | ".join(f"{seconds:.1f} s, {peak / 1e6:,.0f} MB" for seconds, peak in found)
            print(f"| {make.__name__} | {n:,} | {cells} |", flush=True)
