"""onnxruntime's own account of bytes: every executed node of a model with the sizes of its inputs and outputs.

Optimizations and weight prepacking are off, so that the nodes are those of the file and weights keep their size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnxfuse import ir
from onnxfuse.cost import Cost, costs, kind
from onnxfuse.cost.registry import bytes_of
from onnxfuse.facts import Facts, infer


@dataclass(frozen=True)
class Event:
    op_type: str
    read: int  # activations and parameters, an input that is connected twice counted twice
    written: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


def number(graph: onnx.GraphProto, prefix: str = "") -> None:
    """Give every node, in bodies too, its position as its name."""
    for i, node in enumerate(graph.node):
        node.name = f"{prefix}n{i}"
        for attribute in node.attribute:
            if attribute.HasField("g"):
                number(attribute.g, f"{prefix}n{i}.{attribute.name}.")


def profile(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], folder: Path) -> dict[str, Event]:
    """Runs a numbered model once; the last execution of each node by its name."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, dict(feeds))
    events = json.loads(Path(session.end_profiling()).read_text())
    return {
        event["name"].removesuffix("_kernel_time"): _event(event["args"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    }


def _event(args: Mapping[str, Any]) -> Event:
    def shapes(key: str) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(next(iter(one.values()))) for one in args[key] if one)

    return Event(
        args["op_name"],
        int(args["activation_size"]) + int(args["parameter_size"]),
        int(args["output_size"]),
        shapes("input_type_shape"),
        shapes("output_type_shape"),
    )


def priced(model: onnx.ModelProto, dims: Mapping[str, int] | None = None) -> tuple[ir.Program, Facts, tuple[Cost, ...]]:
    program = ir.read(model)
    facts = infer(program, dims)
    return program, facts, costs(facts)


def scopes(facts: Facts, prefix: str = "") -> Iterator[tuple[str, int, Facts, Cost]]:
    """(name as in the profile, index, scope, cost) of every node, in bodies too."""
    for i, cost in enumerate(costs(facts)):
        yield f"{prefix}n{i}", i, facts, cost
        for name, _ in ir.subgraphs(facts.nodes[i]):
            if (i, name) in facts.bodies:
                yield from scopes(facts.bodies[i, name], f"{prefix}n{i}.{name}.")


def disagreements(facts: Facts, events: Mapping[str, Event]) -> tuple[list[str], set[str]]:
    """Nodes whose bytes are not those of the profile, and the operators of the main graph that it does not have.

    An If is left out: it is the larger branch here, nothing there; the nodes of the branch that ran are compared.
    """
    found, absent = [], set()
    for name, i, scope, cost in scopes(facts):
        event, node = events.get(name), scope.nodes[i]
        if event is None:
            if scope is facts:
                absent.add(node.op_type)
            continue
        assert event.op_type == node.op_type
        if kind(node) == "control":
            continue
        read, written = _expected(scope, i, event)
        if (cost.bytes_read, cost.bytes_written) != (read, written):
            found.append(f"{name} {node.op_type}: {cost.bytes_read}+{cost.bytes_written}, profile {read}+{written}")
    return found, absent


def _expected(scope: Facts, index: int, event: Event) -> tuple[int, int]:
    """Bytes by the profile, an input connected twice counted once; or by the rule of the operator's kind, as
    onnxruntime reports whole inputs also where little or nothing of them is read.
    """
    node = scope.nodes[index]
    names = [name for name in node.inputs if name]
    repeated = sum(bytes_of(scope[name]) for k, name in enumerate(names) if name in names[:k])
    match kind(node):
        case "view" | "constant":
            return 0, 0
        case "shape" | "generate" | "random":
            return 0, event.written
        case "gather":  # the rows that come out, and int64 indices
            return event.written + 8 * math.prod(event.inputs[1]), event.written
        case "convert" if event.read == event.written and scope[node.inputs[0]].dtype == scope[node.outputs[0]].dtype:
            return 0, 0
        case "resample":  # here always nearest: no more than one element of the input for each of the output
            parameters = sum(bytes_of(scope[name]) for name in names[1:])
            return min(event.read - parameters, event.written) + parameters, event.written
        case _ if node.op_type in ("Slice", "Split"):
            return event.written, event.written
    return event.read - repeated, event.written
