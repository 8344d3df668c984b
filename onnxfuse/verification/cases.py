"""Which cases are run after the first one.

Always run are wider data (at another batch size where the batch is free), other sizes where there are free ones, and a
case that sets the overridable initializers, if there are any. A model that is cheap to run gets more: still other
sizes, positive, signed and very wide data. What is cheap is counted in FLOPs, not measured, so that the answer does not
depend on the machine's speed. No case is empty: some of onnxruntime's own kernels end the process there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxfuse import feeds as fd
from onnxfuse.interface import Interface

Choice = tuple[fd.Binding, fd.Kind, fd.Kind | None]  # sizes, data, and data for the overridable initializers


def further_cases(
    interface: Interface, dims: Mapping[str, int], base: fd.Binding, thorough: bool
) -> Iterator[Sequence[Choice]]:
    """Yield the cases near sizes that run. Of several choices the first counts under which the model runs."""
    if not interface.inputs:
        return
    for binding in fd.switched(interface, base):  # the other branch of an If
        yield [(binding, fd.NORMAL, None)]
    others = list(fd.variants(interface, dims, base))
    wide = (fd.WIDE, fd.SCALED, fd.NORMAL)
    yield [(binding, kind, None) for binding in (*others[:1], base) for kind in wide]
    if interface.overridable:
        yield [(base, fd.NORMAL, fd.POSITIVE)]
    for binding in others[1:] if thorough else others[1:2]:
        yield [(binding, fd.NORMAL, None)]
    if thorough:
        for kind in (fd.POSITIVE, fd.SIGNED, fd.WIDER, fd.WIDEST):
            yield [(base, kind, None)]
        if interface.overridable:
            yield [(base, fd.NORMAL, fd.NORMAL)]
