"""The JSON documents that programs read, and their versions: `--json` of the commands, the hub, and the answers to agents.

A field may be added at any time. One that is renamed, removed or changes its meaning makes a new version.
`python -m tensonde.model.documents [FILE]` writes docs/json.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, NamedTuple

PAGE = "docs/json.md"
Kind = Literal[
    "report", "run", "history", "graphs", "ranks", "rows", "check", "experiment", "memory", "verdict", "replay", "rates", "trials", "checkpoint", "changes",
    "conversion", "environment",
    "runs", "digests", "latest", "trace", "node", "tensors", "tile", "excerpt", "watchpoints", "watchpoint", "recheck", "breakpoint",
    "state", "output", "message",
]  # fmt: skip
Type = Literal["text", "whole", "number", "yes/no", "list", "object"]
_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,), "whole": (int,), "number": (int, float, str), "yes/no": (bool,), "list": (list,), "object": (dict,),
}  # fmt: skip
"""A number that is not finite is a word."""


class Document(NamedTuple):
    version: int
    made_by: str
    """The command that prints it, or the path of the hub that answers with it."""
    fields: dict[str, str] = {}  # noqa: RUF012
    """At its top, of what a command prints, with a `Type`, and `?` where it may be null; the hub's are in web/openapi.json."""
    rows: bool = False
    """It is a list, of rows whose columns the question chooses."""


def problems_of(kind: Kind, document: object) -> list[str]:
    """How a document that a command has printed departs from its description."""
    described = DOCUMENTS[kind]
    if described.rows:
        fine = isinstance(document, list) and all(isinstance(row, dict) for row in document)
        return [] if fine else ["it is no list of rows"]
    if not isinstance(document, dict):
        return ["it is no object"]
    wrong = [f"{name} is not described" for name in document if name not in described.fields]
    wrong += [f"{name} is missing" for name in described.fields if name not in document]
    for name, text in described.fields.items():
        value = document.get(name)
        if name not in document or (value is None and text.endswith("?")):
            continue
        wanted = _TYPES[text.removesuffix("?")]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            wrong.append(f"{name} is {value!r:.60}, no {text}")
    if document.get("schema") != described.version:
        wrong.append(f"schema is {document.get('schema')!r}, not {described.version}")
    return wrong


