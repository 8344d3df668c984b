"""A rewrite never stops the runtime from a fusion of its own: onnxruntime executes no more nodes than before."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnx
import pytest
from support import LIGHT_ZOO, graph, optimized, parse, with_weights

from onnxfuse.rules import all_rules

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from executed import executed

MODELS = sorted(Path(os.environ["ONNXFUSE_MODELS"]).glob("*.onnx")) if "ONNXFUSE_MODELS" in os.environ else []
# Rules that trade a costly node for cheaper ones, or come before another: more nodes, less time.
MORE = {
    "conv_of_concat": "a LeakyRelu outside of the convolution, for values that are copied and reordered",
    "matmul_add_as_gemm": "Reshapes around Gemm, for a BiasGelu that is slow and an Add",
    "mish": "three costly nodes",
    "pick_first": "a Gather a branch",
    "prelu_channels": "before prelu_depthwise",
    "prelu_depthwise": "two small convolutions, for a PRelu outside of the blocked layout",
    "sum_before_layer_norm": "Sum and LayerNormalization, for a SkipLayerNormalization that is slow",
}
# Graphs on which those of them execute more that do not on their own example.
ELSEWHERE = {
    "conv_of_concat": graph(
        "a = Conv (x, u) t = ConvTranspose (x, v) c = Concat <axis = 1> (a, t) d = Conv (c, w) l = LeakyRelu (d)"
        " y = Conv (l, z)",
        inputs="float[1,4,64,64] x, float[16,4,1,1] u, float[4,16,1,1] v, float[16,32,1,1] w, float[16,16,1,1] z",
        outputs="float[1,16,64,64] y",
    ),
    "matmul_add_as_gemm": graph(
        "m = MatMul (x, w) a = Add (m, b) g = Gelu (a) n = MatMul (g, w) y = Add (n, b)",
        inputs="float[N,16,4] x, float[4,4] w, float[4] b", outputs="float[N,16,4] y", opset=20,
    ),
    "prelu_depthwise": graph(
        "c = Conv (x, w) p = PRelu (c, s) y = Conv (p, v)",
        inputs="float[1,1,8,8] x, float[12,1,1,1] w, float[12,1,1] s, float[16,12,1,1] v", outputs="float[1,16,8,8] y",
    ),
}  # fmt: skip
REWRITES = [
    name for name, rule in all_rules().items() if rule.pairs is None and (name not in MORE or name in ELSEWHERE)
]


def counts(path: Path, folder: Path, rules: list[str] | None = None) -> tuple[int, int]:
    """Nodes of the runtime's own graph for the original, and for what it is optimized to for the CPU."""
    result = optimized(onnx.load(path), target="ort-cpu", verify=False, rules=rules)
    onnx.save(result.model, folder / "optimized.onnx")
    return executed(path), executed(folder / "optimized.onnx")


def check(path: Path, folder: Path, rules: list[str] | None = None) -> None:
    """Fails where the runtime's own graph has more nodes than for the original."""
    before, after = counts(path, folder, rules)
    assert after <= before


@pytest.mark.parametrize("path", LIGHT_ZOO, ids=lambda p: p.stem)
def test_the_light_zoo(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)


def saved(rule: str, folder: Path) -> Path:
    """The rule's own example as a file."""
    before = parse(str(__import__(f"onnxfuse.rules.{rule}", fromlist=["BEFORE"]).BEFORE))
    onnx.save(before, folder / "before.onnx")
    return folder / "before.onnx"


@pytest.mark.parametrize("rule", REWRITES)
def test_each_rewrite_on_its_own_example(rule: str, tmp_path: Path) -> None:
    check(saved(rule, tmp_path), tmp_path, [rule])


@pytest.mark.parametrize("rule", MORE)
def test_rules_of_which_it_is_said_that_they_execute_more(rule: str, tmp_path: Path) -> None:
    path = saved(rule, tmp_path)
    if rule in ELSEWHERE:
        onnx.save(with_weights(ELSEWHERE[rule]), path)
    before, after = counts(path, tmp_path, [rule])
    assert after > before


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason="set ONNXFUSE_MODELS to a folder of models")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_real_models(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)


# Nothing that CUDA has a kernel for is left to fuse there: SiLU and gates, Clip behind convolutions.
STAY = {"efficientnet_b0__dy", "mobilenet_v2__ts_bn"}


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason="set ONNXFUSE_MODELS to a folder of models")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_predicted_kernels_and_bytes_fall_on_cuda(path: Path) -> None:
    result = optimized(onnx.load(path), target="ort-cuda", verify=False)
    before, after = result.before, result.after
    assert after.kernels <= before.kernels and after.bytes <= before.bytes  # type: ignore[operator]
    if path.stem not in STAY:
        assert after.kernels < before.kernels and after.bytes < before.bytes  # type: ignore[operator]
