"""Every kind of source gives the same tensors with the same bits, and bad ones are refused with a sentence."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tensonde.errors import RecordingError
from tensonde.store.converting.convert import convert, format_of
from tensonde.store.sources import TensorSource, open_source

GOLDEN = Path(__file__).parent / "golden"


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    found: dict[str, torch.Tensor] = {
        str(dtype).removeprefix("torch."): torch.randn(3, 5).to(dtype)
        for dtype in (
            torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
            torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.complex64,
        )
    }  # fmt: skip
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        found[str(dtype).removeprefix("torch.")] = torch.randint(0, 2, (7,)).to(dtype)
    return {**found, "scalar": torch.tensor(1.5), "empty": torch.zeros(0, 3), "large": torch.randn(300, 400)}


def wide(tensor: torch.Tensor) -> Any:
    """In numpy, as `read` gives it."""
    narrow = tensor.dtype == torch.bfloat16 or "float8" in str(tensor.dtype)
    return tensor.float().numpy() if narrow else tensor.numpy()


def check(source: TensorSource, expected: dict[str, torch.Tensor]) -> None:
    assert source.problems == []
    assert {entry.name for entry in source.entries} == set(expected)
    for entry in source.entries:
        tensor = expected[entry.name]
        assert entry.dtype == str(tensor.dtype).removeprefix("torch.")
        assert entry.shape == tuple(tensor.shape)
        assert np.array_equal(source.read(entry), wide(tensor), equal_nan=tensor.is_floating_point()), entry.name
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)
        assert np.array_equal(source.raw(entry), raw)
        assert np.array_equal(
            np.concatenate([*source.chunks(entry, 8), [][:0]]), wide(tensor).reshape(-1), equal_nan=True
        )


def test_torch_checkpoints_give_every_tensor(tmp_path: Path) -> None:
    torch.save(tensors(), tmp_path / "a.pt")
    check(open_source(tmp_path / "a.pt"), tensors())


def test_safetensors_files_give_every_tensor(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "a.safetensors")
    check(open_source(tmp_path / "a.safetensors"), tensors())


def test_npz_files_compressed_or_not(tmp_path: Path) -> None:
    plain = {name: tensor for name, tensor in tensors().items() if "float8" not in name and name != "bfloat16"}
    arrays = {name: tensor.numpy() for name, tensor in plain.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    check(open_source(tmp_path / "a.npz"), plain)
    check(open_source(tmp_path / "b.npz"), plain)


def test_odd_npy_files(tmp_path: Path) -> None:
    square = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(square))
    np.save(tmp_path / "big.npy", square.astype(">f4"))
    np.save(tmp_path / "brain.npy", square.astype(ml_dtypes.bfloat16))
    source = open_source(tmp_path)
    assert {entry.name: source.read(entry).tolist() for entry in source.entries} == dict.fromkeys(
        ["fortran", "big", "brain"], square.tolist()
    )
    assert {entry.name: entry.dtype for entry in source.entries}["brain"] == "bfloat16"


@pytest.mark.parametrize("target", ["t.npz", "t.safetensors", "t.parquet", "folder", "tensonde"])
def test_conversion_and_back_keeps_every_bit(tmp_path: Path, target: str) -> None:
    torch.save(tensors(), tmp_path / "a.pt")
    first = open_source(tmp_path / "a.pt")
    form = "dump" if target == "tensonde" else format_of(tmp_path / target, None)
    convert(first, first.entries, tmp_path / target, form)
    second = open_source(tmp_path / target)
    check(second, tensors())
    convert(second, second.entries, tmp_path / "again.npz", "npz")
    check(open_source(tmp_path / "again.npz"), tensors())


def test_what_torch_and_others_make_of_a_conversion(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    torch.save(tensors(), tmp_path / "a.pt")
    source = open_source(tmp_path / "a.pt")
    convert(source, source.entries, tmp_path / "a.safetensors", "safetensors")
    loaded = load_file(tmp_path / "a.safetensors")
    for name, tensor in tensors().items():
        if name != "complex64":
            assert loaded[name].dtype == tensor.dtype
            assert torch.equal(loaded[name].float(), tensor.float()) or name.endswith("fnuz")
    convert(source, source.entries, tmp_path / "a.npz", "npz", widen=True)
    with np.load(tmp_path / "a.npz") as arrays:
        assert np.array_equal(arrays["bfloat16"], tensors()["bfloat16"].float().numpy())
        assert arrays["large"].shape == (300, 400)
        assert {type(value) for value in arrays.values()} == {np.ndarray}, "nothing else is in it"
    check(open_source(tmp_path / "a.npz"), {name: _widened(tensor) for name, tensor in tensors().items()})


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    narrow = tensor.dtype is torch.bfloat16 or str(tensor.dtype).startswith("torch.float8")
    return tensor.float() if narrow else tensor


def test_an_npz_with_its_notes_in_a_member_of_their_own(tmp_path: Path) -> None:
    """As versions before wrote them; and comments of somebody else's are passed over."""
    import zipfile

    np.savez(tmp_path / "a.npz", weight=np.ones(3, np.float32))
    note = {
        "site": "fc.weight:grad", "dtype": "float32", "step": 4, "phase": "backward", "call": 0, "rank": 0, "order": 0,
        "kind": "parameter", "type": "", "shape": [3],
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.infolist()[0].comment = b"hello"
        archive.writestr("other.txt", "")
    (entry,) = open_source(tmp_path / "a.npz").entries
    assert (entry.site, entry.step) == ("weight:value", -1)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("index.json", json.dumps({"weight": note}))
    (entry,) = open_source(tmp_path / "a.npz").entries
    assert (entry.site, entry.step) == ("fc.weight:grad", 4)


def test_views_parameters_shared_and_nested(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    content = {
        "model": nn.Linear(3, 2).state_dict(), "turned": base.t(), "part": base[1:3, ::2], "wide": base[:1].expand(5, 6),
        "shared": [base, base], "parameter": nn.Parameter(base.clone()), "epoch": 3, "name": "x", "none": None,
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 0.1, "params": [0]}]},
        "numpy": np.float64(3.5),
    }  # fmt: skip
    torch.save(content, tmp_path / "a.pt")
    source = open_source(tmp_path / "a.pt")
    at = {entry.name: source.read(entry) for entry in source.entries}
    assert set(at) == {
        "model.weight", "model.bias", "turned", "part", "wide", "shared.0", "shared.1", "parameter", "optimizer.state.0.step",
    }  # fmt: skip
    for name in ("turned", "part", "wide"):
        assert np.array_equal(at[name], content[name].numpy()), name
    assert any("numpy" in problem for problem in source.problems), "what was left out is said"


