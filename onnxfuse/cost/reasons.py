"""Operators whose cost no model file tells, each with the reason: they have no formula and are unknown, never 0."""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse import ir

STRINGS = "works on strings, whose lengths are not in the model"
_MAP = "works on maps, whose sizes are not in the model"

_TABLE: Mapping[str, Mapping[str, str]] = {  # domain -> reason -> operators
    "": {
        STRINGS: "RegexFullMatch StringConcat StringNormalizer StringSplit",
        "counts the n-grams that it finds in the data": "TfIdfVectorizer",
        "decodes a compressed image of unknown size": "ImageDecoder",
        "pools areas whose sizes are in the boxes": "MaxRoiPool",
    },
    "ai.onnx.ml": {_MAP: "CastMap DictVectorizer ZipMap", STRINGS: "CategoryMapper"},
    "ai.onnx.preview.training": {"differentiates a part of the graph that it only names": "Gradient"},
    "com.microsoft": {
        STRINGS: "Tokenizer",
        "decodes until the end token comes, so its data say how often its graphs run": (
            "BeamSearch GreedySearch Sampling WhisperBeamSearch"
        ),
        "is a compiled graph of another toolchain": "EPContext Snpe",
        "takes its sizes from a metadata tensor at run time": "ConvStateReplay GatedDeltaNetStateReplay",
        "compares a query with as many cached blocks as the lengths at run time say": (
            "SparseAttentionIndexer PackedSparseAttentionIndexer"
        ),
        "lets as many tokens attend to all others as its input `global` marks": (
            "LongformerAttention QOrderedLongformerAttention"
        ),
        "multiplies by as many elements as a sparse input holds at run time": "SparseToDenseMatMul",
    },
}
REASONS: Mapping[tuple[str, str], str] = {
    (domain, op_type): text
    for domain, reasons in _TABLE.items()
    for text, names in reasons.items()
    for op_type in names.split()
}


def reason(domain: str, op_type: str) -> str | None:
    """Why the operator has no formula, as the end of a sentence that starts with its name; None where none is known."""
    return REASONS.get((ir.domain(domain), op_type))
