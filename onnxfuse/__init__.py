"""onnxfuse makes ONNX models move fewer bytes: static cost, roofline, verified operator fusion, benchmark.

    report = onnxfuse.analyze("in.onnx", device="h200", dims={"batch": 8})
    result = onnxfuse.optimize("in.onnx", "out.onnx", target="ort-cuda")
    onnxfuse.verify("in.onnx", "out.onnx")
    onnxfuse.benchmark("in.onnx", "out.onnx", provider="cuda")

The names load on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxfuse.analysis import Analysis
    from onnxfuse.bench import benchmark
    from onnxfuse.errors import (
        Finding,
        MissingDependency,
        ModelError,
        OnnxfuseError,
        OutOfMemory,
        OutputError,
        UsageError,
    )
    from onnxfuse.facts import evaluate
    from onnxfuse.pipeline import Result, analyze, optimize
    from onnxfuse.profiled import benchmark_nodes
    from onnxfuse.verification import verify

__version__ = "0.1.0"

_HOMES = {
    "analyze": "pipeline",
    "optimize": "pipeline",
    "Analysis": "analysis",
    "Result": "pipeline",
    "verify": "verification",
    "benchmark": "bench",
    "benchmark_nodes": "profiled",
    "evaluate": "facts",
    **dict.fromkeys(
        ("OnnxfuseError", "ModelError", "UsageError", "OutputError", "OutOfMemory", "MissingDependency", "Finding"),
        "errors",
    ),
}

__all__ = [
    "Analysis",
    "Finding",
    "MissingDependency",
    "ModelError",
    "OnnxfuseError",
    "OutOfMemory",
    "OutputError",
    "Result",
    "UsageError",
    "analyze",
    "benchmark",
    "benchmark_nodes",
    "evaluate",
    "optimize",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in ("cost", "devices", "targets"):
        return import_module(f"onnxfuse.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'onnxfuse' has no attribute '{name}'")
    return getattr(import_module(f"onnxfuse.{_HOMES[name]}"), name)
