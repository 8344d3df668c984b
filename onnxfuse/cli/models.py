"""`analyze` and `optimize`: what a model costs, and a better one in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxfuse.cli.group import cli
from onnxfuse.cli.options import (
    DEVICE,
    DIM,
    INPUTS,
    INTENSITY,
    JSON,
    SEED,
    TARGET,
    TARGET_OPTION,
    output_file,
    with_options,
)
from onnxfuse.cli.output import (
    device_of,
    distinct,
    drawn,
    print_json,
    say_assumed,
    say_misfit,
    shown_progress,
    spare_data,
    terminal,
    warn,
    write,
)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--target", metavar="T", help=f"Runtime to optimize for.  [default: {TARGET}; with --as-executed only ort-cpu]"
)
@with_options(DEVICE, DIM, INPUTS, INTENSITY)
@click.option(
    "--as-executed", is_flag=True, help="Report on the graph that onnxruntime makes of the model to run it on the CPU."
)
@click.option(
    "--sort",
    type=click.Choice(["order", "time", "bytes", "flops", "intensity"]),
    default="time",
    show_default=True,
    help="Order of the node table.",
)
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=0), help="Rows of each table; 0 for all.")
@click.option("--annotate", type=click.Path(path_type=Path), metavar="OUT", help="Also write a copy with the numbers.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=output_file(".svg", ".png", ".html"),
    metavar="F",
    help="Also draw the roofline: .svg, .png, or .html, an interactive report.",
)
@click.option(
    "--csv",
    type=click.Path(path_type=Path),
    callback=output_file(".csv"),
    metavar="F",
    help="Also write the node table.",
)
@JSON
def analyze(
    model: Path, sort: str, top: int, plot: Path | None, csv: Path | None, as_json: bool, **options: Any
) -> None:
    """FLOPs, bytes, intensity, bound and roofline time of every node, and what could be fused."""
    from onnxfuse.pipeline import analyze as run

    for other in (model, options["annotate"]):
        distinct(other, plot, csv)
    spare_data(model, plot, csv)
    if options["as_executed"]:
        distinct(model, options["annotate"])  # the copy is another graph, made for this machine
    with shown_progress():
        report = run(model, **options)
    say_assumed(report.dims, report.assumed)
    say_misfit(report.misfit)
    device = device_of({**options, "target": report.target})
    if plot is not None:
        write(plot, drawn(report, device, plot.suffix.lower()))
    if csv is not None:
        from onnxfuse.report.table_csv import node_rows

        write(csv, node_rows(report.at_dims.nodes))
    if as_json:
        print_json(report.to_json())
    else:
        from onnxfuse.report.text import analysis

        click.echo(analysis(report, device, sort=sort, top=top, **terminal()))


@cli.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@with_options(TARGET_OPTION, DEVICE, DIM, INPUTS, INTENSITY)
@click.option("--rule", "rules", multiple=True, metavar="R", help="Try only this rewrite (repeatable).")
@click.option("--no-rule", "exclude", multiple=True, metavar="R", help="Do not try this rewrite (repeatable).")
@click.option("--then", type=click.Choice(["quantize"]), help="Emit nothing that this next step breaks.")
@click.option("--no-verify", is_flag=True, help="Write the result without running it.")
@click.option("--dry-run", is_flag=True, help="Plan and verify, but write nothing.")
@click.option("--explain", is_flag=True, help="Say for every refused rewrite why.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=output_file(".html"),
    metavar="F",
    help="Also write an interactive report: before and after.",
)
@with_options(SEED, JSON)
def optimize(
    source: Path,
    out: Path,
    no_verify: bool,
    dry_run: bool,
    explain: bool,
    rules: tuple[str, ...],
    report: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fuse what is legal and pays, prove that the result computes the same, write it."""
    from onnxfuse.pipeline import analyze as look
    from onnxfuse.pipeline import optimize as run

    for other in (source, out):
        distinct(other, report)
    spare_data(source, report)
    sight = {name: options[name] for name in ("target", "device", "dims", "max_intensity", "inputs")}
    with shown_progress():
        before = look(source, **sight) if report is not None else None  # now, since the output may take its place
        result = run(source, None if dry_run else out, rules=rules or None, verify=not no_verify, **options)
    say_assumed(result.dims, result.assumed)
    for back in result.rolled_back:
        warn(f"{back.rule} at {back.node} was rolled back: {back.reason}")
    if report is not None and before is not None:
        from onnxfuse.report import html

        device = device_of(options)
        after = result.analysis(device, max_intensity=options["max_intensity"])
        write(report, html.optimization(result, before, after, device))
    if as_json:
        print_json(result.to_json())
    else:
        from onnxfuse.report.text import optimization

        click.echo(optimization(result, explain=explain, **terminal()))
