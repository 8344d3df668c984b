"""Normalizations. n = elements, r = rows that are normalized together, C = channels.

Counts of the textbook algorithm: Softmax = max (n − r), subtract n, exp n, sum (n − r), divide n. LayerNorm = mean n,
subtract n, square n, mean n, multiply n, scale n, bias n, and 3 FLOPs and a square root a row. At inference
BatchNormalization is one multiplication and one addition an element, with 4 FLOPs and a square root a channel.
"""

from __future__ import annotations

from onnxfuse.cost.activation import fused
from onnxfuse.cost.registry import NHWC, Call, Cost, bytes_of, op, prod
from onnxfuse.facts.expr import Dim, dmax


def _softmax_rows(call: Call) -> Dim:
    """Rows: until opset 12 the axes from `axis` (default 1) on are one row, from 13 on `axis` (default -1) alone."""
    shape = call.shape(0)
    if call.attr("opset", call.opset) >= 13:  # QLinearSoftmax says in an attribute which one it means
        axis = call.axis(-1, len(shape))
        return prod(shape[:axis]) * prod(shape[axis + 1 :])
    return prod(shape[: call.axis(1, len(shape))])


@op("Softmax", kind="norm")
@op("QLinearSoftmax", kind="norm", domain="com.microsoft")
def softmax(call: Call) -> Cost:
    """max, subtract, exp, sum, divide; nothing of empty rows."""
    n = call.size(0)
    return call.cost(arith=dmax(4 * n - 2 * _softmax_rows(call), 0), transcendentals=n)


@op("LogSoftmax", kind="norm")
def log_softmax(call: Call) -> Cost:
    """As Softmax; a log and an addition a row and a subtraction an element take the place of the division."""
    n = call.size(0)
    return call.cost(arith=4 * n, transcendentals=n + _softmax_rows(call))


@op("Hardmax", kind="norm")
def hardmax(call: Call) -> Cost:
    """max; nothing of empty rows."""
    return call.cost(arith=dmax(call.size(0) - _softmax_rows(call), 0))


@op("BiasSoftmax", kind="norm", domain="com.microsoft")
def bias_softmax(call: Call) -> Cost:
    """Softmax(x + bias) over all axes from `axis` on."""
    shape, n = call.shape(0), call.size(0)
    return call.cost(arith=5 * n - 2 * prod(shape[: call.axis(1, len(shape))]), transcendentals=n)


def _rows(call: Call) -> Dim:
    shape = call.shape(0)
    return prod(shape[: call.axis(-1, len(shape))])


@op("LayerNormalization", kind="norm")
def layer_norm(call: Call) -> Cost:
    """x, scale, bias -> y, mean, 1/σ."""
    rows = _rows(call)
    return call.cost(arith=(7 if call.has(2) else 6) * call.size(0) + 3 * rows, transcendentals=rows)


@op("RMSNormalization", "SimplifiedLayerNormalization", kind="norm")
def rms_norm(call: Call) -> Cost:
    """Square, mean, multiply, scale."""
    rows = _rows(call)
    return call.cost(arith=4 * call.size(0) + 2 * rows, transcendentals=rows)


@op("SkipLayerNormalization", kind="norm", domain="com.microsoft")
def skip_layer_norm(call: Call) -> Cost:
    """LayerNorm(x + skip + bias): x, skip, gamma, beta, bias -> y, mean, 1/σ, sum."""
    n, rows = call.size(0), prod(call.shape(0)[:-1])
    return call.cost(arith=(7 + call.has(3) + call.has(4)) * n + 3 * rows, transcendentals=rows)


@op("SkipSimplifiedLayerNormalization", kind="norm", domain="com.microsoft")
def skip_rms_norm(call: Call) -> Cost:
    """RMSNorm(x + skip + bias): x, skip, gamma, bias."""
    n, rows = call.size(0), prod(call.shape(0)[:-1])
    return call.cost(arith=(5 + call.has(3)) * n + 2 * rows, transcendentals=rows)


