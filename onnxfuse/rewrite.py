"""Applies a plan to the graph: the only place that edits, and the record of what was edited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnx.parser import parse_function

from onnxfuse import bridge
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.plan import Choice

VERSION = 1  # of the operator set domains that fused nodes live in (com.microsoft, onnxfuse)


@dataclass(frozen=True, slots=True)
class Fusion:
    """One rewrite that was made: the new node, the nodes it stands for, and what it is predicted to save.

    node: its name, which is the first source's; of unnamed nodes operator and output are told instead.
    """

    rule: str
    node: str
    sources: tuple[str, ...]
    bytes_saved: int
    flops_saved: int
    seconds_saved: float


def _inherited(choice: Choice) -> dict[str, str]:
    """The metadata of the source nodes, the first one's where they disagree; not what we noted of each node's cost."""
    found = {k: v for node in reversed(choice.match.old) for k, v in bridge.metadata(node).items()}
    return {k: v for k, v in found.items() if not k.startswith("onnxfuse.")}


def apply(model: Model, editor: Editor, choices: Sequence[Choice], domains: Iterable[str] = ()) -> tuple[Fusion, ...]:
    """Make the chosen fusions in the model, in plan order; `domains` are those of nodes that are in the view already.

    A new node keeps the name of the first node that it stands for and lists its sources, the rule and the predicted
    gain in its `metadata_props`. Definitions of fused operators come in as local functions, once each.
    """
    made = []
    for choice in choices:
        new = choice.match.new
        node = editor.node(
            new.op_type,
            list(new.inputs),
            list(new.outputs),
            attrs=dict(new.attrs),
            domain=new.domain,
            metadata=_inherited(choice)
            | {
                "onnxfuse.rule": choice.key[0],
                "onnxfuse.sources": json.dumps(choice.sources, ensure_ascii=False),
                "onnxfuse.bytes_saved": str(choice.bytes_saved),
                "onnxfuse.seconds_saved": f"{choice.seconds_saved:.3e}",
            },
        )
        editor.replace(choice.match.old, [node])
        node.name = choice.match.old[0].name  # free again, now that its node is gone
        made.append(
            Fusion(
                choice.key[0],
                choice.node,
                choice.sources,
                choice.bytes_saved,
                choice.flops_saved,
                choice.seconds_saved,
            )
        )
    editor.finish()
    model.apply()
    for domain in dict.fromkeys((*filter(None, domains), *(c.match.new.domain for c in choices))):
        model.require_opset(domain, VERSION)
    for definition in dict.fromkeys(c.match.definition for c in choices):
        if definition is not None:
            model.add_function(parse_function(definition))
    return tuple(made)
