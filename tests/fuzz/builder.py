"""A graph in the making: every node is run as it is added, so that shapes are known and what cannot run is left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import defs, helper, numpy_helper

LARGEST = 10000  # elements of a value
OPTIONS = ort.SessionOptions()
OPTIONS.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1


class Rejected(Exception):
    """The move is not possible here."""


class Builder:
    """Nodes, constants and inputs so far, and the elements of every value on one draw of the inputs.

    pool: names of the values that a move may start from. free: sizes that are a symbol wherever an input has them.
    """

    def __init__(self, rng: np.random.Generator, opset: int, dtype: type, ir_version: int, special: bool) -> None:
        self.rng, self.opset, self.dtype = rng, opset, np.dtype(dtype)
        self.ir_version, self.special = ir_version, special
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[tuple[str, np.dtype, list[int | str | None]]] = []
        self.constants: dict[str, np.ndarray] = {}
        self.overridable: list[str] = []
        self.values: dict[str, np.ndarray] = {}
        self.pool: list[str] = []
        self.symbols: dict[int, str] = {}
        self.count, self.huge = 0, False

    # Random choices.

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def array(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Constants away from 0, with the numbers in them that rules look for; special ones where asked for."""
        dtype = np.dtype(dtype or self.dtype)
        shape = tuple(int(d) for d in shape)
        if dtype.kind in "iu":
            return np.asarray(self.rng.integers(-3, 4, shape)).astype(dtype)
        kind = self.rng.random()
        if kind < 0.12:
            found = np.full(shape, self.choose([0, 1, 1, -1, 0.5, 2, 3, 6, 1 / 6]))
        else:
            found = self.rng.uniform(0.3, 1.5, shape) * self.rng.choice([-1, 1], shape)
        if kind > 0.93 and found.size:
            found = np.where(self.rng.random(shape) < 0.3, 0.0, found)
        if self.special and self.chance(0.25):
            odd = self.choose([np.nan, np.inf, -np.inf, -0.0, 1e-42, 1e30, 1e-30])
            self.huge |= odd in (1e30, 1e-30)
            found = np.where(self.rng.random(shape) < 0.2, odd, found)
        with np.errstate(all="ignore"):
            return np.asarray(found).astype(dtype)

    # Values.

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def rank(self, name: str) -> int:
        return self.values[name].ndim

    def pick(self, fits: Callable[[np.ndarray], bool] = lambda a: True) -> str:
        """A floating value that fits, more likely one that was made lately. Raises Rejected."""
        return self.pick_any(lambda a: a.dtype.kind == "f" and fits(a))

    def pick_any(self, fits: Callable[[np.ndarray], bool]) -> str:
        found = [n for n in self.pool if fits(self.values[n])]
        if not found:
            raise Rejected
        return found[-1] if self.chance(0.6) else str(self.choose(found))

    def image(self) -> str:
        """A value with channels and at least one spatial axis, of no size 0."""
        return self.pick(lambda a: a.ndim >= 3 and a.size > 0 and a.shape[1] <= 32)

    def input(self, array: np.ndarray, keep: bool = True) -> str:
        """A graph input of this shape, some of whose dims are free."""
        name = self.fresh("x")
        dims: list[int | str | None] = []
        for d in array.shape:
            if d in self.symbols:
                dims.append(self.symbols[d])
            else:
                dims.append(None if self.chance(0.04) else int(d))
        self.inputs.append((name, array.dtype, dims))
        self.values[name] = array
        if keep:
            self.pool.append(name)
        return name

    def constant(self, array: np.ndarray, *, plain: bool = False) -> str:
        """A constant in one of its forms: an initializer, one that callers may override, a node, a computed one."""
        array = np.asarray(array)
        kind = 0.0 if plain else self.rng.random()
        if kind < 0.08 and not plain:
            for name, other in self.constants.items():
                if other.dtype == array.dtype and other.shape == array.shape and np.array_equal(other, array):
                    return name
        if kind < 0.66:
            return self._initializer(array)
        if kind < 0.72 and self.ir_version >= 4:
            name = self._initializer(array)
            self.overridable.append(name)
            return name
        if kind < 0.86:
            name = self.fresh("c")
            value = numpy_helper.from_array(array, f"{name}_value")
            self.nodes.append(helper.make_node("Constant", [], [name], value=value))
            self.values[name] = array
            return name
        how = self.choose(["Identity", "Transpose", "Cast", "Reshape", "Expand", "Mul"])
        return self._computed(array, how)

    def _initializer(self, array: np.ndarray) -> str:
        name = self.fresh("w")
        self.constants[name] = self.values[name] = array
        return name

    def _computed(self, array: np.ndarray, how: str) -> str:
        if how == "Transpose" and array.ndim > 1:
            perm = [int(p) for p in self.rng.permutation(array.ndim)]
            stored = np.ascontiguousarray(np.transpose(array, np.argsort(perm)))
            return self("Transpose", self._initializer(stored), perm=perm)
        if how == "Cast" and array.dtype == np.float32:
            with np.errstate(all="ignore"):
                return self("Cast", self._initializer(array.astype(np.float64)), to=1)
        if how == "Reshape" and array.size:
            target = self._initializer(np.array(array.shape, np.int64))
            return self("Reshape", self._initializer(array.reshape(-1)), target)
        if how == "Expand" and array.ndim and array.size and self.opset >= 8 and (array == array.flat[0]).all():
            target = self._initializer(np.array(array.shape, np.int64))
            return self("Expand", self._initializer(array.reshape(-1)[:1]), target)
        if how == "Mul" and array.dtype.kind == "f":
            return self("Mul", self._initializer(array), self._initializer(np.array(1, array.dtype)))
        return self("Identity", self._initializer(array))

    def ints(self, numbers: Sequence[int]) -> str:
        """A constant list of int64."""
        return self.constant(np.array(numbers, np.int64), plain=self.chance(0.8))

    # Nodes.

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        return self.many(op, *inputs, outputs=1, **attrs)[0]

    def many(
        self, op: str, *inputs: str, outputs: int = 1, captured: Sequence[str] = (), keep: bool = False, **attrs: Any
    ) -> list[str]:
        """Adds a node and runs it. Raises Rejected where onnxruntime refuses it."""
        names = [self.fresh("v") for _ in range(outputs)]
        named = {"name": f"{op}_{names[0]}"} if self.chance(0.7) else {}
        if not defs.has(op, self.opset, ""):
            raise Rejected
        node = helper.make_node(op, list(inputs), names, **named, **attrs)
        arrays = self._run(node, [*inputs, *captured])
        if any(a.size > LARGEST or a.ndim > 6 for a in arrays):
            raise Rejected
        if ("Pool" in op or "Conv" in op) and not arrays[0].size:
            raise Rejected  # kernels of onnxruntime 1.32 for blocks of channels end the process there
        if attrs.get("ceil_mode") and self._is_disputed(node, arrays[0]):
            raise Rejected  # onnxruntime refuses what comes behind by a size that its own kernel does not give
        self.nodes.append(node)
        self.values.update(zip(names, arrays, strict=True))
        if keep:
            self.pool += names
        return names

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node whose value later moves may start from."""
        return self.many(op, *inputs, keep=True, **attrs)[0]

    def _run(self, node: onnx.NodeProto, names: Sequence[str]) -> list[np.ndarray]:
        feeds = {n: self.values[n] for n in names if n}
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=n) for n in node.output]
        graph = helper.make_graph([node], "g", infos, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                session = ort.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
                return [np.asarray(a) for a in session.run(None, feeds)]
        except Exception as error:  # noqa: BLE001 - onnxruntime has many; whatever cannot run is no test
            raise Rejected(str(error)) from None

    def _is_disputed(self, node: onnx.NodeProto, found: np.ndarray) -> bool:
        """Whether onnx infers another shape of a pool than it has: where the last window begins in the padding."""
        given = self.values[node.input[0]]
        kind = helper.np_dtype_to_tensor_dtype(given.dtype)
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info(node.input[0], kind, given.shape)],
            [onnx.ValueInfoProto(name=node.output[0])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        dims = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape.dim
        return tuple(d.dim_value for d in dims) != found.shape

    def attempt(self, move: Callable[[Builder], None]) -> bool:
        """Makes a move whole, or not at all."""
        kept = len(self.nodes), len(self.inputs), list(self.pool), dict(self.constants), list(self.overridable)
        try:
            move(self)
        except Rejected:
            del self.nodes[kept[0] :], self.inputs[kept[1] :]
            self.pool, self.constants, self.overridable = kept[2], kept[3], kept[4]
            self.values = {n: a for n, a in self.values.items() if n in self._known()}
            return False
        return True

    def _known(self) -> set[str]:
        made = {n for node in self.nodes for n in node.output}
        return made | {n for n, _, _ in self.inputs} | set(self.constants)
