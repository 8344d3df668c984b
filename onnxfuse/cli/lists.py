"""`devices` and `rules`: what there is to choose from."""

from __future__ import annotations

from pathlib import Path

import click

from onnxfuse import jsonable
from onnxfuse.cli.group import cli
from onnxfuse.cli.options import JSON, output_file
from onnxfuse.cli.output import WIDEST, print_json, shown_progress, terminal, write


@cli.command("devices")
@click.option(
    "--measure", "out", type=click.Path(path_type=Path), callback=output_file(".toml"), metavar="OUT.toml",
    help="Measure one thread of this CPU in onnxruntime, write it as a device file and show it (20 seconds).",
)  # fmt: skip
@JSON
def list_devices(out: Path | None, as_json: bool) -> None:
    """The devices that come with the package, with their peak rates; or this machine's, measured."""
    from onnxfuse import devices

    if out is not None:
        from onnxfuse.measure import measure, toml

        with shown_progress():
            write(out, toml(measure()).encode())
    found = [devices.find(name) for name in ([out] if out is not None else devices.names())]
    if as_json:
        print_json({"devices": jsonable.plain(found)})
    else:
        from onnxfuse.report.text import device_table

        click.echo(device_table(found, **terminal()))


@cli.command("rules")
@JSON
def list_rules(as_json: bool) -> None:
    """The rewrites, each with its algebra and what it saves on real models."""
    from onnxfuse.rules import all_rules, saved

    table = saved()
    found = {name: (rule.doc.strip(), table["rules"][name]) for name, rule in all_rules().items()}
    if as_json:
        print_json({"rules": [{"name": n, "doc": d, "of": table["of"], **row} for n, (d, row) in found.items()]})
        return
    from onnxfuse.report.units import time

    screen = terminal()
    width = min(screen["width"], WIDEST)
    for name, (doc, row) in found.items():
        made = [f"{t} {row[t]['made']}x" for t in ("ort-cpu", "ort-cuda") if row[t]["made"]]
        gains = [f"{t} {time(row[t]['seconds'])}" for t in ("ort-cpu", "ort-cuda") if row[t]["seconds"] > 0]
        share = f"{row['models']} of {table['of']}" if made else "none"
        said = f"Made in {share} of the measured models{''.join(f', {m}' for m in made)}"
        saves = f"; estimated to save {', '.join(gains)} in all" if gains else ""
        told = click.wrap_text(f"{doc}\n\n{said}{saves}.", width, "  ", "  ", preserve_paragraphs=True)
        title = click.style(name, bold=True) if screen["colour"] else name
        click.echo(f"{title}\n{told}\n")
