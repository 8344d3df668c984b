"""Matrix products with weights that are packed in few bits: com.microsoft's MatMulNBits and its relatives.

MACs are those of the plain product a (…, K) x b (K, N). Each weight is dequantized once a call: 2 FLOPs (scale and
offset), 1 where it has no offset. A fused RMS normalization of a costs what norm.py says.
"""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.cost.activation import activation
from onnxfuse.cost.quantity import BITS
from onnxfuse.cost.registry import Call, Cost, Unknown, bytes_of, op, prod
from onnxfuse.facts.expr import Dim, ceil_div, dmin

_MS = "com.microsoft"


def _sizes(call: Call, *names: str) -> list[int]:
    """These integer attributes. Raises Unknown where one is missing."""
    found = [call.attr(name, None) for name in names]
    if not all(isinstance(n, int) and n > 0 for n in found):
        raise Unknown(f"its attributes {', '.join(names)} are not all given")
    return found


def _rows(call: Call, k: Dim) -> Dim:
    """Rows of a (…, K). Raises Unknown where its last axis is something else."""
    shape = call.shape(0)
    if not shape or (isinstance(shape[-1], int) and shape[-1] != k):
        raise Unknown("the last axis of its input is not K")
    return prod(shape[:-1])


def _normalized(call: Call, skip: int, scale: int) -> tuple[Dim, Dim]:
    """(FLOPs, square roots) of RMSNorm(a + skip) before a product; (0, 0) without a scale."""
    if not call.has(scale):
        return 0, 0
    n, rows = call.size(0), prod(call.shape(0)[:-1])
    return (4 + call.has(skip)) * n + 2 * rows, rows


@op("MatMulNBits", kind="matmul", domain=_MS)
def matmul_nbits(call: Call) -> Cost:
    """a (…, K), packed b of N·K weights, scales, zero points, g_idx, bias."""
    k, columns = _sizes(call, "K", "N")
    n = call.out_size()
    return call.cost(macs=n * k, arith=2 * k * columns + (n if call.has(5) else 0))


@op("MatMulBnb4", kind="matmul", domain=_MS)
def matmul_bnb4(call: Call) -> Cost:
    """a (…, K), packed b of N·K weights, the largest magnitude of each block: a table look-up and 1 FLOP a weight."""
    k, columns = _sizes(call, "K", "N")
    return call.cost(macs=call.out_size() * k, arith=k * columns)


@op("MatMulFpQ4", kind="matmul", domain=_MS)
def matmul_fpq4(call: Call) -> Cost:
    """a (…, K), a blob of K·N weights, its shape."""
    a, out = call.shape(0), call.out_shape()
    if not a or not out:
        raise Unknown("an operand is a scalar")
    return call.cost(macs=prod(out) * a[-1], arith=2 * a[-1] * out[-1])


@op("MatMulPacked", kind="matmul", domain=_MS)
def matmul_packed(call: Call) -> Cost:
    """a (…, K), b (N, bytes of a row), a global scale of the result."""
    k, columns = _sizes(call, "K", "N")
    n = call.out_size()
    return call.cost(macs=n * k, arith=2 * k * columns + (n if call.has(2) else 0))


@op("MatMulBlockQuantizedFp8Weight", "MatMulBlockQuantizedFp4Weight", kind="matmul", domain=_MS)
def matmul_float_blocks(call: Call) -> Cost:
    """a (…, K), b (N, K) of fp8 or two fp4 a byte, scales, bias last.

    fp8: one scale a weight, and a is quantized where input 3 has a scale; fp4: a block's and a global scale.
    """
    k, columns, n = call.shape(0)[-1:], call.shape(1, 2)[0], call.out_size()
    fp8 = call.node.op_type == "MatMulBlockQuantizedFp8Weight"
    bias = 4 if fp8 else 5
    arith = (1 if fp8 else 2) * prod(k) * columns + (n if call.has(bias) else 0)
    if fp8 and call.has(3):
        arith = arith + 2 * call.size(0)
    return call.cost(macs=n * prod(k), arith=arith)


@op("MatMulNBitsMlp", kind="matmul", domain=_MS)
def matmul_nbits_mlp(call: Call) -> Cost:
    """act(a' · gate) · (a' · up), a' = RMSNorm(a + skip) or a: a, skip, scale, gate (3), bias (5), up (6), bias (8)."""
    k, columns = _sizes(call, "K", "N")
    n = _rows(call, k) * columns
    flops, special = activation(call.attr("activation", ""), n)
    norm, roots = _normalized(call, 1, 2)
    arith = norm + 4 * k * columns + (1 + call.has(5) + call.has(8)) * n + flops
    return call.cost(macs=2 * n * k, arith=arith, transcendentals=special + roots)


@op("MatMulNBitsQkv", kind="matmul", domain=_MS)
def matmul_nbits_qkv(call: Call) -> Cost:
    """Three products of RMSNorm(a + skip): a, skip, norm scale, then weight, scales, bias of q (3), k (6) and v (9)."""
    k, q, kv = _sizes(call, "K", "Nq", "Nkv")
    rows = _rows(call, k)
    norm, roots = _normalized(call, 1, 2)
    biases = sum(width * call.has(i) for i, width in ((5, q), (8, kv), (11, kv)))
    columns = q + 2 * kv
    return call.cost(rows * k * columns, norm + 2 * k * columns + rows * biases, roots)


@op("MatMulNBitsQLoRA", kind="matmul", domain=_MS)
def matmul_nbits_qlora(call: Call) -> Cost:
    """x·w + (x·a)·b: x (…, K), w, scales, a (R, …), scales, b (N, …), scales; R = 0 is no adapter."""
    k, columns = _sizes(call, "K", "N")
    rows, rank = _rows(call, k), call.shape(3)[:1]
    if not rank:
        raise Unknown("its adapter is a scalar")
    r = rank[0]
    weights = k * columns + r * (k + columns)
    added = 0 if isinstance(r, int) and r == 0 else rows * columns
    return call.cost(macs=rows * weights, arith=2 * weights + added)


@op("GatherBlockQuantized", kind="gather", domain=_MS)
def gather_block_quantized(call: Call) -> Cost:
    """data, indices, scales, zero points: the gathered elements with the scales (and offsets) of their blocks.

    data of uint8 holds `bits` (default 4) an element.
    """
    n, block, dtype = call.out_size(), call.attr("block_size", 128), call.input(0).dtype
    bits = call.attr("bits", 4) if dtype == T.UINT8 else BITS.get(dtype, 0)
    if not isinstance(bits, int) or not isinstance(block, int) or bits < 1 or block < 0:
        raise Unknown("its block_size or its bits are not known")
    read = ceil_div(n * bits, 8) + bytes_of(call.input(1))
    for parameter in (2, 3):
        if call.has(parameter):
            whole = bytes_of(call.input(parameter))
            width = bits if parameter == 3 else BITS[call.input(2).dtype]
            read = read + (dmin(whole, ceil_div(ceil_div(n, block) * width, 8)) if block else whole)
    return call.cost(arith=(2 if call.has(3) else 1) * n, read=read)


@op("GatherPacked", kind="gather", domain=_MS)
def gather_packed(call: Call) -> Cost:
    """data (rows, bytes of a row), indices: the gathered rows, 2 FLOPs an element to dequantize."""
    read = call.size(1) * call.shape(0, 2)[1] + bytes_of(call.input(1))
    return call.cost(arith=2 * call.out_size(), read=read)
