"""What holds in every test: onnxruntime sends nothing, and an error inside a rule is a failure."""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # its wheels send by default; read as it is imported

from onnxfuse import patterns

patterns.survive_errors = False
