"""Roofline time of every executed node against onnxruntime's profile, over a folder of real models.

    onnxfuse devices --measure this.toml
    python tests/benchmarks/nodes.py FOLDER this.toml [--level all] [--runs 20] [--repeat 2]

A line a model, and all models pooled: rank correlation and sum ratio over the nodes above 5 µs, under the bare roofline
(every byte from memory), with caches, and with efficiencies too. With --repeat every model is run so often, the models
in turn, and a node's time is the smallest of its medians.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from onnxfuse import devices
from onnxfuse.profiled import NodeTime, Profile, compare, compared, profile, spearman, work_times


def line(name: str, versions: list[list[NodeTime]]) -> str:
    """Number of nodes, and rank correlation and sum ratio under each device."""
    cells = []
    for nodes in versions:
        estimated, measured = [n.estimated or 0.0 for n in nodes], [n.measured for n in nodes]
        rank = spearman(measured, estimated)
        share = sum(estimated) / sum(measured) if measured else float("nan")
        cells.append(f"{'–' if rank is None else f'{rank:.3f}':>7s} {share:6.2f}")
    return f"{name:28s} {len(versions[0]):6d}  " + "  ".join(cells)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("device")
    parser.add_argument("--level", default="all")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    full = devices.find(options.device)
    cached = replace(full, efficiency={})
    machines = [replace(cached, caches=()), cached, full]
    found: dict[Path, Profile] = {}
    for _ in range(options.repeat):
        for path in sorted(options.folder.rglob("*.onnx")):
            run = profile(path, level=options.level, runs=options.runs)
            known = found.get(path, run).seconds
            found[path] = replace(run, seconds={i: min(s, known.get(i, s)) for i, s in run.seconds.items()})
    print(f"{'':28s} {'nodes':>6s}  {'bare roofline':>14s}  {'with caches':>14s}  {'+ efficiencies':>14s}")
    pooled: list[list[NodeTime]] = [[] for _ in machines]
    for path, run in found.items():
        versions = [compared(compare(run, machine).nodes) for machine in machines]
        print(line(path.stem, versions), flush=True)
        for pool, nodes in zip(pooled, versions, strict=True):
            pool += nodes
    print(line("all", pooled))
    for work in work_times(pooled[-1]):
        print(
            f"  {work.work:26s} {work.nodes:6d}  {work.measured * 1e3:9.2f} ms   estimated/measured {work.ratio:5.2f}"
        )
