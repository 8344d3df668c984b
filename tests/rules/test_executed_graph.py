"""A rewrite never stops the runtime from a fusion of its own: onnxruntime executes no more nodes than before."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnx
import pytest
from support import LIGHT_ZOO, optimized, parse

from onnxfuse.rules import all_rules

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from executed import executed

MODELS = sorted(Path(os.environ["ONNXFUSE_MODELS"]).glob("*.onnx")) if "ONNXFUSE_MODELS" in os.environ else []
# Rules that trade a costly node for cheaper ones, or come before another: more nodes, less time.
MORE = {"mish": "three costly nodes", "pick_first": "a Gather a branch", "prelu_channels": "before prelu_depthwise"}
REWRITES = [name for name, rule in all_rules().items() if rule.pairs is None and name not in MORE]


def check(path: Path, folder: Path, rules: list[str] | None = None) -> None:
    """Optimizes for the CPU; fails where the runtime's own graph has more nodes than for the original."""
    result = optimized(onnx.load(path), target="ort-cpu", verify=False, rules=rules)
    onnx.save(result.model, folder / "optimized.onnx")
    assert executed(folder / "optimized.onnx") <= executed(path)


@pytest.mark.parametrize("path", LIGHT_ZOO, ids=lambda p: p.stem)
def test_the_light_zoo(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)


@pytest.mark.parametrize("rule", REWRITES)
def test_each_rewrite_on_its_own_example(rule: str, tmp_path: Path) -> None:
    before = parse(str(__import__(f"onnxfuse.rules.{rule}", fromlist=["BEFORE"]).BEFORE))
    onnx.save(before, tmp_path / "before.onnx")
    check(tmp_path / "before.onnx", tmp_path, [rule])


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason="set ONNXFUSE_MODELS to a folder of models")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_real_models(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)


# Nothing that CUDA has a kernel for is left to fuse there: SiLU and gates, Clip behind convolutions, PRelu.
STAY = {"efficientnet_b0__dy", "mobilenet_v2__ts_bn", "mtcnn_onet", "mtcnn_pnet"}


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason="set ONNXFUSE_MODELS to a folder of models")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_predicted_kernels_and_bytes_fall_on_cuda(path: Path) -> None:
    result = optimized(onnx.load(path), target="ort-cuda", verify=False)
    before, after = result.before, result.after
    assert after.kernels <= before.kernels and after.bytes <= before.bytes  # type: ignore[operator]
    if path.stem not in STAY:
        assert after.kernels < before.kernels and after.bytes < before.bytes  # type: ignore[operator]
