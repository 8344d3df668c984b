"""What must hold of an optimized graph, and a finding where it does not."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import onnxfuse
from onnxfuse import worklist
from onnxfuse.patterns import CONTRADICTION

from .generate import Case

LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
TARGETS = ("ort-cpu", "ort-cuda", "portable")
# ∞·a + ∞·b is NaN where a and b differ in sign, and ∞·(a + b) is not: rules that put terms of one value together.
TOGETHER = {
    "parallel_convs", "factored_sum", "affine_chain", "affine_into_previous", "affine_into_next", "pool_before_conv",
    "product_chain", "conv_of_conv",
}  # fmt: skip
# Documented: an infinity gives NaN, as 0·∞ is.
SPOILED = {"prelu_depthwise", "prelu_channels", "aligned_channels", "conv_of_conv"}
INFINITE_SCALE = "FusedMatMul alpha attribute must be finite"  # a product of what was multiplied by infinity
# Of graphs that it runs only because it does not look through what a rewrite removes, such as an Identity.
OWN_FAULTS = (
    "re-use buffer",  # it takes x[::2] of opset 10 for as long as x
    "SimplifiedLayerNormFusion/' Status Message: Scale",  # it fuses a scale that is longer than the normalized axis
)
_SECONDS = 60  # for a model of the fuzzer, which takes milliseconds …
_ATTEMPTS = 3  # … so that only a lock can be what it waits for
Feeds = Mapping[str, np.ndarray]


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
                stumbled = [f"{r.rule}: {r.reason}" for r in result.refused if r.reason.startswith(CONTRADICTION)]
            except Exception as error:  # noqa: BLE001 - each is a finding
                where = traceback.extract_tb(error.__traceback__)[-1]
                return Finding(f"crash {type(error).__name__} {where.name}", target, traceback.format_exc(limit=-6))
            if stumbled:  # a graph that runs contradicts itself nowhere
                return Finding(f"stumbles {stumbled[0]}", target, "\n".join(stumbled))
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
        if finding is not None:
            return finding
    return None


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
    feeds = _feeds(replace(case, shapes=case.shapes | sizes), np.random.default_rng(0), {})
    return not _is_valid(case.model, feeds) or _run(_load(case.model.SerializeToString(), "disabled"), feeds) is None


def _session(model: bytes, level: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run(session: ort.InferenceSession | None, feeds: Feeds) -> list[np.ndarray] | None:
    if session is None:
        return None
    try:
        return [np.asarray(a) for a in session.run(None, dict(feeds))]
    except Exception:  # noqa: BLE001 - onnxruntime has many
        return None


def _failure(session: ort.InferenceSession | None, feeds: Feeds) -> str:
    try:
        assert session is not None
        session.run(None, dict(feeds))
    except Exception as error:  # noqa: BLE001 - onnxruntime has many
        return str(error)
    return ""


def _load(model: bytes, level: str) -> ort.InferenceSession | None:
    try:
        return _session(model, level)
    except Exception:  # noqa: BLE001 - onnxruntime has many
        return None


def _survives(model: bytes, levels: Sequence[str], draws: Sequence[tuple[str, Feeds]]) -> bool:
    """Whether onnxruntime loads and runs a model without ending the process: tried in one of its own.

    A copy of a process with threads may wait for ever for a lock that one of them held: it is ended, and tried again.
    """
    for _ in range(_ATTEMPTS):
        child = os.fork()
        if not child:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(_SECONDS)
            for level in levels:
                session = _load(model, level)
                for _, feeds in draws:
                    _run(session, feeds)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGALRM:
            return code == 0
    return False


def _compare(
    case: Case, after: bytes, target: str, levels: Sequence[str], fired: set[str], seen: Seen, probed: bool
) -> Finding | None:
    source = case.model.SerializeToString()
    draws = list(_draws(case))
    if probed and not _survives(source, levels, draws):
        seen.silent += 1
        return None
    if probed and not _survives(after, levels, draws):
        return Finding("dies", target, f"onnxruntime ends the process, by {' '.join(sorted(fired))}")
    reference = _load(source, "disabled")
    base = [_run(reference, feeds) for _, feeds in draws]
    for level in levels:
        first = reference if level == "disabled" else _load(source, level)
        second = _load(after, level)
        if first is not None and second is None and base[0] is not None:
            reason = _reason(after, level)
            if INFINITE_SCALE in reason:  # onnxruntime refuses what it fused itself
                continue
            return Finding("load", f"{target} {level}", reason)
        for (name, feeds), expected in zip(draws, base, strict=True):
            own = expected if first is reference else _run(first, feeds)
            if expected is None or own is None:
                seen.silent += 1
                continue
            found = _run(second, feeds)
            where = f"{target} {level} {name} by {' '.join(sorted(fired))}"
            if found is None:
                text = _failure(second, feeds)
                if any(known in text for known in OWN_FAULTS):
                    continue
                return Finding("run", where, f"the original runs, the result does not: {text}")
            seen.compared += 1
            for i, values in enumerate(zip(expected, own, found, strict=True)):
                wrong = _differ(case, f"{name} {level}", feeds, i, *values, fired)
                if wrong is not None:
                    return Finding(wrong[0], where, f"output {case.model.graph.output[i].name}: {wrong[1]}")
    return None


def _reason(model: bytes, level: str) -> str:
    try:
        _session(model, level)
    except Exception as error:  # noqa: BLE001 - onnxruntime has many
        return str(error)
    return ""


def _differ(
    case: Case,
    name: str,
    feeds: Feeds,
    index: int,
    expected: np.ndarray,
    own: np.ndarray,
    found: np.ndarray,
    fired: set[str],
) -> tuple[str, str] | None:
    """What is wrong with one output on one draw: kind and text."""
    if expected.shape != own.shape:
        return None
    if expected.dtype != found.dtype or own.shape != found.shape:
        return "shape", f"{expected.dtype}{expected.shape} became {found.dtype}{found.shape}"
    if expected.dtype.kind != "f":
        same = np.array_equal(expected, found) or not np.array_equal(expected, own)
        same = same or case.special or not name.startswith("normal")  # indices of equal maxima
        return None if same else ("numbers", f"{expected} became {found}")
    if case.huge or name.startswith("huge"):
        return None
    with np.errstate(all="ignore"):
        return _floats(case, name, feeds, index, (expected, own, found), fired)


def _floats(
    case: Case, name: str, feeds: Feeds, index: int, values: tuple[np.ndarray, ...], fired: set[str]
) -> tuple[str, str] | None:
    expected = values[0]
    a, o, f = (v.astype(np.float64) for v in values)
    odd, infinite = case.special or not name.startswith("normal"), case.special or name.startswith("infinite")
    if odd and any("MaxPool" in n.op_type for n in case.model.graph.node):
        return None  # which number it takes where one is NaN depends on the kernel
    together = infinite and fired & TOGETHER
    became = np.isnan(a) & np.isnan(o) & np.isfinite(f)
    if np.any(became) and not together and not _overflows(case.model, feeds):
        again = list(_rerounded(case.model, feeds, index, fired))
        if all(r is not None and np.array_equal(np.isnan(r), np.isnan(a)) for r in again):
            return "nan", f"NaN became a number: {a[became][:8]} {f[became][:8]}"
        # else which ones are NaN is a matter of rounding: a power of what is around 0
    finite = np.isfinite(a) & np.isfinite(o)
    largest = float(np.max(np.abs(a[finite]), initial=0))
    limit = float(np.finfo(expected.dtype).max)
    if fired & SPOILED and infinite:
        return None
    if odd and "parallel_convs" in fired:
        together = True  # documented: a kernel that is wider than the one it was has zeros, and 0·NaN is NaN
    # In blocks of channels those that fill the last block become 0·∞, and the next convolution multiplies them by 0.
    blocked = infinite and name.endswith("all") and any(n.op_type == "Conv" for n in case.model.graph.node)
    gone = finite & ~np.isfinite(f)
    if np.any(gone) and largest < limit / 1e4 and not (together or blocked):
        if fired & SPOILED and _meets_infinity(case.model, feeds):
            return None
        if _sensitivity(case.model, feeds, index, expected, fired) < 1e-3 * largest:  # else it divides by what cancels
            return "finite", f"a number became none: {a[gone][:4]} → {f[gone][:4]}"
        return None
    both = finite & np.isfinite(f)
    difference = float(np.max(np.abs(a - f)[both], initial=0))
    # Sums in another order, and weights that are rounded once more: some units in the last place of the largest.
    allowed = 64 * _epsilon(case.model) * largest + 1e-30
    if difference <= allowed:
        return None
    if "mish" in fired and any(n.op_type == "Log" for n in case.model.graph.node):
        allowed += 1e-3 * largest  # log(1 + eˣ) has lost the digits of small eˣ, which the rewrite keeps
    allowed += 2 * float(np.max(np.abs(a - o)[both], initial=0))
    if difference <= allowed:
        return None
    allowed += 8 * _sensitivity(case.model, feeds, index, expected, fired)
    if difference <= allowed or not np.isfinite(allowed):
        return None
    if together and _meets_infinity(case.model, feeds):
        return None  # NaN in one of them, and HardSigmoid makes a number of it
    return "numbers", f"differs by {difference:.3g} of {largest:.3g}, {allowed:.3g} allowed"


def _epsilon(model: onnx.ModelProto) -> float:
    """The coarsest rounding in a graph."""
    types = {t.data_type for t in model.graph.initializer} | {i.type.tensor_type.elem_type for i in model.graph.input}
    types |= {o.type.tensor_type.elem_type for o in model.graph.output}
    for node in model.graph.node:
        types |= {a.i for a in node.attribute if a.name == "to"} | {a.t.data_type for a in node.attribute}
        if node.op_type in ("HardSigmoid", "LeakyRelu", "BatchNormalization"):  # attributes are float32
            types.add(TensorProto.FLOAT)
    if TensorProto.FLOAT16 in types:
        return 2.0**-11
    return 2.0**-24 if TensorProto.FLOAT in types else 2.0**-52


def _values(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray]:
    """Every value that nodes make, by name; none where it does not run."""
    seen = onnx.ModelProto.FromString(model.SerializeToString())
    known = {o.name for o in seen.graph.output}
    made = [name for n in seen.graph.node for name in n.output if name and name not in known]
    seen.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    results = _run(_load(seen.SerializeToString(), "disabled"), feeds) or []
    return dict(zip([o.name for o in seen.graph.output], results, strict=False))


def _meets_infinity(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether a value between the inputs and the outputs is infinite."""
    return any(np.isinf(v).any() for v in _values(model, feeds).values() if v.dtype.kind == "f")


