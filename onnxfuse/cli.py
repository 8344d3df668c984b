"""The command line: the only place that prints, exits or reads argv.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a finding, 2 bad usage or bad input in one line.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from onnxfuse import __version__, jsonable
from onnxfuse.errors import Finding, OnnxfuseError, UsageError, one_line

if TYPE_CHECKING:
    from onnxfuse.analysis import Analysis
    from onnxfuse.devices import Device

# Heavy modules (onnx, graphsurgeon, onnxruntime) are imported inside the commands: --help answers at once.

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


def _file(*kinds: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
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


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


DIM = click.option(
    "--dim", "dims", multiple=True, callback=_dims, metavar="NAME=N", help="Size of a free dimension; INPUT.AXIS=N too."
)
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


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="onnxfuse")
@click.option("-v", "--verbose", is_flag=True, help="Log what is done to stderr.")
def cli(verbose: bool) -> None:
    """Makes ONNX models move fewer bytes: static cost, roofline, verified operator fusion, benchmark."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(message)s")
    for handler in logging.root.handlers:
        handler.setLevel(level)  # the progress line lowers the level of the package's logger


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--target", metavar="T", help=f"Runtime to optimize for.  [default: {TARGET}; with --as-executed only ort-cpu]"
)
@_options(DEVICE, DIM, INTENSITY)
@click.option(
    "--as-executed", is_flag=True, help="Report on the graph that onnxruntime makes of the model to run it on the CPU."
)
@click.option(
    "--sort", type=click.Choice(["order", "time", "bytes", "flops", "intensity"]), default="time", show_default=True,
    help="Order of the node table.",
)  # fmt: skip
@click.option("--top", default=20, show_default=True, type=click.IntRange(min=0), help="Rows of each table; 0 for all.")
@click.option("--annotate", type=click.Path(path_type=Path), metavar="OUT", help="Also write a copy with the numbers.")
@click.option(
    "--plot", type=click.Path(path_type=Path), callback=_file(".svg", ".png", ".html"), metavar="F",
    help="Also draw the roofline: .svg, .png, or .html, an interactive report.",
)  # fmt: skip
@click.option(
    "--csv", type=click.Path(path_type=Path), callback=_file(".csv"), metavar="F", help="Also write the node table."
)
@JSON
def analyze(
    model: Path, sort: str, top: int, plot: Path | None, csv: Path | None, as_json: bool, **options: Any
) -> None:
    """FLOPs, bytes, intensity, bound and roofline time of every node, and what could be fused."""
    from onnxfuse.pipeline import analyze as run

    for other in (model, options["annotate"]):
        _distinct(other, plot, csv)
    _spare_data(model, plot, csv)
    if options["as_executed"]:
        _distinct(model, options["annotate"])  # the copy is another graph, made for this machine
    with _progress():
        report = run(model, **options)
    _say_assumed(report.dims, report.assumed)
    _say_misfit(report.misfit)
    device = _device({**options, "target": report.target})
    if plot is not None:
        _write(plot, _drawn(report, device, plot.suffix.lower()))
    if csv is not None:
        from onnxfuse.report.table_csv import node_rows

        _write(csv, node_rows(report.at_dims.nodes))
    if as_json:
        _print_json(report.to_json())
    else:
        from onnxfuse.report.text import analysis

        click.echo(analysis(report, device, sort=sort, top=top, **_terminal()))


@cli.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@_options(TARGET_OPTION, DEVICE, DIM, INTENSITY)
@click.option("--rule", "rules", multiple=True, metavar="R", help="Try only this rewrite (repeatable).")
@click.option("--no-rule", "exclude", multiple=True, metavar="R", help="Do not try this rewrite (repeatable).")
@click.option("--no-verify", is_flag=True, help="Write the result without running it.")
@click.option("--dry-run", is_flag=True, help="Plan and verify, but write nothing.")
@click.option("--explain", is_flag=True, help="Say for every refused rewrite why.")
@click.option(
    "--report", type=click.Path(path_type=Path), callback=_file(".html"), metavar="F",
    help="Also write an interactive report: before and after.",
)  # fmt: skip
@_options(SEED, JSON)
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
        _distinct(other, report)
    _spare_data(source, report)
    sight = {name: options[name] for name in ("target", "device", "dims", "max_intensity")}
    with _progress():
        before = look(source, **sight) if report is not None else None  # now, since the output may take its place
        result = run(source, None if dry_run else out, rules=rules or None, verify=not no_verify, **options)
    _say_assumed(result.dims, result.assumed)
    for back in result.rolled_back:
        _warn(f"{back.rule} at {back.node} was rolled back: {back.reason}")
    if report is not None and before is not None:
        from onnxfuse.report import html

        device = _device(options)
        after = result.analysis(device, max_intensity=options["max_intensity"])
        _write(report, html.optimization(result, before, after, device))
    if as_json:
        _print_json(result.to_json())
    else:
        from onnxfuse.report.text import optimization

        click.echo(optimization(result, explain=explain, **_terminal()))


