"""Bundles of every format version must open for ever, and nothing in one is trusted. Never regenerate the golden one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from launch import cli
from tensonde.errors import RecordingError
from tensonde.store.bundles import BUNDLE_VERSION, Stored, bundles_in, read_bundle, write_bundle

GOLDEN = Path(__file__).parent.parent / "golden" / "bundle1"


def test_every_part_of_format_1_can_be_read() -> None:
    document = read_bundle(GOLDEN)
    assert (document["format"], document["step"], document["exact"]) == (1, 3, True)
    assert document["trigger"] == "the loss is not finite"
    (root,) = document["roots"]
    assert (root["name"], root["class"], root["attributes"][""]["training"]) == ("model", "__main__.Net", True)
    called = [call.get("function") or call["module"] for call in document["calls"]]
    assert ["model", ""] in called
    assert "torch.Tensor.log" in called
    (call,) = [call for call in document["calls"] if "module" in call]
    assert call["autocast"] == [["cpu", "bfloat16"]]
    assert call["kwargs"] == {"scale": 2.0}
    tensors = load_file(GOLDEN / "state.safetensors")
    assert tensors[root["parameters"]["inner.weight"]["tensor"]].shape == (6, 4)
    assert tensors[call["random"]].dtype == "uint8"
    assert document["results"]["failure"]["op"] == "log"


def test_format_1_is_replayed() -> None:
    """Maybe not bit for bit on any processor, but the same op goes wrong at the same line."""
    ran = cli("replay", GOLDEN, "--json", cwd=GOLDEN)
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert (result["reproduced"], result["failure"]["op"], result["failure"]["source"]["line"]) == (True, "log", 24)


DAMAGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "newer": (lambda d: d.update(format=BUNDLE_VERSION + 1), "upgrade Tensonde"),
    "no version": (lambda d: d.pop("format"), "its format is None"),
    "no calls": (lambda d: d.pop("calls"), "calls is missing"),
    "calls of text": (lambda d: d.update(calls=["x"]), "calls[0] is no object"),
    "arguments": (lambda d: d["calls"][0].update(args={}), "calls[0].args is {}"),
    "program": (lambda d: d["program"].update(argv="x"), "program.argv is 'x'"),
    "step": (lambda d: d.update(step=True), "step is True"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_of_the_document_is_one_sentence(name: str, tmp_path: Path) -> None:
    change, said = DAMAGES[name]
    shutil.copytree(GOLDEN, tmp_path / "bundle")
    document = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    change(document)
    (tmp_path / "bundle" / "bundle.json").write_text(json.dumps(document))
    with pytest.raises(RecordingError) as caught:
        read_bundle(tmp_path / "bundle")
    assert said in str(caught.value)


def test_a_bundle_that_is_not_whole(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "bundle")
    (tmp_path / "bundle" / "state.safetensors").unlink()
    with pytest.raises(RecordingError, match="is missing"):
        read_bundle(tmp_path / "bundle")
    (tmp_path / "bundle" / "bundle.json").write_text("{")
    with pytest.raises(RecordingError, match="damaged"):
        read_bundle(tmp_path / "bundle")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError):
        write_bundle(tmp_path / "bundles" / "step1", {}, [Stored("a", "float32", (2,), 8, broken)])
    assert bundles_in(tmp_path) == []
    assert list((tmp_path / "bundles").iterdir()) == []


def test_bundles_come_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for name in ("step10", "step9", "step9-2", "unfinished"):
        (tmp_path / "bundles" / name).mkdir(parents=True)
        if name != "unfinished":
            (tmp_path / "bundles" / name / "bundle.json").touch()
    assert [path.name for path in bundles_in(tmp_path)] == ["step9", "step9-2", "step10"]
