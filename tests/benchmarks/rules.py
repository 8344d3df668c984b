"""What each rewrite does on a folder of real models: the table behind `onnxfuse rules`.

    python tests/benchmarks/rules.py FOLDER

Optimizes every model for ort-cpu and ort-cuda without verification and writes onnxfuse/rules/saved.json: by rule, in
how many models it was made and how often, and by how much the estimated time of these models fell on each target.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxfuse
from onnxfuse import rules

TARGETS = ("ort-cpu", "ort-cuda")


def main(folder: Path) -> None:
    """Writes the table."""
    paths = sorted(folder.rglob("*.onnx"))
    found = {name: {"models": set(), **{t: {"made": 0, "seconds": 0.0} for t in TARGETS}} for name in rules.all_rules()}
    for path in paths:
        for target in TARGETS:
            for fusion in onnxfuse.optimize(path, target=target, verify=False).fusions:
                row = found[fusion.rule]
                row["models"].add(path.name)
                row[target]["made"] += 1
                row[target]["seconds"] += fusion.seconds_saved
        print(path.stem, file=sys.stderr, flush=True)
    table = {name: row | {"models": len(row["models"])} for name, row in found.items()}
    for row in table.values():
        for target in TARGETS:
            row[target]["seconds"] = float(f"{row[target]['seconds']:.3g}")
    rules.SAVED.write_text(json.dumps({"of": len(paths), "rules": table}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
