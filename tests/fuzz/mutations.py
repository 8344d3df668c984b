"""Ways to damage a model file: its bytes, its protobuf fields, or what the model says.

Each takes a random generator and changes the files in place; False where there is nothing of its kind to change.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import onnx
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper

from .sources import MODEL, Files

Mutation = Callable[[random.Random, Files], bool | None]

NUMBERS = (0, 1, -1, 2, 3, 5, -2, 17, 255, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32, 1 << 40, 1 << 62,
           (1 << 63) - 1, -(1 << 63))  # fmt: skip
TEXTS = ("", "?", "x", "nowhere", "\0", "a\nb", "ä" * 9, "n" * 5000, "../x", "N + 1", "N + -1", "-1", "9" * 30)
LOCATIONS = ("../secret.data", "/etc/passwd", "w.data", "sub/../../secret.data", "", ".", "link", "pipe", "/dev/zero",
             "none", "n" * 5000, "a\0b", MODEL, "//onnxfuse/left-in-source", "C:\\w.data")  # fmt: skip


# --- bytes ---


def flip(rng: random.Random, files: Files) -> None:
    """Some bits."""
    name = rng.choice(sorted(files))
    data = bytearray(files[name])
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    files[name] = bytes(data)


def truncate(rng: random.Random, files: Files) -> None:
    """The end."""
    name = rng.choice(sorted(files))
    files[name] = files[name][: rng.choice((0, 1, rng.randrange(len(files[name]) + 1), max(len(files[name]) - 1, 0)))]


def splice(rng: random.Random, files: Files) -> None:
    """One part in the place of another."""
    data = files[MODEL]
    a, b, n = (rng.randrange(len(data) + 1) for _ in range(3))
    files[MODEL] = data[:a] + data[b : b + n % 200] + data[a + rng.choice((0, n % 200)) :]


def repeat(rng: random.Random, files: Files) -> None:
    """A part, many times."""
    data = files[MODEL]
    at, n = rng.randrange(len(data) + 1), rng.randrange(1, 60)
    files[MODEL] = data[:at] + data[at : at + n] * rng.choice((2, 10, 1000)) + data[at + n :]


# --- protobuf fields ---

Tree = list[list]  # [number, wire type, int | bytes | Tree] of each field


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def parse(data: bytes, kind: Descriptor) -> Tree:
    """The fields of a message, those of messages inside it too."""
    at, tree = 0, []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value: object = number()
        else:
            size = number() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            value, at = data[at : at + size], at + size
        field = kind.fields_by_number.get(key >> 3)
        if field is not None and field.message_type is not None and key & 7 == 2:
            value = parse(value, field.message_type)
        tree.append([key >> 3, key & 7, value])
    return tree


def dump(tree: Tree, broken: list | None = None, length: int = 0) -> bytes:
    """The fields as bytes; the length of the field `broken` is wrong by `length`."""
    out = bytearray()
    for field in tree:
        number, wire, value = field
        out += _varint(number << 3 | wire)
        if wire == 0:
            out += _varint(value)
            continue
        raw = dump(value, broken, length) if isinstance(value, list) else value
        if wire == 2:
            out += _varint(len(raw) + (length if field is broken else 0))
        out += raw
    return bytes(out)


def _all(tree: Tree) -> list[tuple[Tree, int]]:
    found = []
    for i, (_, _, value) in enumerate(tree):
        found.append((tree, i))
        if isinstance(value, list):
            found += _all(value)
    return found


def fields(rng: random.Random, files: Files, how: str) -> bool | None:
    """One field of a message anywhere in the model."""
    try:
        root = parse(files[MODEL], onnx.ModelProto.DESCRIPTOR)
    except (IndexError, KeyError):
        return False
    if not root:
        return False
    tree, i = rng.choice(_all(root))
    broken, wrong = None, 0
    number, wire, value = field = tree[i]
    match how:
        case "drop":
            del tree[i]
        case "double":
            tree[i:i] = [field] * rng.choice((1, 1, 50))
        case "shuffle":
            rng.shuffle(tree)
        case "number":
            numbers = [(t, k) for t, k in _all(root) if t[k][1] == 0]
            if not numbers:
                return False
            tree, i = rng.choice(numbers)
            tree[i][2] = rng.choice((*NUMBERS, tree[i][2] + 1, rng.randrange(40)))
        case "length":
            broken, wrong = field, rng.choice((-1, 1, 100, 1 << 31, 1 << 62))
        case "field":
            field[0] = rng.choice((number + 1, max(number - 1, 1), rng.randrange(1, 30), 1 << 28))
        case "nest":
            if not isinstance(value, list):
                return False
            for _ in range(rng.choice((1, 30, 120, 3000))):  # dumped from the inside, as Python recurses too
                value = (
                    _varint(number << 3 | 2) + _varint(len(value)) + value if isinstance(value, bytes) else dump(value)
                )
            field[2] = value
        case "bytes":
            if wire != 2:
                return False
            text = rng.choice(TEXTS).encode()
            field[2] = rng.choice((text, b"\xff\xfe", rng.randbytes(20), bytes(1 << 20)))
    files[MODEL] = dump(root, broken, wrong)
    return None


# --- what the model says ---


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    return [graph, *(g for n in graph.node for a in n.attribute if a.HasField("g") for g in _graphs(a.g))]


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [*(n for g in _graphs(model.graph) for n in g.node), *(n for f in model.functions for n in f.node)]


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    inner = [a.t for n in _nodes(model) for a in n.attribute if a.HasField("t")]
    sparse = [t for s in model.graph.sparse_initializer for t in (s.values, s.indices)]
    return [*(t for g in _graphs(model.graph) for t in g.initializer), *inner, *sparse]


def names(rng: random.Random, model: onnx.ModelProto) -> bool | None:
    """A value takes the name of another: collisions, dangling inputs, cycles, empty names."""
    nodes = _nodes(model)
    if not nodes:
        return False
    known = [*(name for n in nodes for name in (*n.input, *n.output)), *(t.name for t in model.graph.initializer)]
    node = rng.choice(nodes)
    side = rng.choice([s for s in (node.input, node.output) if s] or [[]])
    if not side:
        return False
    side[rng.randrange(len(side))] = rng.choice((*known, *TEXTS))
    return None


def ports(rng: random.Random, model: onnx.ModelProto) -> bool | None:
    """Inputs or outputs of a node or graph: fewer, more, twice, others."""
    owners = [*_nodes(model), *_graphs(model.graph), *model.functions]
    owner = rng.choice(owners)
    side = rng.choice((owner.input, owner.output))
    how = rng.choice(("fewer", "more", "twice", "none", "swap"))
    if not side:
        return False
    i = rng.randrange(len(side))
    if how == "fewer":
        del side[i]
    elif how == "none":
        del side[:]
    elif how == "swap" and len(side) > 1:
        first, second = side[0], side[-1]
        kept = [second, *side[1:-1], first]
        del side[:]
        side.extend(kept)
    else:
        other = side[i] if how == "twice" else rng.choice(list(rng.choice(owners).output) or [side[i]])
        if type(other) is not type(side[i]):
            return False
        side.extend([other])
    return None


def declared(rng: random.Random, model: onnx.ModelProto) -> bool | None:
    """The declared type of a value: its dims, their number, its element type, its kind."""
    infos = [v for g in _graphs(model.graph) for v in (*g.input, *g.output, *g.value_info)]
    if not infos:
        return False
    kind = rng.choice(infos).type
    tensor, dims = kind.tensor_type, kind.tensor_type.shape.dim
    how = rng.choice(("dim", "dim", "symbol", "more", "fewer", "dtype", "kind"))
    if how == "more":
        for _ in range(rng.choice((1, 1, 12, 200))):
            dims.add(dim_value=rng.choice(NUMBERS))
    elif how == "dtype":
        tensor.elem_type = rng.choice((*range(27), 99, -1))
    elif how == "kind":
        rng.choice((kind.sequence_type.elem_type.tensor_type, kind.optional_type.elem_type.tensor_type,
                    kind.map_type.value_type.tensor_type, kind.sparse_tensor_type)).elem_type = 1  # fmt: skip
    elif not dims:
        return False
    elif how == "fewer":
        del dims[rng.randrange(len(dims)) :]
    else:
        dim = rng.choice(dims)
        dim.Clear()
        if how == "symbol":
            dim.dim_param = rng.choice((*TEXTS, "N", "M"))
        else:
            dim.dim_value = rng.choice((*NUMBERS, 4, 7))
    return None


def tensor(rng: random.Random, model: onnx.ModelProto) -> bool | None:
    """A weight: its dims, type, contents or the number of its bytes."""
    tensors = _tensors(model)
    if not tensors:
        return False
    t = rng.choice(tensors)
    how = rng.choice(("dims", "dims", "dtype", "longer", "shorter", "field", "contents", "name"))
    if how == "dims":
        if t.dims and rng.random() < 0.7:
            t.dims[rng.randrange(len(t.dims))] = rng.choice((*NUMBERS, 4, 7))
        else:
            t.dims[:] = rng.choice(([], [0], [1], [*t.dims, 1], [1, *t.dims], list(reversed(t.dims)), [1] * 70))
    elif how == "dtype":
        t.data_type = rng.choice((*range(27), 99, -1))
    elif how == "name":
        t.name = rng.choice((*TEXTS, *(o.name for o in tensors)))
    elif how == "field":
        rng.choice((t.float_data, t.int32_data, t.int64_data)).extend([1, 2])
    elif how == "longer":
        t.raw_data += rng.choice((b"\0", bytes(4), bytes(10_000)))
    elif how == "shorter":
        t.raw_data = t.raw_data[: rng.randrange(len(t.raw_data) + 1)]
    elif t.data_type == TensorProto.INT64 and len(t.raw_data) % 8 == 0:
        t.raw_data = b"".join(
            rng.choice(NUMBERS).to_bytes(8, "little", signed=True) for _ in range(len(t.raw_data) // 8)
        )
    else:
        t.raw_data = rng.choice((b"\xff", b"\0", b"\x7f", b"\x80")) * len(t.raw_data)
    return None


def attribute(rng: random.Random, model: onnx.ModelProto) -> bool | None:
    """An attribute: its type, its value, its name, gone, or twice."""
    nodes = [n for n in _nodes(model) if n.attribute]
    if not nodes:
        return False
    node = rng.choice(nodes)
    a = rng.choice(node.attribute)
    how = rng.choice(("type", "value", "value", "value", "name", "gone", "twice", "ref", "empty"))
    if how == "type":
        a.type = rng.choice(list(AttributeProto.AttributeType.values()))
    elif how == "name":
        a.name = rng.choice((*TEXTS, *(b.name for n in nodes for b in n.attribute)))
    elif how == "gone":
        node.attribute.remove(a)
    elif how == "twice":
        node.attribute.add().CopyFrom(a)
    elif how == "ref":
        a.ref_attr_name = rng.choice((a.name, "nothing"))
    elif how == "empty":
        kept = AttributeProto(name=a.name, type=a.type)
        a.CopyFrom(kept)
    elif a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
        if rng.random() < 0.3:
            a.ints[:] = rng.choice(([], [1], [*a.ints, 1], [*a.ints] * 3))
    elif a.floats:
        a.floats[:] = [rng.choice((float("nan"), float("inf"), 0.0, -1.0, 1e38)) for _ in a.floats]
    elif a.type == AttributeProto.STRING:
        a.s = rng.choice((b"\xff", *(t.encode() for t in TEXTS), b"SAME_UPPER", b"VALID", b"max", b"linear"))
    elif a.type == AttributeProto.FLOAT:
        a.f = rng.choice((float("nan"), float("inf"), 0.0, -1.0, 1e38))
    else:
        a.i = rng.choice(NUMBERS)
    return None


def operator(rng: random.Random, model: onnx.ModelProto) -> bool | None:
    """A node's operator or domain, or the node itself: gone, twice, elsewhere."""
    graphs = [g for g in _graphs(model.graph) if g.node]
    if not graphs:
        return False
    graph = rng.choice(graphs)
    node = rng.choice(graph.node)
    how = rng.choice(("other", "any", "domain", "gone", "twice", "order"))
    if how == "other":
        node.op_type = rng.choice(_nodes(model)).op_type
    elif how == "any":
        node.op_type = rng.choice(_OPERATORS)
    elif how == "domain":
        node.domain = rng.choice(("ai.onnx", "com.microsoft", "ai.onnx.ml", "onnxfuse", "loc", "no.such"))
    elif how == "gone":
        graph.node.remove(node)
    elif how == "twice":
        graph.node.add().CopyFrom(node)
    else:
        order = list(graph.node)
        rng.shuffle(order)
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
        del graph.node[:]
        graph.node.extend(kept)
    return None


