"""Spectra, determinants and losses.

A Fourier transform of length n is 5·n·log₂ n FLOPs (the usual count of a radix-2 FFT, rounded to an integer for other
lengths), half for a real one-sided one. Det is n³/3 MACs (LU), Inverse n³.
"""

from __future__ import annotations

import math

from onnxfuse.cost.registry import Call, Cost, Unknown, op, prod
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.value import Shape


def _fft(n: Dim) -> int:
    if not isinstance(n, int) or n < 1:
        # a logarithm is not an integer expression
        raise Unknown("the length of its transform is not known as a number")
    return round(5 * n * math.log2(n))


@op("DFT", kind="spectral")
def dft(call: Call) -> Cost:
    """x (…, length, …, 1 or 2), axis by attribute until opset 17, then by input 2, dft_length by input 1."""
    shape = call.shape(0)
    axis = call.attr("axis", 1 if call.opset < 20 else -2)
    if call.has(2):
        given = call.input(2).data
        if given is None:
            raise Unknown("its axis is not known")
        axis = given.item()
    if not -len(shape) <= axis < len(shape) - 1:
        raise Unknown("its axis is out of range")
    axis %= len(shape)
    n: Dim = shape[axis]
    if call.has(1):
        length = call.input(1).data
        if length is None:
            raise Unknown("its dft_length is not known")
        n = length.item()
    batch = prod(shape[:axis]) * prod(shape[axis + 1 : -1])
    flops = _fft(n)
    return call.cost(arith=batch * (flops // 2 if call.attr("onesided", 0) else flops))


@op("Rfft", "Irfft", kind="spectral", domain="com.microsoft")
def rfft(call: Call) -> Cost:
    """(…, n) real <-> (…, n/2 + 1, 2): half of a complex transform of the last `signal_ndim` axes of the real side."""
    real = call.shape(0) if call.node.op_type == "Rfft" else call.out_shape()
    if call.attr("signal_ndim", 1) != 1 or not real:
        raise Unknown("it transforms more than one axis")
    return call.cost(arith=prod(real[:-1]) * (_fft(real[-1]) // 2))


@op("STFT", kind="spectral")
def stft(call: Call) -> Cost:
    """signal (B, L, 1 or 2), step, window, frame length -> (B, frames, bins, 2): each frame is windowed, then FFT."""
    if call.has(3):
        length = call.input(3).data
        if length is None:
            raise Unknown("its frame_length is not known")
        n: Dim = length.item()
    else:
        n = call.size(2)
    flops = _fft(n)
    frames = prod(call.out_shape()[:2])
    windowed = n if call.has(2) else 0
    return call.cost(arith=frames * ((flops // 2 if call.attr("onesided", 1) else flops) + windowed))


@op("HannWindow", "HammingWindow", kind="generate")
def cosine_window(call: Call) -> Cost:
    """a − (1 − a) · cos(2π·i/N)."""
    n = call.out_size()
    return call.cost(arith=3 * n, transcendentals=n, read=0)


@op("MelWeightMatrix", kind="generate")
def mel_weights(call: Call) -> Cost:
    """bins, … -> (frequencies, bins): a power for each of bins + 2 edges, a logarithm for each of the two limits.

    A frequency lies in at most two triangles of 2 FLOPs, an upper bound.
    """
    frequencies, bins = call.out_shape(0, 2)
    return call.cost(arith=4 * frequencies, transcendentals=bins + 4, read=0)


@op("BlackmanWindow", kind="generate")
def blackman_window(call: Call) -> Cost:
    """a − b · cos(2π·i/N) + c · cos(4π·i/N)."""
    n = call.out_size()
    return call.cost(arith=6 * n, transcendentals=2 * n, read=0)


def _cubed(shape: Shape) -> Dim:
    """n³ for each matrix (…, n, n)."""
    if len(shape) < 2:
        raise Unknown("its input is not a matrix")
    return prod(shape) * shape[-1]


@op("Det", kind="linalg")
def det(call: Call) -> Cost:
    """(…, n, n) -> (…)."""
    return call.cost(macs=_cubed(call.shape(0)) // 3)


@op("Inverse", kind="linalg", domain="com.microsoft")
def inverse(call: Call) -> Cost:
    """(…, n, n) -> (…, n, n)."""
    return call.cost(macs=_cubed(call.shape(0)))


@op("SoftmaxCrossEntropyLoss", kind="loss")
def cross_entropy(call: Call) -> Cost:
    """Scores (N, C, D…): a LogSoftmax and a selection."""
    n = call.size(0)
    return call.cost(arith=5 * n, transcendentals=n)


@op("NegativeLogLikelihoodLoss", kind="loss")
def nll(call: Call) -> Cost:
    """One gathered and weighted value a target."""
    return call.cost(arith=2 * call.size(1))
