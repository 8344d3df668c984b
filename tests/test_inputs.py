"""Inputs that the user gives: what is read from where, and one line for everything that does not fit."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser
from support import node_cases

from onnxfuse import inputs, interface, runtime
from onnxfuse.errors import UsageError

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase


def face(ports: str, outputs: str = "y") -> interface.Interface:
    """The interface of a model with these inputs, as ONNX text."""
    return interface.of(
        parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> g ({ports}) => ({outputs}) {{ }}')
    )


TWO = "float[N,3] x, int64[N] k"


def two(n: int = 2) -> dict[str, np.ndarray]:
    return {"x": np.ones((n, 3), np.float32), "k": np.arange(n)}


def refused(given: object, ports: str | interface.Interface, *words: str) -> None:
    known = face(ports) if isinstance(ports, str) else ports
    with pytest.raises(UsageError) as caught:
        inputs.load(given, known)
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


def test_what_may_be_given(tmp_path: Path) -> None:
    known = face(TWO)
    assert inputs.load(None, known) == () == inputs.load((), known)
    np.savez(tmp_path / "a.npz", **two())
    np.savez_compressed(tmp_path / "b.NPZ.npz", **two(5))
    paths = [str(tmp_path / "a.npz"), tmp_path / "b.NPZ.npz"]
    (one,) = inputs.load(paths[0], known)
    assert one.name == paths[0] and one.expected == {} and list(one.feeds) == ["x", "k"]
    several = inputs.load([*paths, two(7)], known)
    assert [e.name for e in several] == [*map(str, paths), "inputs[2]"]
    assert [e.feeds["k"].tolist() for e in several] == [[0, 1], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6]]
    assert [e.name for e in inputs.load(two(), known)] == ["inputs[0]"]
    np.save(tmp_path / "x.npy", np.ones((4, 3), np.float32))
    (alone,) = inputs.load(tmp_path / "x.npy", face("float[N,3] x"))
    assert alone.feeds["x"].shape == (4, 3)


@pytest.mark.parametrize("name", ["a/b:0", "encoder/ids", "x.npy", "größe", "a b", "file"])
def test_names_of_inputs_in_an_archive(name: str, tmp_path: Path) -> None:
    known = face("float[N] x")
    renamed = parser.parse_model('<ir_version: 9, opset_import: ["" : 20]> g (float[N] x) => (y) { }')
    renamed.graph.input[0].name = name
    known = interface.of(renamed)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:  # what np.savez writes; it takes no input called "file"
        buffer = io.BytesIO()
        np.save(buffer, np.arange(3, dtype=np.float32))
        archive.writestr(f"{name}.npy", buffer.getvalue())
    (example,) = inputs.load(tmp_path / "a.npz", known)
    assert example.feeds[name].tolist() == [0, 1, 2]


WRONG = {
    "a missing input": ({"x": np.ones((2, 3), np.float32)}, ["'k' is missing", "int64[N]"]),
    "an unknown input": ({**two(), "z": np.ones(1)}, ["no input 'z'", "x, k"]),
    "a name that is no text": ({**two(), 3: np.ones(1)}, ["no input 3"]),
    "float64": ({**two(), "x": np.ones((2, 3))}, ["'x' is float64", "float32"]),
    "int32": ({**two(), "k": np.arange(2, dtype=np.int32)}, ["'k' is int32", "int64"]),
    "bool": ({**two(), "k": np.ones(2, bool)}, ["'k' is bool", "int64"]),
    "text": ({**two(), "k": np.array(["a", "b"])}, ["'k' is text", "int64"]),
    "objects": ({**two(), "k": np.array([1, None])}, ["'k' is object", "int64"]),
    "another rank": ({**two(), "x": np.ones((2, 3, 1), np.float32)}, ["[2, 3, 1]", "float[N,3]"]),
    "a fixed size": ({**two(), "x": np.ones((2, 4), np.float32)}, ["[2, 4]", "float[N,3]"]),
    "one symbol with two sizes": ({**two(), "k": np.arange(5)}, ["axis 0 of input 'k' (N) has the size 5", "N=2"]),
    "nothing": ({**two(), "k": None}, ["'k' is empty"]),
    "ragged lists": ({**two(), "k": [[1, 2], [3]]}, ["'k' is no array"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_does_not_fit(kind: str, tmp_path: Path) -> None:
    given, words = WRONG[kind]
    refused(given, TWO, "inputs[0]", *words)
    if all(isinstance(v, np.ndarray) and v.dtype != object and isinstance(k, str) for k, v in given.items()):
        np.savez(tmp_path / "a.npz", **given)
        refused(tmp_path / "a.npz", TWO, f"{tmp_path}/a.npz: ", *words)


@pytest.mark.parametrize("given", [3, b"a.npz", [3], [None], np.ones(3), [np.ones(3)], {1, 2}, [[two()]]])
def test_what_is_no_set_of_inputs(given: object) -> None:
    refused(given, TWO, "inputs", "")


def test_sums_of_symbols() -> None:
    known = face('float[P] past, int64[S] ids, int64["P + S + 1"] mask')
    given = {"past": np.ones(4, np.float32), "ids": np.arange(3)}
    (example,) = inputs.load({**given, "mask": np.arange(8)}, known)
    assert inputs.sizes([example], known, {}) == {"P": 4, "S": 3}
    refused({**given, "mask": np.arange(9)}, known, "'mask' (P + S + 1) has the size 9", "P=4, S=3")
    alone = face('float["P + S"] x, float[P] y')
    (example,) = inputs.load({"x": np.ones(7, np.float32), "y": np.ones(0, np.float32)}, alone)
    assert inputs.sizes([example], alone, {}) == {"P": 0, "S": 7}
    refused({"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)}, alone, "has the size 2", "P=3")
    halves = face('float["S + S"] x')
    (example,) = inputs.load({"x": np.ones(6, np.float32)}, halves)
    assert inputs.sizes([example], halves, {}) == {"S": 3}
    refused({"x": np.ones(7, np.float32)}, halves, "'x' (S + S) has the size 7")


def test_sizes_follow_from_the_first_example_and_join_the_given_ones() -> None:
    known = face("float[N,?] x, float[M] z")
    examples = inputs.load([{"x": np.ones((n, 4), np.float32), "z": np.ones(1, np.float32)} for n in (2, 3)], known)
    assert inputs.sizes(examples, known, {}) == {"N": 2, "x.1": 4, "M": 1}
    assert inputs.sizes(examples, known, {"x.0": 2}) == {"N": 2, "x.1": 4, "M": 1}
    assert inputs.sizes((), known, {"x.0": 2}) == {"N": 2}
    with pytest.raises(
        UsageError, match=r"inputs\[0\]: axis 0 of input 'x' \(N\) has the size 2, which does not fit N=8"
    ):
        inputs.sizes(examples, known, {"N": 8})
    with pytest.raises(UsageError, match="no input has a free dimension 'K'"):
        inputs.sizes(examples, known, {"K": 8})


def test_an_input_without_a_rank_takes_any() -> None:
    known = face("float[] s, float x")
    ranked = parser.parse_model('<ir_version: 9, opset_import: ["" : 20]> g (float[2] x) => (y) { }')
    ranked.graph.input[0].type.tensor_type.ClearField("shape")
    known = interface.of(ranked)
    for shape in ((), (3,), (2, 2), (1, 2, 3)):
        (example,) = inputs.load({"x": np.ones(shape, np.float32)}, known)
        assert example.feeds["x"].shape == shape
    refused({"x": np.ones((1, 3), np.float32)}, "float x", "[1, 3]", "float[]")


def test_an_overridable_initializer_may_be_given() -> None:
    made = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }'
    )
    made.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    known, x = interface.of(made), np.ones(2, np.float32)
    assert list(inputs.load({"x": x}, known)[0].feeds) == ["x"]
    assert list(inputs.load({"w": x, "x": x}, known)[0].feeds) == ["x", "w"]
    refused({"x": x, "w": np.ones(3, np.float32)}, known, "'w' has the shape [3]")
    made.ir_version = 3  # then it is a weight, and no input
    refused({"x": x, "w": x}, interface.of(made), "no input 'w'")


def test_dtypes_that_numpy_lacks(tmp_path: Path) -> None:
    for text, dtype, bits in (
        ("bfloat16", ml_dtypes.bfloat16, np.uint16),
        ("float8e4m3fn", ml_dtypes.float8_e4m3fn, np.uint8),
        ("int4", ml_dtypes.int4, np.uint8),
    ):
        known, array = face(f"{text}[N] x"), np.array([1, 2, -3]).astype(dtype)
        np.savez(tmp_path / "own.npz", x=array)
        np.savez(tmp_path / "bits.npz", x=array.view(bits))
        for given in ({"x": array}, {"x": array.view(bits)}, tmp_path / "own.npz", tmp_path / "bits.npz"):
            (example,) = inputs.load(given, known)
            assert example.feeds["x"].dtype == dtype
            assert example.feeds["x"].astype(np.float32).tolist() == [1, 2, -3]
        refused({"x": np.ones(3, np.float32)}, known, "is float32", np.dtype(dtype).name)
    refused({"x": np.ones(3, np.uint16)}, "float16[N] x", "is uint16", "float16")  # numpy has float16


def test_other_ways_to_store_an_array(tmp_path: Path) -> None:
    swapped = np.arange(6, dtype=">f4").reshape(2, 3)
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(swapped), k=np.arange(2, dtype=">i8"))
    for given in (tmp_path / "a.npz", {"x": swapped, "k": np.arange(2)}):
        (example,) = inputs.load(given, face(TWO))
        assert example.feeds["x"].dtype == np.float32 and example.feeds["x"].dtype.isnative
        assert example.feeds["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    (example,) = inputs.load({"k": 3, "b": True}, face("int64 k, bool b"))
    assert example.feeds["k"].shape == () and example.feeds["b"].dtype == bool


def test_arrays_larger_than_what_is_read_at_first(tmp_path: Path) -> None:
    numbers = np.arange(300_000, dtype=np.float32).reshape(-1, 3)
    np.savez_compressed(tmp_path / "a.npz", x=numbers)
    np.save(tmp_path / "a.npy", numbers)
    for name in ("a.npz", "a.npy"):
        (example,) = inputs.load(tmp_path / name, face("float[N,3] x"))
        assert np.array_equal(example.feeds["x"], numbers)


def test_text(tmp_path: Path) -> None:
    known = face("string[N] s")
    np.savez(tmp_path / "u.npz", s=np.array(["a", "größe"]))
    np.savez(tmp_path / "b.npz", s=np.array([b"a", "größe".encode()]))
    for given in (tmp_path / "u.npz", tmp_path / "b.npz", {"s": np.array(["a", "größe"], object)}):
        (example,) = inputs.load(given, known)
        assert example.feeds["s"].dtype == object and example.feeds["s"].tolist() == ["a", "größe"]
    refused({"s": np.array([b"\xff"])}, known, "not UTF-8")
    refused({"s": np.array([1, 2], object)}, known, "holds a int")
    refused({"s": np.ones(2)}, known, "is float64", "strings")


class Trap:
    """Whoever unpickles it makes a file."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("unpickled",)


