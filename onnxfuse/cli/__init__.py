"""The command line: the only place that prints, exits or reads argv.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 a finding, 2 bad usage or bad input in one line,
130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

import click

from onnxfuse.cli import lists, models, runs  # noqa: F401 - each adds its commands to the group
from onnxfuse.cli.group import cli
from onnxfuse.errors import Finding, OnnxfuseError, memory_named, one_line

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

# Heavy modules (onnx, graphsurgeon, onnxruntime) are imported inside the commands: --help answers at once.


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
    """Run the command line and exit with its code. A KeyboardInterrupt is the caller's (see `__main__`)."""
    _open_standard_streams()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads would only be in the way of onnxruntime's
    gc.disable()  # a short process that builds large acyclic structures: searching them for cycles takes a fifth of it
    try:
        # Not by its own main, which makes 1, a finding, of a broken pipe.
        with memory_named(), cli.make_context("onnxfuse", sys.argv[1:]) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:  # --help, --version
        sys.exit(end.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        with suppress(OSError):
            click.echo(error.ctx.get_help(), err=True)
        sys.exit(2)
    except click.ClickException as error:
        _end(" ".join(error.format_message().split()), 2)
    except Finding as error:
        _end(str(error), 1)
    except OnnxfuseError as error:
        _end(f"{error}{_without_folder()}", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away, as `| head` does
        sys.exit(0)
    except OSError as error:
        where = error.filename or ("the standard output" if error.errno in _UNWRITABLE else "this machine")
        _end(f"{where}: {error.strerror or error}{_without_folder()}", 2)
    except Exception as error:
        if "ONNXFUSE_DEBUG" in os.environ:
            raise
        text = " ".join(str(error).split())[:300]
        _end(
            f"internal error ({type(error).__name__}: {text}); please report it; ONNXFUSE_DEBUG=1 shows the traceback",
            2,
        )
    _leave(code if isinstance(code, int) else 0)


def _without_folder() -> str:
    """What to add to a message where the working directory was deleted: every relative path fails then."""
    try:
        os.getcwd()  # noqa: PTH109 - it is asked whether there is one
    except OSError:
        return "; the working directory does not exist any more: change into another one"
    return ""


def _end(text: str, code: int) -> NoReturn:
    with suppress(OSError):  # nobody reads it
        click.echo(f"onnxfuse: {one_line(text)}", err=True)
    _leave(code)


def _leave(code: int) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done; an interrupt now would only show a traceback
    sys.exit(code)
