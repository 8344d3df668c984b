"""Makes in the graph what was chosen: the only place that edits, and the record of what was edited."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_graphsurgeon as gs
from onnx.parser import parse_function

from onnxfuse import bridge, ir
from onnxfuse.facts import Dim, Value
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.patterns import Rewrite
from onnxfuse.plan import Choice
from onnxfuse.surroundings import Origin, Surroundings

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


def _inherited(nodes: Sequence[gs.Node]) -> dict[str, str]:
    """The metadata of source nodes, the first one's where they disagree; not what we noted of each node's cost."""
    found = {k: v for node in reversed(nodes) for k, v in bridge.metadata(node).items()}
    return {k: v for k, v in found.items() if not k.startswith("onnxfuse.")}


def _origin(rule: str, sources: Iterable[str]) -> dict[str, str]:
    """Metadata of a new node: the rule, and all nodes it stands for."""
    return {"onnxfuse.rule": rule, "onnxfuse.sources": json.dumps(list(dict.fromkeys(sources)), ensure_ascii=False)}


def _noted(node: gs.Node) -> list[str]:
    """The nodes that a node says it stands for, an earlier run having written so; [] where it does not, or nonsense."""
    try:
        found: Any = json.loads(bridge.metadata(node).get("onnxfuse.sources", "[]"))
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # anything may stand there
        return []
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else []


def exchange(rule: str, found: Rewrite, dead: Sequence[gs.Node], place: Surroundings) -> list[gs.Node]:
    """Make a rewrite in the view, by which these nodes go; gives those that read or make other values than before."""
    editor = place.scope.editor
    changed: dict[int, gs.Node] = {}
    for old, other in found.same:
        readers = editor.consumers(old)
        if editor.is_output(old):
            readers += editor.consumers(other)
            maker = editor.producer(other)
            assert maker is not None  # checked
            changed[id(maker)] = maker
            editor.make_instead(old, other)
        else:
            editor.rewire(old, other)
        changed.update((id(n), n) for n in readers)
    if found.new:
        found.new[-1].metadata = _inherited(dead)
        place.origins[id(found.new[-1])] = Origin(rule, tuple(part for n in dead for part in _parts(n, place)))
    editor.replace(dead, found.new)
    if found.new and dead[-1].name:
        found.new[-1].name = dead[-1].name  # free again
    return list(changed.values())


def _parts(node: gs.Node, place: Surroundings) -> Sequence[str | Origin]:
    """What a node stands for: what it was made of, or the nodes that it says, else itself."""
    made = place.origins.get(id(node))
    return [made] if made is not None else _noted(node) or [place.label(node)]


def note(place: Surroundings) -> None:
    """Writes into the metadata of the nodes that rewrites have left what each stands for, and the types of their values
    where no other program need know the operator.
    """
    for key, node in place.made.items():
        if ir.domain(node.domain or ""):
            _declare([(t, place.scope.value(t)) for t in node.outputs if t.name], place.program)
        if key in place.origins:
            node.metadata |= _origin(place.origins[key].rule, place.origins[key].names())


def _declare(values: Iterable[tuple[gs.Tensor, Value]], program: ir.Program) -> None:
    """Let `value_info` tell dtype and shape of these values; what stands there and is not wrong stays.

    Shape inference stops at operators that it does not know, and tools such as quantizers with it.
    """
    symbols = {dim for kind in program.graph.inputs.values() for dim in kind.dims or () if isinstance(dim, str)}

    def declared(dim: Dim) -> int | str | None:
        return dim if isinstance(dim, int) else str(dim) if str(dim) in symbols else None

    for tensor, value in values:
        shape = None if value.shape is None else tuple(map(declared, value.shape))
        if value.dtype and (tensor.dtype != value.dtype or _contradict(tensor.shape, shape)):
            tensor.dtype, tensor.shape = value.dtype, shape


def _contradict(a: Sequence[Any] | None, b: Sequence[Any] | None) -> bool:
    if a is None or b is None:
        return False
    return len(a) != len(b) or any(
        isinstance(p, int) and isinstance(q, int) and p != q for p, q in zip(a, b, strict=True)
    )


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
            metadata=_inherited(choice.match.old)
            | _origin(
                choice.key[0],
                (name for n, s in zip(choice.match.old, choice.sources, strict=True) for name in _noted(n) or [s]),
            )
            | {
                "onnxfuse.bytes_saved": str(choice.bytes_saved),
                "onnxfuse.seconds_saved": f"{choice.seconds_saved:.3e}",
            },
        )
        editor.replace(choice.match.old, [node])
        _declare(zip(new.outputs, choice.values, strict=False), model.program)
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
