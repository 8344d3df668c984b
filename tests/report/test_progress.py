"""The progress line: on a terminal, after a second, on stderr alone, and nothing of it is left."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from onnxfuse.report import progress

EXAMPLE = Path(__file__).parents[2] / "models" / "conv_relu_maxpool_conv.onnx"
LOG = logging.getLogger("onnxfuse.some.stage")

# The command, with a stage that ends only when the test has seen the line: it reads a byte from stdin.
SLOW = """
import sys
from onnxfuse import cli, pipeline
bind = pipeline.bind
def slow(*arguments):
    pipeline.log.info("a slow stage")
    sys.stdin.read(1)
    return bind(*arguments)
pipeline.bind = slow
cli.main()
"""


def read_until(terminal: int, text: str) -> str:
    """What was drawn, up to and including the text; ends by the test's time limit where it never comes."""
    seen = b""
    while text.encode() not in seen:
        seen += os.read(terminal, 4096)
    return seen.decode()


def rest(terminal: int) -> str:
    """What else was drawn, once nobody writes any more."""
    seen = b""
    try:
        while part := os.read(terminal, 4096):
            seen += part
    except OSError:  # Linux: the other end is closed
        pass
    return seen.decode()


def test_a_long_stage_is_drawn_and_erased() -> None:
    master, slave = pty.openpty()
    with open(slave, "w") as stream, progress.shown(stream):  # noqa: PTH123 - a descriptor, not a path
        LOG.info("first\x1b[2J")
        LOG.debug("case %d of %d", 3, 9)
        drawn = read_until(master, " s")
    assert drawn == "\r\x1b[Kcase 3 of 9  1 s"
    assert rest(master).endswith("\r\x1b[K")
    os.close(master)
    assert LOG.parent is not None and not LOG.parent.handlers and LOG.parent.level == logging.NOTSET


def test_control_characters_of_a_name_are_not_sent() -> None:
    master, slave = pty.openpty()
    with open(slave, "w") as stream, progress.shown(stream):  # noqa: PTH123
        LOG.info("reading %s", "a\x1b[2J\n.onnx")
        assert "reading a�[2J�.onnx" in read_until(master, " s")
    os.close(master)


def test_a_short_stage_is_not_drawn() -> None:
    master, slave = pty.openpty()
    with open(slave, "w") as stream, progress.shown(stream):  # noqa: PTH123
        LOG.info("soon done")
    assert rest(master) == ""
    os.close(master)


@pytest.mark.parametrize(("terminal", "kind"), [(False, "xterm"), (True, "dumb")])
def test_no_line_without_a_terminal_that_can_erase_it(
    terminal: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(progress, "_AFTER", 0.0)
    stream = Stream()
    with progress.shown(stream):
        LOG.info("a stage")
        assert not any(isinstance(h, progress._Newest) for h in logging.getLogger("onnxfuse").handlers)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        ("comparing", 80, "comparing  12 s"),
        ("comparing with the original", 20, "comparing wit…  12 s"[:12] + "…  12 s"),
        ("模型模型模型模型", 16, "模型模型…  12 s"),  # two columns each
        ("comparing", 3, "…  12 s"),
    ],
)
def test_the_line_never_wraps(text: str, columns: int, line: str) -> None:
    assert progress._fitted(text, "  12 s", columns) == line


def test_the_command_draws_on_stderr_alone() -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-c", SLOW, "analyze", str(EXAMPLE), "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=slave, text=True) as process:
        os.close(slave)
        assert "a slow stage  " in read_until(master, " s")
        stdout, _ = process.communicate("x")
        left = rest(master)
    os.close(master)
    assert process.returncode == 0 and json.loads(stdout)["model"] == str(EXAMPLE)
    assert left.endswith("\r\x1b[K")  # no free dimension is assumed here, so that nothing follows


def test_the_command_draws_nothing_into_a_pipe() -> None:
    script = SLOW.replace("sys.stdin.read(1)", "__import__('time').sleep(1.5)")
    command = [sys.executable, "-c", script, "analyze", str(EXAMPLE), "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == "" and json.loads(result.stdout)["model"] == str(EXAMPLE)
