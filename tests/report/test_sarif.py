"""Findings as SARIF and as annotations of GitHub."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launch import cli
from tensonde.diagnose.sarif import commands, repository, sarif

NAN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    p = torch.relu(model(torch.randn(5, 4)))
    loss = torch.log(p).sum()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LINE = next(k for k, line in enumerate(NAN.splitlines(), 1) if "HERE" in line)


def finding(**more: Any) -> dict[str, Any]:
    usual = {
        "rule": "nan-origin", "severity": "error", "title": "log of 0 gives -inf", "advice": "Clamp it.", "step": 3, "phase": "forward",
        "rank": 0, "site": "/log#0:out", "op": "log", "evidence": {"in.min": 0.0}, "confidence": 0.9,
        "source": {"file": "train.py", "line": 7, "code": "x.log()"},
    }  # fmt: skip
    return {**usual, **more}


def report(*findings: dict[str, Any], code: int | None = 0) -> dict[str, Any]:
    return {"exit": {"code": code}, "findings": list(findings)}


def check_rules(log: dict[str, Any]) -> None:
    """What the schema of SARIF 2.1.0 demands of the parts that we write."""
    assert log["version"] == "2.1.0"
    assert isinstance(log["runs"], list)
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(set(ids)) == len(ids)
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)
        for base in run["originalUriBaseIds"].values():
            assert base["uri"].endswith("/")
        for result in run["results"]:
            assert result["message"]["text"]
            assert result["level"] in ("none", "note", "warning", "error")
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
            for place in (*result["locations"], *result.get("relatedLocations", [])):
                physical = place.get("physicalLocation")
                if physical is not None:
                    assert physical["region"]["startLine"] >= 1
                    artifact = physical["artifactLocation"]
                    assert artifact.get("uriBaseId", "SRCROOT") in run["originalUriBaseIds"]
                    assert " " not in artifact["uri"]
                    assert "\\" not in artifact["uri"]


def test_consequences_stand_with_their_cause(tmp_path: Path) -> None:
    log = sarif(report(finding(), finding(rule="nonfinite", title="NaN in the loss", caused_by=0)), tmp_path, tmp_path)
    check_rules(log)
    (result,) = log["runs"][0]["results"]
    assert result["relatedLocations"][0]["message"]["text"] == "NaN in the loss"


def test_paths_are_those_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "a b" / "c"
    folder.mkdir(parents=True)
    root = repository(folder, {})
    assert root == tmp_path
    assert repository(folder, {"GITHUB_WORKSPACE": str(folder.parent)}) == folder.parent
    log = sarif(report(finding(source={"file": "../train.py", "line": 2, "code": ""})), folder, root)
    check_rules(log)
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b/train.py", "uriBaseId": "SRCROOT"}
    elsewhere = sarif(report(finding(source={"file": "/opt/lib.py", "line": 2, "code": ""})), folder, root)
    assert elsewhere["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///opt/lib.py"}  # fmt: skip


def test_the_fingerprint_outlives_a_line_that_is_put_above(tmp_path: Path) -> None:
    def fingerprint(**more: Any) -> Any:
        return sarif(report(finding(**more)), tmp_path, tmp_path)["runs"][0]["results"][0]["partialFingerprints"]

    moved = fingerprint(source={"file": "train.py", "line": 8, "code": "x.log()"})
    other = fingerprint(source={"file": "train.py", "line": 7, "code": "y.log()"})
    assert fingerprint() == moved != other


def test_a_finding_without_a_line_is_there_all_the_same(tmp_path: Path) -> None:
    log = sarif(report(finding(source=None, site=None), code=None), tmp_path, tmp_path)
    check_rules(log)
    assert log["runs"][0]["results"][0]["locations"] == []
    (line,) = commands(report(finding(source=None)), tmp_path, tmp_path)
    assert line.startswith("::error title=Tensonde%3A log of 0")


def test_annotations_are_escaped(tmp_path: Path) -> None:
    (line,) = commands(report(finding(title="100%: a, b", advice="one\ntwo")), tmp_path, tmp_path)
    assert line == "::error file=train.py,line=7,title=Tensonde%3A 100%25%3A a%2C b::one%0Atwo (step 3)"


@pytest.mark.parametrize("command", ["run", pytest.param("check", marks=pytest.mark.slow)])
def test_the_commands_write_both(tmp_path: Path, command: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(NAN)
    ran = cli(command, "--github", "--sarif", "out.sarif", "train.py", cwd=folder)
    assert f"::error file=project/train.py,line={LINE}," in ran.err
    log = json.loads((folder / "out.sarif").read_text())
    check_rules(log)
    (first, *_) = log["runs"][0]["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "project/train.py"
    assert place["region"]["startLine"] == LINE


def test_a_file_that_cannot_be_written_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(5)")
    ran = cli("run", "--sarif", "no/such/folder.sarif", "train.py", cwd=tmp_path)
    assert ran.code == 2
    assert "the SARIF file cannot be written to" in ran.err
