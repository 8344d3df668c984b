"""The two forms of a model that are run, and onnxruntime's sessions of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfuse import feeds as fd
from onnxfuse import runtime, storage

BASE, DEFAULT = "disabled", "all"  # onnxruntime's optimizations off, and as users run it
LEVELS = (BASE, DEFAULT)
_TOGETHER = 24 << 20  # bytes of weights up to which several sessions are open at a time
_CUDA = ("CUDAExecutionProvider", {"use_tf32": "0"})  # TF32 rounds to 10 bits, and hides what is compared
_PREPACKED = 4000  # weights from which on a session without prepacking takes long to open: the time is quadratic


@dataclass(frozen=True, slots=True)
class Subject:
    """A model as verification runs it.

    plain: its file, run at the runtime's default level. shown: the same model with inner values as further outputs,
    which would keep the runtime from its fusions, run with optimizations off. inner: the names of those values.
    """

    plain: Path
    shown: Path
    inner: frozenset[str] = frozenset()

    @classmethod
    def of(cls, path: Path) -> Subject:
        """A model of which only the outputs are compared."""
        return cls(path, path)

    def path(self, level: str) -> Path:
        """The file that runs at a level."""
        return self.shown if level == BASE else self.plain


class Sessions:
    """Sessions by file and level. Of a large model one is open at a time; the one used longest ago is closed first.

    provider: where the default level runs, "cpu" or "cuda"; "cpu" again where CUDA turns out not to load.
    Opening raises what onnxruntime raises, and OutOfMemory.
    """

    def __init__(self, provider: str = "cpu") -> None:
        self._most = 1
        self.provider = provider
        self._open: dict[tuple[Path, str], Callable[[], Any]] = {}
        self._pool = ThreadPoolExecutor(1)

    def limit(self, weights: int) -> None:
        """Fit to a model of so many bytes of weights."""
        self._most = 3 if weights <= _TOGETHER else 1

    def prepare(self, path: Path, level: str) -> None:
        """Open a session in the background, where several may be open: onnxruntime does it without Python's lock."""
        if self._most > 1 and (path, level) not in self._open:
            future: Future[Any] = self._pool.submit(self._session, path, level)
            self._keep(path, level, future.result)

    def run(self, path: Path, level: str, feeds: fd.Feeds, without: Collection[str] = ()) -> runtime.Outputs:
        """The outputs by name, less those named. Raises what onnxruntime raises."""
        outputs = runtime.run(self.get(path, level), feeds, without)
        _give_back()
        return outputs

    def get(self, path: Path, level: str) -> Any:
        """The session of a file."""
        key = path, level
        if key in self._open:
            self._open[key] = self._open.pop(key)  # now the last one used
            return self._open[key]()
        while len(self._open) >= self._most:
            self.close(*next(iter(self._open)))
        session = self._session(path, level)
        self._keep(path, level, lambda: session)
        return session

    def forget(self, *paths: Path) -> None:
        """Close the sessions of files that are not what they were."""
        for path in paths:
            for level in LEVELS:
                self.close(path, level)

    def close(self, path: Path, level: str) -> None:
        """Close a session, if it is open, and give its memory back."""
        if self._open.pop((path, level), None) is not None:
            _give_back()

    def _keep(self, path: Path, level: str, opened: Callable[[], Any]) -> None:
        self._open[path, level] = opened

    def _session(self, path: Path, level: str) -> Any:
        proto = storage.read(path).proto
        if self.provider == "cuda" and level == DEFAULT:
            session = runtime.session(path, runtime.options(level), [_CUDA, "CPUExecutionProvider"])
            if session.get_providers()[0] == _CUDA[0]:
                return session
            self.provider = "cpu"  # its libraries do not load: onnxruntime took the CPU
        external = bool(storage.tensors.locations(proto))
        mapped = external or (level == BASE and len(proto.graph.initializer) < _PREPACKED)
        return runtime.cpu_session(path, level, mapped=mapped)


def _give_back() -> None:
    """Return freed memory to the machine: glibc keeps what onnxruntime's threads free for itself."""
    with suppress(AttributeError, OSError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)
