"""Releases of onnxruntime: the least one that a model needs, and the least one that this package works with.

A result with operators for which onnxruntime has kernels of its own is right from some release on, which its target
tells. The result says it in its metadata, as `onnxfuse.onnxruntime` = ">=1.27", so that it is still known elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import onnx

from onnxfuse import ir
from onnxfuse.errors import MissingDependency
from onnxfuse.targets import ONNXFUSE, Target

OLDEST = "1.28"  # as in pyproject.toml; the oldest in which all that is emitted ran right and which [cuda] can install
KEY = "onnxfuse.onnxruntime"
_RELEASE = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")


def required(proto: onnx.ModelProto, target: Target) -> str | None:
    """The least release in which all operators of a model are right that the target lists; None where it has none."""
    found = {since for node in _nodes(proto) if (since := _since(node, target)) is not None}
    return max(found, key=_numbers, default=None)


def demanded(proto: onnx.ModelProto) -> str | None:
    """The release that a model's metadata demands; None where none is named, or nonsense stands there."""
    for entry in proto.metadata_props:
        if entry.key == KEY and entry.value.startswith(">=") and _RELEASE.fullmatch(entry.value[2:]):
            return str(entry.value[2:])
    return None


def note(proto: onnx.ModelProto, target: Target) -> str | None:
    """Write into a result's metadata which release it needs, and return it; None where it needs none.

    A demand that stands there already is kept where it is the higher one.
    """
    known = [release for release in (demanded(proto), required(proto, target)) if release is not None]
    if not known:
        return None
    release = max(known, key=_numbers)
    if release != demanded(proto):
        entry = next((e for e in proto.metadata_props if e.key == KEY), None) or proto.metadata_props.add(key=KEY)
        entry.value = f">={release}"
    return release


def check(installed: str, proto: onnx.ModelProto | None = None) -> None:
    """Raise MissingDependency where the installed release is older than this package, or this model, needs."""
    if older(installed, OLDEST):
        raise MissingDependency(
            f"onnxruntime {installed} is installed, onnxfuse needs {OLDEST} or newer: "
            f'pip install "onnxruntime>={OLDEST}" (or onnxruntime-gpu)'
        )
    needed = None if proto is None else demanded(proto)
    if needed is not None and older(installed, needed):
        raise MissingDependency(
            f"onnxruntime {installed} is installed, the model needs {needed} or newer (metadata {KEY}): "
            f'pip install "onnxruntime>={needed}" (or onnxruntime-gpu)'
        )


def older(release: str, other: str) -> bool:
    """Does a release come before another one? Only its numbers count, nothing behind them (rc1, +cu12)."""
    return _numbers(release) < _numbers(other)


def _numbers(release: str) -> tuple[int, ...]:
    found = _RELEASE.match(release)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    return tuple(numbers + [0] * (4 - len(numbers)))


def _nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes: of the graph, of bodies, of local functions."""
    return ir.messages(chain(proto.graph.node, *(f.node for f in proto.functions)))


def _since(node: onnx.NodeProto, target: Target) -> str | None:
    domain = ir.domain(node.domain)
    kernel = target.kernels.get((domain, node.op_type))
    support = kernel.support if kernel is not None else target.functions if domain == ONNXFUSE else None
    if support is None:
        return None
    later = [since for index, since in support.since_with.items() if any(node.input[index : index + 1])]
    return max([support.since, *later], key=_numbers)
