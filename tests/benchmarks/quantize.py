"""Error of int8 models: of the original, of its result, and of the result for quantizing. python quantize.py MODEL…

Quantized are by onnxruntime, on seeded normal data: dynamically, and statically (QDQ, per channel, calibrated on the
same data). Printed is the root mean square of the difference to the original in float, relative to the original's.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read as onnxruntime loads
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

import onnxfuse
from onnxfuse import interface, runtime

Data = dict[str, np.ndarray]


class Once(CalibrationDataReader):
    """The same data once."""

    def __init__(self, data: Data) -> None:
        self.left: Iterator[Data] = iter([data])

    def get_next(self) -> Data | None:
        return next(self.left, None)


def difference(a: Data, b: Data) -> float:
    """The largest over the outputs of floats."""
    pairs = [(v.astype(np.float64), b[name]) for name, v in a.items() if v.dtype.kind == "f"]
    return max(float(np.sqrt(np.mean((x - y) ** 2) / max(np.mean(x**2), 1e-12))) for x, y in pairs)


def errors(path: Path, expected: Data, data: Data, folder: Path) -> Iterator[str]:
    """Dynamic, then static; the kind of the failure where there is one."""
    made = folder / "int8.onnx"
    for way in ("dynamic", "static"):
        try:
            if way == "dynamic":
                quantize_dynamic(path, made, weight_type=QuantType.QInt8)
            else:
                quantize_static(path, made, Once(data), per_channel=True)
            yield f"{difference(expected, runtime.run(runtime.cpu_session(made, 'all'), data)):.4f}"
        except Exception as problem:  # noqa: BLE001 - whatever the quantizer or onnxruntime raises
            yield f"fails: {type(problem).__name__}"


def main(paths: list[Path]) -> None:
    """A line a model and target."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for path in paths:
            session = runtime.cpu_session(path, "disabled")
            attempt = runtime.find_feeds(lambda feeds, s=session: runtime.run(s, feeds), interface.read(path), {}, 0)
            _, data, expected = attempt
            print(path.stem, "original", *errors(path, expected, data, folder), sep=" | ", flush=True)
            for target in ("ort-cpu", "ort-cuda"):
                for then in (None, "quantize"):
                    onnxfuse.optimize(path, folder / "result.onnx", target=target, then=then, verify=False)
                    found = errors(folder / "result.onnx", expected, data, folder)
                    print(path.stem, f"{target} {then or ''}", *found, sep=" | ", flush=True)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
