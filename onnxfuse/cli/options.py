"""The options that commands share, and their checks before any work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from onnxfuse.errors import UsageError

TARGET = "ort-cuda"


def _dims(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Parse name=value pairs; the name may itself contain '='."""
    dims: dict[str, int] = {}
    for text in values:
        name, _, value = text.rpartition("=")
        if not name or not value.isascii() or not value.isdigit() or not 1 <= int(value[:12]) < 2**31:
            raise UsageError(f"--dim {text}: expected NAME=SIZE, a size from 1 to 2147483647, such as --dim batch=8")
        if name in dims:
            raise UsageError(f"--dim {name} is given twice ({dims[name]} and {value})")
        dims[name] = int(value)
    return dims


def output_file(*kinds: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """A check, before any work, that an output has one of these extensions and can be made."""

    def check(_context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
        if path is None:
            return None
        from onnxfuse.storage import files

        kind = path.suffix.lower()
        if kind not in kinds:
            raise UsageError(f"{parameter.opts[0]} {path}: no such kind of file; known: {', '.join(kinds)}")
        files.check(path)
        if kind in (".svg", ".png"):
            from onnxfuse.report.plot import require

            require()
        return path

    return check


def with_options(*options: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that gives a command these options, in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


DIM = click.option(
    "--dim", "dims", multiple=True, callback=_dims, metavar="NAME=N", help="Size of a free dimension; INPUT.AXIS=N too."
)
INPUTS = click.option(
    "--inputs", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Inputs of the model: .npz by name, .npy for one, or a folder of ONNX test data (repeatable).",
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
SEED = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the test data.")
DEVICE = click.option("--device", metavar="D", help="Device name or .toml file (default: the target's).")
TARGET_OPTION = click.option(
    "--target", default=TARGET, show_default=True, metavar="T", help="Runtime to optimize for."
)
INTENSITY = click.option(
    "--max-intensity", type=click.FloatRange(min=0, min_open=True), metavar="X",
    help="FLOP/byte from which a node counts as compute-bound (default: the device's ridge point; general rule: 10).",
)  # fmt: skip
