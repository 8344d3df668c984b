"""Targets: what a runtime does with the file that it is given.

A target knows which chains of neighbouring nodes the runtime executes as one kernel by itself, and for which fused
operators it has kernels. Gains are computed on that execution, so a rewrite that the runtime does anyway gains
nothing, and one that breaks the runtime's own fusion loses.

Sources: onnxruntime 1.31/1.32, kernel registrations and optimizer sources, and the graphs that it saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import TensorProto

from onnxfuse.errors import UsageError

MICROSOFT = "com.microsoft"
ONNXFUSE = "onnxfuse"


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel for a fused operator: the ONNX dtypes it takes and the activations it can end with."""

    dtypes: frozenset[int]
    activations: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Target:
    """A runtime with its default options.

    device: the device that is assumed when none is named.
    kernels: fused operators by (domain, op_type).
    chains: op_type sequences which the runtime executes as one kernel by itself, and in which dtypes, called as in a
        device's file.
    provider: onnxruntime's provider, "cuda" or "cpu".
    functions_are_kernels: a function node counts as one kernel (an idealised compiler); otherwise its body runs node
        by node, as onnxruntime inlines it.
    """

    name: str
    title: str
    device: str
    kernels: Mapping[tuple[str, str], FusedKernel] = field(default_factory=dict)
    chains: Mapping[tuple[str, ...], frozenset[str]] = field(default_factory=dict)
    functions_are_kernels: bool = False
    provider: str = "cpu"


# float32 alone: float16 is run on CUDA only, where its results could not be compared with the original's.
_FLOAT = FusedKernel(frozenset({TensorProto.FLOAT}))

# onnxruntime folds a BatchNormalization into the convolution before it on every provider, before anything else.
_FOLDED: dict[tuple[str, ...], frozenset[str]] = {("Conv", "BatchNormalization"): frozenset({"fp32", "fp16", "fp64"})}
_CPU_CONV_ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish")
_CPU_GEMM_ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Softplus")
# Its fused kernels for the CPU are of float32 alone, to which it casts float16 first; Gemm in double runs by itself.
_CPU_CHAINS: dict[tuple[str, ...], frozenset[str]] = dict.fromkeys(
    (
        *(("Conv", "BatchNormalization", a) for a in _CPU_CONV_ACTIVATIONS),
        *(("Conv", a) for a in _CPU_CONV_ACTIVATIONS),
        *(("Conv", "Add"), ("Conv", "Add", "Relu"), ("Conv", "Sum"), ("Conv", "Sum", "Relu")),
        *(("Gemm", a) for a in _CPU_GEMM_ACTIVATIONS),
    ),
    frozenset({"fp32", "fp16"}),
)

_TARGETS = {
    t.name: t
    for t in (
        Target(
            "ort-cuda",
            "onnxruntime, CUDA provider, default level",
            "h200",
            # The CUDA FusedConv is registered for float only and its constructor takes Relu only.
            kernels={
                (MICROSOFT, "FusedConv"): FusedKernel(frozenset({TensorProto.FLOAT}), frozenset({"Relu"})),
                (MICROSOFT, "Attention"): _FLOAT,
                (MICROSOFT, "MultiHeadAttention"): _FLOAT,
                (MICROSOFT, "RotaryEmbedding"): _FLOAT,
                (MICROSOFT, "FastGelu"): _FLOAT,
            },
            chains=_FOLDED,
            provider="cuda",
        ),
        Target(
            "ort-cpu",
            "onnxruntime, CPU provider, default level",
            "avx2_core",
            # No FusedConv: it keeps a node out of the blocked NCHWc layout (measured 0.93x on residual blocks), and the
            # runtime makes the same fusions by itself. No MultiHeadAttention: 0.95x to 1.01x of its parts.
            kernels={(MICROSOFT, name): _FLOAT for name in ("Attention", "RotaryEmbedding", "FastGelu")},
            chains=_FOLDED | _CPU_CHAINS,
        ),
        Target(
            "portable",
            "any runtime: standard operators and local functions, one kernel a node",
            "h200",
            functions_are_kernels=True,
        ),
    )
}


def names() -> list[str]:
    """Names of all targets, sorted."""
    return sorted(_TARGETS)


def find(name: str | Target) -> Target:
    """The target of that name. Raises UsageError."""
    if isinstance(name, Target):
        return name
    if name not in _TARGETS:
        raise UsageError(f"unknown target '{name}'; known: {', '.join(names())}")
    return _TARGETS[name]
