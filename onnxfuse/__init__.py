"""onnxfuse makes ONNX models move fewer bytes: static cost, roofline, verified operator fusion, benchmark."""

__version__ = "0.1.0"