_OPERATORS = sorted({s.name for s in onnx.defs.get_all_schemas()})


def opsets(rng: random.Random, model: onnx.ModelProto) -> None:
    """The imported operator sets and the format's version."""
    how = rng.choice(("version", "version", "ir", "more", "none", "twice", "domain"))
    if how == "ir":
        model.ir_version = rng.choice((*range(14), *NUMBERS))
    elif how == "none":
        del model.opset_import[:]
    elif how == "more":
        for i in range(rng.choice((1, 1000))):
            model.opset_import.add(domain=f"d{i}", version=rng.choice((1, 17, *NUMBERS)))
    elif how == "twice":
        model.opset_import.add(domain=rng.choice(("", "ai.onnx")), version=rng.randrange(1, 26))
    elif model.opset_import:
        entry = rng.choice(model.opset_import)
        if how == "version":
            entry.version = rng.choice((*range(1, 28), *NUMBERS))
        else:
            entry.domain = rng.choice(TEXTS)


def external(rng: random.Random, model: onnx.ModelProto) -> bool | None:
    """Where a weight's bytes are said to be."""
    tensors = _tensors(model)
    if not tensors:
        return False
    t = rng.choice([t for t in tensors if t.external_data] or tensors)
    said = {e.key: e.value for e in t.external_data} or {"location": "w.data"}
    said[rng.choice(("location", "offset", "length", "basepath", "checksum"))] = ""
    key = rng.choice(list(said))
    said[key] = rng.choice(LOCATIONS) if key == "location" else rng.choice((*map(str, NUMBERS), "x", "", " 4", "1_0"))
    t.ClearField("external_data")
    t.data_location = TensorProto.EXTERNAL
    for key, value in said.items():
        t.external_data.add(key=key, value=value)
    return None


