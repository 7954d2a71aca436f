"""The conformance suite of Block and Tap: the C kernel and the fallback both pass it."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest
import torch
from agreement import assert_same_digest, rows
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tensonde.digest import DTYPES, rows_of
from tensonde.digest.reference import digest_array


def fake():
    with FakeTensorMode():
        return torch.ones(3)


def freed():
    tensor = torch.ones(10)
    tensor.untyped_storage().resize_(0)
    return tensor


class Disguise(torch.Tensor):
    """A subclass that raises on every use."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("do not touch")


ODD = {
    "none": lambda: None,
    "string": lambda: "tensor",
    "number": lambda: 3.0,
    "list": lambda: [1.0, 2.0],
    "bytes": lambda: b"12345678",
    "type": lambda: torch.Tensor,
    "object": object,
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "meta": lambda: torch.ones(3, device="meta"),
    "fake": fake,
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "complex32": lambda: torch.ones(3, dtype=torch.complex32),
    "bits": lambda: torch.empty(3, dtype=torch.bits8),
    "zero tensor": lambda: torch._efficientzerotensor(3),
    "freed": freed,
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "array of objects": lambda: np.array([object()]),
    "array of strings": lambda: np.array(["a"]),
    "record array": lambda: np.zeros(3, [("a", "f4")]),
    "foreign byte order": lambda: np.ones(3, ">f4"),
    "longdouble": lambda: np.ones(3, np.longdouble),
    "dates": lambda: np.zeros(3, "datetime64[s]"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_odd_things_are_skipped(block, name):
    if name == "foreign byte order" and type(block).__module__ == "tensonde.digest.fallback":
        pytest.skip("numpy reads both byte orders")
    odd = ODD[name]()
    assert block.add(1, odd) == -1
    assert block.tap(1)(odd) is None
    assert block.add_difference(1, odd, odd) == -1
    assert (len(block), block.skipped) == (0, 3)


@pytest.mark.filterwarnings("ignore")
def test_odd_views_are_right(block):
    z = torch.tensor([1 + 2j, 3 - 4j, -5 + 1j])
    base = torch.arange(12.0).reshape(3, 4)
    for tensor in (
        z.conj(),
        z.conj().imag,
        z.conj().imag[1],
        z.real,
        base.t(),
        base[:, 1:3],
        base[1],
        base.expand(2, 3, 4),
        torch.tensor(2.0),
        torch.empty(0, 3),
    ):
        block.clear()
        assert block.add(1, tensor) == 0
        expected = digest_array(tensor.resolve_conj().resolve_neg().numpy())[0]
        assert_same_digest(rows(block)[0], expected)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if hasattr(torch, name)])
def test_every_dtype(block, dtype):
    exponents = dtype == "float8_e8m0fnu"  # it holds powers of two, and no 0
    numbers = [2, 1, 4, 1] if exponents else [0, 1, 3, 1]
    tensor = torch.tensor(numbers, dtype=torch.float64).to(getattr(torch, dtype))
    assert block.add(1, tensor) == 0
    row = rows(block)[0]
    assert DTYPES[row["dtype"]] == dtype
    largest = 1 if dtype == "bool" else max(numbers)
    assert (row["count"], row["zero"], row["max"]) == (4, numbers.count(0), largest)


def test_parameters_gradients_and_subclasses(block):
    weight = nn.Parameter(torch.ones(3, 4))
    assert block.add(1, weight) == 0
    assert block.add(1, weight * 2) == 1
    assert block.add(1, torch.ones(3).as_subclass(type("Sub", (torch.Tensor,), {}))) == 2
    assert block.add(1, np.ones(3)) == 3
    assert rows(block)["norm"][:2] == pytest.approx([12**0.5, 2 * 12**0.5])


def test_a_raising_subclass_does_no_harm(block):
    tensor = torch.ones(4, 4).as_subclass(Disguise)
    index = block.add(1, tensor)
    assert index in (-1, 0)


def test_where_and_when_a_row_was_added(block):
    block.step, block.phase = 2**40, 2
    assert block.add(7, torch.ones(2), 3) == 0
    assert block.add(8, torch.ones(2), call=4) == 1
    assert block.reserve(9, call=5) == 2
    assert block.add_difference(10, torch.ones(2), torch.zeros(2), call=6) == 3
    assert len(block) == 4
    found = rows(block)[:4]
    assert found["site"].tolist() == [7, 8, 9, 10]
    assert found["call"].tolist() == [3, 4, 5, 6]
    assert set(found["step"]) == {2**40}
    assert set(found["phase"]) == {2}
    assert found["count"].tolist() == [2, 2, 0, 2]
    assert rows_of(block).shape == (4,)


