"""Does the optimized model compute what the original computes? Interface, checker, and numbers from onnxruntime.

Both files run in onnxruntime on the CPU without its own optimizations, on the same seeded feeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxfuse import arguments, interface
from onnxfuse.errors import Finding, memory_named
from onnxfuse.model import Source, as_files
from onnxfuse.reference import Reference, Verdict, open_session, refused, static_problem


@memory_named()
def verify(
    a: Source,
    b: Source,
    *,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    inputs: object = None,
) -> Verdict:
    """Run two models on the same data and compare their interfaces and outputs; `a` is the one to be equalled.

    a, b: paths, `onnx.ModelProto`s or `gs.Graph`s. dims: sizes of free dimensions; likely ones are found
        for the others.
    tolerance: allowed error relative to an output's scale, instead of the one of the model's dtype.
    Raises OnnxfuseError for bad input.
    """
    sizes, seed = arguments.sizes("dims", dims), arguments.whole("seed", seed)
    allowed = None if tolerance is None else arguments.number("tolerance", tolerance, zero=True)
    with as_files(a, b) as (original, other):
        return compare(original, other, dims=sizes, seed=seed, tolerance=allowed, inputs=inputs)


def compare(
    original: Path,
    optimized: Path,
    *,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    level: str = "disabled",
    opening: tuple[Future[Any], Future[Any]] | None = None,
    inputs: object = None,
) -> Verdict:
    """Judge one optimized model. `tolerance` (relative to an output's scale) replaces the one of the model's dtype.

    level: onnxruntime's optimization level for both sides. opening: the two sessions, where
    `open_session` is at work on them already. What cannot be verified is not ok and has a reason. Raises
    ModelError for a file that is no model, UsageError for an unknown key of `dims`, MissingDependency.
    """
    with ThreadPoolExecutor(2) as pool:  # a session is created without the interpreter lock: both at once
        first, second = opening or (pool.submit(open_session, path, level) for path in (original, optimized))
        if problem := static_problem(original, interface.read(original), optimized):
            return refused(problem)
        try:
            reference = Reference(
                original,
                dims=dims,
                seed=seed,
                tolerance=tolerance,
                level=level,
                opened=first.result,
                inputs=inputs,
            )
        except Finding as finding:
            return replace(refused(str(finding)), judged=False)
        return reference.judge(second.result)
