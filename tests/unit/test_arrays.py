"""Numbers as callers give them: accepted and converted the same way at every door, or refused with what was given."""

import array
from collections import deque
from decimal import Decimal

import numpy as np
import pytest

import mvindex
from mvindex.arrays import as_numbers
from mvindex.encoder import CallableEncoder
from mvindex.errors import EncoderError, QueryError


class Exported:
    """An array of another library, which NumPy reads by DLPack alone."""

    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class Converted:
    """A tensor of another library, which converts itself, as those of JAX and TensorFlow do."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.5], dtype)


class Unreachable:
    """A tensor on a device, which NumPy cannot read."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("implicit conversion is not allowed; use .get()")


def torch_tensors():
    torch = pytest.importorskip("torch")
    plain = torch.tensor([1.0, 2.5])
    with_gradient = torch.tensor([1.0, 2.5], requires_grad=True)
    return {
        "gradient": with_gradient,
        "parameter": torch.nn.Parameter(plain),
        "bfloat16 with gradient": with_gradient.bfloat16(),
        "float16": plain.half(),
        "float8": plain.to(torch.float8_e4m3fn),
        "sparse": plain.to_sparse(),
        "list of tensors": [with_gradient[0], with_gradient[1]],
        "strided": torch.tensor([1.0, 0.0, 2.5])[::2],
        "negated": -torch._neg_view(plain),
    }


ACCEPTED = {
    "list": [1, 2.5],
    "numpy scalars": [np.float32(1), np.float16(2.5)],
    "float64": np.array([1, 2.5]),
    "big-endian": np.array([1, 2.5], dtype=">f4"),
    "strided": np.array([1, 0, 2.5])[::2],
    "objects": np.array([1, Decimal("2.5")], dtype=object),
    "decimals": [Decimal(1), Decimal("2.5")],
    "array": array.array("f", [1, 2.5]),
    "memoryview": memoryview(np.array([1, 2.5], dtype=np.float32)),
    "deque": deque([1, 2.5]),
    "masked, no value missing": np.ma.array([1, 2.5]),
    "dlpack": Exported(np.array([1, 2.5], dtype=np.float32)),
    "__array__": Converted(),
}
REFUSED = {
    "none": (None, "got None"),
    "none inside": ([1.0, None], "got None"),
    "strings": (np.array(["1", "2.5"]), "got <U3 values"),
    "booleans": ([True, False], "got bool values"),
    "boolean and number": ([True, 2.5], "got bool values"),
    "complex": (np.array([1 + 1j, 2.5]), "got complex128 values"),
    "dates": (np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]"), "got datetime64"),
    "masked": (np.ma.array([1, 2.5], mask=[False, True]), "masked array that lacks 1"),
    "masked inside": ([np.ma.array([1, 2.5], mask=[True, True])], "masked array that lacks 2"),
    "bytes": (b"12345678", "got bytes; np.frombuffer"),
    "bytearray": (bytearray(2), "got bytearray; np.frombuffer"),
    "view of bytes": (memoryview(b"12"), "got memoryview; np.frombuffer"),
    "ragged": ([[1.0, 2.5], [1.0]], r"one shape, got shapes \(2,\), \(1,\)"),
    "dict": ({"a": 1.0}, "got dict"),
    "set": ({1.0}, "got set"),
    "generator": ((one for one in [1.0, 2.5]), "got generator"),
    "object": (object(), "got object"),
    "device": (Unreachable(), r"Unreachable .*use .get\(\)"),
    "records": (np.zeros(2, dtype=[("a", "f4")]), "expected numbers"),
}


@pytest.mark.parametrize("value", ACCEPTED.values(), ids=ACCEPTED)
def test_numbers_of_every_kind_are_read(value):
    assert as_numbers(value).tolist() == [1.0, 2.5]


def test_tensors_of_torch_are_read_whatever_their_type():
    for name, value in torch_tensors().items():
        assert as_numbers(value).tolist() == [1.0, 2.5], name


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:torch.quantize_per_tensor")
def test_tensors_of_torch_that_hold_no_numbers_are_named():
    torch = pytest.importorskip("torch")
    quantised = torch.quantize_per_tensor(torch.tensor([1.0, 2.5]), 0.5, 0, torch.quint8)
    assert as_numbers(quantised).tolist() == [1.0, 2.5]
    with pytest.raises(ValueError, match="meta"):
        as_numbers(torch.empty(2, device="meta"))
    with pytest.raises(ValueError, match="nested_tensor"):
        as_numbers(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    with pytest.raises(ValueError, match="complex64"):
        as_numbers(torch.tensor([1 + 1j]))


def test_numbers_of_ml_dtypes_become_float32():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = as_numbers(np.array([1, 2.5], dtype=ml_dtypes.bfloat16))
    assert (found.dtype, found.tolist()) == (np.float32, [1.0, 2.5])


@pytest.mark.parametrize(("value", "told"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_number_is_named(value, told):
    with pytest.raises(ValueError, match=told):
        as_numbers(value)


def test_a_list_that_holds_itself_ends():
    value: list = []
    value.append(value)
    with pytest.raises(ValueError, match="nested more than"):
        as_numbers(value)


def test_numbers_beyond_float64_are_infinite():
    assert as_numbers([10**400, -(10**400), 2**70]).tolist() == [np.inf, -np.inf, float(2**70)]


@pytest.fixture
def index(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([mvindex.Document("far", "far"), mvindex.Document("near", "near")], np.eye(2))
        yield index


@pytest.mark.parametrize("value", [*ACCEPTED.values(), None], ids=[*ACCEPTED, "torch"])
def test_index_and_encoder_take_them(index, value):
    for one in torch_tensors().values() if value is None else [value]:
        assert index.search(one, 1).hits[0].id == "near"
        index.add_views([mvindex.Document("one", "one")], [one])
        assert index.views("one").vectors.tolist() == [[1.0, 2.5]]
        index.delete(ids="one")
        encoder = CallableEncoder(lambda texts, one=one: [one for _ in texts], name="test")
        assert encoder.encode_queries(["a text"]).tolist() == [[1.0, 2.5]]


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "none"])
def test_index_and_encoder_name_what_they_refuse(index, name):
    value, told = REFUSED[name]
    with pytest.raises(QueryError, match=told):
        index.search(value)
    with pytest.raises(EncoderError, match=told):
        index.add_views([mvindex.Document("one", "one")], [value])
    with pytest.raises(EncoderError, match=told):
        CallableEncoder(lambda texts: [value for _ in texts], name="test").encode_queries(["a text"])
    assert len(index) == 2


def test_views_of_all_documents_may_be_one_tensor(index):
    torch = pytest.importorskip("torch")
    documents = [mvindex.Document("a", "a"), mvindex.Document("b", "b")]
    for views in (
        torch.eye(2, requires_grad=True),
        torch.eye(2).to_sparse(),
        torch.eye(2).bfloat16()[:, None],
        Exported(np.eye(2, dtype=np.float32)),
        (row for row in np.eye(2)),
        np.array([[1, 0], [0, 1]], dtype=object),
    ):
        index.add_views(documents, views)
        assert [index.views(one.id).vectors.tolist() for one in documents] == [[[1.0, 0.0]], [[0.0, 1.0]]]


@pytest.mark.parametrize("views", [None, 5, "ab", {"a": [1.0, 0.0]}], ids=["none", "number", "text", "dict"])
def test_views_that_are_no_rows_are_named(index, views):
    with pytest.raises(EncoderError, match=f"views: expected shape .*got {type(views).__name__}"):
        index.add_views([mvindex.Document("a", "a"), mvindex.Document("b", "b")], views)
