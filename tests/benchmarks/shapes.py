"""How many shapes of real models are found without sizes, and whether onnxruntime computes the same ones.

    python tests/benchmarks/shapes.py FOLDER

A line a model. Declared shapes of computed values are taken out first. Tensors are the outputs of all nodes, those in
bodies too: `static` are numbers, `symbolic` expressions in the model's own free dimensions, `data` need a size that
depends on the data, `unknown` have no rank. `costly` are convolutions, matrix products, recurrent cells and attention,
`found` the share of them whose shapes, inputs and outputs, are all static or symbolic, `sized` the same where the sizes
of the free dimensions are given. `wrong` are tensors that have another shape in onnxruntime, at one of `runs` (up to
two) bindings of the free dimensions; a size that depends on data cannot be.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from cost.profiled import Event, number, profile

from onnxfuse import feeds, interface, ir, runtime
from onnxfuse.cost import kind
from onnxfuse.errors import Finding
from onnxfuse.facts import Facts, Shape, evaluate, free_dims, infer, symbols

COSTLY = {"conv", "matmul", "rnn", "attention", "experts"}


@dataclass(frozen=True)
class Findings:
    """What was found for one model, or for several together."""

    nodes: int = 0
    tensors: int = 0
    static: int = 0
    symbolic: int = 0
    data: int = 0
    costly: int = 0
    found: int = 0
    unresolved: tuple[str, ...] = ()  # the costly nodes that are not found
    sized: int = 0
    runs: int = 0
    checked: int = 0
    wrong: tuple[str, ...] = ()
    seconds: float = 0.0  # of the inference without sizes

    def __add__(self, other: Findings) -> Findings:
        return Findings(*(getattr(self, f) + getattr(other, f) for f in self.__dataclass_fields__))


def measure(path: Path) -> Findings:
    """Raises what the package raises; a model for which no inputs are found has 0 runs."""
    model = onnx.load(path)
    strip(model.graph)
    number(model.graph)
    program = ir.read(model, path.parent)
    own = frozenset(free_dims(program))
    started = time.perf_counter()
    facts = infer(program)
    seconds = time.perf_counter() - started
    nodes = list(walk(facts))
    tensors = [scope[name].shape for _, node, scope in nodes for name in node.outputs if name]
    kinds = [resolution(shape, own) for shape in tensors]
    costly = sum(kind(node) in COSTLY for _, node, _ in nodes)
    lost = unresolved(facts, own)
    wrong: list[str] = []
    runs = checked = 0
    sized: tuple[str, ...] = lost
    for binding, events in executions(path, model):
        sizes = {name: feeds.size(name, binding) for name in own}
        runs += 1
        bound = infer(program, sizes)
        sized = min(sized, unresolved(bound, own), key=len)
        for found in (facts, bound):
            count, bad = compare(found, events, sizes)
            checked += count
            wrong += bad
    return Findings(
        len(nodes),
        len(tensors),
        kinds.count("static"),
        kinds.count("symbolic"),
        kinds.count("data"),
        costly,
        costly - len(lost),
        lost,
        costly - len(sized),
        runs,
        checked,
        tuple(dict.fromkeys(wrong)),
        seconds,
    )


def strip(graph: onnx.GraphProto) -> None:
    """Take out the declared types of computed values, in bodies too."""
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                strip(attribute.g)


def walk(facts: Facts, prefix: str = "", function: bool = False) -> Iterator[tuple[str, ir.Node, Facts]]:
    """(name as in the profile, node, scope) of every node; one in a local function has a name with "()"."""
    for i, node in enumerate(facts.nodes):
        yield f"{prefix}n{i}", node, facts
        for (k, attribute), body in facts.bodies.items():
            if k == i:
                yield from walk(body, f"{prefix}n{i}.{attribute}." if attribute else f"{prefix}n{i}().")


def resolution(shape: Shape | None, own: Iterable[str]) -> str:
    if shape is None:
        return "unknown"
    used = frozenset[str]().union(*(symbols(d) for d in shape))
    return "static" if not used else "symbolic" if used <= frozenset(own) else "data"


def executions(path: Path, model: onnx.ModelProto) -> Iterator[tuple[feeds.Binding, Mapping[str, Event]]]:
    """The model in onnxruntime at typical sizes of its free dimensions and at others, where it takes others."""
    seen = interface.of(model)
    run = partial(runtime.run, runtime.session(path, runtime.options("disabled"), ["CPUExecutionProvider"]))
    try:
        base, data, _ = runtime.find_feeds(run, seen, {}, 0)
    except Finding:
        return
    others = []
    changes = sorted(feeds.variants(seen, {}, base), key=lambda b: sum(b[k] == base[k] for k in b))  # most first
    for binding in changes:
        other = feeds.make(seen, binding, feeds.NORMAL)
        try:
            run(other)
        except Exception:  # noqa: BLE001 - sizes that the model refuses; onnxruntime has no one base class
            continue
        others.append((binding, other))
        break
    del run
    with tempfile.TemporaryDirectory() as folder:
        for binding, arrays in [(base, data), *others]:
            yield binding, profile(model, arrays, Path(folder))


def unresolved(facts: Facts, own: Iterable[str]) -> tuple[str, ...]:
    """The costly nodes that have an input or output of neither static nor symbolic shape."""
    return tuple(
        f"{name} {node.op_type}"
        for name, node, scope in walk(facts)
        if kind(node) in COSTLY
        and {resolution(scope[v].shape, own) for v in (*node.inputs, *node.outputs) if v} - {"static", "symbolic"}
    )


def compare(facts: Facts, events: Mapping[str, Event], sizes: Mapping[str, int]) -> tuple[int, list[str]]:
    """How many tensors were compared, and those whose shapes differ. A dim that depends on data may be any number."""
    count, wrong = 0, []
    for name, node, scope in walk(facts):
        event = events.get(name)
        outputs = [v for v in node.outputs if v]
        if event is None or len(event.outputs) != len(outputs):  # not run; a sequence among the outputs
            continue
        assert event.op_type == node.op_type
        for value, actual in zip(outputs, event.outputs, strict=True):
            shape = scope[value].shape
            if shape is None:
                continue
            count += 1
            dims = [evaluate(d, sizes) if symbols(d) <= set(sizes) else None for d in shape]
            if len(dims) != len(actual) or any(d not in (None, a) for d, a in zip(dims, actual, strict=True)):
                wrong.append(f"{name} {node.op_type} {value}: {list(shape)} → {dims}, onnxruntime {list(actual)}")
    return count, wrong


def line(name: str, f: Findings) -> str:
    def percent(part: int, whole: int) -> str:
        return f"{100 * part / whole:5.1f}" if whole else "    -"

    shares = "  ".join(percent(n, f.tensors) for n in (f.static, f.symbolic, f.data))
    unknown = percent(f.tensors - f.static - f.symbolic - f.data, f.tensors)
    counts = f"{f.costly:6d}  {percent(f.found, f.costly)}  {percent(f.sized, f.costly)}"
    counts += f" {f.runs:4d} {len(f.wrong):5d} {f.seconds:6.2f}"
    return f"{name:28.28s} {f.nodes:6d} {f.tensors:7d}  {shares}  {unknown}  {counts}"


if __name__ == "__main__":
    shares = "static  symb.  data%  unkn.  costly found% sized%"
    print(f"{'model':28s}  nodes tensors {shares} runs wrong  infer")
    total, failed = Findings(), []
    for path in sorted(Path(sys.argv[1]).rglob("*.onnx")):
        try:
            one = measure(path)
        except Exception as error:  # noqa: BLE001 - counted; the other models are measured all the same
            failed.append(f"{path.stem}: {type(error).__name__}: {error}")
            continue
        print(line(path.stem, one), flush=True)
        for text in (*one.unresolved[:3], *one.wrong[:5]):
            print(f"    {text}", flush=True)
        total += one
    print(line("all", total))
    print(f"{len(failed)} exceptions", *failed, sep="\n")
