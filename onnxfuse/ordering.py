"""The order of the nodes of a model: every node after those whose values it reads.

ONNX asks for it, and onnxruntime sorts the main graph by itself: some tools (its float16 converter) append nodes at the
end. It runs no model whose bodies or functions are out of order, so these stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from onnxfuse import ir


def sort(graph: onnx.GraphProto) -> bool:
    """Sort the nodes of the main graph in place. Returns whether one of them moved. Raises ValueError for a cycle."""
    order = sorted_nodes(graph.node)
    place = {id(node): i for i, node in enumerate(order)}
    if all(place[id(node)] == i for i, node in enumerate(graph.node)):
        return False
    graph.node.sort(key=lambda node: place[id(node)])
    return True


def sorted_nodes(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes in topological order. A node moves only up, to right before the first one that reads its values.

    Takes linear time. Raises ValueError for a cycle. A name that no node makes is left to the checker.
    """
    nodes = list(nodes)
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    done: list[bool] = [False] * len(nodes)
    order: list[onnx.NodeProto] = []
    for root in range(len(nodes)):
        if done[root]:
            continue
        path = {root: _producers(nodes[root], makers)}  # the nodes that wait, each for what is left of its producers
        while path:
            here, left = next(reversed(path.items()))
            producer = next((p for p in left if not done[p]), None)
            if producer is None:
                del path[here]
                done[here] = True
                order.append(nodes[here])
            elif producer in path:
                node = nodes[producer]
                raise ValueError(f"the nodes form a cycle through {node.op_type} '{node.name or node.output[0]}'")
            else:
                path[producer] = _producers(nodes[producer], makers)
    return order


def _producers(node: onnx.NodeProto, makers: dict[str, int]) -> Iterator[int]:
    """The nodes that make what a node and its bodies read, in the order of the file where a body reads several."""
    yield from (makers[name] for name in node.input if name in makers)
    for body in ir.bodies(node):
        yield from sorted(makers[name] for name in ir.read_outside(body) if name in makers)
