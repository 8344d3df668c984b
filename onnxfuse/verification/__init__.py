"""Does the optimized model compute what the original computes? Interface, checker, and numbers from onnxruntime.

Both run in onnxruntime on the same seeded feeds: with its own optimizations off, and at its default level.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from onnxfuse import arguments, interface, storage, validity
from onnxfuse.errors import Finding, memory_named
from onnxfuse.model import Source, as_files
from onnxfuse.verification.bisection import find_guilty
from onnxfuse.verification.reference import Reference
from onnxfuse.verification.room import choose_shown
from onnxfuse.verification.sessions import BASE, Sessions, Subject
from onnxfuse.verification.trial import Trial
from onnxfuse.verification.verdict import Focus, Unjudged, Verdict, refused

__all__ = [
    "BASE", "Focus", "Reference", "Sessions", "Subject", "Trial", "Unjudged", "Verdict", "choose_shown", "compare",
    "find_guilty", "verify",
]  # fmt: skip


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
    inputs: inputs that are run before generated ones, as in `inputs.load`.
    Raises OnnxfuseError for bad input, OutOfMemory where the machine has too little memory to run them.
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
    inputs: object = None,
) -> Verdict:
    """Judge one optimized model. `tolerance` (relative to an output's scale) replaces the one of the model's dtype.

    What cannot be verified is not ok and has a reason. Raises ModelError for a file that is no model, UsageError for an
    unknown key of `dims`, MissingDependency, OutOfMemory.
    """
    first, second = Subject.of(original), Subject.of(optimized)
    if problem := _static_problem(original, optimized):
        return refused(problem)
    with storage.files.scratch() as scratch:
        try:
            reference = Reference(
                first, lambda name: scratch / name, dims=dims, seed=seed, tolerance=tolerance, inputs=inputs
            )
        except Finding as finding:
            return refused(str(finding), judged=False)
        return reference.judge(second)


def _static_problem(original: Path, optimized: Path) -> str | None:
    """What is wrong without running: the interface, or what onnx's checker says of the optimized model alone."""
    first, second = storage.read(original).proto, storage.read(optimized).proto
    found = interface.difference(interface.of(first), interface.of(second)) or validity.problem(second)
    return None if found and validity.problem(first) else found
