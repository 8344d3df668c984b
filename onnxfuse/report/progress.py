"""What runs, in one line on the terminal while it runs: drawn after a second, gone at the end."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TextIO

_AFTER, _EVERY = 1.0, 0.25  # seconds; what is done sooner needs no line, and a benchmark must not feel the drawing
_ERASE = "\r\x1b[K"
_LOG = logging.getLogger("onnxfuse")


@contextmanager
def shown(stream: TextIO) -> Iterator[None]:
    """While the block runs, the newest message that the package logs, of any level, and the seconds since the start.

    Nothing is drawn where `stream` takes no escape sequences. Nothing else may be written to the terminal meanwhile.
    """
    if not takes_escapes(stream):
        yield
        return
    newest, done = _Newest(), threading.Event()
    drawing = threading.Thread(target=_draw, args=(stream, newest, done), daemon=True)
    level = _LOG.level
    _LOG.setLevel(logging.DEBUG)
    _LOG.addHandler(newest)
    drawing.start()
    try:
        yield
    finally:
        done.set()
        drawing.join()
        _LOG.removeHandler(newest)
        _LOG.setLevel(level)


def takes_escapes(stream: TextIO) -> bool:
    """Whether colours and erased lines may be written to a stream: to a terminal, where its user does not say no.

    NO_COLOR: https://no-color.org. A "dumb" terminal knows no escape sequences.
    """
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


class _Newest(logging.Handler):
    text = "starting"

    def emit(self, record: logging.LogRecord) -> None:
        self.text = "".join(c if c.isprintable() else "�" for c in record.getMessage())


def _draw(stream: TextIO, newest: _Newest, done: threading.Event) -> None:
    started, drawn = monotonic(), ""
    wait = _AFTER
    with suppress(OSError):  # the terminal went away
        while not done.wait(wait):
            wait = _EVERY
            line = _fitted(newest.text, f"  {monotonic() - started:.0f} s", _columns(stream))
            if line != drawn:
                stream.write(_ERASE + line)
                stream.flush()
                drawn = line
        if drawn:
            stream.write(_ERASE)
            stream.flush()


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _fitted(text: str, end: str, columns: int) -> str:
    """Both in less than a whole line, since a full one may wrap; the text is cut."""
    from rich.cells import cell_len, set_cell_size

    room = max(columns - 1 - len(end), 0)
    return (text if cell_len(text) <= room else set_cell_size(text, max(room - 1, 0)) + "…") + end
