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
class Support:
    """The releases of onnxruntime in which an operator computes what it stands for.

    since: the first one. since_with: a later one for nodes that connect the input of this index. tried: in which the
    operator was compared with its parts, on the CPU provider without optimizations and at the default level.
    """

    since: str
    since_with: Mapping[int, str] = field(default_factory=dict)
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel for a fused operator: the ONNX dtypes it takes, the activations it can end with, its releases.

    masks: an attention may have a mask.
    """

    dtypes: frozenset[int]
    activations: frozenset[str] = frozenset()
    masks: bool = True
    support: Support | None = None


_TRIED = (
    *("1.18.1", "1.19.2", "1.20.1", "1.21.1", "1.22.1", "1.23.2"),
    *("1.24.4", "1.26.0", "1.27.0", "1.28.0", "1.30.0", "1.32.0"),
)
_FUNCTIONS = Support("1.18", tried=_TRIED)
# float32 alone: float16 is run on CUDA only, where its results could not be compared with the original's.
_FLOAT = frozenset({TensorProto.FLOAT})


@dataclass(frozen=True, slots=True)
class Target:
    """A runtime with its default options.

    device: the device that is assumed when none is named.
    kernels: fused operators by (domain, op_type). functions: the releases for nodes that call a local
        function of ours, None where no such nodes may be made.
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
    functions: Support | None = _FUNCTIONS
    functions_are_kernels: bool = False
    provider: str = "cpu"


# Each operator that is emitted, in which releases it was tried: tests/test_releases.py. A FusedConv with a residual is
# off by half its scale at the default level up to 1.26, or does not run. Attention with a mask that it has to spread
# is refused up to 1.19, and both operators are wrong with some masks up to 1.20.
_RESIDUAL, _MASK = 3, 5
_KERNELS: dict[tuple[str, str], FusedKernel] = {
    (MICROSOFT, name): FusedKernel(_FLOAT, activations, support=Support("1.18", later, _TRIED))
    for name, later, activations in (
        # The CUDA FusedConv is registered for float only and its constructor takes Relu only.
        ("FusedConv", {_RESIDUAL: "1.27"}, frozenset({"Relu"})),
        ("Attention", {_MASK: "1.21"}, frozenset()),
        ("MultiHeadAttention", {_MASK: "1.21"}, frozenset()),
        ("RotaryEmbedding", {}, frozenset()),
        ("FastGelu", {}, frozenset()),
    )
}

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
            kernels=_KERNELS,
            chains=_FOLDED,
            provider="cuda",
        ),
        Target(
            "ort-cpu",
            "onnxruntime, CPU provider, default level",
            "avx2_core",
            # No FusedConv: it keeps a node out of the blocked NCHWc layout (measured 0.93x on residual blocks), and the
            # runtime makes the same fusions by itself. No MultiHeadAttention: 0.95x to 1.01x of its parts.
            kernels={
                key: kernel for key, kernel in _KERNELS.items() if key[1] not in ("FusedConv", "MultiHeadAttention")
            },
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
