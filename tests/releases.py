"""Runs pairs of models in the onnxruntime of this interpreter, which need not have onnxfuse installed.

python releases.py FOLDER runs every NAME.before.onnx there and its NAME.after.onnx on the feeds of NAME.npz, at the
disabled and at the default level, and prints one JSON object:
{"release": …, "ran": runs of both, "wrong": [[name, level, reason], …]}
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read as it loads
import onnxruntime as ort

LEVELS = {"disabled": "ORT_DISABLE_ALL", "all": "ORT_ENABLE_ALL"}
ALLOWED = {np.dtype(np.float16): 8e-3, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}  # of the output's scale
ULPS, ROUGH = 4, 4


def outputs(path: Path, level: str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs on the CPU provider. Raises what onnxruntime raises."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def error(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference relative to the scale; infinite where more than rounding can make."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return np.inf
    if a.dtype not in ALLOWED:
        return 0.0 if np.array_equal(a, b) else np.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return np.inf
    return float(np.max(np.abs(a - b)[finite], initial=0) / max(np.max(np.abs(a[finite]), initial=0), 1e-6))


def moved(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The feeds with floats a few units in the last place away."""
    return {
        k: v * v.dtype.type(1 + ULPS * np.finfo(v.dtype).eps) if v.dtype.kind == "f" else v for k, v in feeds.items()
    }


def compared(before: Path, after: Path, level: str, feeds: dict[str, np.ndarray]) -> str | None:
    """What is wrong with a pair; None where nothing is, or this release does not run the original either.

    What the original's own output moves by where its inputs move by a little proves nothing.
    """
    try:
        expected = outputs(before, level, feeds)
    except Exception:  # noqa: BLE001 - onnxruntime has no one base class
        return None
    try:
        found = outputs(after, level, feeds)
    except Exception as problem:  # noqa: BLE001
        return " ".join(str(problem).split())[:200]
    wrong = [(e, i) for i, (a, b) in enumerate(zip(expected, found, strict=True)) if (e := error(a, b)) > limit(a)]
    if not wrong:
        return None
    again = outputs(before, level, moved(feeds))
    wrong = [(e, i) for e, i in wrong if not e <= ROUGH * error(expected[i], again[i])]
    return f"output {wrong[0][1]} is off by {wrong[0][0]:.1e} of its scale" if wrong else None


def limit(a: np.ndarray) -> float:
    """Allowed error of an output."""
    return ALLOWED.get(a.dtype, 0.0)


def main(folder: Path) -> None:
    """Judges all pairs of a folder."""
    wrong, ran = [], 0
    for before in sorted(folder.glob("*.before.onnx")):
        name = before.name.removesuffix(".before.onnx")
        feeds = dict(np.load(folder / f"{name}.npz"))
        for level in LEVELS:
            ran += 1
            reason = compared(before, folder / f"{name}.after.onnx", level, feeds)
            if reason:
                wrong.append([name, level, reason])
    sys.stdout.write(json.dumps({"release": ort.__version__, "ran": ran, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
