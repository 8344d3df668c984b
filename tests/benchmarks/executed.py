"""How many nodes onnxruntime executes for models as they are and as `onnxfuse optimize` leaves them.

    python tests/benchmarks/executed.py MODEL.onnx …

Counted are the nodes of the graph that onnxruntime saves at its default level, those of branches and bodies included;
with --basic at its basic level, before the layout of convolutions is changed. Exit code 1 where ours has more.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import onnx
import onnxruntime as ort

import onnxfuse

LEVELS = {False: ort.GraphOptimizationLevel.ORT_ENABLE_ALL, True: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC}


def nodes(graph: onnx.GraphProto) -> int:
    """Nodes of a graph and of all bodies in it; constants are none."""
    found = 0
    for node in graph.node:
        found += node.op_type != "Constant"
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += nodes(attribute.g)
    return found


def executed(path: Path, *, basic: bool = False) -> int:
    """Nodes that onnxruntime executes for a model on the CPU."""
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[basic]
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/saved.onnx"
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return nodes(onnx.load(f"{folder}/saved.onnx", load_external_data=False).graph)


def main(arguments: list[str]) -> int:
    """Prints a line a model; gives the exit code."""
    basic, worse = "--basic" in arguments, 0
    for name in arguments:
        if name.startswith("--"):
            continue
        path = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out.onnx")
            onnxfuse.optimize(path, out, target="ort-cpu", verify=False)
            try:
                before = executed(path, basic=basic)
            except Exception as error:  # noqa: BLE001 - the runtime raises whatever comes
                print(f"{path.stem:28s} does not load: {str(error).splitlines()[0][:80]}", flush=True)
                continue
            after = executed(out, basic=basic)
        worse += after > before
        print(f"{path.stem:28s} {before:6d} → {after:6d}{'   more' if after > before else ''}", flush=True)
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