def test_pickles_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", s=np.array([Trap()], object))
    np.save("a.npy", np.array([Trap()], object))
    Path("b.npz").write_bytes(np.array([Trap()], object).dumps())
    for name in ("a.npz", "a.npy"):
        refused(name, "string[N] s", name, "pickle")
    refused("b.npz", "string[N] s", "b.npz", "damaged")
    assert not Path("unpickled").exists()


def header(shape: object, descr: str = "<f4") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HOSTILE = {
    "more elements than there are bytes": (header("(3000000, 3)") + bytes(12), ["cut off or damaged"]),
    "more bytes than elements": (header("(1, 3)") + bytes(400), ["cut off or damaged"]),
    "more than is read": (header(f"({2**40}, 3)") + bytes(12), ["elements; at most"]),
    "a size below 0": (header("(-1, 3)") + bytes(12), []),
    "a shape of text": (header("('a', 3)") + bytes(12), ["damaged"]),
    "a header that computes": (header("(9**9**9, 3)"), ["damaged"]),
    "a long header": (header("(" + "1, " * 20000 + ")"), []),
    "deep brackets": (header("(" * 9000 + ")" * 9000), ["damaged"]),
    "a structured dtype": (header("(1, 3)", "<f4', 'x"), ["damaged"]),
    "an unknown version": (b"\x93NUMPY\x09\x00" + bytes(100), ["damaged"]),
    "a header of gigabytes": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(1000), ["damaged"]),
    "no array": (b"hello", ["damaged"]),
    "nothing": (b"", ["damaged"]),
    "text of no length": (header(f"({2**27}, 3)", "<U0"), ["text"]),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("where", ["npz", "npy"])
