"""Whatever stands in a file, a condition or an address: an answer, or one sentence and exit code 2. `campaign.py` does the same for longer, by hand."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import struct
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz_commands import FILE_COMMANDS, RUN_COMMANDS, fill, no_longer_than, run
from fuzz_mutations import mutate

from tensonde.errors import SyntaxProblem, UsageError
from tensonde.store.bundles import read_bundle
from tensonde.watch.parse import watchpoint

ROUNDS = 12


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TENSONDE_STRICT", raising=False)
    monkeypatch.chdir(tmp_path)


def damaged(whole: Path, at: Path, seed: random.Random) -> Path:
    given = at / "given" / whole.name
    shutil.rmtree(given.parent, ignore_errors=True)
    given.parent.mkdir(parents=True)
    (shutil.copytree if whole.is_dir() else shutil.copy)(whole, given)
    files = sorted(path for path in given.rglob("*") if path.is_file()) if given.is_dir() else [given]
    mutate(seed.choice(files), seed)
    return given


@pytest.mark.parametrize("number", range(3 * ROUNDS))
def test_damaged_recordings(base: Path, tmp_path: Path, number: int) -> None:
    seed = random.Random(number)
    whole = base / ("old" if number % 4 == 0 else "run")
    given = damaged(whole, tmp_path, seed)
    run(fill(RUN_COMMANDS[number % len(RUN_COMMANDS)], given, whole, tmp_path / "out" / "made"))


FILES = (
    "model.pt", "model.safetensors", "model.npz", "model.parquet", "one.npy", "arrays", "mindspore.ckpt", "sharded", "golden/msprobe", "dump"
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_damaged_tensors(base: Path, tmp_path: Path, name: str) -> None:
    for number in range(ROUNDS):
        seed = random.Random(f"{name} {number}")
        whole = base / name
        given = damaged(whole, tmp_path, seed)
        run(fill(seed.choice(FILE_COMMANDS), given, whole, tmp_path / "out" / "made"))


def test_whole_ones_are_read(base: Path, tmp_path: Path) -> None:
    """What is damaged in the other tests is right to begin with."""
    for name in FILES:
        assert run(["ckpt", str(base / name)])[0] in (0, 1), name
        assert run(fill(("convert", "{}", "{out}.npz"), base / name, base / name, tmp_path / "out" / "made"))[0] == 0, (
            name
        )


def test_damaged_bundles(base: Path, tmp_path: Path) -> None:
    whole = next((base / "run").rglob("bundle.json")).parent
    for number in range(5 * ROUNDS):
        given = damaged(whole, tmp_path, random.Random(number))
        with suppress(UsageError):
            read_bundle(given)


WORDS = (
    "norm", "nan", "avg(", "prev(norm", ")", ",", " ", ">", "<=", "1", "1e999", "-", "or", "and", "not", "'", "\\", "(", "[", "**", "{a,", "}", ":",
    "out", "*", "é", "\0", "exploding", "n=", "0x", "9" * 5000, "_", "inside(1,2)", "@", "lambda:", "\ud800", "if", "#", ";", "=",
)  # fmt: skip


def test_conditions_and_patterns() -> None:
    seed = random.Random(1)
    with warnings.catch_warnings(), no_longer_than(60):
        warnings.simplefilter("error")
        for _ in range(3000):
            text = "".join(seed.choice(WORDS) for _ in range(seed.randrange(1, 12)))
            with suppress(SyntaxProblem):
                watchpoint(f"{seed.choice(('**', text))} {text}", id=1)


# -- what was made to hurt ---------------------------------------------------------------------------------------------------------------


def refused(*words: str | Path) -> str:
    code, said = run([str(word) for word in words])
    assert code == 2
    assert said.count("\n") == 1, said
    return said


def safetensors(path: Path, header: bytes, content: bytes = b"") -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)
    return path


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"[1, 2]",
        b'{"a": []}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-8, -4]}}',
        b'{"a": {"dtype": "X", "shape": [1e999], "data_offsets": [0, 4]}}',
        b"[" * 100_000,
    ],
)
def test_safetensors_headers(tmp_path: Path, header: bytes) -> None:
    assert "a.safetensors" in refused("ckpt", safetensors(tmp_path / "a.safetensors", header, bytes(4)))


SHAPES = ("(-1,)", "(-2, -3)", "(4611686018427387904, 4)", "(99999999999999999999,)", "(2.5,)", "3", "((1,),)", "(1, ")


def npy(shape: str) -> bytes:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(24)


@pytest.mark.parametrize("shape", SHAPES)
def test_npy_and_npz_shapes(tmp_path: Path, shape: str) -> None:
    (tmp_path / "a.npy").write_bytes(npy(shape))
    assert "a.npy" in refused("ckpt", tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy(shape))
    assert "a.npz" in refused("ckpt", tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a" * 5000, "x/" * 3000 + "y"])
def test_paths_that_cannot_be(name: str, tmp_path: Path) -> None:
    for words in (["show", name], ["ckpt", name], ["query", name, "select 1"], ["diagnose", name], ["export", name, "out"], ["compare", name, name],
                  ["convert", name, "out.npz"], ["replay", name], ["ckpt", str(tmp_path), name], ["run", name]):  # fmt: skip
        assert len(refused(*words)) < 1000


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_pipes_and_devices_are_no_files(fifo: Path, base: Path, tmp_path: Path) -> None:
    for path in (fifo, Path("/dev/zero"), Path("/dev/tty")):
        assert str(path) in refused("ckpt", path)
        assert "out" not in os.listdir(tmp_path)
    shutil.copytree(base / "run", tmp_path / "run")
    for name in (
        "facts.json",
        "session.json",
        "sites.jsonl",
        "events.jsonl",
        "traces/000000.json",
        "digests/000000.parquet",
    ):
        path = tmp_path / "run" / "rank0" / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    assert run(["show", str(tmp_path / "run")])[0] == 0
    assert run(["query", str(tmp_path / "run"), "select count(*) from digests"])[0] == 0
    (tmp_path / "run" / "run.json").unlink()
    os.mkfifo(tmp_path / "run" / "run.json")
    assert str(tmp_path / "run") in refused("show", tmp_path / "run")


def test_archives_that_unpack_to_too_much(tmp_path: Path) -> None:
    size = 1 << 33
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},), }}\n".encode()
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("index.json", b" " * (100 << 20))
        archive.writestr("a.npy", npy("(6,)"))
    assert "a.npz" in refused("ckpt", tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.npy", npy("(6,)"))
    assert "b.npz" in refused("ckpt", tmp_path / "b.npz")
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(24))
    assert "c.npz" in refused("ckpt", tmp_path / "c.npz")


def torch_file(path: Path, content: bytes, compress: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compress) as archive:
        archive.writestr("m/data.pkl", content)
        archive.writestr("m/byteorder", "little")
    return path


def shared(levels: int, make: Any) -> Any:
    value = make([0] * 2)
    for _ in range(levels):
        value = make([value] * 12)
    return value


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("levels", [11, 60])
def test_pickles_whose_objects_hold_each_other(tmp_path: Path, kind: Any, levels: int) -> None:
    path = torch_file(tmp_path / "a.pt", pickle.dumps({"a": shared(levels, kind)}, 2))
    assert path.stat().st_size < 6000
    assert "a.pt" in refused("ckpt", path)


def test_pickles_whose_keys_take_for_ever(tmp_path: Path) -> None:
    inner: Any = ()
    for _ in range(40):
        inner = (inner, inner)
    made = b"\x80\x02}" + pickle.dumps(inner, 2)[2:-1] + b"K\x01s."  # {inner: 1}
    assert "a.pt" in refused("ckpt", torch_file(tmp_path / "a.pt", made))
    assert "b.pt" in refused(
        "ckpt", torch_file(tmp_path / "b.pt", b"\x80\x02}" + b"\x96" + struct.pack("<Q", 1 << 40) + b".")
    )
    assert "compressed" in refused(
        "ckpt", torch_file(tmp_path / "c.pt", pickle.dumps({}, 2) + bytes(10_000), zipfile.ZIP_DEFLATED)
    )


def test_a_dictionary_twice_in_a_checkpoint_is_read_twice(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {f"layer{k}": torch.ones(2) for k in range(50)}
    torch.save({"model": state, "ema": state, "best": state, ("a", 1): 3, "seen": {1, 2}}, tmp_path / "a.pt")
    from tensonde.store.sources import open_source

    assert len(open_source(tmp_path / "a.pt").entries) == 150


def test_huge_numbers_and_missing_keys_in_a_recording(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base / "run", tmp_path / "run")
    rank = tmp_path / "run" / "rank0"
    lines = (rank / "sites.jsonl").read_text().splitlines()
    (rank / "sites.jsonl").write_text(
        "\n".join([lines[0].replace('"id": 0', f'"id": {10**400}'), *lines[1:], '{"id": 1e999}']) + "\n"
    )
    assert run(["show", str(tmp_path / "run")])[0] == 0
    assert "sites.jsonl line" in run(["query", str(tmp_path / "run"), "select * from sites"])[1]
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "out.csv"), "--what", "sites"])[0] == 0
    (rank / "facts.json").write_text('{"modules": {"encoder": {}}, "optimizers": [{}], "parameters": {"x": 3}}')
    assert run(["diagnose", str(tmp_path / "run")])[0] in (0, 1)
    assert "facts.json" in refused("compare", tmp_path / "run", base / "run")


def test_a_session_of_a_newer_format_is_told(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base / "old", tmp_path / "old")
    path = tmp_path / "old" / "rank0" / "session.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    assert "format 99" in run(["query", str(tmp_path / "old"), "select 1"])[1]


def test_one_npy_file_is_converted(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.arange(6.0))
    assert run(["convert", str(tmp_path / "one.npy"), str(tmp_path / "two.safetensors")])[0] == 0


def test_a_dtype_that_is_unknown_here(tmp_path: Path) -> None:
    known = safetensors(
        tmp_path / "a.safetensors", b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', bytes(8)
    )
    other = safetensors(
        tmp_path / "b.safetensors", b'{"a": {"dtype": "X9", "shape": [2], "data_offsets": [0, 8]}}', bytes(8)
    )
    assert run(["compare", str(known), str(other)])[0] == 1
    assert run(["ckpt", str(known), str(other)])[0] == 0
