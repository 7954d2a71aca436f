"""The report for tools that annotate code: SARIF 2.1.0, and GitHub's workflow commands (docs/ci.md)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tensonde.version import __version__

Json = dict[str, Any]
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "SRCROOT"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def repository(folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Whatever paths in annotations are relative to: the checkout that a folder is in; the folder where there is none."""
    given = environment.get("GITHUB_WORKSPACE")
    if given and folder.is_relative_to(given):
        return Path(given)
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def sarif(report: Json, folder: Path, root: Path) -> Json:
    """`folder` is where the training ran: paths in findings may be relative to it. Consequences stand with their cause."""
    findings: list[Json] = report["findings"]
    rules = list(dict.fromkeys(finding["rule"] for finding in findings))
    results = [
        _result(finding, rules, [other for other in findings if other.get("caused_by") == k and other is not finding], folder, root)
        for k, finding in enumerate(findings)
        if finding.get("caused_by") is None
    ]  # fmt: skip
    ended = report.get("exit") or {}
    invocation: Json = {"executionSuccessful": not ended.get("code")}
    if isinstance(ended.get("code"), int):
        invocation["exitCode"] = ended["code"]
    driver = {
        "name": "Tensonde", "version": __version__, "rules": [_rule(name, findings) for name in rules],
    }  # fmt: skip
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {ROOT: {"uri": root.as_uri().rstrip("/") + "/"}},
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(name: str, findings: Sequence[Json]) -> Json:
    worst = next(finding for finding in findings if finding["rule"] == name)
    return {
        "id": name,
        "shortDescription": {"text": name.replace("-", " ")},
        "defaultConfiguration": {"level": LEVELS[worst["severity"]]},
    }


def _result(finding: Json, rules: list[str], consequences: list[Json], folder: Path, root: Path) -> Json:
    found: Json = {
        "ruleId": finding["rule"], "ruleIndex": rules.index(finding["rule"]), "level": LEVELS[finding["severity"]],
        "message": {"text": f"{finding['title']}. {finding['advice']}"},
        "locations": [place for place in (_location(finding, folder, root),) if place],
        "partialFingerprints": {"tensonde/v1": _fingerprint(finding)},
        "properties": {
            key: finding[key] for key in ("step", "phase", "rank", "confidence", "evidence") if finding.get(key) is not None
        },
    }  # fmt: skip
    related: list[Json] = []
    for consequence in consequences:
        place = _location(consequence, folder, root)
        if place:
            related.append({**place, "id": len(related) + 1, "message": {"text": consequence["title"]}})
    return {**found, "relatedLocations": related} if related else found


def _fingerprint(finding: Json) -> str:
    """The same for the same defect after lines above it have moved."""
    source = finding.get("source") or {}
    parts = (finding["rule"], source.get("file", ""), source.get("code", ""), finding.get("site") or "")
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def _location(finding: Json, folder: Path, root: Path) -> Json:
    found: Json = {}
    source = finding.get("source")
    if source and source["line"] > 0:
        region: Json = {"startLine": source["line"]}
        if source.get("code"):
            region["snippet"] = {"text": source["code"]}
        found["physicalLocation"] = {"artifactLocation": _artifact(source["file"], folder, root), "region": region}
    if finding.get("site"):
        found["logicalLocations"] = [{"fullyQualifiedName": finding["site"], "kind": "member"}]
    return found


def _artifact(file: str, folder: Path, root: Path) -> Json:
    path = Path(os.path.normpath(folder / file))
    if path.is_relative_to(root):
        return {"uri": quote(path.relative_to(root).as_posix()), "uriBaseId": ROOT}
    return {"uri": path.as_uri()}


def commands(report: Json, folder: Path, root: Path) -> Iterator[str]:
    """A line for each finding that is no consequence; GitHub shows it at the line of the pull request."""
    for finding in report["findings"]:
        if finding.get("caused_by") is not None:
            continue
        properties = {}
        source = finding.get("source")
        if source and source["line"] > 0:
            path = Path(os.path.normpath(folder / source["file"]))
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            properties = {"file": shown.as_posix(), "line": str(source["line"])}
        properties["title"] = f"Tensonde: {finding['title']}"
        given = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
        step = f" (step {finding['step']})" if finding.get("step") is not None else ""
        yield f"::{_COMMANDS[finding['severity']]} {given}::{_escaped(finding['advice'] + step)}"


def _escaped(text: str, more: str = "") -> str:
    """`%` first: the others are written with it."""
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
