"""How much faster a folder of real models gets on the CPU, and what they spend their time on then: docs/speed.md.

    python tests/benchmarks/speed.py FOLDER [--seconds 4]

A line a model: original against optimized in onnxruntime's default session on one thread, in turns (A B A B …), the
median of the neighbouring ratios; executed nodes; of the optimized one the share of time in convolutions and matrix
products, and the rate at which they run. The fastest rate of all nodes is what this core can do.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import onnxfuse
from onnxfuse import interface, runtime
from onnxfuse.cost import costs
from onnxfuse.profiled import profile

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "FusedConv", "Attention")


def session(path: Path) -> Any:
    """One thread, everything else as it is by default."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def race(a: Path, b: Path, seconds: float) -> list[tuple[float, float]]:
    """Seconds of both models in neighbouring turns, on the same inputs of typical sizes."""
    first, second = session(a), session(b)
    _, feeds, _ = runtime.find_feeds(partial(runtime.run, first), interface.read(a), {}, 0, typical=True)
    for _ in range(3):
        first.run(None, feeds)
        second.run(None, feeds)
    pairs, end = [], time.perf_counter() + seconds
    while len(pairs) < 7 or time.perf_counter() < end:
        start = time.perf_counter()
        first.run(None, feeds)
        middle = time.perf_counter()
        second.run(None, feeds)
        pairs.append((middle - start, time.perf_counter() - middle))
    return pairs


def row(path: Path, seconds: float) -> tuple[str, float, float]:
    """A line of the table, the ratio, and the fastest rate of a node in FLOP/s."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "out.onnx")
        onnxfuse.optimize(path, out, target="ort-cpu")
        pairs, before, after = race(path, out, seconds), profile(path, runs=1), profile(out, runs=10)
    flops = [c.flops if isinstance(c.flops, int) else 0 for c in costs(after.facts)]
    heavy = [i for i in after.seconds if after.facts.nodes[i].op_type in PRODUCTS]
    spent = sum(after.seconds[i] for i in heavy)
    ratio = statistics.median(a / b for a, b in pairs)
    a, b = (1e3 * statistics.median(side) for side in zip(*pairs, strict=True))
    rate = sum(flops[i] for i in heavy) / spent / 1e9 if spent else 0.0
    cells = (
        f"{a:.2f}", f"{b:.2f}", f"**{ratio:.2f}**", f"{len(before.seconds):,}", f"{len(after.seconds):,}",
        f"{spent / sum(after.seconds.values()):.0%}", f"{rate:.0f}",
    )  # fmt: skip
    fastest = max((flops[i] / after.seconds[i] for i in heavy), default=0.0)
    return f"| {path.stem} | {' | '.join(cells)} |", ratio, fastest


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    print("| model | before, ms | after, ms | ratio | nodes | nodes after | in products | GFLOP/s there |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    ratios, peak = [], 0.0
    for file in sorted(options.folder.rglob("*.onnx")):
        line, ratio, fastest = row(file, options.seconds)
        print(line, flush=True)
        ratios.append(ratio)
        peak = max(peak, fastest)
    geomean = float(np.exp(np.mean(np.log(ratios))))
    print(f"\n{runtime.cpu_name()}: geomean {geomean:.3f}, fastest node {peak / 1e9:.0f} GFLOP/s")
