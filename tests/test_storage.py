from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

from onnxfuse import storage
from onnxfuse.errors import ModelError, OutputError
from onnxfuse.storage import apart, files, tensors, wire
from onnxfuse.storage.external import Folder
from onnxfuse.storage.source import File, Memory


def model_with(*initializers: TensorProto) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "g", [x], [y], list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="tests")
    helper.set_model_props(model, {"after": "the graph"})
    return model


def weight(name: str, elements: int, start: float = 0.0) -> TensorProto:
    return numpy_helper.from_array(np.arange(elements, dtype=np.float32) + np.float32(start), name)


def write_bytes(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def assert_same(path: Path, tmp_path: Path) -> storage.Stored:
    """Reading and writing `path` gives what protobuf itself reads and writes, by both ways out."""
    full = onnx.ModelProto.FromString(path.read_bytes())
    stored = storage.read(path)
    assert storage.whole(stored) == full
    storage.write(stored, tmp_path / "written.onnx")
    assert (tmp_path / "written.onnx").read_bytes() == full.SerializeToString()
    storage.copy(stored, tmp_path / "copied.onnx")
    assert (tmp_path / "copied.onnx").read_bytes() == path.read_bytes()
    return stored


# --- wire format ---


def test_fields_of_the_documented_examples() -> None:
    # https://protobuf.dev/programming-guides/encoding/: field 1 = 150, field 2 = "testing", field 3 = message {1: 150}
    data = bytes.fromhex("089601" + "120774657374696e67" + "1a03089601")
    assert list(wire.fields(Memory(data), 0, len(data))) == [(1, 0, 0, 1, 3), (2, 2, 3, 5, 12), (3, 2, 12, 14, 17)]


def test_fields_of_fixed_width_and_large_numbers() -> None:
    data = bytes.fromhex("0d00000000" + "110000000000000000" + "ca3e00")  # field 1 fixed32, 2 fixed64, 1001 of length 0
    assert [(f[0], f[1], f[4]) for f in wire.fields(Memory(data), 0, len(data))] == [
        (1, 5, 5),
        (2, 1, 14),
        (1001, 2, 17),
    ]


@pytest.mark.parametrize(
    "data", ["0b", "0a05aa", "08", "08" + "ff" * 11, "0a"], ids=["group", "long", "open", "endless", "bare"]
)
def test_anomalies_are_told(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(wire.Anomaly):
        list(wire.fields(Memory(raw), 0, len(raw)))


@pytest.mark.parametrize("elements", [0, 1, 28, 252, 253, 254, 255, 256, 257, 300, 4090, 4096, 20_000, 600_000])
def test_sizes_around_the_limits(tmp_path: Path, elements: int) -> None:
    """Around 1 KiB, where tensors start to be left out, and where lengths take one byte more (128, 16384, 2097152)."""
    model = model_with(weight("a", elements), weight("b", 3), weight("c", elements, 7.0))
    stored = assert_same(write_bytes(tmp_path / "m.onnx", model.SerializeToString()), tmp_path)
    left_out = [tensors.marked(t) is not None for t in stored.proto.graph.initializer]
    assert left_out == [elements > 256, False, elements > 256]
    assert stored.proto.ByteSize() < 4096


def test_many_tensors_span_many_windows(tmp_path: Path) -> None:
    model = model_with(*(weight(f"w{i}", 1 + (i * 37) % 900) for i in range(700)))
    model.graph.doc_string = "d" * 100_000
    assert_same(write_bytes(tmp_path / "m.onnx", model.SerializeToString()), tmp_path)


def odd_tensors() -> dict[str, TensorProto]:
    plain = weight("w", 1000)
    cases = {name: TensorProto() for name in ("explicit", "props", "long", "floats", "string", "unknown", "negative")}
    for tensor in cases.values():
        tensor.CopyFrom(plain)
    cases["explicit"].data_location = TensorProto.DEFAULT
    cases["props"].doc_string = "after raw_data"
    cases["props"].metadata_props.add(key="k", value="v")
    cases["long"].raw_data += b"more"
    cases["floats"] = helper.make_tensor("w", TensorProto.FLOAT, [1000], [0.5] * 1000)
    cases["string"] = helper.make_tensor("w", TensorProto.STRING, [2], [b"a" * 2000, b"\xff\xfe"])
    cases["unknown"] = TensorProto.FromString(plain.SerializeToString() + bytes.fromhex("9a0600"))  # field 99
    cases["negative"].dims[:] = [-10, -100]
    return cases


@pytest.mark.parametrize("case", odd_tensors())
def test_odd_tensors(tmp_path: Path, case: str) -> None:
    model = model_with(weight("before", 500), odd_tensors()[case], weight("after", 500))
    stored = assert_same(write_bytes(tmp_path / "m.onnx", model.SerializeToString()), tmp_path)
    assert (tensors.marked(stored.proto.graph.initializer[1]) is not None) == (case in ("explicit", "props"))
    assert tensors.marked(stored.proto.graph.initializer[2]) is not None


def test_fields_in_any_order(tmp_path: Path) -> None:
    """A writer may put raw_data first, and the graph before ir_version."""
    tensor = weight("w", 1000)
    head = TensorProto(name="w", data_type=1, dims=[1000]).SerializeToString()
    raw = TensorProto(raw_data=tensor.raw_data).SerializeToString()
    model = model_with()
    rest = onnx.ModelProto.FromString(model.SerializeToString())
    rest.ClearField("graph")
    graph = model.graph.SerializeToString() + b"\x2a" + wire._encode(len(raw + head)) + raw + head
    data = b"\x3a" + wire._encode(len(graph)) + graph + rest.SerializeToString()
    stored = assert_same(write_bytes(tmp_path / "m.onnx", data), tmp_path)
    assert tensors.marked(stored.proto.graph.initializer[0]) is not None


def test_what_protobuf_merges_is_left_to_protobuf(tmp_path: Path) -> None:
    tensor = weight("w", 1000)
    twice = tensor.SerializeToString() + TensorProto(raw_data=bytes(4000)).SerializeToString()  # the last one counts
    model = model_with().SerializeToString()
    graph = onnx.GraphProto().SerializeToString() + b"\x2a" + wire._encode(len(twice)) + twice
    data = model + b"\x3a" + wire._encode(len(graph)) + graph  # the graph in two parts
    stored = assert_same(write_bytes(tmp_path / "m.onnx", data), tmp_path)
    assert stored.proto.graph.initializer[0].raw_data == bytes(4000)


def test_a_model_in_memory_is_read_as_from_a_file() -> None:
    model = model_with(weight("w", 1000))
    before = model.SerializeToString()
    stored = storage.read(model)
    assert stored.proto.ByteSize() < 1000 and stored.folder is None
    stored.proto.graph.initializer[0].name = "renamed"
    assert model.SerializeToString() == before
    assert storage.whole(stored).graph.initializer[0].raw_data == model.graph.initializer[0].raw_data


def test_a_skeleton_is_not_taken_for_a_model(tmp_path: Path) -> None:
    skeleton = storage.read(model_with(weight("w", 1000))).proto
    with pytest.raises(ModelError, match="left in the file it came from"):
        storage.read(skeleton)


# --- elements ---


def dtypes() -> list[int]:
    return [n for name, n in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]


def packed(dtype: int) -> TensorProto:
    """All bit patterns of one byte, again and again: every value a packed type has, NaNs included."""
    bits = {"UINT2": 2, "INT2": 2, "UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}
    width = bits.get(TensorProto.DataType.Name(dtype)) or helper.tensor_dtype_to_np_dtype(dtype).itemsize * 8
    raw = bytes(range(256)) * 48 if dtype != TensorProto.BOOL else bytes([0, 1]) * 6144
    return TensorProto(name="w", data_type=dtype, dims=[2, len(raw) * 8 // width // 2], raw_data=raw)


@pytest.mark.parametrize("dtype", dtypes(), ids=TensorProto.DataType.Name)
def test_elements_are_those_onnx_reads(tmp_path: Path, dtype: int) -> None:
    tensor = packed(dtype)
    expected = numpy_helper.to_array(tensor)
    assert tensors.nbytes(tensor) == len(tensor.raw_data)
    path = tmp_path / "m.onnx"
    onnx.save(model_with(tensor), path)
    inside = storage.read(path)
    onnx.save(model_with(tensor), tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    outside = storage.read(tmp_path / "e.onnx")
    for stored in (inside, outside, storage.read(model_with(tensor))):
        held = stored.proto.graph.initializer[0]
        before = held.SerializeToString()
        assert not held.raw_data
        array = tensors.array(held, stored.source, stored.folder)
        assert array.dtype == expected.dtype and array.shape == expected.shape
        assert array.tobytes() == expected.tobytes()
        assert held.SerializeToString() == before


def test_nbytes_by_hand() -> None:
    def size(dtype: int, *dims: int) -> int | None:
        return tensors.nbytes(TensorProto(data_type=dtype, dims=dims))

    assert size(TensorProto.FLOAT, 2, 3) == 24
    assert size(TensorProto.COMPLEX128, 3) == 48
    assert size(TensorProto.INT4, 3) == 2 and size(TensorProto.UINT2, 5) == 2 and size(TensorProto.FLOAT6E2M3, 3) == 3
    assert size(TensorProto.BFLOAT16) == 2 and size(TensorProto.FLOAT, 0, 7) == 0
    assert size(TensorProto.UNDEFINED, 1) is None and size(99, 1) is None and size(TensorProto.FLOAT, -1) is None
    assert tensors.nbytes(helper.make_tensor("s", TensorProto.STRING, [2], [b"abc", b""])) == 3


def sparse(values: list[float], indices: list[list[int]] | list[int], dims: list[int]) -> onnx.SparseTensorProto:
    value = numpy_helper.from_array(np.array(values, np.float32), "s")
    return helper.make_sparse_tensor(value, numpy_helper.from_array(np.array(indices, np.int64), "i"), dims)


def test_sparse_tensors_become_dense() -> None:
    expected = [[0, 5, 0], [7, 0, 0]]
    assert tensors.array(sparse([5, 7], [[0, 1], [1, 0]], [2, 3]), None, None).tolist() == expected
    assert tensors.array(sparse([5, 7], [1, 3], [2, 3]), None, None).tolist() == expected
    for outside in ([1, 6], [[0, 1], [2, 0]]):
        with pytest.raises(ModelError, match="sparse tensor 's'"):
            tensors.array(sparse([5, 7], outside, [2, 3]), None, None)


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=bytes(12)),
        TensorProto(name="w", data_type=99, dims=[2], raw_data=bytes(12)),
        TensorProto(name="w", data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"]),
    ],
    ids=["too long", "unknown type", "not UTF-8"],
)
def test_unreadable_elements(tensor: TensorProto) -> None:
    with pytest.raises(ModelError, match="tensor 'w': its elements cannot be read"):
        tensors.array(tensor, None, None)


def test_walk_finds_tensors_everywhere() -> None:
    def constant(name: str) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], value=weight(name, 1))

    body = helper.make_graph([constant("in body")], "b", [], [], [weight("of body", 1)])
    loop = helper.make_node("If", ["c"], ["z"], then_branch=body)
    many = helper.make_node("Custom", [], ["m"], domain="d", ts=[weight("t0", 1), weight("t1", 1)], gs=[body])
    several = helper.make_node("Custom", [], ["n"], domain="d", s=sparse([1], [0], [1]), ss=[sparse([1], [0], [1])])
    model = model_with(weight("w", 1))
    model.graph.node.extend([constant("attribute"), loop, many, several])
    model.graph.sparse_initializer.append(sparse([1], [0], [1]))
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("d", "F", [], ["in function"], [constant("in function")], opset))
    model.functions[0].attribute_proto.append(helper.make_attribute("default", weight("default", 1)))
    model.training_info.add().algorithm.initializer.append(weight("trained", 1))
    found = [t.name for t in tensors.walk(model)]
    assert sorted(found) == sorted(
        ["w", "attribute", "of body", "in body", "t0", "t1", "of body", "in body"]
        + ["s", "i"] * 3 + ["in function", "default", "trained"]
    )  # fmt: skip


# --- external data ---


def external_model(folder: Path, location: str = "w.data", elements: int = 1000, **said: object) -> Path:
    tensor = TensorProto(name="w", data_type=1, dims=[elements], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **said}.items():
        tensor.external_data.add(key=key, value=str(value))
    onnx.save(model_with(tensor), folder / "m.onnx")
    return folder / "m.onnx"


def test_external_data_with_and_without_a_range(tmp_path: Path) -> None:
    data = np.arange(2000, dtype=np.float32)
    (tmp_path / "w.data").write_bytes(data.tobytes())
    for said, expected in (
        ({}, data[:1000]),
        ({"offset": 4000}, data[1000:]),
        ({"offset": 8, "length": 4000}, data[2:1002]),
    ):
        stored = storage.read(external_model(tmp_path, **said))
        array = tensors.array(stored.proto.graph.initializer[0], stored.source, stored.folder)
        assert array.tolist() == expected.tolist()


BAD = {
    "missing": ("none.data", {}, "No such file"),
    "absolute": ("/etc/hostname", {}, "relative path"),
    "parent": ("../w.data", {}, "relative path"),
    "hidden parent": ("sub/../../w.data", {}, "relative path"),
    "empty": ("", {}, "not the name of a file"),
    "folder": ("sub", {}, "not a regular file"),
    "pipe": ("pipe", {}, "not a regular file"),
    "link out": ("link", {}, "leads out of"),
    "folder link out": ("up/w.data", {}, "leads out of"),
    "loop": ("loop", {}, "cannot be read"),
    "short": ("w.data", {"offset": 4}, "too short"),
    "cut range": ("w.data", {"length": 3999}, "too short"),
    "range past the end": ("w.data", {"offset": 4, "length": 4000}, "too short"),
    "offset past the end": ("w.data", {"offset": 10**15}, "too short"),
    "negative": ("w.data", {"offset": -4}, "offset of .* must be a whole number"),
    "not a number": ("w.data", {"length": "many"}, "length of .* must be a whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_external_data_is_refused(tmp_path: Path, case: str) -> None:
    (tmp_path / "w.data").write_bytes(bytes(4000))
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    (folder / "w.data").write_bytes(bytes(4000))
    (folder / "link").symlink_to(tmp_path / "w.data")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    location, said, text = BAD[case]
    with pytest.raises(ModelError, match=text) as raised:
        storage.read(external_model(folder, location, **said))
    message = str(raised.value)
    assert "tensor 'w'" in message and (location in message) and "m.onnx" in message and "\n" not in message


def test_external_data_in_a_body_is_checked(tmp_path: Path) -> None:
    tensor = TensorProto(name="deep", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="none.data")
    model = model_with()
    body = helper.make_graph([], "b", [], [], [tensor])
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=body))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="tensor 'deep'"):
        storage.read(tmp_path / "m.onnx")


