"""Peak of the live activations, worked by hand; every float takes 4 bytes."""

from __future__ import annotations

from onnx import parser

from onnxfuse import ir
from onnxfuse.facts import infer
from onnxfuse.facts.expr import Dim
from onnxfuse.memory import peak_activation_bytes


def peak(text: str) -> Dim | None:
    program = ir.read(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17, "local" : 1]>\n{text}'))
    return peak_activation_bytes(program, infer(program), program.graph.outputs)


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


def test_a_local_function_adds_the_peak_of_its_body() -> None:
    """a and y (80) around the body, which holds t and its own y (80)."""
    text = """
    net (float[10] x) => (float[10] y) { a = Relu (x) y = local.Twice (a) }
    <domain: "local", opset_import: ["" : 17]>
    Twice (p) => (q) { t = Relu (p) q = Relu (t) }
    """
    assert peak(text) == 160


def test_a_symbolic_size_has_no_peak() -> None:
    assert peak("net (float[N] x) => (float[N] y) { y = Relu (x) }") is None
