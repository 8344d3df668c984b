"""onnxruntime's profile, read: nodes of the main graph with the bodies in them, in the order in which they ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from onnx import parser

from onnxfuse import runtime, trace


class Ended:
    """A session of which only the profile is left."""

    def __init__(self, path: Path, events: list[dict[str, Any]]):
        path.write_text(json.dumps(events))
        self.end_profiling = lambda: str(path)


def event(name: str, index: str, start: int, micros: int, category: str = "Node") -> dict[str, Any]:
    args = {"node_index": index, "op_name": name.split("_")[0]}
    return {"cat": category, "name": f"{name}_kernel_time", "ts": start, "dur": micros, "args": args}


def test_the_nodes_of_a_body_lie_in_their_control_flow_node(tmp_path):
    """A loop from 10 to 30 µs with two nodes in it; the first starts with it, the next node of the graph at its end."""
    events = [
        event("Relu_0", "0", 3, 7),
        event("Add_0", "0", 10, 4),
        event("Mul_1", "1", 20, 5),
        event("Loop_1", "1", 10, 20),
        event("Neg_2", "2", 30, 2),
        event("session", "9", 0, 99, "Session"),
    ]
    found = trace.kernels(Ended(tmp_path / "p.json", events))
    assert [(k.index, k.op_type, k.name) for k in found] == [
        (0, "Relu", "Relu_0"), (1, "Loop", "Loop_1"), (2, "Neg", "Neg_2"),
    ]  # fmt: skip
    assert [round(k.seconds * 1e6) for k in found] == [7, 20, 2]


def test_a_session_is_profiled(tmp_path):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (bool c, float[8,64] x) => (float[8,64] z) {
      y = If (c) <
        then_branch = yes () => (float[8,64] p) { a = Exp (x) b = Neg (a) p = Relu (b) },
        else_branch = no () => (float[8,64] q) { q = Identity (x) }
      >
      z = Abs (y)
    }
    """
    session = trace.session(parser.parse_model(text).SerializeToString(), "disabled", tmp_path)
    feeds = {"c": np.array(True), "x": np.ones((8, 64), np.float32)}
    for _ in range(3):
        runtime.run(session, feeds)
    found = trace.kernels(session)
    assert [k.op_type for k in found] == ["If", "Abs"] * 3
    assert [k.index for k in found] == [0, 1] * 3
