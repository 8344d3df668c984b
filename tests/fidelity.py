"""One tiny model for each feature of the ONNX format; `CASES` holds a builder by feature name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import AttributeProto as A
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

CASES: dict[str, Callable[[], onnx.ModelProto]] = {}


def case(f):
    CASES[f.__name__] = f
    return f


def vi(n, t=T.FLOAT, s=(2,)):
    return h.make_tensor_value_info(n, t, s)


def model(nodes, ins, outs, init=(), opset=21, ir=10, extra=()):
    g = h.make_graph(nodes, "g", ins, outs, list(init))
    return h.make_model(g, opset_imports=[h.make_opsetid("", opset), *extra], ir_version=ir)


def base():
    return model([h.make_node("Relu", ["x"], ["y"], name="relu")], [vi("x")], [vi("y")])


def entry(c, k, v):
    c.add(key=k, value=v)


@case
def node_metadata_props():
    m = base()
    entry(m.graph.node[0].metadata_props, "k", "v")
    return m


@case
def node_doc_string():
    m = base()
    m.graph.node[0].doc_string = "hello"
    return m


@case
def node_name():
    return base()


@case
def node_overload():
    m = base()
    m.graph.node[0].overload = "v2"
    m.graph.node[0].domain = "loc"
    m.graph.node[0].op_type = "F"
    for ov, op in (("", "Abs"), ("v2", "Neg")):
        f = h.make_function("loc", "F", ["a"], ["b"], [h.make_node(op, ["a"], ["b"])], [h.make_opsetid("", 21)])
        f.overload = ov
        m.functions.append(f)
    m.opset_import.append(h.make_opsetid("loc", 1))
    return m


@case
def model_metadata_props():
    m = base()
    entry(m.metadata_props, "k", "v")
    return m


@case
def model_doc_domain_version():
    m = base()
    m.doc_string = "d"
    m.domain = "dom"
    m.model_version = 7
    m.producer_name = "p"
    m.producer_version = "1"
    return m


@case
def graph_doc_metadata():
    m = base()
    m.graph.doc_string = "gd"
    entry(m.graph.metadata_props, "k", "v")
    return m


@case
def opset_imports_two_domains():
    return model(
        [h.make_node("Relu", ["x"], ["y"]), h.make_node("Gelu", ["y"], ["z"], domain="com.microsoft")],
        [vi("x")],
        [vi("z")],
        extra=[h.make_opsetid("com.microsoft", 1), h.make_opsetid("unused.dom", 3)],
    )


@case
def opset_ai_onnx_spelling():
    m = base()
    del m.opset_import[:]
    m.opset_import.append(h.make_opsetid("ai.onnx", 21))
    m.graph.node[0].domain = "ai.onnx"
    return m


@case
def value_info_symbolic():
    m = model(
        [h.make_node("Relu", ["x"], ["t"]), h.make_node("Relu", ["t"], ["y"])],
        [vi("x", s=("N", None, 4))],
        [vi("y", s=("N", None, 4))],
    )
    m.graph.value_info.append(vi("t", s=("N", None, 4)))
    return m


@case
def value_info_no_shape():
    m = model(
        [h.make_node("Relu", ["x"], ["t"]), h.make_node("Relu", ["t"], ["y"])], [vi("x", s=None)], [vi("y", s=None)]
    )
    m.graph.value_info.append(vi("t", s=None))
    return m


@case
def value_info_shape_only_no_elemtype():
    m = model([h.make_node("Relu", ["x"], ["t"]), h.make_node("Relu", ["t"], ["y"])], [vi("x")], [vi("y")])
    v = m.graph.value_info.add()
    v.name = "t"
    v.type.tensor_type.shape.dim.add().dim_value = 2
    return m


@case
def value_info_doc_meta_denotation():
    m = model([h.make_node("Relu", ["x"], ["t"]), h.make_node("Relu", ["t"], ["y"])], [vi("x")], [vi("y")])
    v = vi("t")
    v.doc_string = "d"
    entry(v.metadata_props, "k", "v")
    v.type.denotation = "IMAGE"
    v.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    m.graph.value_info.append(v)
    m.graph.input[0].doc_string = "in"
    return m


@case
def value_info_unattached():
    m = base()
    m.graph.value_info.append(vi("ghost"))
    return m


@case
def seq_type():
    t = h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, ("N", 3)))
    return model(
        [h.make_node("SequenceConstruct", ["x"], ["s"]), h.make_node("SequenceAt", ["s", "i"], ["y"])],
        [vi("x", s=("N", 3)), vi("i", T.INT64, ())],
        [vi("y", s=("N", 3)), h.make_value_info("s", t)],
    )


@case
def seq_of_seq_type():
    t = h.make_sequence_type_proto(h.make_sequence_type_proto(h.make_tensor_type_proto(T.FLOAT, None)))
    return model([h.make_node("Identity", ["x"], ["y"])], [h.make_value_info("x", t)], [h.make_value_info("y", t)])


@case
def optional_type():
    t = h.make_optional_type_proto(h.make_tensor_type_proto(T.FLOAT, (2,)))
    return model([h.make_node("Identity", ["x"], ["y"])], [h.make_value_info("x", t)], [h.make_value_info("y", t)])


@case
def map_type():
    t = h.make_map_type_proto(T.INT64, h.make_tensor_type_proto(T.FLOAT, ()))
    return model([h.make_node("Identity", ["x"], ["y"])], [h.make_value_info("x", t)], [h.make_value_info("y", t)])


@case
def opaque_type():
    t = onnx.TypeProto()
    t.opaque_type.domain = "d"
    t.opaque_type.name = "n"
    return model([h.make_node("Identity", ["x"], ["y"])], [h.make_value_info("x", t)], [h.make_value_info("y", t)])


@case
def sparse_tensor_type():
    t = onnx.TypeProto()
    t.sparse_tensor_type.elem_type = 1
    t.sparse_tensor_type.shape.dim.add().dim_value = 4
    return model([h.make_node("Identity", ["x"], ["y"])], [h.make_value_info("x", t)], [h.make_value_info("y", t)])


@case
def sparse_initializer():
    m = model([h.make_node("Add", ["x", "w"], ["y"])], [vi("x", T.FLOAT, (4,))], [vi("y", T.FLOAT, (4,))])
    m.graph.sparse_initializer.append(
        h.make_sparse_tensor(h.make_tensor("w", T.FLOAT, [2], [1.0, 2.0]), h.make_tensor("", T.INT64, [2], [0, 3]), [4])
    )
    return m


@case
def sparse_initializer_raw():
    m = model([h.make_node("Add", ["x", "w"], ["y"])], [vi("x", T.FLOAT, (4,))], [vi("y", T.FLOAT, (4,))])
    m.graph.sparse_initializer.append(
        h.make_sparse_tensor(nh.from_array(np.array([1, 2], np.float32), "w"), nh.from_array(np.array([0, 3])), [4])
    )
    return m


@case
def quantization_annotation():
    m = base()
    q = m.graph.quantization_annotation.add()
    q.tensor_name = "y"
    entry(q.quant_parameter_tensor_names, "SCALE_TENSOR", "s")
    return m


@case
def training_info():
    m = base()
    t = m.training_info.add()
    t.initialization.CopyFrom(h.make_graph([], "i", [], []))
    entry(t.update_binding, "w", "w2")
    return m


@case
def device_configuration():
    m = base()
    c = m.configuration.add()
    c.name = "c"
    c.num_devices = 2
    n = m.graph.node[0].device_configurations.add()
    n.configuration_id = "c"
    n.pipeline_stage = 1
    return m


@case
def function_full():
    n = h.make_node("LeakyRelu", ["a"], ["t"], name="fn0")
    a = n.attribute.add()
    a.name = "alpha"
    a.type = A.FLOAT
    a.ref_attr_name = "alpha"
    n2 = h.make_node("Constant", [], ["c"])
    a = n2.attribute.add()
    a.name = "value"
    a.type = A.TENSOR
    a.ref_attr_name = "tv"
    f = h.make_function(
        "loc",
        "F",
        ["a"],
        ["b"],
        [n, n2, h.make_node("Add", ["t", "c"], ["b"])],
        [h.make_opsetid("", 21)],
        ["tv"],
        [h.make_attribute("alpha", 0.3)],
        doc_string="fd",
        value_info=[vi("t")],
    )
    entry(f.metadata_props, "k", "v")
    m = model(
        [h.make_node("F", ["x"], ["y"], domain="loc", tv=nh.from_array(np.float32([1, 1]), ""))],
        [vi("x")],
        [vi("y")],
        extra=[h.make_opsetid("loc", 1)],
    )
    m.functions.append(f)
    return m


@case
def function_ref_attr_type_proto():
    n = h.make_node("Optional", [], ["b"])
    a = n.attribute.add()
    a.name = "type"
    a.type = A.TYPE_PROTO
    a.ref_attr_name = "ty"
    f = h.make_function("loc", "F", [], ["b"], [n], [h.make_opsetid("", 21)], ["ty"])
    m = base()
    m.functions.append(f)
    m.opset_import.append(h.make_opsetid("loc", 1))
    return m


def _branch(name, nodes, out, init=(), s=(2,)):
    return h.make_graph(nodes, name, [], [vi(out, s=s)], list(init))


@case
def if_captures_variable():
    t = _branch("t", [h.make_node("Relu", ["h"], ["o1"])], "o1")
    e = _branch("e", [h.make_node("Neg", ["h"], ["o2"])], "o2")
    m = model(
        [h.make_node("Abs", ["x"], ["h"]), h.make_node("If", ["c"], ["y"], then_branch=t, else_branch=e)],
        [vi("x"), vi("c", T.BOOL, ())],
        [vi("y")],
    )
    m.graph.value_info.append(vi("h"))
    return m


@case
def if_captures_initializer():
    w = nh.from_array(np.float32([1, 2]), "w")
    t = _branch("t", [h.make_node("Add", ["x", "w"], ["o1"])], "o1")
    e = _branch("e", [h.make_node("Sub", ["x", "w"], ["o2"])], "o2")
    return model(
        [h.make_node("If", ["c"], ["y"], then_branch=t, else_branch=e)], [vi("x"), vi("c", T.BOOL, ())], [vi("y")], [w]
    )


@case
def if_returns_outer_value():
    t = _branch("t", [], "h")
    e = _branch("e", [h.make_node("Neg", ["h"], ["o2"])], "o2")
    return model(
        [h.make_node("Abs", ["x"], ["h"]), h.make_node("If", ["c"], ["y"], then_branch=t, else_branch=e)],
        [vi("x"), vi("c", T.BOOL, ())],
        [vi("y")],
    )


@case
def loop_scan_nested_capture():
    w = nh.from_array(np.float32([1, 2]), "w")
    inner = _branch("inner", [h.make_node("Mul", ["st", "w"], ["io"])], "io")
    inner2 = _branch("inner2", [h.make_node("Identity", ["h"], ["io2"])], "io2")
    body = h.make_graph(
        [
            h.make_node("If", ["cond"], ["so"], then_branch=inner, else_branch=inner2),
            h.make_node("Identity", ["cond"], ["co"]),
        ],
        "b",
        [vi("it", T.INT64, ()), vi("cond", T.BOOL, ()), vi("st")],
        [vi("co", T.BOOL, ()), vi("so")],
    )
    return model(
        [h.make_node("Abs", ["x"], ["h"]), h.make_node("Loop", ["n", "c", "x"], ["y"], body=body)],
        [vi("x"), vi("n", T.INT64, ()), vi("c", T.BOOL, ())],
        [vi("y")],
        [w],
    )


@case
def attr_all_scalar_kinds():
    return model(
        [
            h.make_node(
                "Foo",
                ["x"],
                ["y"],
                domain="d",
                f=1.5,
                i=3,
                s="abc",
                floats=[1.0, 2.0],
                ints=[1, 2],
                strings=["a", "b"],
                t=nh.from_array(np.float32([1, 2]), "tt"),
            )
        ],
        [vi("x")],
        [vi("y")],
        extra=[h.make_opsetid("d", 1)],
    )


@case
def attr_empty_lists():
    n = h.make_node("Foo", ["x"], ["y"], domain="d")
    for nm, ty in (("e_ints", A.INTS), ("e_floats", A.FLOATS), ("e_strings", A.STRINGS)):
        a = n.attribute.add()
        a.name = nm
        a.type = ty
    return model([n], [vi("x")], [vi("y")], extra=[h.make_opsetid("d", 1)])


@case
def attr_bytes_not_utf8():
    n = h.make_node("Foo", ["x"], ["y"], domain="d")
    a = n.attribute.add()
    a.name = "blob"
    a.type = A.STRING
    a.s = b"\xff\xfe\x00\x01"
    return model([n], [vi("x")], [vi("y")], extra=[h.make_opsetid("d", 1)])


@case
def attr_doc_string():
    m = base()
    a = h.make_attribute("zz", 3, doc_string="why")
    m.graph.node[0].attribute.append(a)
    return m


@case
def attr_tensors_graphs_types_sparse():
    n = h.make_node("Foo", ["x"], ["y"], domain="d")
    a = n.attribute.add()
    a.name = "tensors"
    a.type = A.TENSORS
    a.tensors.append(nh.from_array(np.float32([1]), "t1"))
    a = n.attribute.add()
    a.name = "graphs"
    a.type = A.GRAPHS
    a.graphs.append(_branch("g", [h.make_node("Relu", ["q"], ["o"])], "o"))
    a = n.attribute.add()
    a.name = "tp"
    a.type = A.TYPE_PROTO
    a.tp.CopyFrom(h.make_tensor_type_proto(1, (2,)))
    a = n.attribute.add()
    a.name = "tps"
    a.type = A.TYPE_PROTOS
    a.type_protos.append(h.make_tensor_type_proto(1, (2,)))
    a = n.attribute.add()
    a.name = "sp"
    a.type = A.SPARSE_TENSOR
    a.sparse_tensor.CopyFrom(
        h.make_sparse_tensor(h.make_tensor("w", T.FLOAT, [1], [1.0]), h.make_tensor("", T.INT64, [1], [0]), [4])
    )
    a = n.attribute.add()
    a.name = "sps"
    a.type = A.SPARSE_TENSORS
    a.sparse_tensors.append(
        h.make_sparse_tensor(h.make_tensor("w", T.FLOAT, [1], [1.0]), h.make_tensor("", T.INT64, [1], [0]), [4])
    )
    return model([n], [vi("x")], [vi("y")], extra=[h.make_opsetid("d", 1)])


@case
def constant_sparse_value():
    n = h.make_node("Constant", [], ["c"])
    a = n.attribute.add()
    a.name = "sparse_value"
    a.type = A.SPARSE_TENSOR
    a.sparse_tensor.CopyFrom(
        h.make_sparse_tensor(h.make_tensor("w", T.FLOAT, [1], [1.0]), h.make_tensor("", T.INT64, [1], [0]), [2])
    )
    return model([n, h.make_node("Add", ["x", "c"], ["y"])], [vi("x")], [vi("y")])


@case
def optional_op_type_attr():
    n = h.make_node("Optional", [], ["o"])
    a = n.attribute.add()
    a.name = "type"
    a.type = A.TYPE_PROTO
    a.tp.CopyFrom(h.make_tensor_type_proto(1, (2,)))
    return model([n, h.make_node("OptionalHasElement", ["o"], ["y"])], [], [vi("y", T.BOOL, ())])


NARROW = (
    *("BFLOAT16", "FLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0"),
    *("UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2", "FLOAT6E2M3", "FLOAT6E3M2"),
)


def _dt(dt):
    def f():
        t = h.make_tensor("w", dt, [5], [0, 1, 1, 0, 1])
        m = model([h.make_node("Cast", ["w"], ["y"], to=T.FLOAT)], [], [vi("y", s=(5,))], [t], opset=25, ir=13)
        m.graph.value_info.append(vi("w", dt, (5,)))
        return m

    return f


for _n in (*NARROW, "COMPLEX64", "BOOL"):
    CASES["dtype_init_" + _n] = _dt(getattr(T, _n))


def _dtv(dt):
    def f():
        m = model(
            [h.make_node("Identity", ["x"], ["t"]), h.make_node("Identity", ["t"], ["y"])],
            [vi("x", dt, (5,))],
            [vi("y", dt, (5,))],
            opset=25,
            ir=13,
        )
        m.graph.value_info.append(vi("t", dt, (5,)))
        return m

    return f


for _n in (*NARROW, "STRING"):
    CASES["dtype_value_" + _n] = _dtv(getattr(T, _n))


@case
def string_initializer():
    return model(
        [h.make_node("Identity", ["w"], ["y"])],
        [],
        [vi("y", T.STRING, (2,))],
        [h.make_tensor("w", T.STRING, [2], [b"a", b"bb"])],
    )


@case
def initializer_is_input_ir3():
    return model(
        [h.make_node("Add", ["x", "w"], ["y"])],
        [vi("x"), vi("w")],
        [vi("y")],
        [nh.from_array(np.float32([1, 2]), "w")],
        ir=3,
        opset=8,
    )


@case
def initializer_overridable_ir10():
    return model(
        [h.make_node("Add", ["x", "w"], ["y"])], [vi("x"), vi("w")], [vi("y")], [nh.from_array(np.float32([1, 2]), "w")]
    )


@case
def initializer_is_output():
    return model(
        [h.make_node("Relu", ["x"], ["y"])], [vi("x")], [vi("y"), vi("w")], [nh.from_array(np.float32([1, 2]), "w")]
    )


@case
def initializer_unused():
    return model([h.make_node("Relu", ["x"], ["y"])], [vi("x")], [vi("y")], [nh.from_array(np.float32([1, 2]), "w")])


@case
def initializer_doc_metadata():
    t = nh.from_array(np.float32([1, 2]), "w")
    t.doc_string = "d"
    entry(t.metadata_props, "k", "v")
    return model([h.make_node("Add", ["x", "w"], ["y"])], [vi("x")], [vi("y")], [t])


@case
def initializer_with_value_info():
    m = model([h.make_node("Add", ["x", "w"], ["y"])], [vi("x")], [vi("y")], [nh.from_array(np.float32([1, 2]), "w")])
    m.graph.value_info.append(vi("w"))
    return m


@case
def duplicated_input():
    return model([h.make_node("Mul", ["x", "x"], ["y"])], [vi("x")], [vi("y")])


@case
def empty_optional_io():
    return model(
        [h.make_node("Clip", ["x", "", "mx"], ["t"]), h.make_node("Dropout", ["t"], ["y", ""])],
        [vi("x"), vi("mx", s=())],
        [vi("y")],
    )


@case
def trailing_empty_input():
    return model([h.make_node("Clip", ["x", "mn", ""], ["y"])], [vi("x"), vi("mn", s=())], [vi("y")])


@case
def output_is_input():
    return model([h.make_node("Relu", ["x"], ["y"])], [vi("x")], [vi("x"), vi("y")])


@case
def output_listed_twice():
    return model([h.make_node("Relu", ["x"], ["y"])], [vi("x")], [vi("y"), vi("y")])


@case
def output_no_type():
    m = base()
    m.graph.output[0].ClearField("type")
    return m


@case
def unnamed_twins():
    return model(
        [h.make_node("Relu", ["x"], ["a"]), h.make_node("Relu", ["x"], ["b"]), h.make_node("Add", ["a", "b"], ["y"])],
        [vi("x")],
        [vi("y")],
    )


@case
def external_data_unloaded():
    t = onnx.TensorProto()
    t.name = "w"
    t.data_type = 1
    t.dims.extend([2])
    t.data_location = T.EXTERNAL
    for k, v in (("location", "w.bin"), ("offset", "0"), ("length", "8")):
        entry(t.external_data, k, v)
    return model([h.make_node("Add", ["x", "w"], ["y"])], [vi("x")], [vi("y")], [t])


@case
def tensor_zero_dim_and_scalar():
    return model(
        [h.make_node("Concat", ["x", "w"], ["t"], axis=0), h.make_node("Add", ["t", "s"], ["y"])],
        [vi("x")],
        [vi("y")],
        [nh.from_array(np.zeros((0,), np.float32), "w"), nh.from_array(np.float32(3), "s")],
    )


@case
def shadowed_name_in_subgraph():
    t = _branch("t", [h.make_node("Relu", ["x"], ["h"])], "h")
    e = _branch("e", [h.make_node("Neg", ["x"], ["h"])], "h")
    return model(
        [
            h.make_node("If", ["c"], ["y"], then_branch=t, else_branch=e),
            h.make_node("Abs", ["y"], ["h"]),
            h.make_node("Neg", ["h"], ["z"]),
        ],
        [vi("x"), vi("c", T.BOOL, ())],
        [vi("z")],
    )
