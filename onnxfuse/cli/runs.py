"""`verify` and `benchmark`: models as onnxruntime runs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from onnxfuse.cli.group import cli
from onnxfuse.cli.options import DIM, INPUTS, JSON, SEED, with_options
from onnxfuse.cli.output import print_json, say_assumed, shown_progress, terminal
from onnxfuse.errors import UsageError


@cli.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@with_options(DIM, INPUTS, SEED)
@click.option(
    "--tolerance", type=click.FloatRange(min=0), metavar="X", help="Allowed error relative to an output's scale."
)
@JSON
def verify(a: Path, b: Path, as_json: bool, **options: Any) -> None:
    """Run two models on the same data and compare their interfaces and outputs."""
    from onnxfuse.verification import verify as run

    with shown_progress():
        verdict = run(a, b, **options)
    if as_json:
        print_json(verdict.to_json())
    else:
        from onnxfuse.report.text import verification

        click.echo(verification(verdict, **terminal()))
    if not verdict.ok:
        sys.exit(1)


@cli.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", required=False, type=click.Path(path_type=Path))
@click.option(
    "--provider", type=click.Choice(["cuda", "cpu", "tensorrt"]),
    help="Where onnxruntime runs the models (default: cuda; cpu with --per-node).",
)  # fmt: skip
@click.option(
    "--level", type=click.Choice(["all", "extended", "basic", "disabled"]), default="all", show_default=True,
    help="onnxruntime's own graph optimization level.",
)  # fmt: skip
@with_options(DIM, INPUTS)
@click.option("--runs", type=click.IntRange(min=1), help="Timed runs of each model (default: 100; 20 with --per-node).")
@click.option("--per-node", is_flag=True, help="Each node's time, on one thread, beside its roofline time.")
@click.option("--device", metavar="D", help="With --per-node: device name or .toml file (default: avx2_core).")
@with_options(SEED, JSON)
def benchmark(
    a: Path, b: Path | None, provider: str | None, per_node: bool, device: str | None, as_json: bool, **options: Any
) -> None:
    """Time one model, or two against each other, in onnxruntime; or one node by node against the estimate."""
    if options["runs"] is None:
        del options["runs"]
    if per_node:
        _benchmark_nodes(a, b, provider, device, as_json, **options)
        return
    if device is not None:
        raise UsageError("--device: times are measured on this machine; it names whose estimates --per-node compares")
    from onnxfuse.bench import benchmark as run

    with shown_progress():
        report = run(a, b, provider=provider or "cuda", **options)
    if as_json:
        print_json(report.to_json())
    else:
        from onnxfuse.report.text import benchmark as text

        click.echo(text(report, **terminal()))


def _benchmark_nodes(
    a: Path, b: Path | None, provider: str | None, device: str | None, as_json: bool, **options: Any
) -> None:
    if b is not None:
        raise UsageError("--per-node takes one model; run it once for each")
    if provider not in (None, "cpu"):
        raise UsageError(
            "--per-node measures the CPU provider only; a GPU's kernels run on after onnxruntime has timed their node"
        )
    from onnxfuse.profiled import DEVICE, benchmark_nodes

    with shown_progress():
        report = benchmark_nodes(a, device=device or DEVICE, **options)
    say_assumed(report.dims, report.assumed)
    if as_json:
        print_json(report.to_json())
    else:
        from onnxfuse.report.text import node_times

        click.echo(node_times(report, **terminal()))