def test_a_view_sees_later_rows_and_can_fill_them(block):
    view = rows(block)
    assert view.shape == (block.capacity,)
    block.reserve(1)
    view["norm"][0] = 5
    block.add(2, torch.ones(4))
    assert view["norm"][:2].tolist() == [5, 2]
    block.clear()
    assert len(block) == 0
    assert block.add(3, torch.ones(1)) == 0
    assert view["site"][0] == 3


def test_add_many(block):
    added = block.add_many([1, 2, 3, 4], [torch.ones(2), None, "odd", torch.zeros(3)])
    assert (added, len(block), block.skipped) == (2, 2, 1)
    assert rows_of(block)["site"].tolist() == [1, 4]
    with pytest.raises(ValueError, match="2 sites for 1"):
        block.add_many([1, 2], [torch.ones(1)])


def test_difference_needs_alike_tensors(block):
    assert block.add_difference(1, torch.ones(2), torch.ones(3)) == -1
    assert block.add_difference(1, torch.ones(2), torch.ones(2, dtype=torch.float64)) == -1
    assert block.add_difference(1, torch.ones(2), None) == -1
    assert block.skipped == 3
    assert block.add_difference(1, torch.ones(2, 3), torch.ones(3, 2).t()) == 0
    assert rows(block)[0]["norm"] == 0


def test_nonfinite_is_reported_at_once(block):
    seen = []
    block.on_nonfinite = lambda site, index, tensor: seen.append((site, index, tensor, len(block)))
    good, bad = torch.ones(3), torch.tensor([1.0, float("inf")])
    block.add(1, good)
    block.add(2, bad)
    block.tap(3)(bad * float("nan"))
    assert [(site, index, length) for site, index, _, length in seen] == [(2, 1, 2), (3, 2, 3)]
    assert seen[0][2] is bad


def test_a_full_block_asks_to_be_emptied(make):
    block = make(2)
    for _ in range(3):
        last = block.add(1, torch.ones(1))
    assert (last, len(block), block.dropped) == (-1, 2, 1)
    flushed = []

    def flush():
        flushed.append(rows_of(block)["site"].tolist())
        block.clear()

    block.on_full = flush
    assert [block.add(site, torch.ones(1)) for site in (5, 6, 7)] == [0, 1, 0]
    assert flushed == [[1, 1], [5, 6]]
    assert block.dropped == 1


def test_a_callback_that_raises(block, monkeypatch):
    def fail(*_):
        raise KeyError("callback")

    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    block.on_nonfinite = fail
    with pytest.raises(KeyError):
        block.add(1, torch.tensor(float("nan")))
    with pytest.raises(KeyError):
        block.add_many([1], [torch.tensor(float("nan"))])
    assert not unraisable
    assert block.tap(1)(torch.tensor(float("nan"))) is None
    assert unraisable[0].exc_type is KeyError
    assert len(block) == 3


def test_a_tap_is_an_autograd_hook(block):
    weight = torch.ones(3, requires_grad=True)
    tap = block.tap(4, call=2)
    weight.register_hook(tap)
    hidden = weight * 2
    hidden.register_hook(block.tap(5))
    (hidden * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert rows_of(block)["site"].tolist() == [5, 4]
    assert rows_of(block)["max"].tolist() == [3, 6]
    assert weight.grad.tolist() == [2, 4, 6]
    tap.site, tap.call = 9, 1
    tap(torch.ones(2))
    assert rows_of(block)[["site", "call"]][-1].tolist() == (9, 1)


def test_time_is_counted(block):
    block.add(1, torch.ones(1000))
    assert 0 < block.nanos < 1e9
    block.nanos = 0
    block.tap(1)(torch.ones(1000))
    assert block.nanos > 0


def test_what_ends_a_program_passes_through_a_tap(block):
    def end(*_):
        raise SystemExit(3)

    block.on_nonfinite = end
    with pytest.raises(SystemExit):
        block.tap(1)(torch.tensor(float("nan")))


def test_the_time_of_a_callback_is_not_the_digests(block):
    block.on_nonfinite = lambda *_: time.sleep(0.05)
    block.add(1, torch.tensor(float("nan")))
    assert block.nanos < 25e6


def test_wrong_arguments_raise(make):
    with pytest.raises(ValueError):
        make(0)
    block = make(1)
    for arguments in ((), (1,), (1, 2, 3, 4)):
        with pytest.raises(TypeError):
            block.add(*arguments)
    with pytest.raises(TypeError):
        block.add(1, torch.ones(1), cal=3)


def test_no_reference_is_kept(make):
    class Owner:
        def __init__(self):
            self.block = make(4)
            self.block.on_full = self.flush
            self.tap = self.block.tap(1)

        def flush(self):
            self.block.clear()

    owner = Owner()
    owner.tap(torch.ones(1))
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
