"""Peaks of the live activations: worked by hand (every float takes 4 bytes), against a simulator, and onnxruntime's."""

from __future__ import annotations

import random
import sys

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, parser

from onnxfuse import bench, ir
from onnxfuse.facts import infer
from onnxfuse.facts.expr import Dim, Expr, symbol
from onnxfuse.memory import peaks

HEAD = '<ir_version: 10, opset_import: ["" : 17, "local" : 1, "com.microsoft" : 1]>'


def peak(text: str) -> Dim | None:
    program = ir.read(parser.parse_model(f"{HEAD}\n{text}"))
    return peaks(program, infer(program), program.graph.outputs)[0]


def test_a_chain_holds_two_values() -> None:
    """a and b, b and c: 2 x 40 bytes; the input belongs to the caller."""
    assert peak("net (float[10] x) => (float[10] c) { a = Relu (x) b = Relu (a) c = Relu (b) }") == 80


def test_a_residual_stays_until_it_is_added() -> None:
    """At the second Relu a, b and c live."""
    text = "net (float[10] x) => (float[10] y) { a = Relu (x) b = Relu (a) c = Relu (b) y = Add (c, a) }"
    assert peak(text) == 120


def test_a_view_shares_its_inputs_memory_and_keeps_it_alive() -> None:
    """v is a; at c the values a (as v) and c live, and b in between: b dies unread after its node."""
    text = """
    net (float[10] x) => (float[5,2] c) <int64[2] s = {5, 2}>
    { a = Relu (x) v = Reshape (a, s) b = Relu (a) c = Relu (v) }
    """
    assert peak(text) == 80


def test_the_shape_of_a_value_does_not_keep_it_alive() -> None:
    """s takes 16 bytes of its own, to the end. At b: a + s + b = 400 + 16 + 400; a is dead when c is made."""
    text = """
    net (float[10,10] x) => (float[10,10] c, int64[2] s)
    { a = Relu (x) s = Shape (a) b = Relu (a) c = Relu (b) }
    """
    assert peak(text) == 816


def test_outputs_live_to_the_end() -> None:
    text = "net (float[10] x) => (float[10] a, float[10] c) { a = Relu (x) b = Relu (a) c = Relu (b) }"
    assert peak(text) == 120


def test_what_comes_from_constants_alone_is_no_activation() -> None:
    text = """
    net (float[10] x) => (float[10] y) <float[4] w = {1, 2, 3, 4}>
    { k = Relu (w) s = ReduceSum (k) y = Add (x, s) }
    """
    assert peak(text) == 40


def test_a_body_adds_its_own_peak_and_captures_keep_values_alive() -> None:
    """a (40) lives through the If, whose larger branch holds t and e (80), and the If's output y (40)."""
    text = """
    net (float[10] x, bool c) => (float[10] z)
    {
      a = Relu (x)
      b = Relu (x)
      y = If (c) <
        then_branch = then () => (float[10] e) { t = Relu (a) e = Relu (t) },
        else_branch = other () => (float[10] f) { f = Relu (a) }
      >
      z = Add (y, b)
    }
    """
    assert peak(text) == 40 + 40 + 80 + 40


@pytest.mark.parametrize(("trips", "expected"), [(0, 40), (3, 40 + 80)])
def test_a_loop_that_never_runs_holds_nothing_of_its_body(trips: int, expected: int) -> None:
    """Outside there is y; in the body a and t live together."""
    text = (
        f"net (float[10] x) => (float[10] y) <int64 n = {{{trips}}}> {{ y = Loop (n, , x) <"
        "body = b (int64 i, bool k, float[10] s) => (bool k2, float[10] t)"
        "{ k2 = Identity (k) a = Sin (s) t = Sin (a) }> }"
    )
    assert peak(text) == expected


def test_a_local_function_adds_the_peak_of_its_body() -> None:
    """a and y (80) around the body, which holds t and its own y (80)."""
    text = """
    net (float[10] x) => (float[10] y) { a = Relu (x) y = local.Twice (a) }
    <domain: "local", opset_import: ["" : 17]>
    Twice (p) => (q) { t = Relu (p) q = Relu (t) }
    """
    assert peak(text) == 160


def both(text: str) -> tuple[Dim | None, Dim | None]:
    """Without and with reuse in place."""
    program = ir.read(parser.parse_model(f"{HEAD}\n{text}"))
    return peaks(program, infer(program), program.graph.outputs)


