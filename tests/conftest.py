"""What holds before any test imports onnxruntime."""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # its wheels send by default; read as it is imported