@op("EmbedLayerNormalization", kind="norm", domain="com.microsoft")
def embed_layer_norm(call: Call) -> Cost:
    """LayerNorm(word + position + segment): only the gathered rows of the three tables are read."""
    n = call.out_size()
    rows = prod(call.out_shape()[:-1])
    tables = 3 if call.has(1) else 2
    read = tables * bytes_of(call.output()) + call.read(0, 1, 5, 6, 7, 8)
    return call.cost(arith=(6 + tables) * n + 3 * rows, transcendentals=rows, read=read)


@op("QEmbedLayerNormalization", kind="norm", domain="com.microsoft")
def qembed_layer_norm(call: Call) -> Cost:
    """ids, segments, int8 tables of words, positions and segments, gamma, beta, mask, scales …: 2 FLOPs to dequantize.

    -> y, mask index.
    """
    n, tables = call.out_size(), 3 if call.has(1) else 2
    rows = prod(call.out_shape()[:-1])
    read = tables * n + call.read(0, 1, *range(5, len(call.node.inputs)))
    return call.cost(arith=(6 + 3 * tables) * n + 3 * rows, transcendentals=rows, read=read)


@op("QOrderedLayerNormalization", kind="norm", domain="com.microsoft")
def qordered_layer_norm(call: Call) -> Cost:
    """int8 x, its scale, gamma, beta, scale of y: LayerNorm between two scalings."""
    rows = _rows(call)
    return call.cost(arith=(9 if call.has(3) else 8) * call.size(0) + 3 * rows, transcendentals=rows)


@op("InstanceNormalization", kind="norm")
@op("InstanceNormalization", kind="norm", domain=NHWC)
def instance_norm(call: Call) -> Cost:
    """x (N, C, D…), scale (C): a row is one channel of one sample."""
    return call.cost(arith=7 * call.size(0), transcendentals=prod(call.shape(0)[:1]) * call.size(1)) + fused(call)


@op("GroupNormalization", kind="norm")
def group_norm(call: Call) -> Cost:
    """x (N, C, D…): a row is one group of channels of one sample."""
    return call.cost(arith=7 * call.size(0), transcendentals=prod(call.shape(0)[:1]) * call.attr("num_groups", 1))


@op("GroupNorm", "SkipGroupNorm", kind="norm", domain="com.microsoft")
def group_norm_ms(call: Call) -> Cost:
    """x, gamma, beta (, skip, bias -> y, sum); `activation` 1 = SiLU."""
    n = call.size(0)
    silu = n if call.attr("activation", 0) else 0
    skip = call.has(3) + call.has(4)
    rows = prod(call.shape(0)[:1]) * call.attr("groups", 1)
    return call.cost(arith=(7 + skip) * n + silu, transcendentals=rows + silu)


@op("BatchNormalization", kind="norm")
@op("BatchNormalization", kind="norm", domain=NHWC)
def batch_norm(call: Call) -> Cost:
    """x (N, C, D…); in training mode mean and variance are computed too, as in InstanceNormalization."""
    n, channels = call.size(0), call.size(1)
    if call.attr("training_mode", 0):
        return call.cost(arith=7 * n, transcendentals=channels) + fused(call)
    return call.cost(arith=2 * n + 4 * channels, transcendentals=channels) + fused(call)


@op("LpNormalization", kind="norm")
def lp_norm(call: Call) -> Cost:
    """x / ‖x‖ₚ along an axis: |x| or x², sum, divide."""
    shape = call.shape(0)
    axis = call.axis(-1, len(shape))
    n, rows = call.size(0), prod(shape[:axis]) * prod(shape[axis + 1 :])
    return call.cost(arith=3 * n - rows, transcendentals=rows if call.attr("p", 2) == 2 else 0)


@op("MeanVarianceNormalization", kind="norm")
def mean_variance_norm(call: Call) -> Cost:
    """(x − mean) / σ over `axes`: LayerNorm without scale and bias. Before opset 9: `across_channels`."""
    shape = call.shape(0)
    axes = call.attr("axes", (0, 1, 2, 3) if call.attr("across_channels", 0) else (0, 2, 3))
    rows = prod(tuple(dim for i, dim in enumerate(shape) if i not in axes and i - len(shape) not in axes))
    return call.cost(arith=5 * call.size(0) + 3 * rows, transcendentals=rows)