def test_a_download_cache_of_symlinks_is_one_folder(tmp_path: Path) -> None:
    """models/m.onnx -> blobs/1 and models/w.data -> blobs/2, as model hubs lay out their caches."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "blobs" / "2").write_bytes(np.ones(1000, np.float32).tobytes())
    external_model(tmp_path / "blobs").rename(tmp_path / "blobs" / "1")
    (tmp_path / "models" / "m.onnx").symlink_to("../blobs/1")
    (tmp_path / "models" / "w.data").symlink_to("../blobs/2")
    stored = storage.read(tmp_path / "models" / "m.onnx")
    assert tensors.array(stored.proto.graph.initializer[0], stored.source, stored.folder).sum() == 1000
    (tmp_path / "out").mkdir()
    storage.write(stored, tmp_path / "out" / "m.onnx")
    assert (tmp_path / "out" / "w.data").read_bytes() == (tmp_path / "blobs" / "2").read_bytes()


def saved_external(folder: Path) -> storage.Stored:
    folder.mkdir()
    model = model_with(weight("w", 1000), weight("v", 1000))
    convert_model_to_external_data(model, location="sub/w.data", size_threshold=0)
    (folder / "sub").mkdir()
    onnx.save(model, folder / "m.onnx")
    return storage.read(folder / "m.onnx")


def test_external_data_comes_along(tmp_path: Path) -> None:
    stored = saved_external(tmp_path / "a")
    (tmp_path / "b").mkdir()
    storage.write(stored, tmp_path / "b" / "m.onnx")
    original, carried = tmp_path / "a/sub/w.data", tmp_path / "b/sub/w.data"
    assert carried.read_bytes() == original.read_bytes()
    onnx.checker.check_model(tmp_path / "b" / "m.onnx")  # it refuses hard links
    assert (tmp_path / "b/m.onnx").read_bytes() == (tmp_path / "a/m.onnx").read_bytes()
    storage.write(stored, tmp_path / "b" / "again.onnx")  # the data is there already
    assert numpy_helper.to_array(onnx.load(tmp_path / "b/again.onnx").graph.initializer[1]).tolist() == list(
        range(1000)
    )
    assert {p.name for p in (tmp_path / "b").rglob("*")} == {"m.onnx", "again.onnx", "sub", "w.data"}


def test_same_folder_keeps_its_references(tmp_path: Path) -> None:
    stored = saved_external(tmp_path / "a")
    storage.write(stored, tmp_path / "a" / "n.onnx")
    assert (tmp_path / "a/n.onnx").read_bytes() == (tmp_path / "a/m.onnx").read_bytes()
    assert {p.name for p in (tmp_path / "a").rglob("*")} == {"m.onnx", "n.onnx", "sub", "w.data"}


def test_another_data_file_is_not_overwritten(tmp_path: Path) -> None:
    stored = saved_external(tmp_path / "a")
    (tmp_path / "b" / "sub").mkdir(parents=True)
    (tmp_path / "b/sub/w.data").write_bytes(b"precious")
    with pytest.raises(OutputError, match=r"w\.data: another file of this name"):
        storage.write(stored, tmp_path / "b" / "m.onnx")
    assert (tmp_path / "b/sub/w.data").read_bytes() == b"precious" and not (tmp_path / "b/m.onnx").exists()


def test_a_model_does_not_overwrite_its_own_data(tmp_path: Path) -> None:
    stored = saved_external(tmp_path / "a")
    data = (tmp_path / "a/sub/w.data").read_bytes()
    (tmp_path / "a" / "alias").symlink_to("sub/w.data")
    for name in ("sub/w.data", "alias"):
        with pytest.raises(OutputError, match="external data file"):
            storage.write(stored, tmp_path / "a" / name)
    assert (tmp_path / "a/sub/w.data").read_bytes() == data


def test_a_failed_save_takes_the_carried_data_back(tmp_path: Path) -> None:
    stored = saved_external(tmp_path / "a")
    (tmp_path / "b" / "m.onnx").mkdir(parents=True)
    with pytest.raises(OutputError, match="is a folder"):
        storage.write(stored, tmp_path / "b" / "m.onnx")
    assert not (tmp_path / "b/sub/w.data").exists() and (tmp_path / "a/sub/w.data").exists()


def test_a_model_from_memory_needs_its_data_at_the_output(tmp_path: Path) -> None:
    saved_external(tmp_path / "a")
    stored = storage.read(onnx.load(tmp_path / "a" / "m.onnx", load_external_data=False))
    with pytest.raises(ModelError, match="in memory has no folder"):
        tensors.array(stored.proto.graph.initializer[0], stored.source, stored.folder)
    with pytest.raises(OutputError, match="give the model as a path"):
        storage.write(stored, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
    storage.write(stored, tmp_path / "a" / "n.onnx")
    assert (tmp_path / "a/n.onnx").read_bytes() == (tmp_path / "a/m.onnx").read_bytes()


# --- the source ---


def test_output_onto_input(tmp_path: Path) -> None:
    model = model_with(weight("w", 5000))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    stored = storage.read(path)
    stored.proto.graph.node[0].name = model.graph.node[0].name = "renamed"
    for _ in range(2):
        storage.write(stored, path)
        assert path.read_bytes() == model.SerializeToString()


def test_the_source_may_be_deleted(tmp_path: Path) -> None:
    model = model_with(weight("w", 5000))
    onnx.save(model, tmp_path / "m.onnx")
    stored = storage.read(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").unlink()
    assert tensors.array(stored.proto.graph.initializer[0], stored.source, None).tolist() == list(range(5000))
    storage.write(stored, tmp_path / "n.onnx")
    assert (tmp_path / "n.onnx").read_bytes() == model.SerializeToString()


def test_a_source_overwritten_in_place_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model_with(weight("w", 5000)), path)
    stored = storage.read(path)
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ModelError, match="overwritten while in use"):
        tensors.array(stored.proto.graph.initializer[0], stored.source, None)
    with pytest.raises(ModelError, match="overwritten while in use"):
        storage.write(stored, tmp_path / "n.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def open_on(path: Path) -> int:
    """How many descriptors of this process are open on `path`; only those, as others come and go with the collector."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            links.append(entry.readlink())
    return links.count(path)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model_with(weight("w", 5000)), path)
    arrays = []
    for _ in range(5):
        stored = storage.read(path)
        arrays.append(tensors.array(stored.proto.graph.initializer[0], stored.source, None))
    assert open_on(path) > 0
    del stored
    assert [a[-1] for a in arrays] == [4999.0] * 5  # a view outlives its file object
    del arrays
    assert open_on(path) == 0


