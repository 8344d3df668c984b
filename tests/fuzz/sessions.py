"""onnxruntime on the graphs of the fuzzer: loaded at a level, run, asked for its reason, tried apart."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort

LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_SECONDS = 60  # for a model of the fuzzer, which takes milliseconds …
_ATTEMPTS = 3  # … so that only a lock can be what it waits for
Feeds = Mapping[str, np.ndarray]


def session(model: bytes, level: str) -> ort.InferenceSession:
    """A model in onnxruntime, on one thread, without its log."""
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def load(model: bytes, level: str) -> ort.InferenceSession | None:
    """The same; None where it is refused, and then `reason` tells why."""
    try:
        return session(model, level)
    except Exception:  # noqa: BLE001 - onnxruntime has many
        return None


def run(loaded: ort.InferenceSession | None, feeds: Feeds) -> list[np.ndarray] | None:
    """The outputs; None where it does not run, and then `failure` tells why."""
    if loaded is None:
        return None
    try:
        return [np.asarray(a) for a in loaded.run(None, dict(feeds))]
    except Exception:  # noqa: BLE001 - onnxruntime has many
        return None


def failure(loaded: ort.InferenceSession | None, feeds: Feeds) -> str:
    """What onnxruntime says of a run."""
    try:
        assert loaded is not None
        loaded.run(None, dict(feeds))
    except Exception as error:  # noqa: BLE001 - onnxruntime has many
        return str(error)
    return ""


def reason(model: bytes, level: str) -> str:
    """What onnxruntime says of a model that it refuses."""
    try:
        session(model, level)
    except Exception as error:  # noqa: BLE001 - onnxruntime has many
        return str(error)
    return ""


def values_of(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray]:
    """Every value that nodes make, by name; none where it does not run."""
    seen = onnx.ModelProto.FromString(model.SerializeToString())
    known = {o.name for o in seen.graph.output}
    made = [name for n in seen.graph.node for name in n.output if name and name not in known]
    seen.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    results = run(load(seen.SerializeToString(), "disabled"), feeds) or []
    return dict(zip([o.name for o in seen.graph.output], results, strict=False))


def survives(model: bytes, levels: Sequence[str], draws: Sequence[tuple[str, Feeds]]) -> bool:
    """Whether onnxruntime loads and runs a model without ending the process: tried in one of its own.

    A copy of a process with threads may wait for ever for a lock that one of them held: it is ended, and tried again.
    """
    for _ in range(_ATTEMPTS):
        child = os.fork()
        if not child:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(_SECONDS)
            for level in levels:
                session = load(model, level)
                for _, feeds in draws:
                    run(session, feeds)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGALRM:
            return code == 0
    return False
