"""Arguments become JSON and back without loss, and what no encoder writes is refused."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensonde.adapters.torch.replay.bundle.functions import function_of, name_of
from tensonde.adapters.torch.replay.bundle.tensors import Contents, Gathered, Unsaveable
from tensonde.adapters.torch.replay.bundle.tree import Decoder, Encoder
from tensonde.adapters.torch.replay.call import Slot
from tensonde.adapters.torch.tensors import raw_bytes
from tensonde.errors import RecordingError
from tensonde.store.bundles import write_bundle


def nothing(*_: Any) -> Any:
    raise AssertionError


def there_and_back(value: Any, folder: Path) -> Any:
    tensors = Gathered()
    tree = Encoder(tensors, {}, {}).encode(value)
    write_bundle(folder / "bundle", {}, tensors.stored())
    return Decoder(Contents(folder / "bundle", tensors.facts), nothing, nothing).decode(tree)


PLAIN = [
    None, True, 3, -1.5, 1e-320, "text", [1, (2, [3])], (), {"a": 1, 2: (3,)}, OrderedDict(b=1), slice(None, 2), ...,
    1 + 2j, torch.float16, torch.device("cpu"), torch.channels_last, torch.strided, torch.Size([2, 3]), math.inf,
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values(value: Any, tmp_path: Path) -> None:
    back = there_and_back(value, tmp_path)
    assert (back, type(back)) == (value, type(value))


def test_slots_and_nan(tmp_path: Path) -> None:
    back = there_and_back([Slot(3), math.nan], tmp_path)
    assert isinstance(back[0], Slot)
    assert math.isnan(back[1])


TENSORS = {
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": torch.randn(3, 1).expand(3, 4),
    "part": torch.arange(20).reshape(4, 5)[:, 1:3],
    "windows": torch.arange(8.0).unfold(0, 3, 1),
    "scalar": torch.tensor(1.5, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 3),
    "one": torch.randn(8, 6)[:, :1].t()[:, :1],
    "complex": torch.tensor([1 + 2j, 3j]),
    "bool": torch.tensor([True, False]),
    "float8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    "not finite": torch.tensor([math.nan, math.inf]),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_keep_their_bits_and_their_layout(name: str, tmp_path: Path) -> None:
    tensor = TENSORS[name]
    back = there_and_back(tensor, tmp_path)
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert raw_bytes(back) == raw_bytes(tensor)
    if name not in ("windows", "one"):
        assert back.stride() == tensor.stride()


def test_bytes_of_a_part_that_is_one_wide() -> None:
    """Its stride in that dimension is of no account to torch, and was to the view as bytes."""
    part = torch.arange(12.0).reshape(2, 6)[:1, :1]
    assert raw_bytes(torch.randn(1, 8).t()[:, :1])[2] == (8, 1)
    assert raw_bytes(part)[0] == bytes(4)


def test_one_tensor_twice_is_one_tensor(tmp_path: Path) -> None:
    tensor = torch.ones(3, requires_grad=True)
    first, second = there_and_back([tensor, tensor], tmp_path)
    assert first is second
    assert first.requires_grad


def test_arrays(tmp_path: Path) -> None:
    array, number = there_and_back([np.arange(3, dtype=np.int16), np.float32(0.5)], tmp_path)
    assert (array.tolist(), array.dtype, number, type(number)) == ([0, 1, 2], np.int16, 0.5, np.float32)


@pytest.mark.parametrize(
    "value",
    [object(), lambda: 0, np.array([object()]), torch.ones(2).to_sparse(), nn.Linear(1, 1), torch.Generator()],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_written_is_said(value: Any) -> None:
    with pytest.raises(Unsaveable):
        Encoder(Gathered(), {}, {}).encode(value)


@pytest.mark.parametrize(
    "tree",
    [
        {"decode": 1}, {"_class__": 1}, {"tensor": "absent"}, {"tensor": ["x"]}, {"slice": [1]}, {"dtype": "load"},
        {"device": "nowhere"}, {"dataclass": ["os", "system", {}]}, {"namedtuple": ["sys", "version_info", [1]]},
        {"dataclass": ["subprocess", "Popen", {"args": "x"}]}, {"tuple": 3}, {"a": 1, "b": 2}, {"size": ["x"]},
        {"namedtuple": ["builtins", "int", []]},
    ],
    ids=str,
)  # fmt: skip
def test_what_no_encoder_writes_is_refused(tree: Any, tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", {}, [])
    with pytest.raises(RecordingError):
        Decoder(Contents(tmp_path / "bundle", {}), nothing, nothing).decode(tree)


FUNCTIONS = [
    torch.Tensor.log, torch.log, torch.Tensor.__getitem__, torch.Tensor.T.__get__, nn.functional.cross_entropy,
    torch.zeros, torch.Tensor.new_zeros, torch.einsum, torch.special.expit, torch.linalg.norm, torch.fft.fft,
    torch._C._nn.pad_sequence, torch._VF._pack_padded_sequence, torch.ops.aten.add.Tensor, torch.ops.aten.relu,
    torch.Tensor.__setitem__, torch.Tensor.__rsub__, torch.as_tensor,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_functions_by_name(function: Any) -> None:
    name = name_of(function)
    assert name is not None
    assert name.startswith("torch.")
    assert function_of(name) == function


@pytest.mark.parametrize(
    "name",
    [
        "os.system", "torch.load", "torch.save", "torch.hub.load", "torch.ops.load_library.__call__", "builtins.eval",
        "torch.ops.aten.from_file", "torch.ops.aten.save", "torch._C._VariableFunctions.from_file", "torch.from_file",
        "torch.serialization.load", "torch.os.system", "torch.utils.data", "torch._C._nn.__class__", "",
        "torch.ops.prim.Print", "torch.Tensor.__class__", "torch.compile", "torch.jit.load",
    ],
)  # fmt: skip
def test_other_names_stand_for_nothing(name: str) -> None:
    assert function_of(name) is None