def fail(code: int):
    def raise_it(*args: object, **kwargs: object) -> int:
        raise OSError(code, os.strerror(code))

    return raise_it


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP])
def test_copy_without_help_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "copy_file_range", fail(code))
    model = model_with(weight("a", 3), weight("w", 1_000_000))
    onnx.save(model, tmp_path / "m.onnx")
    storage.write(storage.read(tmp_path / "m.onnx"), tmp_path / "n.onnx")
    assert (tmp_path / "n.onnx").read_bytes() == model.SerializeToString()


# --- bad files ---


def test_files_that_are_no_models(tmp_path: Path) -> None:
    whole = model_with(weight("w", 5000)).SerializeToString()
    cases = {
        "empty": (b"", "is empty"),
        "text": (b"hello, this is not a model\n" * 50, "not an ONNX model"),
        "zip": (b"PK\x03\x04" + bytes(range(256)), "not an ONNX model"),
        "cut in the weights": (whole[: len(whole) // 2], "truncated"),
        "cut at the end": (whole[:-1], "truncated"),
    }
    for name, (data, text) in cases.items():
        with pytest.raises(ModelError, match=text) as raised:
            storage.read(write_bytes(tmp_path / f"{name}.onnx", data))
        assert f"{name}.onnx" in str(raised.value) and "\n" not in str(raised.value)
    os.mkfifo(tmp_path / "pipe.onnx")
    for name, text in (("none.onnx", "No such file"), ("", "is a directory"), ("pipe.onnx", "not a regular file")):
        with pytest.raises(ModelError, match=text):
            storage.read(tmp_path / name)
    with pytest.raises(ModelError, match="not a usable path"):
        storage.read(Path("a\0b"))


def test_more_than_a_protobuf_can_hold(tmp_path: Path) -> None:
    with (tmp_path / "big.onnx").open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(ModelError, match="2 GiB"):
        storage.read(tmp_path / "big.onnx")
    onnx.save(model_with(weight("w", 5_000_000)), tmp_path / "m.onnx")
    stored = storage.read(tmp_path / "m.onnx")
    stored.proto.graph.initializer.extend([stored.proto.graph.initializer[0]] * 107)  # 108 x 20 MB
    with pytest.raises(ModelError, match="2 GiB"):
        storage.whole(stored)


# --- a model that one file cannot hold ---


def test_large_weights_go_into_a_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_with(weight("v", 10), *(weight(f"w{i}", 5000, i) for i in range(3)))
    onnx.save(model, tmp_path / "m.onnx")
    stored = storage.read(tmp_path / "m.onnx")
    monkeypatch.setattr(storage, "LIMIT", 50_000)
    out = tmp_path / "out"
    out.mkdir()
    storage.write(stored, out / "n.onnx")
    (data,) = out.glob("n.onnx.*.data")
    assert sorted(p.name for p in out.iterdir()) == sorted(["n.onnx", data.name])
    onnx.checker.check_model(out / "n.onnx")
    found = onnx.load(out / "n.onnx", load_external_data=False)
    for tensor in found.graph.initializer[1:]:
        said = {e.key: e.value for e in tensor.external_data}
        assert said["location"] == data.name and int(said["offset"]) % 4096 == 0 and said["length"] == "20000"
    whole = onnx.load(out / "n.onnx")
    for a, b in zip(whole.graph.initializer, model.graph.initializer, strict=True):
        assert (a.name, numpy_helper.to_array(a).tolist()) == (b.name, numpy_helper.to_array(b).tolist())
    monkeypatch.undo()
    assert storage.read(tmp_path / "m.onnx").proto == stored.proto  # the skeleton is as it was


def test_the_data_file_is_called_after_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same model has the same bytes in every run; another one leaves the data of the first alone."""
    models = [storage.read(model_with(weight("w", 5000, start))) for start in (0, 0, 1)]
    monkeypatch.setattr(storage, "LIMIT", 10_000)
    written = []
    for stored in models:
        storage.write(stored, tmp_path / "m.onnx")
        written.append({p.name: p.read_bytes() for p in tmp_path.iterdir()})
    assert written[0] == written[1] and len(written[0]) == 2 and len(written[2]) == 3
    (name,) = [name for name in written[0] if name.endswith(".data")]
    assert written[2][name] == written[0][name] and written[2]["m.onnx"] != written[0]["m.onnx"]


def test_a_failed_save_leaves_no_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = storage.read(model_with(weight("w", 5000)))
    monkeypatch.setattr(storage, "LIMIT", 10_000)
    (tmp_path / "m.onnx").write_bytes(b"old")
    full = mock.patch.object(wire, "join", side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with full, pytest.raises(OutputError, match="No space left"):
        storage.write(stored, tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"] and (tmp_path / "m.onnx").read_bytes() == b"old"


# --- new weights ---


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int8", "bool"])
def test_a_new_weight_is_kept_in_a_scratch_file(dtype: str, tmp_path: Path) -> None:
    stored = storage.read(model_with(weight("v", 1000)))
    array = (np.arange(100_000) % 7).astype(dtype).reshape(100, 1000)
    tensor = storage.keep(stored, "new", array[:, ::-1])
    assert tensor is not None and not tensor.raw_data
    np.testing.assert_array_equal(tensors.array(tensor, stored.source, None), array[:, ::-1])
    stored.proto.graph.initializer.append(tensor)
    storage.write(stored, tmp_path / "m.onnx")
    expected = model_with(weight("v", 1000), numpy_helper.from_array(np.ascontiguousarray(array[:, ::-1]), "new"))
    assert (tmp_path / "m.onnx").read_bytes() == expected.SerializeToString()
    assert storage.original(stored, "m") == storage.read(model_with(weight("v", 1000))).proto


def test_where_no_file_can_be_made_it_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = storage.read(model_with(weight("v", 1000)))
    assert storage.keep(stored, "small", np.zeros(10, np.float32)) is None
    monkeypatch.setattr("tempfile.TemporaryFile", mock.Mock(side_effect=OSError(errno.EROFS, "read-only")))
    assert storage.keep(stored, "new", np.zeros(100_000, np.float32)) is None


# --- a ModelProto above 2 GiB ---


def test_a_large_message_is_taken_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "LARGE", 10_000)
    explicit = weight("explicit", 2000)
    explicit.data_location = TensorProto.DEFAULT
    numbers = helper.make_tensor("numbers", TensorProto.FLOAT, [2000], np.zeros(2000, np.float32))
    model = model_with(weight("v", 10), weight("w", 5000), explicit, numbers)
    model.training_info.add().algorithm.SetInParent()
    before = model.SerializeToString()
    stored = storage.read(model)
    assert model.SerializeToString() == before
    assert [tensors.marked(t) is not None for t in stored.proto.graph.initializer] == [False, True, True, False]
    assert storage.whole(stored) == model
    for save, name in ((storage.write, "written"), (storage.copy, "copied")):
        save(stored, tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    assert storage.original(stored, "m") == stored.proto


def test_a_large_message_needs_room_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "LARGE", 10_000)
    monkeypatch.setattr("tempfile.TemporaryFile", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(ModelError, match=r"above 2 GiB.*No space left.*save it with external data"):
        storage.read(model_with(weight("w", 5000)))


# --- atomic output ---


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    stored = storage.read(model_with())
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    cases = {
        "none/m.onnx": "folder does not exist",
        "folder": "is a folder",
        "pipe": "not a regular file",
        "loop": "cannot be written",
        "file/m.onnx": "cannot be written",
        "n" * 300: "cannot be written: File name too long",
        "a\0b": "not a usable path",
    }
    before = sorted(p.name for p in tmp_path.rglob("*"))
    for name, text in cases.items():
        for save in (storage.write, storage.copy):
            with pytest.raises(OutputError, match=text) as raised:
                save(stored, tmp_path / name)
            assert "\n" not in str(raised.value)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_protected_outputs(tmp_path: Path) -> None:
    stored = storage.read(model_with())
    write_bytes(tmp_path / "kept.onnx", b"old").chmod(0o444)
    with pytest.raises(OutputError, match="write-protected"):
        storage.write(stored, tmp_path / "kept.onnx")
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(OutputError, match="folder is write-protected"):
        storage.write(stored, tmp_path / "closed" / "m.onnx")
    assert (tmp_path / "kept.onnx").read_bytes() == b"old"


def test_mode_is_that_of_any_new_file_and_of_the_old_one(tmp_path: Path) -> None:
    stored = storage.read(model_with())
    umask = os.umask(0o027)
    try:
        storage.write(stored, tmp_path / "new.onnx")
        write_bytes(tmp_path / "old.onnx", b"old").chmod(0o604)
        storage.write(stored, tmp_path / "old.onnx")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "new.onnx").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old.onnx").stat().st_mode) == 0o604


def test_a_symlink_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.onnx").symlink_to("real/m.onnx")
    storage.write(storage.read(model_with()), tmp_path / "link.onnx")
    assert (tmp_path / "link.onnx").is_symlink()
    assert (tmp_path / "real" / "m.onnx").read_bytes() == model_with().SerializeToString()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")], ids=repr)
def test_a_failure_leaves_the_old_output(tmp_path: Path, error: BaseException) -> None:
    write_bytes(tmp_path / "m.onnx", b"old")
    expected = OutputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected), files.atomic(tmp_path / "m.onnx") as out:
        out.write(b"half")
        raise error
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"] and (tmp_path / "m.onnx").read_bytes() == b"old"


def test_a_full_disk_leaves_the_old_output(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; the kernel refuses the write in the same place."""
    onnx.save(model_with(weight("w", 1_000_000)), tmp_path / "m.onnx")
    write_bytes(tmp_path / "out.onnx", b"old")
    stored = storage.read(tmp_path / "m.onnx")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"out\.onnx: cannot be written: File too large"):
            storage.write(stored, tmp_path / "out.onnx")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]
    assert (tmp_path / "out.onnx").read_bytes() == b"old"


