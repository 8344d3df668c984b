"""What the commands print and write beside the models: results on stdout, the rest on stderr, reports in files."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxfuse import jsonable
from onnxfuse.errors import UsageError, one_line
from onnxfuse.report import progress

if TYPE_CHECKING:
    from onnxfuse.analysis import Analysis
    from onnxfuse.devices import Device

WIDEST = 100  # columns of running text
_WIDEST_TABLE = 1000  # what COLUMNS says may be anything, and lines are filled with blanks at first


def device_of(options: Mapping[str, Any]) -> Device:
    """The device that the options name, or the target's own."""
    from onnxfuse import devices, targets

    return devices.find(options["device"] or targets.find(options["target"]).device)


def drawn(report: Analysis, device: Device, kind: str) -> bytes:
    """The roofline as a file of that extension."""
    from onnxfuse.report import chart, html, plot

    if kind == ".html":
        return html.analysis(report, device)
    return plot.image(chart.of_analysis(report, device), kind[1:])


def spare_data(model: Path, *paths: Path | None) -> None:
    """Refuse to write a report over the model's external data."""
    if there := [path for path in paths if path is not None and path.exists()]:
        from onnxfuse import storage

        data = {(model.parent / name).resolve() for name in storage.tensors.locations(storage.read(model).proto)}
        for path in there:
            if path.resolve() in data:
                raise UsageError(f"{path}: holds weights of the model; give the report a name of its own")


def distinct(*paths: Path | None) -> None:
    """Refuse to write a report over a model or another report."""
    real = [os.path.realpath(path) for path in paths if path is not None]
    for path in real:
        if real.count(path) > 1:
            raise UsageError(f"{path}: given for two files; give each a name of its own")


def write(path: Path, data: bytes) -> None:
    """A report, whole or not at all. Raises OutputError."""
    from onnxfuse.storage.files import atomic

    with atomic(path) as file:
        file.write(data)


def terminal() -> dict[str, Any]:
    """Width and colour of stdout, for the text reports."""
    return {
        "width": min(shutil.get_terminal_size((100, 24)).columns, _WIDEST_TABLE),
        "colour": progress.takes_escapes(sys.stdout),
    }


def shown_progress() -> AbstractContextManager[None]:
    """Shows what runs while the block does; with --verbose the log says it."""
    verbose = click.get_current_context().find_root().params["verbose"]
    return nullcontext() if verbose else progress.shown(sys.stderr)


def print_json(data: Any) -> None:
    """One object on stdout."""
    click.echo("".join(jsonable.text(data)))


def warn(text: str) -> None:
    """A line on stderr."""
    with suppress(OSError):  # nobody reads it, or it is on a full disk; the work goes on
        click.echo(f"onnxfuse: {one_line(text)}", err=True)


def say_assumed(dims: Mapping[str, int], assumed: tuple[str, ...]) -> None:
    """The sizes that nobody gave."""
    if assumed:
        warn(f"assumed {', '.join(f'{n}={dims[n]}' for n in assumed)}; set with --dim NAME=N")


def say_misfit(node: str | None) -> None:
    """The first node that the sizes do not fit."""
    if node is not None:
        warn(f"these sizes do not fit the model at {node}; what depends on it is unknown")
