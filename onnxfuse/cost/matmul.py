"""Matrix products: MACs = output elements x contracted length.

Bias, alpha ≠ 1 and beta ≠ 1 cost 1 FLOP an output element each; subtracting a zero point costs 1 for each element of
the operand. Einsum is evaluated from left to right in pairs, each step costing the product of its distinct labels.
"""

from __future__ import annotations

from onnxfuse.cost.activation import activation, swiglu_counts
from onnxfuse.cost.registry import Call, Cost, Unknown, bytes_of, op, prod
from onnxfuse.facts.expr import Dim, dmax
from onnxfuse.facts.value import Value


def _zero_points(call: Call, a: int, a_zero: int, b: int, b_zero: int) -> Dim:
    return (call.size(a) if call.has(a_zero) else 0) + (call.size(b) if call.has(b_zero) else 0)


def _contracted(call: Call, i: int = 0) -> Dim:
    shape = call.shape(i)
    if not shape:
        raise Unknown("an operand is a scalar")
    return shape[-1]


@op("MatMul", kind="matmul")
def matmul(call: Call) -> Cost:
    """a (…, M, K) x b (…, K, N), numpy rules: either may be a vector, leading axes broadcast."""
    return call.cost(macs=call.out_size() * _contracted(call))


@op("MatMulInteger", kind="matmul")
@op("MatMulInteger16", kind="matmul", domain="com.microsoft")
def matmul_integer(call: Call) -> Cost:
    """a, b, a_zero, b_zero."""
    return call.cost(macs=call.out_size() * _contracted(call), arith=_zero_points(call, 0, 2, 1, 3))


@op("QLinearMatMul", kind="matmul")
def qlinear_matmul(call: Call) -> Cost:
    """a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero."""
    return call.cost(macs=call.out_size() * _contracted(call), arith=_zero_points(call, 0, 2, 3, 5))


@op("MatMulIntegerToFloat", kind="matmul", domain="com.microsoft")
def matmul_integer_to_float(call: Call) -> Cost:
    """a, b, a_scale, b_scale, a_zero, b_zero, bias; the scales cost 1 FLOP an output element."""
    n = call.out_size()
    arith = _zero_points(call, 0, 4, 1, 5) + n + (n if call.has(6) else 0)
    return call.cost(macs=n * _contracted(call), arith=arith)


@op("DynamicQuantizeMatMul", kind="matmul", domain="com.microsoft")
def dynamic_quantize_matmul(call: Call) -> Cost:
    """a (float), b, b_scale, b_zero, bias: quantize a (4 FLOPs an element), multiply, scale."""
    n = call.out_size()
    arith = 5 * call.size(0) + (call.size(1) if call.has(3) else 0) + n + (n if call.has(4) else 0)
    return call.cost(macs=n * _contracted(call), arith=arith)


@op("QOrderedMatMul", kind="matmul", domain="com.microsoft")
def qordered_matmul(call: Call) -> Cost:
    """a (…, K), a_scale, b, b_scale, y_scale, bias, c, c_scale; scales are 1 FLOP an output element, c is 2."""
    n = call.out_size()
    return call.cost(macs=n * _contracted(call), arith=(1 + call.has(5) + 2 * call.has(6)) * n)


@op("GemmFloat8", kind="matmul", domain="com.microsoft")
def gemm_float8(call: Call) -> Cost:
    """Gemm of fp8 operands: a, b, c, a_scale, b_scale, y_scale; scaling costs 1 FLOP an output element."""
    plain, n = gemm(call), call.out_size()
    return plain + Cost(arith=n if call.has(3) or call.has(5) else 0)


@op("RouterGateUpProj", kind="matmul", domain="com.microsoft")
def router_gate_up(call: Call) -> Cost:
    """x (…, K), w (K, router + 2·inter) -> router logits, SwiGLU of the rest."""
    rows, w = prod(call.shape(0)[:-1]), call.shape(1, 2)
    flops, special = swiglu_counts(call)
    n = call.out_size(1)
    return call.cost(macs=rows * prod(w), arith=flops * n, transcendentals=special * n)


@op("CDist", kind="matmul", domain="com.microsoft")
def cdist(call: Call) -> Cost:
    """a (M, D), b (N, D) -> (M, N) as |a|² + |b|² − 2·a·b, the square root of it for "euclidean"."""
    n, d = call.out_size(), call.shape(0, 2)[1]
    root = n if call.attr("metric", "sqeuclidean") == "euclidean" else 0
    return call.cost(macs=n * d + call.size(0) + call.size(1), arith=3 * n, transcendentals=root)


