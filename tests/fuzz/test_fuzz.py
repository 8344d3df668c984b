"""A fixed part of the random graphs; `python -m tests.fuzz --seed 0 --count 10000` looks at many more."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support import run

import onnxfuse

from .check import Seen, check
from .draws import draws
from .generate import generate
from .shrink import shrink

GRAPHS, PARTS = 160, 8


@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs(part: int) -> None:
    seen = Seen()
    for seed in range(part, GRAPHS, PARTS):
        case = generate(seed)
        finding = check(case, thorough=seed % 8 == part, seen=seen)
        if finding is not None:
            case, finding = shrink(case, finding)
            pytest.fail(f"seed {seed}: {finding}\n{onnx.printer.to_text(case.model)}")
    assert len(seen.rules) > 10 and seen.compared > max(100, 5 * seen.silent)


def test_a_seed_is_one_graph() -> None:
    for seed in range(5):
        assert generate(seed).model.SerializeToString() == generate(seed).model.SerializeToString()


def test_against_the_reference_of_onnx() -> None:
    """Another implementation of the operators than onnxruntime's, where it runs the original."""
    compared = 0
    for seed in range(200, 240):
        case = generate(seed)
        after = onnxfuse.optimize(case.model, target="ort-cpu", verify=False).model
        if case.special or case.huge or after.SerializeToString() == case.model.SerializeToString():
            continue
        if any(n.domain == "com.microsoft" for n in after.graph.node):
            continue  # of which it knows none
        feeds = next(draws(case))[1]
        with np.errstate(all="ignore"):
            try:
                expected = ReferenceEvaluator(case.model).run(None, feeds)
            except Exception:  # noqa: BLE001 - it lacks forms of some operators
                continue
            found = ReferenceEvaluator(after).run(None, feeds)
            for a, f, own in zip(expected, found, run(case.model, feeds), strict=True):
                if a.shape != own.shape or not np.allclose(a, own, rtol=1e-2, atol=1e-2, equal_nan=True):
                    continue  # the two implementations do not mean the same
                assert a.shape == f.shape and a.dtype == f.dtype
                scale = max(float(np.max(np.abs(a[np.isfinite(a)]), initial=0)), 1e-6) if a.dtype.kind == "f" else 1
                # Room for sums in another order; float16 is rounded after every operator.
                limit = {np.float16: 2e-2, np.float32: 1e-4}.get(a.dtype.type, 1e-6)
                np.testing.assert_allclose(f / scale, a / scale, rtol=0, atol=limit)
                compared += 1
    assert compared > 10
