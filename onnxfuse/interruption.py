"""Foreign code that can be ended: by Ctrl-C, or after some seconds.

A signal reaches Python code between two of its steps, so one long call in the main thread would hold it up. In a thread
of its own the call leaves the main one waiting, where a signal is seen at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

_GRACE = 2.0  # seconds in which what was interrupted is waited for: onnxruntime looks up between two nodes only

T = TypeVar("T")


def call(work: Callable[[], T], stop: Callable[[], None], seconds: float | None = None) -> T:
    """What `work` returns or raises. On a KeyboardInterrupt, and after so many seconds, `stop` is called, from another
    thread than `work` runs in, and must make it end.

    Raises TimeoutError once the work has ended after its time.
    """
    done: Future[T] = Future()

    def act() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    Thread(target=act, daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        if done.done():
            raise  # the work's own
        stop()
        done.exception()
        raise
    except KeyboardInterrupt:
        stop()
        _wait(done)
        raise


def _wait(done: Future[T]) -> None:
    try:
        done.exception(_GRACE)
    except TimeoutError:
        return
