"""onnxruntime's profile of a CPU session on one thread: which node ran when, and for how long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfuse import runtime


@dataclass(frozen=True, slots=True)
class Kernel:
    """One execution of a node of the main graph: its position in the graph that runs, name, operator, seconds.

    A control-flow node takes the time of its bodies. The profiler counts whole microseconds, and the time in which it
    writes down the shapes, 2 to 4 µs a node, is in them: the times of nodes below 5 µs say little.
    """

    index: int
    name: str
    op_type: str
    seconds: float


def session(model: str | bytes, level: str, folder: Path) -> Any:
    """A profiled CPU session of one thread; its profile goes into the folder. Raises what onnxruntime raises."""
    options = runtime.options(level)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    return runtime.onnxruntime().InferenceSession(model, options, providers=["CPUExecutionProvider"])


def kernels(profiled: Any) -> list[Kernel]:
    """What such a session has executed so far, in order; this ends its profiling.

    The nodes of a body lie in the time of their control-flow node: an event that starts before the last one has ended
    is one of them.
    """
    events = [
        event
        for event in json.loads(Path(profiled.end_profiling()).read_bytes())
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    found, end = [], 0
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= end:
            args, end = event["args"], event["ts"] + event["dur"]
            name = event["name"].removesuffix("_kernel_time")
            found.append(Kernel(int(args["node_index"]), name, args["op_name"], event["dur"] / 1e6))
    return found
