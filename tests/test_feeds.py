"""Sizes are found for models whose needs the file does not say; data is the same on every machine."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxfuse import feeds as fd
from onnxfuse import interface, runtime
from onnxfuse.errors import Finding, UsageError


@pytest.fixture
def face(tmp_path):
    """The interface of a model with the given inputs, as ONNX text."""

    def of(inputs: str) -> interface.Interface:
        path = tmp_path / "m.onnx"
        onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> g ({inputs}) => (float y) {{ }}'), path)
        return interface.read(path)

    return of


def found(face: interface.Interface, accepts, dims=None, **options) -> dict[str, int]:
    """The binding that is found for a model that runs where `accepts` of the shapes is true."""

    def attempt(feeds):
        if not accepts({name: a.shape if isinstance(a, np.ndarray) else a for name, a in feeds.items()}, feeds):
            raise ValueError("no")
        return {"y": np.ones(1)}

    return dict(runtime.find_feeds(attempt, face, dims or {}, 0, **options)[0])


def test_first_choices_are_small(face):
    x = face("float[N,3,H,W] x, int64[N,S] ids")
    assert found(x, lambda shapes, _: True) == {"N": 1, "H": 64, "W": 64, "S": 16}
    assert found(x, lambda shapes, _: True, typical=True) == {"N": 1, "H": 224, "W": 224, "S": 128}
    cache = face("float[batch, 8, past_len, 64] k")
    assert found(cache, lambda shapes, _: True) == {"batch": 1, "past_len": 0}
    assert found(cache, lambda shapes, _: True, typical=True) == {"batch": 1, "past_len": 128}


def test_a_fixed_position_table_is_met(face):
    assert found(face("float[N,3,H,W] x"), lambda s, _: s["x"][2:] == (224, 224))["H"] == 224
    assert found(face("float[N,T] x"), lambda s, _: s["x"][1] >= 400)["T"] == 512


def test_two_dims_that_must_fit_each_other(face):
    both = face("float[A,B] x, float[C,D] w")
    binding = found(both, lambda s, _: s["x"][1] == s["w"][0])
    assert binding["B"] == binding["C"]


def test_channels_last_and_unnamed_dims(face):
    last = face("float[N,H,W,3] x")
    assert found(last, lambda s, _: True) == {"N": 1, "H": 64, "W": 64}
    assert found(face("float[?,?,?,?] x"), lambda s, _: True) == {"x.0": 1, "x.1": 3, "x.2": 64, "x.3": 64}


def test_a_cache_and_a_sum_of_symbols(face):
    model = "int64[batch, seq] ids, float[batch, 8, past_len, 64] k, int64[batch, {}] attention_mask"
    total = face(model.format('"past_len + seq"'))
    assert fd.free_dims(total) == ["batch", "seq", "past_len"]  # the sum is no key of its own
    feeds = fd.make(total, {"batch": 2, "seq": 3, "past_len": 5}, fd.NORMAL)
    assert feeds["attention_mask"].shape == (2, 8)
    assert feeds["attention_mask"].all()  # full in the first case: a row that attends to nothing is NaN


def test_sampling_rates_and_other_scalars(face):
    speech = face("float[B,576] x, int64 sr")
    assert found(speech, lambda _, f: f["sr"] == 16000)["sr="] == 16000
    other = face("float[B,576] x, int64[1] k")
    assert found(other, lambda _, f: f["k"][0] == 2)["k="] == 2


def test_given_dims_are_kept(face):
    x = face("float[N,3,H,W] x")
    assert found(x, lambda s, _: True, {"H": 7, "x.0": 5}) == {"H": 7, "N": 5, "W": 64}
    with pytest.raises(UsageError, match="no input has a free dimension 'height'; free dimensions: N, H, W"):
        found(x, lambda s, _: True, {"height": 7})


def test_names_that_are_sums_numbers_or_look_like_another_axis(tmp_path):
    text = '<ir_version: 9, opset_import: ["" : 20]> g (float[P] p, float[?,M] m, int64 k) => (float y) { }'
    model = parser.parse_model(text)

    def of(name: str) -> interface.Interface:
        model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = name
        return interface.of(model)

    x = of("P + S + 1")
    assert fd.free_dims(x) == ["P", "m.0", "S"]
    assert found(x, lambda s, _: s["m"] == (2, 11), {"P": 7, "S": 3, "m.0": 2})["S"] == 3
    for name in ("P + S + 1", "m.1"):
        with pytest.raises(UsageError, match=r"is the sum P \+ S \+ 1; give the sizes of its parts: P, S"):
            fd.resolve(x, {name: 11})
    for name in ("2", "1+1", "１", " 3 "):
        assert fd.free_dims(of(name)) == ["P", "m.0", name]
        assert fd.resolve(of(name), {name: 5}) == fd.resolve(of(name), {"m.1": 5}) == {name: 5}
    assert fd.resolve(of("="), {"=": 5}) == {"=": 5}
    assert fd.resolve(of("k="), {"k=": 5}) == {"k=": 5}  # also the key of a scalar's value
    y = of("m.0")
    assert fd.free_dims(y) == ["P", "m.0#", "m.0"] and fd.resolve(y, {"m.0": 5, "m.0#": 2}) == {"m.0": 5, "m.0#": 2}


def test_nothing_found(face):
    with pytest.raises(Finding, match=r"could not generate valid inputs .*--dim N=… --dim T=…"):
        found(face("float[N,T] x"), lambda s, _: False)
    with pytest.raises(Finding, match=r"onnxruntime said: no$"):
        found(face("float[2,3] x"), lambda s, _: False)


def test_integers_are_zeros_and_ones_where_nothing_else_runs(face):
    x = face("float[N,4] x, int64[N,3] a, uint8[2] b")
    zeros = found(x, lambda _, f: not f["a"].any() and not f["b"].any())
    ones = found(x, lambda _, f: (f["a"] == 1).all() and (f["b"] == 1).all())
    assert (zeros["a="], zeros["b="], zeros["N"]) == (0, 0, 1) and (ones["a="], ones["b="]) == (1, 1)
    assert fd.make(x, zeros, fd.WIDE)["a"].tolist() == [[0, 0, 0]]  # also in other cases
    assert list(fd.uniform(face("float[N,4] x, bool[3] b"), {})) == []


def test_the_search_ends_after_200_attempts(face):
    tried = []
    with pytest.raises(Finding, match=r"could not generate valid inputs \(200 attempts\)"):
        found(face("float[N,3,H,W] x, float[A,B] w, float[past] p, int64[S] i"), lambda s, _: tried.append(s))
    assert len(tried) == 200
    few = face("float[N,3,H,W] x, float[A,B] w, int64[64] i")
    with pytest.raises(Finding, match=r"could not generate valid inputs \(20 attempts\)"):
        found(few, lambda *_: False, most=20)  # for a model that is slow
    assert found(few, lambda s, f: not f["i"].any(), most=20)["i="] == 0


def test_both_values_of_a_boolean_are_tried(face):
    one = face("bool c, float[N] x")
    base = found(one, lambda _s, _f: True)
    assert fd.make(one, base, fd.NORMAL)["c"]
    assert [fd.make(one, other, fd.NORMAL)["c"] for other in fd.switched(one, base)] == [False]
    three = face("bool a, bool[1] b, bool[1,1] c")
    base = found(three, lambda _s, _f: True)
    taken = [(b["a="], b["b="], b["c="]) for b in (base, *fd.switched(three, base))]
    assert len(taken) == 8 == len(set(taken))
    many = face(", ".join(f"bool b{i}" for i in range(20)))
    assert len(list(fd.switched(many, found(many, lambda _s, _f: True)))) == 8
    number = face("int64 n, int64 sample_rate")
    base = found(number, lambda _s, _f: True)
    assert [(b["n="], b["sample_rate="]) for b in fd.switched(number, base)] == [(0, 16000)]


def test_a_boolean_that_must_be_false_is_found(face):
    assert found(face("bool c, float[N] x"), lambda _, f: not f["c"])["c="] == 0


def test_variants_change_the_batch_first_and_keep_what_is_given(face):
    x = face("float[N,3,H,W] x")
    base = {"N": 1, "H": 64, "W": 64}
    sizes = [(v["N"], v["H"], v["W"]) for v in fd.variants(x, {}, base)]
    assert sizes == [(3, 64, 64), (5, 96, 96), (1, 96, 128)]
    assert all(v["H"] == 64 for v in fd.variants(x, {"H": 64}, base))
    assert list(fd.variants(face("float[2,3] x"), {}, {})) == []


def test_data_is_signed_seeded_and_reproducible(face):
    x = face("float[N,64] x, bool[N] b, int64[N,S] ids, uint8[N,3,4,4] image, string[L] s")
    binding = {"N": 4, "S": 16, "L": 50}
    a, b = (fd.make(x, binding, fd.NORMAL, seed) for seed in (0, 0))
    assert all(np.array_equal(a[k], b[k]) for k in a)
    assert a["x"].dtype == np.float32
    assert a["x"].min() < -1.5
    assert a["x"].max() > 1.5
    assert set(np.unique(a["ids"])) == {0, 1}
    assert a["image"].max() > 200
    assert set(a["b"]) <= {True, False}
    assert all(isinstance(s, str) for s in a["s"])
    assert not np.array_equal(a["x"], fd.make(x, binding, fd.NORMAL, 1)["x"])
    assert not np.array_equal(a["x"], fd.make(x, binding, fd.NORMAL, 0, draw=1)["x"])


def test_the_first_numbers_are_those_of_numpys_pcg64(face):
    """The stream is numpy's own for the seed (seed, draw, position), so that others can make the same feeds."""
    expected = np.random.Generator(np.random.PCG64([7, 2, 1])).standard_normal((2, 3)).astype(np.float32)
    feeds = fd.make(face("float[1] a, float[2,3] x"), {}, fd.NORMAL, 7, draw=2)
    assert np.array_equal(feeds["x"], expected)


