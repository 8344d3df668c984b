"""What must hold of an optimized graph, and a finding where it does not."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
import onnx
from onnx import numpy_helper

import onnxfuse
from onnxfuse import worklist

from .differ import differ
from .draws import draws, is_valid, make_feeds
from .generate import Case
from .sessions import LEVELS, failure, load, reason, run, survives

TARGETS = ("ort-cpu", "ort-cuda", "portable")
# Of onnxruntime, on graphs that it runs only because it does not look through what a rewrite removes, as an Identity.
OWN_FAULTS = (
    "FusedMatMul alpha attribute must be finite",  # it fuses a product of what was multiplied by infinity
    "Failed to find node output or a constant",  # of a grouped Conv with a bias that is an output and added to another
    "re-use buffer",  # it takes x[::2] of opset 10 for as long as x
)


@dataclass(frozen=True)
class Finding:
    """Something that does not hold. kind: what; where: target, level, data; text: what was seen."""

    kind: str
    where: str
    text: str


@dataclass
class Seen:
    """What was looked at: how often each rule was made, how many results were compared, how many said nothing."""

    rules: dict[str, int] = field(default_factory=dict)
    compared: int = 0
    silent: int = 0


@contextmanager
def prices(ignored: bool) -> Iterator[None]:
    """With prices ignored, what is legal is made, whether it pays or not."""
    with mock.patch.object(worklist, "_check_pays", lambda *args: None) if ignored else mock.MagicMock():
        yield


def check(case: Case, *, thorough: bool = False, seen: Seen | None = None, probed: bool = True) -> Finding | None:
    """The first thing that does not hold for a graph; None if all does.

    Every third seed ignores prices. probed: onnxruntime is first tried in another process, which it may end.
    thorough: all levels of onnxruntime and all targets, not a part of them by seed.
    """
    seen = seen or Seen()
    eager = case.seed % 3 == 1
    targets = TARGETS if thorough else ("ort-cpu", TARGETS[1 + case.seed % 2])
    levels = tuple(LEVELS) if thorough or case.seed % 4 == 0 else ("disabled", "all")
    source = case.model.SerializeToString()
    results: dict[bytes, str] = {}
    fired: dict[bytes, set[str]] = {}
    for target in targets:
        with prices(eager):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    result = onnxfuse.optimize(case.model, target=target, verify=False)
                after = result.model
            except Exception as error:  # noqa: BLE001 - each is a finding
                where = traceback.extract_tb(error.__traceback__)[-1]
                return Finding(f"crash {type(error).__name__} {where.name}", target, traceback.format_exc(limit=-6))
            text = after.SerializeToString()
            if text == source:
                continue
            for f in result.fusions:
                seen.rules[f.rule] = seen.rules.get(f.rule, 0) + 1
            finding = _form(case.model, after, target)
            if finding is None and (thorough or case.seed % 4 == 1):
                again = onnxfuse.optimize(case.model, target=target, verify=False).model
                if again.SerializeToString() != text:
                    finding = Finding("bytes", target, "a second run gives other bytes")
            if finding is None and not eager:
                finding = _twice(after, target)
                if finding is not None and _is_pinned(case):
                    finding = None  # a free dim that can have one size only, which the result's shapes may tell
        if finding is not None:
            return finding
        results.setdefault(text, target)
        fired.setdefault(text, set()).update(f.rule for f in result.fusions)
    for text, target in results.items():
        finding = _compare(case, text, target, levels, fired[text], seen, probed)
        if finding is None and (thorough or case.seed % 4 == 2):
            finding = _verified(case, text, target, fired[text], seen, probed)
        if finding is not None:
            return finding
    return None


def _verified(case: Case, after: bytes, target: str, fired: set[str], seen: Seen, probed: bool) -> Finding | None:
    """What `onnxfuse.verify` says, at onnxruntime's default level too: it must not call a right result DIFFERENT."""
    if probed and not survives(case.model.SerializeToString(), ("disabled", "all"), list(draws(case))):
        return None
    dims = {
        dim.dim_param: size
        for info in case.model.graph.input
        if info.name in case.shapes
        for dim, size in zip(info.type.tensor_type.shape.dim, case.shapes[info.name], strict=True)
        if dim.dim_param
    }
    verdict = onnxfuse.verify(case.model, onnx.ModelProto.FromString(after), dims=dims, seed=case.seed)
    places = any(d.cause == "places" for d in verdict.outputs)  # of NaN and infinities: `differ` knows what is promised
    if not verdict.judged or places:
        seen.silent += 1
        return None
    if verdict.ok or any(known in (verdict.reason or "") for known in OWN_FAULTS) or _is_mistaken(case.model):
        seen.compared += len(verdict.outputs)
        return None
    return Finding("verify", f"{target} by {' '.join(sorted(fired))}", str(verdict.reason))


