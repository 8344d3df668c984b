"""`python -m onnxfuse` and the console script."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit with its code; with 130 where it is interrupted, be it while it is imported.

    A thread that may still be inside onnxruntime is not waited for.
    """
    try:
        from onnxfuse.cli import main as run

        run()
    except KeyboardInterrupt:
        import os
        import signal
        from contextlib import suppress

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with suppress(OSError):  # nobody reads it
            os.write(2, b"onnxfuse: interrupted\n")
        os._exit(130)


if __name__ == "__main__":
    main()