def test_nudge_moves_floats_by_a_few_ulps_and_nothing_else(face):
    feeds = fd.make(face("float[64] x, float16[64] h, bfloat16[8] b, int64[64] i"), {}, fd.NORMAL)
    moved = fd.nudge(feeds)
    assert np.array_equal(moved["i"], feeds["i"])
    assert moved["b"].dtype == feeds["b"].dtype
    assert (moved["b"] != feeds["b"]).all()
    for name in "xh":
        step = np.abs(moved[name] - feeds[name]) / np.spacing(np.abs(feeds[name]))
        assert step.max() <= 8  # epsilon is one or two units in the last place
        assert step.min() >= 3


def test_what_cannot_be_fed_is_named(face):
    with pytest.raises(Finding, match=r"input 'x' of type .* cannot be fed"):
        fd.make(face("map(int64, float[2]) x"), {}, fd.NORMAL)


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("int4", -8, 7), ("uint4", 0, 15), ("int2", -2, 1), ("uint2", 0, 3)]
)
@pytest.mark.parametrize("shape", [[], [1], [7], [3, 5]])
def test_a_few_bits_each(dtype, least, most, shape):
    """What onnxruntime casts to float is what was fed; a number takes half a byte or less."""
    text = (
        f'<ir_version: 13, opset_import: ["" : 25]> g ({dtype}{shape} x) => (float{shape} y) {{ y = Cast<to = 1>(x) }}'
    )
    model = parser.parse_model(text.replace("[]", ""))
    session = runtime.cpu_session(model.SerializeToString(), "disabled")
    seen = set()
    for seed in range(20):
        feeds = fd.make(interface.of(model), {}, fd.NORMAL, seed)
        (y,) = runtime.run(session, feeds).values()
        assert y.shape == tuple(shape) and np.array_equal(y, feeds["x"].astype(np.float32))
        assert np.array_equal(fd.nudge(feeds)["x"], feeds["x"])
        seen |= set(y.reshape(-1))
    assert least <= min(seen) and max(seen) <= most and len(seen) > 1