@op("QGemm", kind="matmul", domain="com.microsoft")
def qgemm(call: Call) -> Cost:
    """a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero."""
    n, a = call.out_size(), call.shape(0, 2)
    arith = _zero_points(call, 0, 2, 3, 5) + (n if call.has(6) else 0)
    return call.cost(macs=n * (a[0] if call.attr("transA", 0) else a[1]), arith=arith)


@op("Gemm", kind="matmul")
@op("FusedGemm", kind="matmul", domain="com.microsoft")
def gemm(call: Call) -> Cost:
    """act(alpha · a' b' + beta · c): a (M, K) or transposed, b (K, N) or transposed."""
    n = call.out_size()
    a = call.shape(0, 2)
    arith: Dim = n if call.attr("alpha", 1.0) != 1 else 0
    if call.has(2):
        arith = arith + (2 * n if call.attr("beta", 1.0) != 1 else n)
    flops, special = activation(call.attr("activation", ""), n)
    return call.cost(macs=n * (a[0] if call.attr("transA", 0) else a[1]), arith=arith + flops, transcendentals=special)


@op("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", kind="matmul", domain="com.microsoft")
def fused_matmul(call: Call) -> Cost:
    """act(alpha · a' x b'): transA swaps a's last two axes, transBatchA moves its first axis before the last."""
    n = call.out_size()
    a = call.shape(0)
    if call.attr("transBatchA", 0) and len(a) > 2:
        a = (*a[1:-1], a[0], a[-1])
    if not a:
        raise Unknown("an operand is a scalar")
    k = a[-2] if call.attr("transA", 0) and len(a) > 1 else a[-1]
    arith = n if call.attr("alpha", 1.0) != 1 else 0
    flops, special = activation(call.attr("activation", ""), n)
    return call.cost(macs=n * k, arith=arith + flops, transcendentals=special)


@op("GemmFastGelu", kind="matmul", domain="com.microsoft")
def gemm_fast_gelu(call: Call) -> Cost:
    """FastGelu(a b + bias)."""
    n = call.out_size()
    return call.cost(macs=n * _contracted(call), arith=(9 if call.has(2) else 8) * n, transcendentals=n)


@op("Einsum", kind="matmul")
def einsum(call: Call) -> Cost:
    """Pairs from left to right; labels that nothing later needs are summed in the step.

    One operand: a reduction, of the diagonal where it has a label twice.
    """
    terms, result, sizes = _labels(call)
    if len(terms) == 1:
        taken = tuple(sizes[label] for label in dict.fromkeys(terms[0]))
        arith = dmax(prod(taken) - call.out_size(), 0) if set(terms[0]) - set(result) else 0
        return call.cost(arith=arith, read=bytes_of(Value(call.input(0).dtype, taken)))
    macs: Dim = 0
    left = set(terms[0])
    for i, term in enumerate(terms[1:], 2):
        step = left | set(term)
        macs = macs + prod(tuple(sizes[label] for label in sorted(step)))
        left = step & set(result).union(*terms[i:])
    return call.cost(macs=macs)


def _labels(call: Call) -> tuple[list[list[str]], list[str], dict[str, Dim]]:
    """Labels of the operands, of the result, and their sizes; axes under an ellipsis get numbers from the right."""
    equation = str(call.attr("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    sizes: dict[str, Dim] = {}
    terms: list[list[str]] = []
    for i, text in enumerate(left.split(",")):
        shape = call.shape(i)
        term = _term(text, len(shape))
        terms.append(term)
        for label, dim in zip(term, shape, strict=True):
            if sizes.get(label, 1) == 1:  # an axis of 1 broadcasts
                sizes[label] = dim
    if arrow:
        return terms, _term(right, len(call.out_shape())), sizes
    flat = [label for term in terms for label in term]
    return terms, [label for label in sizes if label.isdigit() or flat.count(label) == 1], sizes


def _term(text: str, rank: int) -> list[str]:
    before, dots, after = text.partition("...")
    under = rank - len(before) - len(after)
    if under < 0 or (not dots and under):
        raise Unknown("its equation does not fit the shapes")
    return [*before, *(str(i) for i in range(under, 0, -1)), *after]
