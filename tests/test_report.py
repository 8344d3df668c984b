"""The text reports: what they say, how wide they are, and that they are plain text."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from onnxfuse import devices
from onnxfuse.candidates import Candidate
from onnxfuse.facts.expr import Expr, dmax, symbol
from onnxfuse.patterns import Refusal
from onnxfuse.profiled import NodeReport, NodeTime, WorkTime
from onnxfuse.report import text, units
from onnxfuse.report.console import Cell, Column, render, table
from onnxfuse.report.tables import ranked
from onnxfuse.rewrite import Fusion
from onnxfuse.roofline import BranchRow, Execution, Row, Totals
from onnxfuse.verification import Unjudged, Verdict


@pytest.mark.parametrize(
    ("x", "said"),
    [
        *[(0, "0"), (7, "7"), (999, "999"), (1000, "1.00 k"), (1234, "1.23 k"), (999_999, "1.00 M")],
        *[(12_345_678, "12.3 M"), (4_089_184_256, "4.09 G"), (123e12, "123 T"), (-8_000_000, "-8.00 M")],
        *[(None, "?"), (5 * 10**21, "5,000 E")],
    ],
)
def test_count(x: float | None, said: str) -> None:
    assert units.count(x) == said


def test_bytes_and_seconds() -> None:
    assert units.size(512) == "512 B"
    assert units.size(102_228_128) == "102 MB"
    assert units.size(None) == "?"
    assert [units.time(t) for t in (0, 500e-9, 2.2e-6, 999.9e-6, 0.0123, 61.5)] == [
        "0 s", "500 ns", "2.20 µs", "1.00 ms", "12.3 ms", "61.5 s",
    ]  # fmt: skip
    assert units.megabytes(0) == "0"
    assert units.megabytes(4_000) == "<0.01"
    assert units.megabytes(1_234_567_890) == "1,234.57"
    assert units.percent(1, 8) == "12.5 %"
    assert units.percent(1, 0) == "–"


def test_a_symbolic_count_prints_its_expression() -> None:
    assert units.count(symbol("batch") * 4) == str(symbol("batch") * 4)
    assert units.size(symbol("batch")).endswith(" B")


def test_shorten_keeps_both_ends_and_removes_control_characters() -> None:
    assert units.shorten("short", 10) == "short"
    assert units.shorten("/model/encoder/layer.11/attention/MatMul", 16) == "/mode…ion/MatMul"
    assert units.shorten("a\x1b[31m\nb", 20) == "a?[31m?b"


def test_shortened_names_stay_apart() -> None:
    """The text that `shorten` would leave of the first two is the same; the third one has an end of its own."""
    names = [f"/features/features.{i}/block/block.0/block.0.0/Conv_output_0_nchwc" for i in (13, 14)]
    names += ["/classifier/classifier.3/classifier.3.0/Gemm", "short", "short"]
    assert units.shorten(names[0], 22) == units.shorten(names[1], 22) == "/featur…output_0_nchwc"
    assert units.shorten_apart(names, 22) == [
        "…ures.13/block.0.0/Co…", "…ures.14/block.0.0/Co…", "/classi…ifier.3.0/Gemm", "short", "short",
    ]  # fmt: skip
    wide = [f"/{'a' * 40}/{i}{'b' * 40}/{j}{'c' * 40}" for i in range(3) for j in range(3)]  # differ in two places
    short = units.shorten_apart(wide, 30)
    assert len(set(short)) == 9 and max(map(len, short)) <= 30
    assert units.shorten_apart(["x" * 60, "x" * 60], 20) == [units.shorten("x" * 60, 20)] * 2


ROW = Row(
    name="/stem/conv/Conv", op_type="Conv", domain="", scope="", inputs=("x", "w"), outputs=("y",), kind="conv",
    flops=236_027_904, macs=118_013_952, transcendentals=0, bytes_read=639_744, bytes_written=3_211_264,
    bytes=3_851_008, intensity=61.29, seconds=3.0e-6, bound="memory",
)  # fmt: skip
VIEW = replace(
    ROW, name="", op_type="Reshape", outputs=("flat",), kind="view", flops=0, macs=0, bytes_read=0, bytes_written=0,
    bytes=0, intensity=None, seconds=0.0, bound=None,
)  # fmt: skip
LIGHT = replace(ROW, name="relu", op_type="Relu", flops=802_816, bytes=6_422_528, intensity=0.125, seconds=3.5e-6)
ALIEN = replace(
    ROW, name="odd", op_type="Odd", domain="my", kind="custom", flops=None, macs=None, transcendentals=None,
    bytes_read=None, bytes_written=None, bytes=None, intensity=None, seconds=None, bound=None,
)  # fmt: skip
TOTALS = Totals(
    flops=236_830_720, macs=118_013_952, transcendentals=5, bytes_read=3_851_008, bytes_written=6_422_528,
    bytes=10_273_536, intensity=23.05, seconds=6.5e-6, bound="memory", params=9_408, weight_bytes=37_632,
    weight_traffic=37_632, activation_traffic=10_235_904, peak_activation_bytes=6_422_528,
    peak_activation_bytes_in_place=3_211_264, coverage=0.75, unknown=("my::Odd",),
    reasons={"my::Odd": "has no cost formula"},
)  # fmt: skip
CANDIDATES = (
    Candidate(("/stem/conv/Conv", "relu"), ("Conv", "Relu"), 23.05, 61.5, 6_422_528, 3.3e-6, "conv_relu", None),
    Candidate(
        ("fc1", "fc2"), ("MatMul", "Gelu"), 250.0, 300.0, 4_096, 1e-9, None,
        "all are compute-bound (MatMul 300.0 and Gelu 220.0 FLOP/byte, the limit is 103.1)",
    ),
)  # fmt: skip


def analysis(nodes: tuple[Row, ...] = (VIEW, ROW, LIGHT, ALIEN), totals: Totals = TOTALS, **options: Any) -> str:
    report = SimpleNamespace(
        model="stem.onnx", device="h200", target="ort-cuda", dims=options.pop("dims", {"batch": 1}),
        assumed=options.pop("assumed", ()), data_dims=options.pop("data_dims", ()), totals=totals, nodes=nodes,
        candidates=options.pop("candidates", CANDIDATES), as_executed=False,
    )  # fmt: skip
    report.at_dims = options.pop("at_dims", report)
    return text.analysis(report, devices.find("h200"), **options)  # type: ignore[arg-type]


def test_analysis_says_everything_once() -> None:
    said = analysis()
    assert said.splitlines()[0] == "stem.onnx on NVIDIA H200, target ort-cuda, batch=1"
    assert re.search(r"/stem/conv/Conv +Conv +236 M +3\.85 +61\.3 +memory +3\.0 +46\.2 %", said)
    assert re.search(r"→ flat +Reshape +0 +0 +– +– +0\.0 +0\.0 %", said)
    assert re.search(r"odd +Odd +\? +\? +– +– +\? +–", said)
    assert "FLOPs           ≥ 237 M (118 M MACs; 5 special functions apart)" in said
    assert "memory traffic  ≥ 10.3 MB (3.85 MB read, 6.42 MB written)" in said
    # 494.7 TFLOP/s of TF32 / 4.8 TB/s
    assert "23.1 FLOP/byte (ridge point of the device in fp32: 103), of the nodes of known cost" in said
    assert "≥ 6.50 µs estimated, in nodes bound by memory (100 %)" in said
    assert "9.41 k parameters, 37.6 kB" in said
    assert "the cost of 3 of 4 nodes is known; unknown for my::Odd (has no cost formula)" in said
    assert re.search(r"1 +Conv → Relu +/stem/conv/Conv +23\.1 → 61\.5 +6\.42 MB +3\.30 µs +conv_relu", said)
    assert re.search(r"2 +MatMul → Gelu +fc1 +250 → 300 +4\.10 kB +1\.00 ns +all are compute-bound$", said)


def test_complete_totals_are_no_lower_bound() -> None:
    said = analysis((ROW,), replace(TOTALS, coverage=1.0, unknown=()))
    assert "≥" not in said
    assert "the cost of 1 of 1 node is known" in said


def test_many_unknown_operators_are_not_all_named() -> None:
    names = [f"ai.onnx::Op{i}" for i in range(11)]
    alike = replace(TOTALS, unknown=tuple(names), reasons=dict.fromkeys(names, "is odd"))
    said = " ".join(analysis(totals=alike).split())
    assert "unknown for Op0, Op1, Op2, Op3, Op4, Op5, Op6, Op7 and 3 more (is odd)" in said
    said = " ".join(analysis(totals=replace(alike, reasons={name: f"is {name[9:]}" for name in names})).split())
    assert "unknown for Op0 (is Op0), Op1 (is Op1), " in said and "Op7 (is Op7) and 3 more" in said


def test_top_counts_what_it_leaves_out_and_0_means_all() -> None:
    said = analysis(top=1)
    assert "… and 3 more nodes with 46.2 % of the time" in said
    assert "… and 1 more candidate" in said
    assert "more nodes" not in analysis(top=0)
    assert "No fusion candidates." in analysis(candidates=())


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("order", ["", "/stem/conv/Conv", "relu", "odd"]),
        ("time", ["relu", "/stem/conv/Conv", "", "odd"]),
        ("bytes", ["relu", "/stem/conv/Conv", "", "odd"]),
        ("flops", ["/stem/conv/Conv", "relu", "", "odd"]),
        ("intensity", ["relu", "/stem/conv/Conv", "", "odd"]),
    ],
)
def test_sorting(sort: str, names: list[str]) -> None:
    assert [row.name for row in ranked((VIEW, ROW, LIGHT, ALIEN), sort)] == names


LONG = replace(ROW, name="/model/encoder/" + "/".join(f"layer.{i}" for i in range(40)), op_type="LayerNormalization")


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = replace(CANDIDATES[1], nodes=(LONG.name, LONG.name), op_types=("LayerNormalization", "MatMul"))
    rows = (ROW, LONG, ALIEN)
    result = optimized(
        fusions=(replace(FUSION, sources=(LONG.name,) * 3),), refused=(replace(REFUSAL, node=LONG.name),)
    )
    for said in (
        analysis(rows, candidates=(*CANDIDATES, long), width=width),
        text.optimization(result, explain=True, width=width),
        text.device_table([devices.find(n) for n in devices.names()], width=width),
    ):
        assert max(map(len, said.splitlines())) <= width
        assert not any(line.endswith(" ") for line in said.splitlines())


def test_plain_text_has_no_escape_codes_and_names_are_no_markup() -> None:
    rows = (replace(ROW, name="[bold]:boom: x[/bold]"), replace(ROW, name="evil\x1b[2J"))
    assert "\x1b" not in analysis(rows)
    assert "[bold]:boom: x[/bold]" in analysis(rows)
    assert "\x1b[33mmemory" in analysis(rows, colour=True)
    assert "\x1b[2J" not in analysis(rows, colour=True)


def test_the_environment_does_not_change_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = analysis()
    for name, value in {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    assert analysis() == expected


def test_formulas_stand_behind_the_numbers() -> None:
    n = symbol("batch")
    at = SimpleNamespace(nodes=(ROW,), totals=replace(TOTALS, coverage=1.0, unknown=()))
    totals = replace(at.totals, flops=n * 236_830_720, macs=n * 118_013_952, bytes=n * 10_235_904 + 37_632)
    said = analysis((replace(ROW, flops=n * 5),), totals, at_dims=at, dims={"k": 2, "batch": 1}, assumed=("batch",))
    assert said.splitlines()[0] == "stem.onnx on NVIDIA H200, target ort-cuda, k=2, assumed batch=1"
    assert "FLOPs           237 M (5 special functions apart) = 236830720·batch" in said
    assert "MACs            118 M = 118013952·batch" in said
    assert "written) = 10235904·batch + 37632" in " ".join(said.split())
    assert re.search(r"/stem/conv/Conv +Conv +236 M", said)  # the table has numbers


def test_a_formula_that_leaves_nodes_out_is_a_lower_bound() -> None:
    at = SimpleNamespace(nodes=(ROW, LIGHT), totals=replace(TOTALS, coverage=1.0, unknown=()))
    totals = replace(at.totals, bytes=symbol("n") * 8, coverage=0.5, unknown=("ai.onnx::Relu",))
    said = " ".join(analysis((ROW, replace(LIGHT, op_type="If", flops=None)), totals, at_dims=at).split())
    assert "written) ≥ 8·n" in said
    assert "formulas leave out 1 node, whose counts depend on the sizes by cases: If" in said
    assert "the cost of 2 of 2 nodes is known" in said


THEN = BranchRow("gate", "then_branch", 236_027_904, 118_013_952, 0, 639_744, 3_211_264, 3_851_008, None)
ELSE = replace(THEN, name="else_branch", flops=None, bytes=1_234, reason="holds Odd: has no cost formula")
GATE = replace(ROW, name="gate", op_type="If", kind="control", branches=(THEN, replace(THEN, name="else_branch")))


def test_the_larger_one_of_two_branches_is_an_upper_bound() -> None:
    said = analysis((GATE, LIGHT), replace(TOTALS, coverage=1.0, unknown=()))
    assert "FLOPs           ≤ 237 M (118 M MACs" in said and "≥" not in said
    assert "23.1 FLOP/byte (ridge point of the device in fp32: 103)\n" in said
    assert "branches        If gate: then 236 M FLOPs, 3.85 MB or else 236 M FLOPs, 3.85 MB" in said
    assert re.search(r"gate +If +≤ 236 M +≤ 3\.85", said) and re.search(r"relu +Relu +803 k", said)


def test_a_branch_of_which_a_part_is_unknown_makes_lower_bounds() -> None:
    inner = replace(GATE, name="loop", op_type="Loop", branches=(THEN, ELSE), reason=ELSE.reason)
    said = " ".join(analysis((inner, LIGHT)).split())
    assert "FLOPs ≥ 237 M" in said and "loop Loop ≥ 236 M ≥ 3.85" in said
    assert "branches If gate, in loop: then 236 M FLOPs, 3.85 MB or else ? FLOPs, ≥ 1.23 kB" in said
    many = [replace(inner, branches=tuple(replace(b, node=f"if{i}") for b in (THEN, ELSE))) for i in range(11)]
    said = " ".join(analysis((*many,), top=1).split())
    assert "If if7, in loop:" in said and "If if8" not in said and "3 more Ifs, in --json" in said


def test_sizes_that_the_data_tell() -> None:
    k = symbol("found.0", 0)
    row = replace(ROW, flops=k * 2, bytes=k * 8, intensity=None, seconds=None, bound=None)
    totals = replace(TOTALS, flops=k * 2, bytes=k * 8, intensity=None, seconds=None, bound=None, coverage=1.0)
    said = analysis((row, LIGHT), totals, data_dims=("found.0",))
    assert "FLOPs           2·found.0 (118 M MACs; 5 special functions apart)" in said
    assert "≥ 3.50 µs estimated, without 1 node whose sizes the dims do not tell" in said
    assert "other sizes     found.0: without a formula in the dims (? in the tables)" in said
    assert re.search(r"/stem/conv/Conv +Conv +\? +\? ", said)


def test_the_formula_keeps_the_symbols_whose_sizes_are_assumed() -> None:
    """Of 8·batch·found.0 bytes, batch assumed as 3, there is no number: 24·found.0 is none for other batches."""
    n, k = symbol("batch"), symbol("found.0", 0)
    at = SimpleNamespace(nodes=(ROW,), totals=replace(TOTALS, bytes=k * 24, coverage=1.0), data_dims=("found.0",))
    totals = replace(at.totals, bytes=n * k * 8, peak_activation_bytes=None)
    said = " ".join(analysis((ROW,), totals, at_dims=at, data_dims=("found.0",)).split())
    assert "memory traffic 8·batch·found.0 B" in said and "24·found.0" not in said
    assert "of activations (at the assumed sizes; no formula)" in said


def test_a_formula_of_200_characters_is_whole() -> None:
    x = sum((symbol(f"n{i}") * 10 for i in range(10, 32)), start=symbol("zz"))
    assert isinstance(x, Expr) and len(str(x)) == 200
    assert units.formula(x) == str(x) and "…" in units.formula(x + symbol("k"))  # type: ignore[arg-type]


def test_a_long_formula_shows_its_leading_terms() -> None:
    """The highest degree first, then the largest coefficients; how many more there are."""
    x = sum((symbol(f"name{i}") * (1000 + i) for i in range(10, 40)), start=7 - symbol("a") * symbol("b") * 3)
    said = units.formula(x)  # type: ignore[arg-type]
    assert said.startswith("-3·a·b + 1039·name39 + 1038·name38 + 1037·name37 + ") and len(said) <= 200
    shown = said.split(" … ")[0].count("name") + 1
    assert said.endswith(f" … +{32 - shown} terms, whole in --json") and shown > 5


def test_a_formula_of_one_long_term() -> None:
    """The first term may take twice the length; a maximum shows its leading argument."""
    names = [symbol(letter * 90) for letter in "abc"]
    product = names[0] * names[1] * names[2]
    assert units.formula(product + 1) == f"{product} … +1 term, whole in --json"  # type: ignore[arg-type]
    assert units.formula(product * product) == "a long formula, whole in --json"  # type: ignore[arg-type]
    n = [symbol(f"side{i}") for i in range(12)]
    top = dmax(*[n[i] * n[i] * (i + 1) + n[i] * 50 for i in range(12)])
    assert units.formula(top) == "max(12·side11·side11 + 50·side11, … +11 more), whole in --json"  # type: ignore[arg-type]


def test_why_a_cost_is_unknown() -> None:
    reasons = {
        "ai.onnx::StringConcat": "works on strings, whose lengths are not in the model",
        "com.microsoft::SparseToDenseMatMul": "multiplies by as many elements as a sparse input holds at run time",
        "ai.onnx::Equal": "works on strings, whose lengths are not in the model",
    }
    totals = replace(TOTALS, unknown=tuple(reasons), reasons=reasons)
    said = " ".join(analysis(totals=totals, width=200).split())
    assert "unknown for StringConcat, Equal (works on strings), com.microsoft::SparseToDenseMatMul (multiplies" in said
    assert "lengths" not in said


FUSION = Fusion("conv_relu", "/stem/conv/Conv", ("/stem/conv/Conv", "relu"), 6_422_528, 0, 3.3e-6)
REFUSAL = Refusal("conv_relu", "head", "the value between them is a graph output")


EXECUTED = Execution(**{field.name: getattr(TOTALS, field.name) for field in fields(TOTALS)}, kernels=26)


def optimized(**changes: Any) -> Any:
    after = replace(
        EXECUTED, kernels=13, bytes=5_136_768, seconds=3.25e-6, intensity=46.1, peak_activation_bytes=6_422_500
    )
    verdict = Verdict(True, 2.4e-7, (), 3, None, levels=("disabled", "all"))
    result = {
        "source": "in.onnx", "output": "out.onnx", "target": "ort-cuda", "device": "h200", "dims": {}, "assumed": (),
        "before": EXECUTED, "after": after, "fusions": (FUSION, FUSION), "refused": (REFUSAL,), "verdict": verdict,
        "rolled_back": (), "seconds": 1.25, "requires": None, "quantizable": True,
    }  # fmt: skip
    return SimpleNamespace(**result | changes)


def test_optimization_by_rule() -> None:
    said = text.optimization(optimized())
    assert said.splitlines()[0] == "in.onnx → out.onnx, target ort-cuda, device h200"
    assert re.search(r"kernels +26 +13 +-50\.0 %", said)
    assert re.search(r"FLOPs +237 M +237 M +same", said)
    assert re.search(r"memory traffic +10\.3 MB +5\.14 MB +-50\.0 %", said)  # 5,136,768 / 10,273,536 = 0.500
    assert re.search(r"estimated time +6\.50 µs +3\.25 µs +-50\.0 %", said)
    assert re.search(r"conv_relu +2 +12\.8 MB +0 +6\.60 µs", said)
    assert re.search(r"activations, peak +6\.42 MB +6\.42 MB +≈ 0 %", said)
    assert "1 more was not made; --explain says why." in said
    assert "Same results: 3 cases, largest error 2.4e-07 of the output's scale (1.2 s)" in said
    assert "Ran with optimizations off and at the default level on the CPU (no CUDA here)." in said


def test_what_a_result_needs_and_what_breaks_it() -> None:
    plain = text.optimization(optimized())
    assert plain.splitlines()[-2].startswith("Same results") and "Needs" not in plain
    said = text.optimization(optimized(requires={"onnxruntime": "1.27"}, quantizable=False)).splitlines()
    assert said[-2:] == [
        "Needs onnxruntime 1.27 or newer.",
        "To quantize the result, make it with --then quantize (docs/quantization.md).",
    ]
    unchanged = text.optimization(optimized(fusions=(), requires={"onnxruntime": "1.27"}, quantizable=False))
    assert "--then" not in unchanged  # it was so before


def test_optimization_explained() -> None:
    said = text.optimization(optimized(rolled_back=(FUSION,), output=None), explain=True)
    assert "in.onnx → (not written)" in said
    assert len(re.findall(r"conv_relu +/stem/conv/Conv \+ relu +6\.42 MB +0 +3\.30 µs", said)) == 2
    assert re.search(r"conv_relu +head +the value between them is a graph output", said)
    assert "1 rolled back" in said


def test_optimization_without_a_rewrite_or_a_verdict() -> None:
    said = text.optimization(optimized(fusions=(), refused=(), verdict=None, after=EXECUTED))
    assert "Nothing to rewrite" in said
    assert "Nothing was changed (1.2 s)" in said
    exact = Verdict(True, 0.0, (), 2, None)
    assert "Same results: 2 cases, no difference at all (1.2 s)" in text.optimization(optimized(verdict=exact))
    assert "Not verified (1.2 s)" in text.optimization(optimized(verdict=None))


def test_verification() -> None:
    good: Any = SimpleNamespace(name="logits", dtype="float32", max_error=2.4e-7, tolerance=1e-5, scale=12.3, ok=True)
    bad: Any = SimpleNamespace(name="boxes", dtype="float32", max_error=0.5, tolerance=1e-5, scale=4.0, ok=False)
    verdict = Verdict(False, 0.5, (good, bad), 2, "boxes differs")
    said = text.verification(verdict)
    assert said.startswith("DIFFERENT: boxes differs")
    assert re.search(r"logits +float32 +2\.4e-07 +1\.0e-05 +12\.3 +same", said)
    assert re.search(r"boxes +float32 +5\.0e-01 +1\.0e-05 +4 +DIFFERENT", said)
    verdict = Verdict(False, 0.0, (), 0, "no inputs were found", judged=False)
    assert text.verification(verdict).strip() == "NOT VERIFIED: no inputs were found"


def test_what_could_not_be_judged_is_said() -> None:
    verdict = Verdict(True, 0.0, (), 2, None, unjudged=(Unjudged("noise", "it differs between two runs"),))
    assert "Output 'noise' was not judged: it differs between two runs." in text.verification(verdict)
    assert "'noise' was not judged" in text.optimization(optimized(verdict=verdict))


def test_benchmark() -> None:
    a = SimpleNamespace(
        path="a.onnx", median_ms=1.5, p10_ms=1.4, p90_ms=1.75, peak_memory=52_000_000,
        nodes_by_provider={"CUDAExecutionProvider": 120, "CPUExecutionProvider": 3},
    )  # fmt: skip
    b = SimpleNamespace(
        path="b.onnx", median_ms=1.0, p10_ms=0.95, p90_ms=1.1, peak_memory=None, nodes_by_provider={"CUDA": 1}
    )
    report: Any = SimpleNamespace(
        provider="cuda", device_name="NVIDIA H200", level="all", runs=100, models=(a, b),
        ratio=SimpleNamespace(median=1.5, ci95=(1.48, 1.53)),
    )  # fmt: skip
    said = text.benchmark(report)
    assert said.splitlines()[0] == "cuda on NVIDIA H200, level all, 100 runs each"
    assert re.search(r"a\.onnx +1\.50 ms +1\.40 ms +1\.75 ms +52\.0 MB +CUDA 120, CPU 3", said)
    assert re.search(r"b\.onnx +1\.00 ms +950 µs +1\.10 ms +\? +CUDA 1", said)
    assert said.endswith("The second is faster: speed-up 1.500x (95 % confidence: 1.480x to 1.530x)")
    for ci95, judged in {(0.9, 1.1): "No measurable difference", (0.8, 0.9): "The second is slower"}.items():
        report.ratio = SimpleNamespace(median=0.95, ci95=ci95)
        assert f"{judged}: speed-up 0.950x" in text.benchmark(report)
    report.ratio = SimpleNamespace(median=15.339, ci95=None)
    assert text.benchmark(report).endswith("Too few runs to tell; --runs 20 or more: median speed-up 15.339x")


def test_devices() -> None:
    said = text.device_table([devices.find("h200")])
    assert re.search(r"h200 +NVIDIA H200 +495 T +989 T +4\.80 T +50\.0 MB +103 +2\.20 µs", said)


def test_a_table_narrower_than_its_content_cuts_and_wraps() -> None:
    columns = [Column("name", cut=True), Column("n", right=True), Column("why", wrap=True)]
    drawn = render([table(columns, [["x" * 60, Cell("12"), "because of many words " * 4]], 60)], 60, False)
    assert max(map(len, drawn.splitlines())) <= 60
    assert drawn.count("because") == 4
    assert "…" in drawn


def test_node_times() -> None:
    """Two nodes: 20 and 30 µs measured, 10 and 36 estimated; together 46/50."""
    slow = NodeTime("conv_1", "Conv", "com.microsoft.nchwc", "DepthwiseConv", 20e-6, 10e-6, "memory")
    fast = NodeTime("long/" * 30 + "name", "Add", "", "Add", 30e-6, 36e-6, "compute")
    works = (WorkTime("Add", 1, 30e-6, 36e-6, 1.2), WorkTime("DepthwiseConv", 1, 20e-6, 10e-6, 0.5))
    report = NodeReport("m.onnx", "mine", "A CPU", "all", 20, {"N": 8}, ("N",), 5e-6, 2, 1.0, 0.92, works, (fast, slow))
    for width in (80, 100):
        said = text.node_times(report, width=width)
        assert max(len(line) for line in said.splitlines()) <= width
        assert said.splitlines()[0] == "m.onnx on one thread of A CPU, level all, assumed N=8"
        assert "2 of 2 nodes, those above 5.00 µs" in said and "device mine" in said
        assert "1.000 (Spearman)" in said
        assert "estimated 46.0 µs, measured 50.0 µs: 0.92x" in said
        assert re.search(r"DepthwiseConv +1 +20\.0 µs +40\.0 % +10\.0 µs +0\.50x", said)
        assert re.search(r"conv_1 +DepthwiseConv +20\.0 µs +10\.0 µs +0\.50x +memory", said)
        assert said.index("conv_1") < said.index("long/")  # 10 µs apart, 6 µs apart
        assert "without an estimate" not in said
    one = replace(report, compared=1, spearman=None, ratio=0.5, works=works[1:], nodes=(slow,))
    assert "not defined (Spearman)" in text.node_times(one)
    blind = replace(one, compared=0, ratio=None, works=(), nodes=(replace(slow, estimated=None),))
    said = " ".join(text.node_times(blind).split())
    assert "compared 0 of 1 node, those above 5.00 µs; 1 without an estimate" in said
    assert "Spearman" not in said and "Largest differences" not in said
