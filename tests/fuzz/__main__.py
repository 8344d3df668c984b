"""Looks at random graphs: `python -m tests.fuzz --seed 0 --count 1000`; a finding is shrunk and printed."""

from __future__ import annotations

import argparse
import sys
import time

import click
import onnx

from .check import Seen, check
from .generate import generate
from .shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--thorough", action="store_true", help="every target and level for every graph")
    parser.add_argument("--fast", action="store_true", help="without a process apart, which onnxruntime may end")
    parser.add_argument("--keep", action="store_true", help="print the graph of a finding as it is")
    parser.add_argument("--save", help="a folder for the shrunk graphs")
    args = parser.parse_args()
    seen, found, done, started = Seen(), 0, 0, time.monotonic()
    for seed in range(args.seed, args.seed + args.count):
        if time.monotonic() - started > args.seconds:
            break
        case = generate(seed)
        finding = check(case, thorough=args.thorough, seen=seen, probed=not args.fast)
        done += 1
        if finding is None:
            continue
        found += 1
        if not args.keep:
            case, finding = shrink(case, finding, thorough=args.thorough)
        click.echo(f"--- seed {seed}: {finding.kind}, {finding.where}\n{finding.text}")
        click.echo(onnx.printer.to_text(case.model))
        if args.save:
            onnx.save(case.model, f"{args.save}/{seed}.onnx")
    rules = ", ".join(f"{name} {n}" for name, n in sorted(seen.rules.items(), key=lambda r: -r[1]))
    click.echo(
        f"{done} graphs, {found} findings, {seen.compared} runs compared, {seen.silent} that say nothing; made: {rules}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