def test_hostile_arrays(kind: str, where: str, tmp_path: Path) -> None:
    data, words = HOSTILE[kind]
    path = tmp_path / f"a.{where}"
    if where == "npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", data)
    else:
        path.write_bytes(data)
    refused(path, "float[N,3] x", str(path), *words)


def test_much_text_of_no_length_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(header(f"({2**27},)", "<U0"))
    refused(tmp_path / "a.npy", "string[N] x", "134,217,728 elements")


def test_hostile_archives(tmp_path: Path) -> None:
    good = io.BytesIO()
    np.savez(good, x=np.ones((2, 3), np.float32))
    whole, path = good.getvalue(), tmp_path / "a.npz"
    for data, word in (
        (whole[:-30], "damaged"),
        (whole[:100], "damaged"),
        (b"", "damaged"),
        (b"text", "damaged"),
        (whole.replace(np.ones(6, np.float32).tobytes(), bytes(24)), "damaged"),  # its checksum is another
    ):
        path.write_bytes(data)
        refused(path, "float[N,3] x", str(path), word)
    for names, word in ((["x.npy", "x.npy"], "twice"), (["x"], "no array"), (["x.npy", "readme.txt"], "no array")):
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, header("(1, 3)") + bytes(12))
        refused(path, "float[N,3] x", str(path), word)
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w", force_zip64=True) as member:
        member.write(header(f"({2**28}, 3)"))
    refused(path, "float[N,3] x", "elements; at most")