def test_relu_writes_over_an_input_that_dies() -> None:
    """a and b beside each other, or b in a's place and then the 4 bytes of y."""
    assert both("net (float[10] x) => (float[1] y) { a = Neg (x) b = Relu (a) y = ReduceMax (b) }") == (80, 44)


def test_an_output_has_a_buffer_of_its_own() -> None:
    assert both("net (float[10] x) => (float[10] b) { a = Neg (x) b = Relu (a) }") == (80, 80)
    text = "net (float[10] x) => (float[5,2] v) <int64[2] s = {5, 2}> { a = Neg (x) b = Relu (a) v = Reshape (b, s) }"
    assert both(text) == (80, 80)


def test_only_an_equal_element_size_is_reused() -> None:
    """int32 takes the place of float; int64 does not fit: 40 + 80."""
    text = "net (float[10] x) => (int32[1] y) { a = Neg (x) b = Cast <to = 6> (a) y = ReduceMax (b) }"
    assert both(text) == (80, 44)
    assert both(text.replace("to = 6", "to = 7")) == (120, 120)


def test_add_makes_a_new_tensor() -> None:
    assert both("net (float[10] x) => (float[1] y) { a = Neg (x) b = Add (a, a) y = ReduceMax (b) }") == (80, 80)


@pytest.mark.parametrize(
    ("residual", "after", "expected"),
    [
        ("r", "", (3 * 72, 2 * 72)),  # p, r and y; y in r's place
        ("r", "again = GlobalMaxPool (r)", (3 * 72, 3 * 72)),
        ("x", "", (3 * 72, 3 * 72)),  # p, r (unread) and y; x is the caller's
        ("p", "", (3 * 72, 3 * 72)),  # p is the convolution's input as well
        ("v", "", (3 * 72, 2 * 72)),  # a view of r
    ],
)
def test_the_residual_of_a_fused_convolution(residual: str, after: str, expected: tuple[int, int]) -> None:
    text = f"""
    net (float[1,2,3,3] x, float[2,2,1,1] w, float[2] b) => (float[1,2,1,1] z)
    {{
      r = Neg (x) v = Identity (r) p = Neg (x)
      y = com.microsoft.FusedConv <activation = "Relu"> (p, w, b, {residual}) z = GlobalMaxPool (y) {after}
      {"" if residual in "rv" else "unread = GlobalMaxPool (r)"}
    }}
    """
    assert both(text) == expected


def test_a_symbolic_peak_is_an_expression() -> None:
    n = symbol("N")
    assert both("net (float[N] x) => (float[N] y) { y = Relu (x) }") == (4 * n, 4 * n)
    assert both("net (float[N] x) => (float[1] y) { a = Neg (x) b = Relu (a) y = ReduceMax (b) }") == (8 * n, 4 * n + 4)


def test_a_peak_that_depends_on_the_sizes_is_a_maximum() -> None:
    """a and b: 8·N·N; then c and d of 12·N bytes each beside y of 4·N."""
    text = """
    net (float[N,N] x, float[N,3] v) => (float[N,1] y, float[N,1] z)
    { a = Neg (x) b = Neg (a) y = ReduceMax <axes = [1]> (b) c = Neg (v) d = Neg (c) z = ReduceMax <axes = [1]> (d) }
    """
    plain, _ = both(text)
    assert isinstance(plain, Expr)
    assert [plain.evaluate({"N": n}) for n in (1, 3, 4, 100)] == [28, 84, 128, 80_000]


def test_more_than_a_few_incomparable_steps_have_no_formula() -> None:
    def steps(count: int) -> tuple[Dim | None, Dim | None]:
        inputs, outputs = (", ".join(f"float[{d}] {v}{i}" for i in range(count)) for d, v in (("D", "x"), ("1", "y")))
        for i in range(count):
            inputs = inputs.replace(f"[D] x{i}", f"[D{i}] x{i}")
        body = " ".join(f"a{i} = Neg (x{i}) y{i} = ReduceMax (a{i})" for i in range(count))
        return both(f"net ({inputs}) => ({outputs}) {{ {body} }}")

    few = steps(8)[0]
    assert isinstance(few, Expr)
    assert few.evaluate({f"D{i}": 10 * (i == 2) + 1 for i in range(8)}) == 4 * 11 + 3 * 4  # a2, y0, y1, y2
    assert steps(9) == (None, None)