SAVE = """
import sys
from pathlib import Path
from onnxfuse import storage
stored = storage.read(Path(sys.argv[1]))
stored.proto.graph.node[0].name = "renamed"
storage.write(stored, Path(sys.argv[2]))
"""


def test_kill_leaves_the_old_output_or_the_new(tmp_path: Path) -> None:
    model = model_with(weight("w", 25_000_000))  # 100 MB
    onnx.save(model, tmp_path / "m.onnx")
    size = (tmp_path / "m.onnx").stat().st_size
    model.graph.node[0].name = "renamed"
    new = model.SerializeToString()
    killed = 0
    for written in (0, size // 3, size):
        out = write_bytes(tmp_path / "out.onnx", b"old")
        child = subprocess.Popen([sys.executable, "-c", SAVE, str(tmp_path / "m.onnx"), str(out)])
        while child.poll() is None:
            if any(p.stat().st_size >= written for p in tmp_path.glob(".onnxfuse-*") if p.exists()):
                child.kill()
                break
            time.sleep(0.0005)
        killed += child.wait() == -signal.SIGKILL
        assert out.read_bytes() in (b"old", new)
        for stale in tmp_path.glob(".onnxfuse-*"):
            stale.unlink()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "out.onnx"]
    assert killed  # or the test has shown nothing
    (tmp_path / "m.onnx").unlink()  # pytest keeps the folders of its last runs
    out.unlink()