@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_that_a_checkpoint_names_is_run(tmp_path: Path, protocol: int) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (eval, (f"open({str(tmp_path / 'sprung')!r}, 'w')",))

    torch.save({"a": torch.ones(1), "b": Trap()}, tmp_path / "a.pt", pickle_protocol=protocol)
    with pytest.raises(RecordingError, match=r"names (__builtin__|builtins)\.eval, which is code"):
        open_source(tmp_path / "a.pt")
    torch.save(nn.Linear(1, 1), tmp_path / "b.pt")
    with pytest.raises(RecordingError, match=r"names torch\.nn\.modules\.linear\.Linear"):
        open_source(tmp_path / "b.pt")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "attack",
    [
        b"\x80\x02cbuiltins\nset\n}X\x01\x00\x00\x00aK\x01sb.",  # state for a builtin type
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(tR.",
        b"\x80\x02ccollections\nOrderedDict\nX\x03\x00\x00\x00xyz\x85R.",
        b"\x80\x02\x8a\xff" + b"\xff" * 10,
        b"\x80\x02" + b"(" * 200_000,
        b"\x80\x02ctorch\nfloat32\n}X\x04\x00\x00\x00nameX\x01\x00\x00\x00ysb.",
        b"",
    ],
)
def test_broken_and_hostile_pickles_are_refused(tmp_path: Path, attack: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", attack)
        archive.writestr("a/byteorder", "little")
    with pytest.raises(RecordingError, match=r"a\.pt cannot be read as a torch checkpoint"):
        open_source(tmp_path / "a.pt")


def test_old_torch_files_and_bare_pickles_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "bare.pkl").write_bytes(pickle.dumps({"a": 1}))
    for name in ("old.pt", "bare.pkl"):
        with pytest.raises(RecordingError, match="old format"):
            open_source(tmp_path / name)


# -- MindSpore and msprobe: files that these tools have made -----------------------------------------


def test_mindspore_checkpoints() -> None:
    source = open_source(GOLDEN / "mindspore" / "net.ckpt")
    at = {entry.name: source.read(entry) for entry in source.entries}
    assert {name: array.shape for name, array in at.items()} == {
        "conv1.weight": (2, 1, 3, 3), "fc.weight": (3, 128), "fc.bias": (3,),
    }  # fmt: skip
    assert np.all(at["conv1.weight"] == 1)
    summed = open_source(GOLDEN / "mindspore" / "crc.ckpt")
    assert [np.array_equal(summed.read(entry), at[entry.name]) for entry in summed.entries] == [True] * 3
    odd = open_source(GOLDEN / "mindspore" / "odd.ckpt")
    assert [(e.name, e.dtype, odd.read(e).tolist()) for e in odd.entries][:3] == [
        ("a.bf", "bfloat16", [[0, 1, 2], [3, 4, 5]]), ("b.i", "int64", [0, 1, 2, 3]), ("s", "float32", 1.5),
    ]  # fmt: skip