def _overflows(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether a value is so large that its square, or a sum of a few, is infinite: a Clip makes such of infinities."""
    floats = [v for v in _values(model, feeds).values() if v.dtype.kind == "f" and v.size]
    return any(np.max(np.abs(v[np.isfinite(v)]), initial=0) > np.sqrt(np.finfo(v.dtype).max) for v in floats)


def _sensitivity(
    model: onnx.ModelProto, feeds: Feeds, index: int, expected: np.ndarray, fired: Collection[str]
) -> float:
    """How far an output moves when every value, computed or constant, is off by some roundings: what cancels shows."""
    largest = 0.0
    for result in _rerounded(model, feeds, index, fired):
        if result is None or result.shape != expected.shape:
            return np.inf
        off = np.abs(result.astype(np.float64) - expected.astype(np.float64))[np.isfinite(expected)]
        if not np.isfinite(off).all():
            return np.inf
        largest = max(largest, float(np.max(off, initial=0)))
    return largest


def _rerounded(model: onnx.ModelProto, feeds: Feeds, index: int, fired: Collection[str]) -> Iterator[np.ndarray | None]:
    """An output where every value, computed or constant, is off by some roundings, drawn four times."""
    step = 8 * _epsilon(model)
    arrays = _values(model, feeds)
    powers = {node.input[1] for node in model.graph.node if node.op_type == "Pow"}  # a negative number has whole ones
    # 1/(1 + e) is off by 3e-7, whatever its size, where onnxruntime's Sigmoid computes it.
    below = {node.input[-1] for node in model.graph.node if node.op_type in ("Div", "Reciprocal")}
    steps = {n: step + 3e-7 * np.abs(a) if "sigmoid" in fired and n in below else step for n, a in arrays.items()}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        moved = onnx.ModelProto.FromString(model.SerializeToString())
        for t in (t for t in moved.graph.initializer if t.name not in powers):
            t.CopyFrom(numpy_helper.from_array(_shaken(numpy_helper.to_array(t), step, rng), t.name))
        nodes = []
        for node in moved.graph.node:
            nodes.append(node)
            for i, name in enumerate(node.output):
                if name in arrays and arrays[name].dtype.kind == "f" and name not in powers:
                    noise = _shaken(np.ones_like(arrays[name]), np.minimum(steps[name], 0.5), rng)
                    moved.graph.initializer.append(numpy_helper.from_array(noise, f"{name}/noise"))
                    node.output[i] = f"{name}/raw"
                    nodes.append(helper.make_node("Mul", [f"{name}/raw", f"{name}/noise"], [name]))
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del moved.graph.node[:]
        moved.graph.node.extend(copies)
        moved.ir_version = max(moved.ir_version, 4)
        results = _run(
            _load(moved.SerializeToString(), "disabled"), {n: _shaken(a, step, rng) for n, a in feeds.items()}
        )
        yield None if results is None else results[index]


def _shaken(array: np.ndarray, step: float | np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    with np.errstate(all="ignore"):
        return np.asarray(array * (1 + step * rng.choice([-1, 1], array.shape))).astype(array.dtype)


def _draws(case: Case) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Inputs to run on: normal data, odd numbers, huge ones, other sizes of the free dims, other defaults."""
    rng = np.random.default_rng([case.seed, 7])
    yield "normal", _feeds(case, rng, {})
    yield "NaN", _feeds(case, rng, {}, [np.nan, -0.0, 1e-42])
    yield "infinite", _feeds(case, rng, {}, [np.nan, np.inf, -np.inf, -0.0, 1e-42])
    if case.seed % 3 == 0:
        yield "huge", _feeds(case, rng, {}, [1e30, -3e38, 1e-30])
    free = {d.dim_param for i in case.model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    for size in (1, 5) if free else ():  # a free dim of 0 is not promised
        feeds = _feeds(case, rng, dict.fromkeys(free, size))
        if _is_valid(case.model, feeds):
            yield f"normal at {size}", feeds
    for name in sorted(free) if len(free) > 1 else ():
        feeds = _feeds(case, rng, {name: 3})
        if _is_valid(case.model, feeds):
            yield f"normal at {name} 3", feeds
    defaults = [t for t in case.model.graph.initializer if t.name in {i.name for i in case.model.graph.input}]
    if defaults and case.model.ir_version >= 4:
        other = {}
        for t in defaults:
            array = numpy_helper.to_array(t)
            if array.dtype.kind == "f" and rng.random() < 0.7:
                other[t.name] = np.asarray(rng.uniform(0.5, 2, array.shape)).astype(array.dtype)
        yield "normal with other defaults", _feeds(case, rng, {}) | other


def _is_valid(model: onnx.ModelProto, feeds: Feeds) -> bool:
    """Whether shapes fit at these sizes. onnxruntime runs some nodes whose shapes do not, and leaves results unset."""
    if any(n.op_type == "Slice" for n in model.graph.node):
        return all(
            n.op_type != "Concat" for n in model.graph.node
        )  # onnx 1.23 ends the process where there is nothing to take from
    sized = onnx.ModelProto.FromString(model.SerializeToString())
    for info in sized.graph.input:
        if info.name in feeds:
            for d, size in zip(info.type.tensor_type.shape.dim, feeds[info.name].shape, strict=True):
                d.dim_value = size
    try:
        inferred = onnx.shape_inference.infer_shapes(sized, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return False
    empty = {
        v.name for v in inferred.graph.value_info for d in v.type.tensor_type.shape.dim
        if d.HasField("dim_value") and not d.dim_value
    }  # fmt: skip
    return not any(("Pool" in n.op_type or "Conv" in n.op_type) and n.output[0] in empty for n in sized.graph.node)


def _feeds(
    case: Case, rng: np.random.Generator, sizes: Mapping[str, int], odd: Sequence[float] = ()
) -> dict[str, np.ndarray]:
    feeds = {}
    stored = {t.name for t in case.model.graph.initializer}
    for info in case.model.graph.input:
        if info.name in stored:
            continue
        tensor = info.type.tensor_type
        shape = [sizes.get(d.dim_param, n) for d, n in zip(tensor.shape.dim, case.shapes[info.name], strict=True)]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "b":
            array = np.asarray(rng.random(shape) < 0.5)
        elif dtype.kind in "iu":
            array = np.asarray(rng.integers(-5, 6, shape))
        else:
            array = np.asarray(rng.standard_normal(shape))
            if odd:
                array = np.where(rng.random(shape) < 0.1, rng.choice(odd, shape), array)
        with np.errstate(all="ignore"):
            feeds[info.name] = np.asarray(array).astype(dtype)
    return feeds