def test_paths_that_are_no_inputs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "a.txt").write_text("1 2 3")
    (tmp_path / "empty").mkdir()
    one = "float[N,3] x"
    refused(tmp_path / "none.npz", one, "none.npz: cannot be read: No such file")
    refused(tmp_path / "none", one, "none: cannot be read: No such file")
    refused(tmp_path / "pipe.npz", one, "not a regular file")
    refused(tmp_path / "pipe.npy", one, "not a regular file")
    refused(tmp_path / "a.txt", one, "no such kind of inputs")
    refused(tmp_path / "empty", one, "holds no input_0.pb", "test_data_set_0")
    refused("a\0b.npz", one, "")
    np.save(tmp_path / "x.npy", np.ones((4, 3), np.float32))
    refused(tmp_path / "x.npy", TWO, "holds one array, and the model has 2 inputs (x, k)")
    refused(tmp_path / "x.npy", "int64[N,3] x", "'x' is float32")


def data_set(folder: Path, *values: object, kind: str = "input") -> Path:
    """ONNX's own test data."""
    folder.mkdir(exist_ok=True, parents=True)
    for i, value in enumerate(values):
        (folder / f"{kind}_{i}.pb").write_bytes(value if isinstance(value, bytes) else value.SerializeToString())
    return folder


def tensor(array: object, name: str = "") -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def test_a_folder_of_test_data(tmp_path: Path) -> None:
    known = face(TWO, "float[N] y, seq(float[M]) z")
    folder = data_set(tmp_path / "one", tensor(np.ones((2, 3), np.float32)), tensor(np.arange(2)))
    parts = [np.ones(1, np.float32), np.ones(2, np.float32)]
    data_set(folder, tensor(np.ones(2, np.float32)), numpy_helper.from_list(parts), kind="output")
    (folder / "notes.txt").write_text("other files do not count")
    (example,) = inputs.load(str(folder), known)
    assert example.name == str(folder) and example.feeds["k"].tolist() == [0, 1]
    assert {name: a.shape for name, a in example.expected.items()} == {"y": (2,), "z[0]": (1,), "z[1]": (2,)}