@cli.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@_options(DIM, SEED)
@click.option(
    "--tolerance", type=click.FloatRange(min=0), metavar="X", help="Allowed error relative to an output's scale."
)
@JSON
def verify(a: Path, b: Path, as_json: bool, **options: Any) -> None:
    """Run two models on the same data and compare their interfaces and outputs."""
    from onnxfuse.verification import verify as run

    with _progress():
        verdict = run(a, b, **options)
    if as_json:
        _print_json(verdict.to_json())
    else:
        from onnxfuse.report.text import verification

        click.echo(verification(verdict, **_terminal()))
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
@_options(DIM)
@click.option("--runs", type=click.IntRange(min=1), help="Timed runs of each model (default: 100; 20 with --per-node).")
@click.option("--per-node", is_flag=True, help="Each node's time, on one thread, beside its roofline time.")
@click.option("--device", metavar="D", help="With --per-node: device name or .toml file (default: avx2_core).")
@_options(SEED, JSON)
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

    with _progress():
        report = run(a, b, provider=provider or "cuda", **options)
    if as_json:
        _print_json(report.to_json())
    else:
        from onnxfuse.report.text import benchmark as text

        click.echo(text(report, **_terminal()))


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

    with _progress():
        report = benchmark_nodes(a, device=device or DEVICE, **options)
    _say_assumed(report.dims, report.assumed)
    if as_json:
        _print_json(report.to_json())
    else:
        from onnxfuse.report.text import node_times

        click.echo(node_times(report, **_terminal()))


@cli.command("devices")
@click.option(
    "--measure", "out", type=click.Path(path_type=Path), callback=_file(".toml"), metavar="OUT.toml",
    help="Measure one thread of this CPU in onnxruntime, write it as a device file and show it (20 seconds).",
)  # fmt: skip
@JSON
def list_devices(out: Path | None, as_json: bool) -> None:
    """The devices that come with the package, with their peak rates; or this machine's, measured."""
    from onnxfuse import devices

    if out is not None:
        from onnxfuse.measure import measure, toml

        with _progress():
            _write(out, toml(measure()).encode())
    found = [devices.find(name) for name in ([out] if out is not None else devices.names())]
    if as_json:
        _print_json({"devices": jsonable.plain(found)})
    else:
        from onnxfuse.report.text import device_table

        click.echo(device_table(found, **_terminal()))


@cli.command("rules")
@JSON
def list_rules(as_json: bool) -> None:
    """The rewrites, each with its algebra and what it saves on real models."""
    from onnxfuse.rules import all_rules, saved

    table = saved()
    found = {name: (rule.doc.strip(), table["rules"][name]) for name, rule in all_rules().items()}
    if as_json:
        _print_json({"rules": [{"name": n, "doc": d, "of": table["of"], **row} for n, (d, row) in found.items()]})
        return
    from onnxfuse.report.units import time

    width = min(_terminal()["width"], _WIDEST)
    for name, (doc, row) in found.items():
        made = [f"{t} {row[t]['made']}x" for t in ("ort-cpu", "ort-cuda") if row[t]["made"]]
        gains = [f"{t} {time(row[t]['seconds'])}" for t in ("ort-cpu", "ort-cuda") if row[t]["seconds"] > 0]
        share = f"{row['models']} of {table['of']}" if made else "none"
        said = f"Made in {share} of the measured models{''.join(f', {m}' for m in made)}"
        saves = f"; estimated to save {', '.join(gains)} in all" if gains else ""
        told = click.wrap_text(f"{doc}\n\n{said}{saves}.", width, "  ", "  ", preserve_paragraphs=True)
        click.echo(f"{click.style(name, bold=True)}\n{told}\n")