def _field(number: int, content: bytes) -> bytes:
    size, length = b"", len(content)
    while length >= 0x80:
        size, length = size + bytes([length & 0x7F | 0x80]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


def test_a_mindspore_tensor_in_several_parts(tmp_path: Path) -> None:
    """MindSpore splits what is larger than 512 MB into values of one tag; here in the middle of an element, too."""
    array = np.arange(100, dtype=np.float32)
    content = array.tobytes()
    parts = [content[:130], content[130:131], content[131:]]
    values = b""
    for part in parts:
        tensor = b"\x08\x0a\x08\x0a" + _field(2, b"Float32") + _field(3, part)
        values += _field(1, _field(1, b"big") + _field(2, tensor))
    values += _field(1, _field(1, b"small") + _field(2, b"\x0a\x01\x02" + _field(2, b"Int8") + _field(3, b"\x01\xff")))
    (tmp_path / "a.ckpt").write_bytes(values)
    source = open_source(tmp_path / "a.ckpt")
    big, small = source.entries
    assert big.shape == (10, 10)
    assert np.array_equal(source.read(big), array.reshape(10, 10))
    assert np.array_equal(np.concatenate(list(source.chunks(big, 8))), array)
    assert source.read(small).tolist() == [1, -1]


def test_mindspore_dumps() -> None:
    source = open_source(GOLDEN / "mindspore" / "dump")
    assert (source.kind, source.ranks, source.problems) == ("mindspore-dump", [0], [])
    first = [entry for entry in source.entries if entry.step == 0]
    assert len(first) == len(source.entries) // 2 == 20
    names = [entry.site for entry in first]
    assert names[:4] == [
        "Default_conv1-Conv2d_Conv2D-op0:in[0]", "Default_conv1-Conv2d_Conv2D-op0:in[1]", "Default_conv1-Conv2d_Conv2D-op0:out",
        "Default_ReLU-op0:in",
    ]  # fmt: skip
    at = {entry.site: source.read(entry) for entry in first}
    given = np.random.RandomState(0).randn(2, 1, 8, 8).astype(np.float32)
    assert np.array_equal(at["Default_conv1-Conv2d_Conv2D-op0:in[0]"], given)
    assert np.array_equal(at["Default_ReLU-op0:out"], np.maximum(at["Default_ReLU-op0:in"], 0))
    assert {entry.type for entry in first if entry.kind == "parameter"} == {"Parameter"}
    assert "conv1_weight:value" in at
    alone = open_source(GOLDEN / "mindspore" / "dump" / "rank_0" / "Net" / "0" / "1")
    assert {entry.step for entry in alone.entries} == {1}


def test_msprobe_dumps() -> None:
    source = open_source(GOLDEN / "msprobe")
    assert (source.kind, source.ranks, source.problems) == ("msprobe", [0], [])
    at = {entry.site: (entry, source.read(entry)) for entry in source.entries}
    forward = at["0:in"][1] @ at["0.weight:value"][1].T + at["0.bias:value"][1]
    np.testing.assert_allclose(at["0:out"][1], forward, rtol=1e-5)
    np.testing.assert_allclose(at["2:grad"][1].T @ at["2:in"][1], at["2.weight:grad"][1], rtol=1e-5)
    assert (at["0:out"][0].type, at["0:out"][0].kind, at["2:grad"][0].phase) == ("Linear", "module", "backward")
    assert at["0/linear#0:out"][0].kind == "op"
    assert np.array_equal(at["0/linear#0:out"][1], at["0:out"][1])


# -- what is wrong ------------------------------------------------------------------------------------


def test_sharded_checkpoints_and_what_is_missing_of_them(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.zeros(2)}, tmp_path / "two.safetensors")
    with pytest.raises(RecordingError, match="no index"):
        open_source(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    source = open_source(tmp_path)
    assert {entry.name: source.read(entry).tolist() for entry in source.entries} == {"a": [1, 1], "b": [0, 0]}
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(RecordingError, match=r"names the shard two\.safetensors, which is not there"):
        open_source(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    with pytest.raises(RecordingError, match="is not there"):
        open_source(index)


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors", "a.npz", "a.npy", "a.parquet", "net.ckpt"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_files_are_refused(tmp_path: Path, name: str, share: float) -> None:
    content = {"x": torch.randn(400)}
    torch.save(content, tmp_path / "a.pt")
    save_file(content, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", x=content["x"].numpy())
    np.save(tmp_path / "a.npy", content["x"].numpy())
    source = open_source(tmp_path / "a.pt")
    convert(source, source.entries, tmp_path / "a.parquet", "parquet")
    (tmp_path / "net.ckpt").write_bytes((GOLDEN / "mindspore" / "net.ckpt").read_bytes())
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(RecordingError, match=name.replace(".", r"\.")):
        open_source(tmp_path / name)


def test_lies_in_a_safetensors_header(tmp_path: Path) -> None:
    for entry in (
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 8_000]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2]},
        7,
    ):
        header = json.dumps({"x": entry}).encode()
        (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
        with pytest.raises(RecordingError):
            open_source(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    "content", [b"", b"hello, world", b"\x0a\x05\x0a\x03abc", bytes(100), b"PK\x03\x04", b"PAR1xxxx"]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "thing").write_bytes(content)
    with pytest.raises(RecordingError, match="thing"):
        open_source(tmp_path / "thing")


def test_folders_without_anything_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not exist"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match="holds nothing that is known here"):
        open_source(tmp_path)