def test_folders_in_a_folder_are_several_sets(tmp_path: Path) -> None:
    for i in (0, 2, 10):
        data_set(tmp_path / f"test_data_set_{i}", tensor(np.ones((i + 1, 3), np.float32)))
    examples = inputs.load(tmp_path, face("float[N,3] x"))
    assert [e.feeds["x"].shape[0] for e in examples] == [1, 3, 11]
    assert examples[2].name == f"{tmp_path}/test_data_set_10"


def test_files_of_a_folder_in_the_order_of_the_inputs_that_are_no_weights(tmp_path: Path) -> None:
    made = parser.parse_model(
        '<ir_version: 3, opset_import: ["" : 9]> g (float[2] w, float[2] a, float[2] b) => (float[2] y) { }'
    )
    made.graph.initializer.append(tensor(np.ones(2, np.float32), "w"))
    folder = data_set(tmp_path, tensor(np.zeros(2, np.float32)), tensor(np.ones(2, np.float32)))
    for version in (3, 9):
        made.ir_version = version
        (example,) = inputs.load(folder, interface.of(made))
        assert {name: a[0] for name, a in example.feeds.items()} == {"a": 0, "b": 1}


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    x, k = tensor(np.ones((2, 3), np.float32)), tensor(np.arange(2))
    refused(data_set(tmp_path / "few", x), TWO, "input 'k' is missing: it holds no input_1.pb")
    refused(data_set(tmp_path / "many", x, k, k), TWO, "input_2.pb, and the model has 2 inputs")
    refused(data_set(tmp_path / "dtype", x, tensor(np.arange(2, dtype=np.int32))), TWO, "'k' is int32")
    refused(data_set(tmp_path / "shape", x, tensor(np.arange(3))), TWO, "'k' (N) has the size 3")
    second = data_set(tmp_path / "second", x, k)
    (second / "input_0.pb").unlink()
    refused(second, TWO, "it holds no input_0.pb")
    outputs = data_set(data_set(tmp_path / "outputs", x, k), k, k, kind="output")
    refused(outputs, TWO, "output_1.pb, and the model has 1 outputs")
    outside = tensor(np.ones((2, 3), np.float32))
    onnx.external_data_helper.set_external_data(outside, "/etc/passwd")
    huge = TensorProto(data_type=1, dims=[2**40, 3], raw_data=bytes(12))
    wrapped = TensorProto(data_type=1, dims=[2**62, 2**62, 2**62], raw_data=b"")
    damaged = {
        "cut": x.SerializeToString()[:-3],
        "text": b"hello world, this is no message",
        "sequence": numpy_helper.from_list([np.ones(3, np.float32)]).SerializeToString(),
        "external": outside.SerializeToString(),
        "huge": huge.SerializeToString(),
        "wrapped": wrapped.SerializeToString(),
        "negative": TensorProto(data_type=1, dims=[-2, -3], raw_data=bytes(24)).SerializeToString(),
        "no dtype": TensorProto(dims=[2, 3], raw_data=bytes(24)).SerializeToString(),
        "unknown dtype": TensorProto(data_type=99, dims=[2, 3], raw_data=bytes(24)).SerializeToString(),
        "not UTF-8": TensorProto(data_type=8, dims=[1], string_data=[b"\xff"]).SerializeToString(),
        "nothing": b"",
    }
    for name, data in damaged.items():
        refused(data_set(tmp_path / name, data, k), TWO, str(tmp_path / name), "input_0.pb")
    refused(data_set(tmp_path / "as sequence", x), "seq(float[N]) s", "input_0.pb", "SequenceProto")
    refused(data_set(tmp_path / "of", numpy_helper.from_list([np.arange(3)])), "seq(float[N]) s", "'s' is int64")
    refused({"s": np.ones(3, np.float32)}, "seq(float[N]) s", "takes a sequence")


