"""A failing graph made small: outputs, nodes and attributes go as long as the same kind of finding stays."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from .check import Finding, check
from .draws import draws
from .generate import Case
from .sessions import load, run


def shrink(case: Case, finding: Finding, *, thorough: bool = False) -> tuple[Case, Finding]:
    """A smaller graph with a finding of the same kind."""
    smaller = True
    while smaller:
        smaller = False
        for other in _smaller(case):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    onnx.checker.check_model(other.model)
                except Exception:  # noqa: BLE001 - a graph that is none is left
                    continue
                if load(other.model.SerializeToString(), "disabled") is None:
                    continue
                found = check(other, thorough=thorough)
            if found is not None and found.kind == finding.kind:
                case, finding, smaller = other, found, True
                break
    return case, finding


def _smaller(case: Case) -> Iterator[Case]:
    graph = case.model.graph
    for i in range(len(graph.output)):
        if len(graph.output) > 1:
            yield _with(case, _without_output(case.model, i))
    arrays = _values(case)
    for i in reversed(range(len(graph.node))):
        node = graph.node[i]
        if all(n in arrays for n in node.output if n):
            yield from _cut(case, i, arrays)
            yield from _bypassed(case, i, arrays)
            yield from _ends(case, i, arrays)
    for i, node in enumerate(graph.node):
        for k in range(len(node.attribute)):
            model = _copy(case.model)
            del model.graph.node[i].attribute[k]
            yield _with(case, model)
        if node.name:
            model = _copy(case.model)
            model.graph.node[i].name = ""
            yield _with(case, model)
    for i in range(len(graph.input)):
        for k, d in enumerate(graph.input[i].type.tensor_type.shape.dim):
            if d.dim_param and graph.input[i].name in case.shapes:
                model = _copy(case.model)
                model.graph.input[i].type.tensor_type.shape.dim[k].dim_value = case.shapes[graph.input[i].name][k]
                yield _with(case, model)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied


def _without_output(model: onnx.ModelProto, index: int) -> onnx.ModelProto:
    model = _copy(model)
    del model.graph.output[index]
    return model


def _with(case: Case, model: onnx.ModelProto) -> Case:
    """The case with another graph, without what no output needs."""
    needed = {o.name for o in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
            for a in node.attribute:
                needed |= {n for inner in a.g.node for n in inner.input}
    if len(kept) < len(model.graph.node):
        nodes = [_node(n) for n in reversed(kept)]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
    for field in (model.graph.initializer, model.graph.input):
        left = [t for t in field if t.name in needed]
        if len(left) < len(field):
            copies = [type(t).FromString(t.SerializeToString()) for t in left]
            del field[:]
            field.extend(copies)
    return replace(case, model=model)


def _node(node: onnx.NodeProto) -> onnx.NodeProto:
    return onnx.NodeProto.FromString(node.SerializeToString())


def _values(case: Case) -> dict[str, np.ndarray]:
    """Every value of the main graph on the first draw."""
    model = _copy(case.model)
    names = [n for node in model.graph.node for n in node.output if n]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    found = run(load(model.SerializeToString(), "disabled"), next(draws(case))[1])
    return {} if found is None else dict(zip(names, found, strict=True))


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _cut(case: Case, index: int, arrays: dict[str, np.ndarray]) -> Iterator[Case]:
    """The outputs of a node as inputs of the graph."""
    model = _copy(case.model)
    node = model.graph.node[index]
    names = [n for n in node.output if n]
    if {o.name for o in model.graph.output} & set(names) or any(arrays[n].dtype.kind != "f" for n in names):
        return
    del model.graph.node[index]
    model.graph.input.extend(_info(n, arrays[n]) for n in names)
    yield replace(_with(case, model), shapes=case.shapes | {n: arrays[n].shape for n in names})


def _bypassed(case: Case, index: int, arrays: dict[str, np.ndarray]) -> Iterator[Case]:
    """An input of a node instead of its output."""
    node = case.model.graph.node[index]
    known = {n: a.shape for n, a in arrays.items()} | case.shapes
    for name in node.input:
        if len(node.output) != 1 or known.get(name) != known.get(node.output[0]):
            continue
        model = _copy(case.model)
        del model.graph.node[index]
        for other in model.graph.node:
            other.input[:] = [name if n == node.output[0] else n for n in other.input]
        if node.output[0] in {o.name for o in model.graph.output}:
            continue
        yield _with(case, model)


def _ends(case: Case, index: int, arrays: dict[str, np.ndarray]) -> Iterator[Case]:
    """The output of a node as the only output of the graph."""
    if index == len(case.model.graph.node) - 1 and len(case.model.graph.output) == 1:
        return
    for name in case.model.graph.node[index].output:
        if not name or [name] == [o.name for o in case.model.graph.output]:
            continue
        model = _copy(case.model)
        del model.graph.output[:]
        info = _info(name, arrays[name])
        for d in info.type.tensor_type.shape.dim:
            d.Clear()
        model.graph.output.append(info)
        yield _with(case, model)
