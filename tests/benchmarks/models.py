"""What onnxfuse says and does on a folder of real models, each command as a whole process.

    python tests/benchmarks/models.py FOLDER [--target T]

A line a model: coverage and time of `analyze`, fusions, largest error and time of `optimize`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path


def run(*arguments: str) -> tuple[float, dict[str, object]]:
    """Seconds and JSON output of one command."""
    command = [sys.executable, "-m", "onnxfuse", *arguments, "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return seconds, json.loads(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="ort-cuda")
    options = parser.parse_args()
    for path in sorted(options.folder.rglob("*.onnx")):
        analyzed, report = run("analyze", str(path), "--target", options.target)
        with tempfile.TemporaryDirectory() as scratch:
            optimized, result = run("optimize", str(path), f"{scratch}/out.onnx", "--target", options.target)
        totals, verdict = report["totals"], result["verify"]
        made = ", ".join(f"{n} {rule}" for rule, n in Counter(f["rule"] for f in result["fusions"]).items())
        error = f"error {verdict['max_error']:.1e} in {verdict['cases']} cases" if verdict else "unchanged"
        found = f"coverage {totals['coverage']:.3f} {analyzed:5.2f} s"
        print(f"{path.stem:28s} {found}   {error:28s} {optimized:5.2f} s   {made}", flush=True)
