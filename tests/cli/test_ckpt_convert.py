"""`tensonde ckpt` and `tensonde convert` as a user runs them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from launch import cli, environment
from tensonde.store.weights import Measure, Statistics


@pytest.fixture
def two(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    old = {
        "same": torch.randn(50), "moved": torch.ones(100), "kind": torch.ones(4), "form": torch.ones(4), "gone": torch.ones(1),
        "bias": torch.zeros(8),
    }  # fmt: skip
    new = {
        "same": old["same"], "moved": old["moved"] * 1.5, "kind": old["kind"].half(), "form": torch.ones(2, 2),
        "bias": torch.zeros(8), "fresh": torch.randn(3),
    }  # fmt: skip
    torch.save(old, tmp_path / "old.pt")
    save_file(new, tmp_path / "new.safetensors")
    return tmp_path


def test_the_difference_of_two_checkpoints(two: Path) -> None:
    ran = cli("ckpt", "old.pt", "new.safetensors", "--json", cwd=two)
    assert ran.code == 0, ran.err
    told = {entry["name"]: entry for entry in json.loads(ran.out)["tensors"]}
    assert {name: entry["status"] for name, entry in told.items()} == {
        "same": "unchanged", "moved": "changed", "kind": "dtype", "form": "shape", "bias": "unchanged", "fresh": "new", "gone": "missing",
    }  # fmt: skip
    assert told["moved"]["update_ratio"] == pytest.approx(0.5)
    assert told["moved"]["max_abs"] == pytest.approx(0.5)
    assert told["kind"]["update_ratio"] == 0
    text = cli("ckpt", "old.pt", "new.safetensors", "--flagged", cwd=two).out
    assert "dtype changed" in text
    assert "float32 → float16" in text
    assert "4 → 2×2" in text
    assert "same" not in text
    assert "2 unchanged, 1 changed" in text


def test_nothing_learned_is_said(two: Path) -> None:
    ran = cli("ckpt", "old.pt", "old.pt", cwd=two)
    assert ran.code == 0
    assert "nothing was learned" in ran.out


def test_a_wrapper_does_not_hide_what_is_the_same(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.ones(2)}, tmp_path / "a.pt")
    torch.save({"module._orig_mod.fc.weight": torch.ones(2)}, tmp_path / "b.pt")
    assert json.loads(cli("ckpt", "a.pt", "b.pt", "--json", cwd=tmp_path).out)["counts"] == {"unchanged": 1}


def test_flags_and_exit_code(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weights = {name: torch.randn(5000) for name in ("fine", "nan", "inf", "far")}
    weights["nan"][3], weights["inf"][4], weights["far"][5] = float("nan"), float("-inf"), 1000.0
    weights |= {"zero": torch.zeros(9), "one": torch.ones(9), "few": torch.tensor([1.0, 1000.0])}
    torch.save(weights, tmp_path / "a.pt")
    ran = cli("ckpt", "a.pt", "--json", cwd=tmp_path)
    assert ran.code == 1
    told = {entry["name"]: entry for entry in json.loads(ran.out)["tensors"]}
    assert {name: entry["flags"] for name, entry in told.items()} == {
        "fine": [], "nan": ["nan"], "inf": ["inf"], "far": ["outlier"], "zero": ["zero"], "one": ["constant"], "few": [],
    }  # fmt: skip
    expected = weights["fine"].double()
    assert told["fine"]["mean"] == pytest.approx(expected.mean().item())
    assert told["fine"]["std"] == pytest.approx(expected.std(correction=0).item())
    del weights["nan"], weights["inf"]
    torch.save(weights, tmp_path / "b.pt")
    assert cli("ckpt", "b.pt", cwd=tmp_path).code == 0


def test_statistics_of_pieces_are_those_of_the_whole() -> None:
    values = np.random.default_rng(0).normal(3, 2, 10_000).astype(np.float32)
    values[17], values[5000] = np.nan, np.inf
    statistics, measure = Statistics(), Measure()
    for piece in np.array_split(values, 7):
        measure.add(statistics, piece)
    finite = values[np.isfinite(values)].astype(np.float64)
    assert (statistics.count, statistics.nan, statistics.inf) == (10_000, 1, 1)
    for name, expected in [
        ("mean", finite.mean()), ("std", finite.std()), ("min", finite.min()), ("max", finite.max()),
        ("absmean", np.abs(finite).mean()), ("norm", np.linalg.norm(finite)),
    ]:  # fmt: skip
        assert getattr(statistics, name) == pytest.approx(expected), name


def test_a_large_checkpoint_is_streamed(tmp_path: Path) -> None:
    """1.5 GB, sparse on disk: what `tensonde ckpt` holds of it stays far below."""
    count = 3
    size = 512 << 20
    header = json.dumps(
        {
            f"w{k}": {"dtype": "F32", "shape": [size // 4], "data_offsets": [k * size, (k + 1) * size]}
            for k in range(count)
        }
    ).encode()
    with open(tmp_path / "a.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + count * size)
    code = (  # the rusage of a child begins with what its parent held
        "import sys; from tensonde.cli.main import main\n"
        "sys.argv = ['tensonde', 'ckpt', 'a.safetensors', '--json']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert [entry["flags"] for entry in json.loads(done.stdout)["tensors"]] == [["zero"]] * count
    assert int(done.stderr) < 600 << 10, "kilobytes"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ckpt", "nowhere.pt"], "nowhere.pt does not exist"),
        (["ckpt", "text"], "of no format that is known here"),
        (["ckpt", "cut.pt"], "truncated or damaged"),
        (["ckpt", "a.pt", "--site", "zzz"], "no tensor that matches zzz"),
        (["ckpt", "a.pt", "--site", "a:otu"], "--site"),
        (["convert", "a.pt", "a.pt"], "cannot be written"),
        (["convert", "a.pt", "there.npz"], "is already there"),
        (["convert", "nowhere", "x.npz"], "does not exist"),
        (["convert", "a.pt", "x.npz", "--steps", "b"], "--steps is 'b'"),
        (["convert", "a.pt", "x.npz", "--site", "zzz:out"], "no tensor to convert that was asked for"),
        (["convert", "a.pt", "x.npz", "--rank", "3"], "has no rank 3"),
    ],
)
def test_wrong_use_is_a_sentence_and_exit_2(tmp_path: Path, words: list[str], said: str) -> None:
    torch.save({"a": torch.ones(100)}, tmp_path / "a.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-200])
    (tmp_path / "text").write_text("some text\n")
    (tmp_path / "there.npz").write_text("precious")
    ran = cli(*words, cwd=tmp_path)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert (tmp_path / "there.npz").read_text() == "precious"


def test_a_full_disk_in_the_middle_leaves_nothing_half_done(tmp_path: Path) -> None:
    """The system call fails as it does on a full disk, by a limit on the size of files."""
    torch.save({f"w{k}": torch.randn(100_000) for k in range(5)}, tmp_path / "a.pt")
    before = (tmp_path / "a.pt").read_bytes()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    for target in ("x.safetensors", "x.npz", "x.parquet", "x"):
        extra = ["--to", "dump"] if target == "x" else []
        done = subprocess.run(
            [sys.executable, "-m", "tensonde", "convert", "a.pt", target, *extra],
            cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, preexec_fn=limit,
        )  # fmt: skip
        assert done.returncode == 2, (target, done.stderr)
        assert "could not be written" in done.stderr
        assert "Traceback" not in done.stderr
        assert sorted(os.listdir(tmp_path)) == ["a.pt"], target
    assert (tmp_path / "a.pt").read_bytes() == before


def test_a_dump_to_npy_by_step_and_site(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nnet = nn.Sequential(nn.Linear(2, 3), nn.ReLU())\n"
        "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
        "for _ in range(4):\n    net(torch.ones(1, 2)).sum().backward()\n    opt.step()\n"
    )
    ran = cli(
        "run", "--dump", "0:out", "--dump", "1:out", "--dump-steps", "1,3", "--record", "r", "train.py", cwd=tmp_path
    )
    assert ran.code == 0, ran.err
    assert "dumped 4 tensors" in ran.err
    done = cli("convert", "r", "out", "--steps", "3", cwd=tmp_path)
    assert done.code == 0, done.err
    files = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.npy"))
    assert files == ["rank_0/000003/0.out.npy", "rank_0/000003/1.out.npy"]
    first, second = (np.load(tmp_path / "out" / name) for name in files)
    assert np.array_equal(second, np.maximum(first, 0))
    again = json.loads(cli("convert", "out", "back.parquet", "--json", cwd=tmp_path).out)
    assert (again["tensors"], again["problems"]) == (2, [])