def structure(rng: random.Random, model: onnx.ModelProto) -> None:
    """Recursion, depth and parts that few files have."""
    how = rng.choice(("recursive", "mutual", "deep", "sparse", "annotation", "training", "function", "graphless"))
    some = rng.choice([v for n in _nodes(model) for v in n.output] or ["x"])
    if how in ("recursive", "mutual"):
        called = ("F",) if how == "recursive" else ("F", "G")
        for name, other in zip(called, reversed(called), strict=True):
            call = helper.make_node(other, ["a"], ["b"], domain="loop")
            imports = [helper.make_opsetid("loop", 1), helper.make_opsetid("", 17)]
            model.functions.append(helper.make_function("loop", name, ["a"], ["b"], [call], imports))
        model.opset_import.add(domain="loop", version=1)
        model.graph.node.append(helper.make_node("F", [some], ["looped"], domain="loop"))
    elif how == "deep":
        body = helper.make_graph(
            [helper.make_node("Identity", [some], ["o"])], "b", [], [onnx.ValueInfoProto(name="o")]
        )
        for _ in range(rng.choice((3, 20, 29))):
            node = helper.make_node("If", [some], ["o"], then_branch=body, else_branch=onnx.GraphProto())
            body = helper.make_graph([node], "b", [], [onnx.ValueInfoProto(name="o")])
        model.graph.node.extend(body.node)
    elif how == "sparse":
        values = helper.make_tensor("w_sparse", rng.choice((1, 7, 11)), [2], [1, 2])
        indices = helper.make_tensor("i", TensorProto.INT64, [2], [rng.choice(NUMBERS), rng.choice(NUMBERS)])
        model.graph.sparse_initializer.append(
            helper.make_sparse_tensor(values, indices, [rng.choice(NUMBERS) for _ in range(rng.choice((0, 1, 2)))])
        )
        if model.graph.node and model.graph.node[0].input:
            model.graph.node[0].input[0] = "w_sparse"
    elif how == "annotation":
        note = model.graph.quantization_annotation.add(tensor_name=some)
        note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=rng.choice((some, "nowhere")))
    elif how == "training":
        model.training_info.add().algorithm.CopyFrom(model.graph)
    elif how == "function" and model.functions:
        model.functions.add().CopyFrom(rng.choice(model.functions))
    elif how == "graphless":
        for node in _nodes(model):
            for a in node.attribute:
                a.ClearField("g")


def _said(rng: random.Random, files: Files, change: Callable[[random.Random, onnx.ModelProto], bool | None]) -> bool:
    try:
        model = onnx.ModelProto.FromString(files[MODEL])
    except DecodeError:
        return False
    try:
        if change(rng, model) is False:
            return False
    except (UnicodeError, DecodeError):  # damaged text, which cannot be read; more depth than protobuf takes
        return False
    files[MODEL] = model.SerializeToString()
    return True


MUTATIONS: dict[str, Mutation] = {
    **{f.__name__: f for f in (flip, truncate, splice, repeat)},
    **{f"field {how}": partial(fields, how=how)
       for how in ("drop", "double", "shuffle", "number", "length", "field", "nest", "bytes")},
    **{f.__name__: partial(_said, change=f) for f in
       (names, ports, declared, tensor, attribute, operator, opsets, external, structure)},
}  # fmt: skip
WEIGHTS = [1] * 4 + [1] * 8 + [4, 3, 6, 6, 7, 4, 3, 3, 2]  # a damaged byte seldom passes the checker; a wrong dim does