_PLACE = "/api/runs/{run}/{rank}"
_COMMANDS: dict[Kind, Document] = {
    "report": Document(
        1, "tensonde run --report, tensonde diagnose --json",
        {"tensonde": "text", "schema": "whole", "run": "object", "exit": "object", "steps": "whole", "overhead": "object", "coverage": "object",
         "health": "list", "findings": "list"},
    ),
    "run": Document(
        1, "tensonde show RUN --json",
        {"schema": "whole", "run": "text", "path": "text", "script": "text?", "argv": "list", "started": "text?", "framework": "text?",
         "device": "text?", "python": "text?", "state": "text", "ranks": "list", "steps": "whole", "seconds": "number?", "exit": "object?",
         "overhead": "object?", "coverage": "object?", "thinned": "object", "failures": "object", "scalars": "object", "hits": "list", "findings": "list",
         "sites": "list", "problems": "list"},
    ),
    "history": Document(1, "tensonde show RUN SITE --json", {"schema": "whole", "run": "text", "rows": "list", "problems": "list"}),
    "graphs": Document(
        1, "tensonde show RUN --graphs --json",
        {"schema": "whole", "run": "text", "graphs": "list", "recompiled": "list", "graph_break": "list", "compiled_departs": "list",
         "graphs_compared": "list"},
    ),
    "ranks": Document(
        1, "tensonde show RUN --ranks --json",
        {"schema": "whole", "run": "text", "ranks": "list", "collectives": "list", "stuck": "text?"},
    ),
    "rows": Document(1, "tensonde query --json", rows=True),
    "experiment": Document(1, "tensonde diagnose --experiment --json", {"schema": "whole", "health": "list"}),
    "check": Document(
        1, "tensonde check --json",
        {"schema": "whole", "trains": "yes/no", "checks": "list", "health": "list", "parameters": "list", "findings": "list"},
    ),
    "memory": Document(
        1, "tensonde check --memory --json",
        {"schema": "whole", "device": "text", "others": "object", "peak": "whole", "step": "whole", "phase": "text", "op": "text",
         "module": "text", "line": "object?", "uses": "object", "parts": "list", "lines": "list", "steps": "list", "course": "object?", "growth": "whole",
         "keepers": "list", "batch": "whole", "envelope": "list", "why": "text", "limit": "whole?", "fits": "yes/no?",
         "largest_batch": "whole?"},
    ),
    "verdict": Document(
        1, "tensonde compare --json",
        {"schema": "whole", "verdict": "text", "judgement": "text", "a": "text", "b": "text", "first": "object?", "settings": "list",
         "losses": "object", "unmatched": "object", "coverage": "object", "renamed": "object", "notes": "list", "cause": "text"},
    ),
    "replay": Document(
        1, "tensonde replay --json",
        {"schema": "whole", "bundle": "text", "step": "whole", "trigger": "text", "outcome": "text", "exact": "yes/no", "reproduced": "yes/no",
         "error": "text", "failure": "object?", "ops": "whole", "seconds": "number", "settings": "list", "compared": "whole",
         "different": "list", "changed": "list", "findings": "list", "recording": "text?"},
    ),
    "rates": Document(
        1, "tensonde lr --json", {"schema": "whole", "schedulers": "list", "constant": "list", "batches": "whole?"}
    ),
    "trials": Document(
        1, "tensonde tune --json",
        {"schema": "whole", "metric": "text", "direction": "text", "best": "object?", "trials": "list", "study": "text"},
    ),
    "checkpoint": Document(
        1, "tensonde ckpt FILE --json",
        {"schema": "whole", "path": "text", "format": "text", "tensors": "list", "values": "whole", "bytes": "whole", "problems": "list"},
    ),
    "changes": Document(
        1, "tensonde ckpt FILE OTHER --json",
        {"schema": "whole", "old": "text", "new": "text", "counts": "object", "tensors": "list", "problems": "list"},
    ),
    "conversion": Document(
        1, "tensonde convert --json",
        {"schema": "whole", "source": "text", "kind": "text", "target": "text", "format": "text", "tensors": "whole", "bytes": "whole",
         "problems": "list"},
    ),
    "environment": Document(
        1, "tensonde doctor --json",
        {"schema": "whole", "tensonde": "text", "python": "text", "platform": "text", "kernel": "text", "processors": "whole?",
         "frameworks": "object", "problems": "list"},
    ),
}  # fmt: skip
DOCUMENTS: dict[Kind, Document] = {
    **_COMMANDS,
    "runs": Document(1, "/api/runs"),
    "digests": Document(1, f"{_PLACE}/digests"),
    "latest": Document(1, f"{_PLACE}/latest"),
    "trace": Document(1, f"{_PLACE}/graph, one row per node instead of columns"),
    "node": Document(1, f"{_PLACE}/node"),
    "tensors": Document(1, f"{_PLACE}/tensors"),
    "tile": Document(1, f"{_PLACE}/tensor"),
    "excerpt": Document(1, f"{_PLACE}/source"),
    "watchpoints": Document(1, f"{_PLACE}/watchpoints"),
    "watchpoint": Document(1, f"POST {_PLACE}/watchpoints"),
    "recheck": Document(1, f"{_PLACE}/watchpoints/recheck"),
    "breakpoint": Document(1, f"POST {_PLACE}/breakpoints"),
    "state": Document(1, "one rank of /api/runs"),
    "output": Document(1, f"{_PLACE}/command, lines as text"),
    "message": Document(1, "DELETE of a watchpoint or breakpoint"),
}  # fmt: skip
HEAD = """\
# JSON documents

This page is made from the table of documents: `python -m tensonde.model.documents` writes it.

Commands with `--json`, the hub ([its API](hub.md)) and the tools of [agents](agents.md) return the same documents. Each has a version, its `schema`: a version may gain
fields; if a field is renamed, removed or changes its meaning, the version changes. `?` marks what may be null; a non-finite number is a string. The [report](report.md) and the [comparison](compare.md) have their own pages; the types of
the hub's answers are in its OpenAPI document (`/api/openapi.json`).

| document | version | made by | fields |
|---|---|---|---|
"""


def version_of(kind: Kind) -> int:
    return DOCUMENTS[kind].version


def _fields(document: Document) -> str:
    if document.rows:
        return "a list of rows"
    return ", ".join(f"`{name}` ({text})" for name, text in document.fields.items())


def page() -> str:
    rows = (f"| `{kind}` | {one.version} | `{one.made_by}` | {_fields(one)} |\n" for kind, one in DOCUMENTS.items())
    return HEAD + "".join(rows)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else PAGE).write_text(page())