def _device(options: Mapping[str, Any]) -> Device:
    """The device that the options name, or the target's own."""
    from onnxfuse import devices, targets

    return devices.find(options["device"] or targets.find(options["target"]).device)


def _drawn(report: Analysis, device: Device, kind: str) -> bytes:
    """The roofline as a file of that extension."""
    from onnxfuse.report import chart, html, plot

    if kind == ".html":
        return html.analysis(report, device)
    return plot.image(chart.of_analysis(report, device), kind[1:])


def _spare_data(model: Path, *paths: Path | None) -> None:
    """Refuse to write a report over the model's external data."""
    if there := [path for path in paths if path is not None and path.exists()]:
        from onnxfuse import storage

        data = {(model.parent / name).resolve() for name in storage.tensors.locations(storage.read(model).proto)}
        for path in there:
            if path.resolve() in data:
                raise UsageError(f"{path}: holds weights of the model; give the report a name of its own")


def _distinct(*paths: Path | None) -> None:
    """Refuse to write a report over a model or another report."""
    real = [os.path.realpath(path) for path in paths if path is not None]
    for path in real:
        if real.count(path) > 1:
            raise UsageError(f"{path}: given for two files; give each a name of its own")


def _write(path: Path, data: bytes) -> None:
    from onnxfuse.storage.files import atomic

    with atomic(path) as file:
        file.write(data)


_WIDEST = 100  # columns of running text


def _terminal() -> dict[str, Any]:
    """Width and colour of stdout, for the text reports."""
    return {
        "width": shutil.get_terminal_size((100, 24)).columns,
        "colour": sys.stdout.isatty() and "NO_COLOR" not in os.environ,
    }


def _progress() -> AbstractContextManager[None]:
    """Shows what runs while the block does; with --verbose the log says it."""
    from onnxfuse.report import progress

    verbose = click.get_current_context().find_root().params["verbose"]
    return nullcontext() if verbose else progress.shown(sys.stderr)


def _print_json(data: Any) -> None:
    click.echo("".join(jsonable.text(data)))


def _warn(text: str) -> None:
    with suppress(BrokenPipeError):  # nobody reads it; the work goes on
        click.echo(f"onnxfuse: {one_line(text)}", err=True)


def _say_assumed(dims: Mapping[str, int], assumed: tuple[str, ...]) -> None:
    if assumed:
        _warn(f"assumed {', '.join(f'{n}={dims[n]}' for n in assumed)}; set with --dim NAME=N")


def _say_misfit(node: str | None) -> None:
    if node is not None:
        _warn(f"these sizes do not fit the model at {node}; what depends on it is unknown")


def _open_standard_streams() -> None:
    """In the place of closed ones the null device: else a file that is opened takes their number, and their output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # no name and no arrow ends the work


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    _open_standard_streams()
    gc.disable()  # a short process that builds large acyclic structures: searching them for cycles takes a fifth of it
    try:
        with cli.make_context("onnxfuse", sys.argv[1:]) as context:  # its own main makes 1, a finding, of a broken pipe
            code = cli.invoke(context)
    except click.exceptions.Exit as end:  # --help, --version
        sys.exit(end.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _end("interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        sys.exit(2)
    except click.ClickException as error:
        _end(" ".join(error.format_message().split()), 2)
    except Finding as error:
        _end(str(error), 1)
    except OnnxfuseError as error:
        _end(str(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away, as `| head` does
        sys.exit(0)
    except OSError as error:
        _end(f"{error.filename or 'the standard output'}: {error.strerror or error}", 2)
    except MemoryError:
        _end("not enough memory for this model", 2)
    except Exception as error:
        if "ONNXFUSE_DEBUG" in os.environ:
            raise
        text = " ".join(str(error).split())[:300]
        _end(
            f"internal error ({type(error).__name__}: {text}); please report it; ONNXFUSE_DEBUG=1 shows the traceback",
            2,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _end(text: str, code: int) -> NoReturn:
    with suppress(OSError):  # nobody reads it
        click.echo(f"onnxfuse: {one_line(text)}", err=True)
    sys.exit(code)
