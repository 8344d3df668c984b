"""Function definitions in ONNX text, with every attribute passed on from the calling node.

A kernel library sees only what stands on a node, and an evaluator wants every attribute that a function declares: the
node carries all of them with their defaults spelled out, and a function declares exactly those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onnx import defs

from onnxfuse.targets import ONNXFUSE

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_TYPES = {
    defs.OpSchema.AttrType.INT: "int",
    defs.OpSchema.AttrType.INTS: "ints",
    defs.OpSchema.AttrType.STRING: "string",
}


def spatial_attributes(node: gs.Node, kernel_shape: list[int], opset: int) -> dict[str, Any]:
    """All attributes of a Conv or MaxPool that concern its first output, with their defaults.

    Either `pads` or, where the padding depends on the input's size, `auto_pad` (SAME_UPPER, SAME_LOWER).
    """
    rank = len(kernel_shape)
    schema = defs.get_schema(node.op, opset).attributes
    defaults = {"group": 1, "ceil_mode": 0, "dilations": [1] * rank, "strides": [1] * rank, "pads": [0] * 2 * rank}
    attrs = {k: v for k, v in defaults.items() if k in schema} | dict(node.attrs) | {"kernel_shape": kernel_shape}
    attrs.pop("storage_order", None)  # concerns the Indices output of MaxPool only
    auto_pad = attrs.pop("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        attrs["pads"] = defaults["pads"]
    elif auto_pad != "NOTSET":
        del attrs["pads"]
        attrs["auto_pad"] = auto_pad
    return dict(sorted(attrs.items()))


def suffix(attrs: Mapping[str, Any]) -> str:
    """What is added to a function's name where it declares `auto_pad` instead of `pads`."""
    return "AutoPad" if "auto_pad" in attrs else ""


def references(op_type: str, attrs: Mapping[str, Any], opset: int) -> str:
    """An attribute list in ONNX text that passes these attributes of the calling node on to an operator."""
    known = defs.get_schema(op_type, opset).attributes
    return ", ".join(f"{name}: {_TYPES[known[name].type]} = @{name}" for name in attrs)


def definition(name: str, attrs: Mapping[str, Any], formal: str, body: str, opset: int) -> str:
    """`onnxfuse::<name>` as a function; `formal` are its inputs, its output is Y."""
    head = f'<domain: "{ONNXFUSE}", opset_import: ["" : {opset}]>'
    return f"{head}\n{name} <{', '.join(attrs)}> ({formal}) => (Y) {{ {body} }}\n"