def simulated(nodes: list[onnx.NodeProto], outputs: set[str], sizes: dict[str, int], in_place: bool) -> int:
    """By brute force: values move between numbered buffers; who is needed later is looked up before every node."""
    buffer: dict[str, int] = {}
    alive: dict[int, int] = {}
    highest = 0
    for i, node in enumerate(nodes):
        later = outputs.union(*(other.input for other in nodes[i + 1 :]))
        (made,) = node.output
        mine = buffer.get(node.input[0], -1)
        same = {name for name, where in buffer.items() if where == mine}
        seen = {made}  # made and its views
        for other in nodes[i + 1 :]:
            if other.op_type == "Identity" and other.input[0] in seen:
                seen.add(other.output[0])
        reads = sum(buffer.get(name) == mine for name in node.input)
        over = node.op_type in ("Relu", "Sigmoid", "Softmax") and in_place
        free = mine >= 0 and reads == 1 and not same & later and not seen & outputs
        if node.op_type == "Identity" or (over and free):
            buffer[made] = mine
        else:
            buffer[made], alive[i] = i, sizes[made]
        highest = max(highest, sum(alive.values()))
        buffer = {name: where for name, where in buffer.items() if name in later}
        alive = {where: size for where, size in alive.items() if where in buffer.values()}
    return highest


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_against_a_simulator(seed: int) -> None:
    rng = random.Random(seed)
    lengths = {"x": 8}
    nodes: list[onnx.NodeProto] = []
    for i in range(rng.randrange(3, 25)):
        one = rng.choice(list(lengths)[-6:])
        op = rng.choice(["Relu", "Sigmoid", "Softmax", "Neg", "Identity", "Add", "Mul", "Concat"])
        op = "Neg" if op == "Identity" and one == "x" else op
        inputs = [one]
        if op in ("Add", "Mul"):
            inputs.append(rng.choice([name for name, n in lengths.items() if n == lengths[one]]))
        elif op == "Concat":
            inputs.append(rng.choice(list(lengths)))
        lengths[f"v{i}"] = sum(lengths[n] for n in inputs) if op == "Concat" else lengths[one]
        nodes.append(helper.make_node(op, inputs, [f"v{i}"], **({"axis": 0} if op == "Concat" else {})))
    outputs = {nodes[-1].output[0], rng.choice(nodes).output[0]}
    infos = [[helper.make_tensor_value_info(name, 1, [lengths[name]]) for name in of] for of in (["x"], outputs)]
    program = ir.read(helper.make_model(helper.make_graph(nodes, "g", *infos)))
    sizes = {name: 4 * n for name, n in lengths.items()}
    expected = simulated(nodes, outputs, sizes, False), simulated(nodes, outputs, sizes, True)
    assert peaks(program, infer(program), program.graph.outputs) == expected


def grown(text: str) -> int:
    """Bytes by which the resident set of the process grows at most while onnxruntime runs a model of one float."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False  # every tensor is allocated and freed by itself
    options.intra_op_num_threads = 1
    proto = parser.parse_model(f"{HEAD}\n{text}").SerializeToString()
    session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    before = bench._memory("cpu")
    session.run(None, {"x": np.ones(1, np.float32)})
    added = bench._memory("cpu", before)
    assert added is not None
    return added


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak resident size from /proc")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # x0 and a; b over a; b, which Add reads again, and c; d over c; e beside b and d
        ("a = Exp (x0) b = Sigmoid (a) c = Exp (b) d = Softmax (c) e = Add (d, b)", (3, 3)),
        ("a = Exp (x0) b = Sigmoid (a) c = Exp (b) d = Softmax (c) e = Relu (d)", (2, 2)),
        ("a = Relu (x0) b = Sigmoid (a) c = Clip (b) d = Softmax (c) e = LeakyRelu (d)", (2, 1)),
        ("a = Relu (x0) b = Sigmoid (a) c = Add (b, b) d = Softmax (c) e = Mul (d, c)", (3, 3)),
    ],
)
def test_onnxruntime_takes_as_much(body: str, expected: tuple[int, int]) -> None:
    """Tensors of 64 MB: glibc gives larger ones than 32 MB back at once."""
    size = 4 * 4096**2
    text = f"""
    net (float[1] x) => (float[1,1] y) <int64[2] s = {{4096, 4096}}>
    {{ x0 = Expand (x, s) {body} y = ReduceMax (e) }}
    """
    plain, in_place = both(text)
    assert isinstance(plain, int)
    assert isinstance(in_place, int)
    assert (plain, in_place - (4 if expected[1] == 1 else 0)) == (expected[0] * size, expected[1] * size)
    least = min(grown(text) for _ in range(3))  # what else the process takes at the time only adds
    assert least == pytest.approx(in_place, abs=size // 8)
