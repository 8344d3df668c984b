"""A headless Chromium driven over its debugging pipe (Chrome DevTools Protocol), without any other package."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LONGEST = 120.0  # seconds that a browser may live
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
    "--no-first-run", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab.

    complaints: what the console, the log and the script engine reported since the page was opened; requests: every
    address that was asked for since then.
    """

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader, self._writer, self._ids = reader, writer, itertools.count(1)
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        wanted = next(self._ids)
        message = {"id": wanted, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while (answer := self._next()).get("id") != wanted:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._reader.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        event, data = message.get("method"), message.get("params")
        if event in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(data))
        elif event == "Network.requestWillBeSent":
            self.requests.append(data["request"]["url"])
        return message

    def open(self, path: Path, *, scheme: str = "light", width: int = 1240, height: int = 900) -> None:
        self.complaints.clear()
        self.requests.clear()
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=media)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=path.absolute().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


@contextmanager
def opened(folder: Path) -> Iterator[Page]:
    """A page of a browser that ends with the block; `folder` takes its profile."""
    to_browser, from_browser = os.pipe(), os.pipe()
    pipes = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    command = ["bash", "-c", pipes, "bash", str(find()), f"--user-data-dir={folder}", *FLAGS]
    inner = (to_browser[0], from_browser[1])
    process = subprocess.Popen(
        command, pass_fds=inner, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    watchdog = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))  # what reads then fails
    watchdog.start()
    for descriptor in inner:
        os.close(descriptor)
    with os.fdopen(from_browser[0], "rb") as reader, os.fdopen(to_browser[1], "wb") as writer:
        try:
            yield Page(reader, writer)
        finally:
            watchdog.cancel()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
