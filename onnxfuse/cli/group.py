"""The command `onnxfuse` itself, which the others join."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click

from onnxfuse import __version__
from onnxfuse.cli.output import print_json
from onnxfuse.errors import Finding


class _Command(click.Command):
    """A command whose --json says on stdout, too, that it ends with a finding."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs it; a Finding goes on to `main`, which says it on stderr and ends with 1."""
        try:
            return super().invoke(ctx)
        except Finding as finding:
            if ctx.params.get("as_json"):
                print_json({"ok": False, "reason": str(finding)})
            raise


class _Group(click.Group):
    command_class = _Command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="onnxfuse")
@click.option("-v", "--verbose", is_flag=True, help="Log what is done to stderr.")
def cli(verbose: bool) -> None:
    """Makes ONNX models move fewer bytes: static cost, roofline, verified operator fusion, benchmark."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(message)s")
    for handler in logging.root.handlers:
        handler.setLevel(level)  # the progress line lowers the level of the package's logger
