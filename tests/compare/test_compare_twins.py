"""`tensonde compare --run ... --run ...` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compare_scripts import PORT, REFERENCE, spoilt

from launch import cli, environment


def compare(folder: Path, a: str, b: str, *words: str) -> tuple[int, dict[str, object], str]:
    (folder / "port.py").write_text(a)
    (folder / "ref.py").write_text(b)
    command = [sys.executable, "-m", "tensonde", "compare", "--json", "--run", "port.py", "--run", "ref.py", *words]
    ran = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=280)
    return ran.returncode, json.loads(ran.stdout), ran.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_another_draw_is_removed_to_find_what_else_differs(tmp_path: Path) -> None:
    """A missing bias shifts all later draws; what is wrong is the bias."""
    port = spoilt(PORT, "nn.Linear(2 * size, size))", "nn.Linear(2 * size, size, bias=False))")
    code, verdict, _ = compare(tmp_path, port, REFERENCE)
    assert code == 1
    assert verdict["judgement"] == "forward"
    assert verdict["first"]["site"] == "layers.0.mlp.2:out"  # type: ignore[index]
    assert verdict["settings"][0] == {"what": "layers.0.mlp.2.bias", "a": "absent", "b": "present"}  # type: ignore[index]
    assert not list(tmp_path.glob(".tensonde"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_other_batches_are_exchanged_to_find_what_else_differs(tmp_path: Path) -> None:
    port = spoilt(PORT, "manual_seed(1)", "manual_seed(5)")
    code, verdict, _ = compare(tmp_path, spoilt(port, "nn.GELU()", "nn.ReLU()"), REFERENCE, "--html", "page.html")
    assert code == 1
    assert verdict["judgement"] == "data"
    assert verdict["then"]["first"]["site"].startswith("layers.0")  # type: ignore[index]
    page = (tmp_path / "page.html").read_text()
    assert "Once that is made equal" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_same_data_and_same_init_are_given_on_request(tmp_path: Path) -> None:
    port = spoilt(PORT, "manual_seed(1)", "manual_seed(5)")
    port = spoilt(port, "torch.manual_seed(0)", "torch.manual_seed(3)")
    port = spoilt(port, "nn.Dropout(0.1)", "nn.Dropout(0.0)")
    reference = spoilt(REFERENCE, "nn.Dropout(0.1)", "nn.Dropout(0.0)")
    code, verdict, _ = compare(tmp_path, reference, port, "--same-data", "--same-init", "-q")
    assert verdict["verdict"] == "equivalent", verdict["first"]
    assert code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("compare",), "takes two"),
        (("compare", "--run", "ref.py"), "two scripts"),
        (("compare", "--run", "ref.py", "--run", "missing.py"), "there is no script 'missing.py'"),
        (("compare", "nowhere", "ref.py"), "nowhere"),
        (("compare", "--map", "ref.py", "a", "b"), "must have lines such as"),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    (tmp_path / "ref.py").write_text("print(1)\n")
    ran = cli(*words, cwd=tmp_path)
    assert ran.code == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err
    assert (tmp_path / "ref.py").read_text() == "print(1)\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_script_that_fails_or_never_trains_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "ref.py").write_text("print(1)\n")
    (tmp_path / "bad.py").write_text("raise SystemExit('no data here')\n")
    ran = cli("compare", "--run", "ref.py", "--run", "ref.py", cwd=tmp_path)
    assert (ran.code, "Traceback" in ran.err) == (2, False)
    assert "no training" in ran.err
    ran = cli("compare", "--run", "bad.py", "--run", "ref.py", cwd=tmp_path)
    assert ran.code == 2
    assert "no data here" in ran.err