def _form(before: onnx.ModelProto, after: onnx.ModelProto, target: str) -> Finding | None:
    try:
        onnx.checker.check_model(after)
    except Exception as error:  # noqa: BLE001 - each is a finding
        return Finding("checker", target, str(error))
    # Before IR 4 every weight is listed as an input, and none can be overridden.
    weights = [{t.name for t in m.graph.initializer} if m.ir_version < 4 else set() for m in (before, after)]
    inputs = [[i for i in m.graph.input if i.name not in w] for m, w in zip((before, after), weights, strict=True)]
    if inputs[0] != inputs[1] or list(before.graph.output) != list(after.graph.output):
        return Finding("interface", target, "the interface is another")
    if before.ir_version != after.ir_version and not after.functions:
        return Finding("interface", target, f"IR version {before.ir_version} became {after.ir_version}")
    names = {i.name for i in inputs[0]}
    kept = [{t.name: t for t in m.graph.initializer if t.name in names} for m in (before, after)]
    return None if kept[0] == kept[1] else Finding("interface", target, "the defaults of inputs are others")


def _twice(after: onnx.ModelProto, target: str) -> Finding | None:
    again = onnxfuse.optimize(after, target=target, verify=False)
    if not again.fusions and again.model.SerializeToString() == after.SerializeToString():
        return None
    made = ", ".join(f"{f.rule} at {f.node}" for f in again.fusions)
    rules = " ".join(sorted({f.rule for f in again.fusions}))
    return Finding(f"twice {rules}", target, f"a second run makes {made}")


def _is_pinned(case: Case) -> bool:
    """Whether the graph has free dims and does not run with others than those it was made with."""
    sizes = {}
    for info in case.model.graph.input:
        dims = info.type.tensor_type.shape.dim
        if info.name in case.shapes and any(not d.HasField("dim_value") for d in dims):
            shape = case.shapes[info.name]
            sizes[info.name] = tuple(n if d.HasField("dim_value") else n + 4 for d, n in zip(dims, shape, strict=True))
    if not sizes:
        return False
    feeds = make_feeds(replace(case, shapes=case.shapes | sizes), np.random.default_rng(0), {})
    return not is_valid(case.model, feeds) or run(load(case.model.SerializeToString(), "disabled"), feeds) is None


def _is_mistaken(model: onnx.ModelProto) -> bool:
    """Whether onnxruntime may take the graph for another one: its LayerNormFusion does not look at the exponent."""
    means = {n.input[0] for n in model.graph.node if n.op_type == "ReduceMean"}
    powers = [n.input[1] for n in model.graph.node if n.op_type == "Pow" and n.output[0] in means]
    held = {t.name: t for t in model.graph.initializer if t.name not in {i.name for i in model.graph.input}}
    held |= {n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant"}
    return any(name not in held or np.any(numpy_helper.to_array(held[name]) != 2) for name in powers)


def _compare(
    case: Case, after: bytes, target: str, levels: Sequence[str], fired: set[str], seen: Seen, probed: bool
) -> Finding | None:
    source = case.model.SerializeToString()
    drawn = list(draws(case))
    if probed and not survives(source, levels, drawn):
        seen.silent += 1
        return None
    if probed and not survives(after, levels, drawn):
        return Finding("dies", target, f"onnxruntime ends the process, by {' '.join(sorted(fired))}")
    reference = load(source, "disabled")
    base = [run(reference, feeds) for _, feeds in drawn]
    for level in levels if not _is_mistaken(case.model) else ("disabled",):
        first = reference if level == "disabled" else load(source, level)
        second = load(after, level)
        if first is not None and second is None and base[0] is not None:
            text = reason(after, level)
            if any(known in text for known in OWN_FAULTS):
                continue
            return Finding("load", f"{target} {level}", text)
        for (name, feeds), expected in zip(drawn, base, strict=True):
            own = expected if first is reference else run(first, feeds)
            if expected is None or own is None:
                seen.silent += 1
                continue
            found = run(second, feeds)
            where = f"{target} {level} {name} by {' '.join(sorted(fired))}"
            if found is None:
                text = failure(second, feeds)
                if any(known in text for known in OWN_FAULTS):
                    continue
                return Finding("run", where, f"the original runs, the result does not: {text}")
            seen.compared += 1
            for i, values in enumerate(zip(expected, own, found, strict=True)):
                wrong = differ(case, f"{name} {level}", feeds, i, *values, fired)
                if wrong is not None:
                    return Finding(wrong[0], where, f"output {case.model.graph.output[i].name}: {wrong[1]}")
    return None
