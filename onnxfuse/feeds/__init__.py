"""Inputs to run a model with: sizes for its free dimensions, seeded data."""

from __future__ import annotations

from onnxfuse.feeds.data import (
    LARGEST,
    NORMAL,
    POSITIVE,
    SCALED,
    SIGNED,
    WIDE,
    WIDER,
    WIDEST,
    Feeds,
    Kind,
    make,
    nudge,
)
from onnxfuse.feeds.sizes import Binding, candidates, free_dims, resolve, size, switched, uniform, variants

__all__ = [
    "LARGEST", "NORMAL", "POSITIVE", "SCALED", "SIGNED", "WIDE", "WIDER", "WIDEST", "Binding", "Feeds", "Kind",
    "candidates", "free_dims", "make", "nudge", "resolve", "size", "switched", "uniform", "variants",
]  # fmt: skip
