"""The graph that onnxruntime makes of a model before it runs it: its own fusions and layouts, seen as a model.

onnxruntime rewrites every graph while a session is made (https://onnxruntime.ai/docs/performance/model-optimizations):
constants are folded, local functions inlined, neighbours fused, convolutions moved to blocks of channels. What comes
out depends on the level and, at "all", on the CPU: the width of its vectors sets the size of a block.

Costs of the two graphs are comparable, by the same formulas over the shapes that stand in each. Nodes that compute from
constants alone are gone, and BatchNormalization with the weights of its Conv, so FLOPs fall; a convolution on blocks
(NCHWc) computes and moves whole blocks: its weights (M, C/group, k…) have M rounded up, and C too where it reads
blocks (C of a block or more, or depthwise), so MACs rise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxfuse import runtime, storage
from onnxfuse.errors import Finding, OnnxfuseError
from onnxfuse.model import Model, Source

# From that many bytes of weights they go into a file of their own: constants that onnxruntime folds can make the saved
# graph larger than the model, and one protobuf message ends at 2 GiB. A smaller external weight is not worth a seek.
_SEPARATE_FROM, _SEPARATE_TENSOR = 1 << 30, 1 << 10


@contextmanager
def executed(source: Source, level: str = "all") -> Iterator[Model]:
    """The model that onnxruntime's CPU provider executes in the place of `source`; no weight is loaded here.

    source: a path, an `onnx.ModelProto` or a `gs.Graph`. level: onnxruntime's optimizations: "all" is its default,
        "extended" leaves layouts as they are, "basic" makes no fusions into its own operators, "disabled" only inlines.
    Free dimensions stay free. The model lies in a temporary folder and its weights cannot be read after the `with`.

    Run at level "disabled", the file at `path` is executed node by node as it stands: in onnxruntime's profile
    `args.node_index` is the position of the node in its graph (a body counts its own), and the name is the node's, or
    "<op_type>_<position>" where it has none. Profile this file, not `source`: there a node without a name is called by
    a number that this file does not say. Nodes run in another order than that of the file.

    Raises ModelError for what `Model.load` refuses, Finding for what onnxruntime does not load, MissingDependency
    without onnxruntime, UsageError for an unknown level.
    """
    with storage.files.scratch() as scratch:
        original = Model.load(source)
        path = original.path or scratch / "model.onnx"
        if original.path is None:
            original.save(path)
        saved = scratch / "executed.onnx"
        _save(original, path, level, saved)
        # Not `load`: onnx refuses what onnxruntime may do, such as LayerNormalization in a graph of opset 12.
        yield Model(storage.read(saved), saved, original.name)


def _save(original: Model, path: Path, level: str, saved: Path) -> None:
    options = runtime.options(level)
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(saved)
    # The session is thrown away: weights need no second form for its kernels.
    options.add_session_config_entry("session.disable_prepacking", "1")
    if original.external or original.weight_bytes() >= _SEPARATE_FROM:
        prefix = "session.optimized_model_external_initializers_"
        options.add_session_config_entry(f"{prefix}file_name", f"{saved.name}.data")
        options.add_session_config_entry(f"{prefix}min_size_in_bytes", str(_SEPARATE_TENSOR))
    try:
        runtime.session(path, options, ["CPUExecutionProvider"])
    except OnnxfuseError:
        raise
    except Exception as error:  # onnxruntime's errors have no one base class
        who = original.name or "the model"
        raise Finding(f"{who}: onnxruntime does not load it: {runtime.first_line(error)}") from error