# --- memory ---

PEAK = """
import sys
from pathlib import Path
import onnx
from onnxfuse import storage
from onnxfuse.storage import tensors

def peak():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) * 1024

before = peak()
stored = storage.read(Path(sys.argv[1]))
stored.proto.graph.node[0].name = "renamed"
for out in sys.argv[2:]:
    storage.write(stored, Path(out))
assert tensors.array(stored.proto.graph.initializer[0], stored.source, stored.folder)[-1] >= 0
print(peak() - before)
"""


def peak_of(*paths: Path) -> int:
    result = subprocess.run([sys.executable, "-c", PEAK, *map(str, paths)], capture_output=True, text=True, check=True)
    return int(result.stdout)


def test_weights_do_not_pass_through_memory(tmp_path: Path) -> None:
    onnx.save(model_with(weight("v", 10_000), *(weight(f"w{i}", 1_000_000) for i in range(24))), tmp_path / "m.onnx")
    assert peak_of(tmp_path / "m.onnx", tmp_path / "n.onnx") < 16e6  # of 96 MB


@pytest.mark.slow
def test_three_gigabytes_of_external_data(tmp_path: Path) -> None:
    elements = 3 << 28  # float32: 3 GiB, as a sparse file
    (tmp_path / "other").mkdir()
    with (tmp_path / "w.data").open("wb") as file:
        file.truncate(4 * elements)
    model = external_model(tmp_path, elements=elements)
    assert peak_of(model, tmp_path / "n.onnx", tmp_path / "other" / "n.onnx") < 100e6
    assert (tmp_path / "other" / "w.data").stat().st_size == 4 * elements
    (tmp_path / "other" / "w.data").unlink()  # pytest keeps the folders of its last runs