def test_types_as_text(face):
    types = {p.name: p.type for p in face("float[N,3] a, int64 b, seq(float[?]) c, optional(float[2]) d").inputs}
    assert types == {"a": "float[N,3]", "b": "int64[]", "c": "sequence(float[])", "d": "optional(float[2])"}


@pytest.mark.parametrize(
    ("body", "step"),
    [
        ("(float[2] x) => (float[2] y) { y = Relu(x) }", 2.0**-23),
        ("(double[2] x) => (double[2] y) { y = Relu(x) }", 2.0**-52),
        ("(float16[2] x) => (float16[2] y) { y = Relu(x) }", 2.0**-10),
        ("(float[2] x) => (float[2] y) { h = Cast<to = 10>(x) y = Cast<to = 1>(h) }", 2.0**-10),
        ("(float[2] x) => (float[2] y) { h = Cast<to = 16>(x) y = Cast<to = 1>(h) }", 2.0**-7),
        ("(float[2] x, float s) => (float[2] y) { q = QuantizeLinear(x, s) y = DequantizeLinear(q, s) }", 2.0**-7),
        (
            "(float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (z) "
            "{ h = Cast<to = 10>(x) z = Cast<to = 1>(h) }, else_branch = e () => (w) { w = Relu(x) }> }",
            2.0**-10,
        ),
    ],
)
def test_the_coarsest_format_inside(tmp_path, body, step):
    onnx.save(parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> g {body}'), tmp_path / "m.onnx")
    assert interface.read(tmp_path / "m.onnx").step == step
