"""Recurrent layers: for each direction, time step and batch entry, gates x hidden x (input + hidden) MACs.

Gates: LSTM 4, GRU 3, RNN 1. FLOPs beside them: LSTM 12·H, GRU 9·H, RNN 2·H; sigmoid and tanh: LSTM 5·H, GRU 3·H, RNN H.
LSTM peepholes add 3·H MACs. The weights are read once a call: the optimistic case, in which they stay in the cache.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, op

_CELLS = {"LSTM": (4, 12, 5), "GRU": (3, 9, 3), "RNN": (1, 2, 1)}  # gates, FLOPs/H, special functions/H


@op("LSTM", "GRU", "RNN", kind="rnn")
def rnn(call: Call) -> Cost:
    """x (S, B, I) or, with layout 1, (B, S, I); w (D, gates·H, I); r (D, gates·H, H); p (D, 3·H)."""
    gates, flops, special = _CELLS[call.node.op_type]
    x, r = call.shape(0, 3), call.shape(2, 3)
    hidden = r[2]
    cells = r[0] * x[0] * x[1] * hidden
    peepholes = 3 if call.node.op_type == "LSTM" and call.has(7) else 0
    return call.cost(cells * (gates * (x[2] + hidden) + peepholes), flops * cells, special * cells)


@op("DynamicQuantizeLSTM", kind="rnn", domain="com.microsoft")
def dynamic_quantize_lstm(call: Call) -> Cost:
    """As LSTM, with quantized w (D, I, 4·H) and r (D, H, 4·H); x is quantized first, 4 FLOPs an element."""
    gates, flops, special = _CELLS["LSTM"]
    x, r = call.shape(0, 3), call.shape(2, 3)
    hidden = r[1]
    cells = r[0] * x[0] * x[1] * hidden
    peepholes = 3 if call.has(7) else 0
    return call.cost(cells * (gates * (x[2] + hidden) + peepholes), flops * cells + 4 * call.size(0), special * cells)