def test_a_large_graph_is_hopped_over(tmp_path: Path) -> None:
    model = model_with()
    model.graph.node.extend(helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(20_000))
    path = write_bytes(tmp_path / "m.onnx", model.SerializeToString())
    data, left = wire.split(File(path))
    assert data == path.read_bytes() and not left
    assert Folder.of(path).base == tmp_path


@pytest.mark.parametrize("key", ["location", "offset", "length"])
def test_external_data_that_says_something_twice(key: str, tmp_path: Path) -> None:
    """Readers differ in which one they take."""
    (tmp_path / "w.data").write_bytes(bytes(4000))
    path = external_model(tmp_path, "w.data", offset=0, length=4000)
    model = onnx.load(path, load_external_data=False)
    entry = next(e for e in model.graph.initializer[0].external_data if e.key == key)
    model.graph.initializer[0].external_data.add(key=key, value=entry.value)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="tensor 'w': its external data says something twice"):
        storage.read(path)


@pytest.mark.parametrize("number", ["1_6", "\uff11\uff16", "+16", " 16", "0x10", "1e2", ""])
def test_numbers_that_only_python_reads(number: str, tmp_path: Path) -> None:
    (tmp_path / "w.data").write_bytes(bytes(8000))
    with pytest.raises(ModelError, match="offset of its external data"):
        storage.read(external_model(tmp_path, "w.data", offset=number))