def test_sequences_and_optionals(tmp_path: Path) -> None:
    sequence = face("seq(float[N]) s")
    folder = data_set(tmp_path / "s", numpy_helper.from_list([np.ones(2, np.float32), np.ones(3, np.float32)]))
    for given in (folder, {"s": [np.ones(2, np.float32), np.ones(3, np.float32)]}):
        (example,) = inputs.load(given, sequence)
        assert [a.shape for a in example.feeds["s"]] == [(2,), (3,)]
        assert inputs.sizes([example], sequence, {}) == {}
    optional = face("optional(float[N]) o")
    for value, shape in ((np.ones(3, np.float32), (3,)), (None, None)):
        folder = data_set(tmp_path / "o", numpy_helper.from_optional(value, dtype=onnx.OptionalProto.TENSOR))
        for given in (folder, {"o": value}):
            found = inputs.load(given, optional)[0].feeds["o"]
            assert (None if found is None else found.shape) == shape
    both = face("optional(seq(float[N])) o")
    (example,) = inputs.load(data_set(tmp_path / "b", numpy_helper.from_optional([np.ones(3, np.float32)])), both)
    assert [a.shape for a in example.feeds["o"]] == [(3,)]


def saved(case: TestCase, folder: Path) -> None:
    """The data of a case of the onnx wheel, as onnx itself writes it."""
    for i, (given, outputs) in enumerate(case.data_sets):
        data_set(folder / f"test_data_set_{i}", *map(_message, given, case.model.graph.input))
        data_set(folder / f"test_data_set_{i}", *map(_message, outputs, case.model.graph.output), kind="output")


def _message(value: Any, info: onnx.ValueInfoProto) -> Any:
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    return value if isinstance(value, TensorProto) else tensor(value, info.name)


CASES = [
    f"test_cast_{a}_to_{b}"
    for a, b in (
        ("FLOAT16", "FLOAT"), ("DOUBLE", "FLOAT"), ("BFLOAT16", "FLOAT"), ("FLOAT8E4M3FN", "FLOAT"), ("INT4", "FLOAT"),
        ("FLOAT8E5M2", "FLOAT"), ("FLOAT8E4M3FNUZ", "FLOAT"), ("UINT4", "UINT8"), ("FLOAT4E2M1", "FLOAT"),
        ("INT4", "INT8"), ("FLOAT", "INT4"), ("INT2", "FLOAT"), ("UINT2", "UINT8"),
    )
] + [
    "test_abs", "test_and2d", "test_add_uint8", "test_add_int16", "test_add_uint64", "test_equal_string", "test_stft",
    "test_sequence_insert_at_back", "test_sequence_map_identity_1_sequence", "test_optional_get_element_tensor",
    "test_optional_get_element_sequence", "test_optional_has_element_optional_input",
    "test_optional_has_element_empty_optional_input", "test_optional_has_element_tensor_input", "test_loop16_seq_none",
    "test_if", "test_if_seq", "test_resize_upsample_sizes_nearest", "test_slice",
    "test_split_variable_parts_1d_opset18",
    "test_gathernd_example_int32", "test_range_float_type_positive_delta", "test_expand_dim_changed", "test_tile",
    "test_constantofshape_int_shape_zero", "test_string_concat", "test_identity_opt",
]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_test_data_of_onnx_is_read_and_runs(name: str, tmp_path: Path) -> None:
    """The outputs are those that onnx says, wherever onnxruntime has the operator."""
    case = next(case for case in node_cases() if case.name == name)
    saved(case, tmp_path)
    (example, *_) = inputs.load(tmp_path, interface.of(case.model))
    for value, given in zip(example.feeds.values(), case.data_sets[0][0], strict=True):
        if isinstance(given, np.ndarray) and given.dtype.kind != "O":
            assert value.dtype == given.dtype and value.tobytes() == given.tobytes()
        elif given is None or isinstance(given, list):
            assert (value is None) == (given is None) and len(value or ()) == len(given or ())
    try:
        session = runtime.cpu_session(case.model.SerializeToString(), "disabled")
    except Exception:  # noqa: BLE001 - onnxruntime has no such kernel, and its errors no one base class
        return
    outputs = runtime.run(session, example.feeds)
    assert outputs.keys() == example.expected.keys()
    for key, array in outputs.items():
        expected = example.expected[key]
        if array.dtype.kind in "OSU":
            assert array.tolist() == expected.tolist()
        elif array.dtype == expected.dtype:  # not where it is packed
            np.testing.assert_allclose(array.astype(complex), expected.astype(complex), rtol=1e-3, atol=1e-4)
