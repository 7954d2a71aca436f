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
    "report", "run", "history", "rows", "check", "verdict", "replay",
    "runs", "digests", "latest", "trace", "node", "tensors", "tile", "excerpt", "watchpoints", "watchpoint", "recheck", "breakpoint",
    "state", "output", "message",
]  # fmt: skip


class Document(NamedTuple):
    version: int
    made_by: str
    """The command that prints it, or the path of the hub that answers with it."""
    fields: tuple[str, ...] = ()
    """At its top, of what a command prints; the hub's are in web/openapi.json."""


_PLACE = "/api/runs/{run}/{rank}"
DOCUMENTS: dict[Kind, Document] = {
    "report": Document(
        1, "tensonde run --report, tensonde diagnose --json",
        ("tensonde", "schema", "run", "exit", "steps", "overhead", "coverage", "health", "findings"),
    ),
    "run": Document(
        1, "tensonde show RUN --json",
        ("schema", "run", "path", "script", "argv", "started", "framework", "device", "python", "state", "ranks", "steps", "seconds",
         "exit", "overhead", "coverage", "failures", "scalars", "hits", "findings", "sites", "problems"),
    ),
    "history": Document(1, "tensonde show RUN SITE --json", ("schema", "run", "rows", "problems")),
    "rows": Document(1, "tensonde query --json"),
    "check": Document(1, "tensonde check --json", ("schema", "trains", "checks", "health", "parameters", "findings")),
    "verdict": Document(
        1, "tensonde compare --json",
        ("schema", "verdict", "judgement", "a", "b", "first", "settings", "losses", "unmatched", "coverage", "renamed", "notes"),
    ),
    "replay": Document(
        1, "tensonde replay --json",
        ("schema", "bundle", "step", "trigger", "outcome", "exact", "reproduced", "error", "failure", "ops", "seconds", "settings",
         "compared", "different", "changed", "findings", "recording"),
    ),
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

What commands print with `--json`, what the hub answers ([its API](hub.md)) and what [agents](agents.md) are told are the same documents. Each has a version, its `schema`: fields may be
added to a version, and one that is renamed, removed or changes its meaning makes a new one. The [report](report.md) and the [comparison](compare.md) are described on their own pages; the types of
what the hub answers are in its OpenAPI document (`/api/openapi.json`).

| document | version | made by | fields |
|---|---|---|---|
"""


def version_of(kind: Kind) -> int:
    return DOCUMENTS[kind].version


def page() -> str:
    rows = (
        f"| `{kind}` | {one.version} | `{one.made_by}` | {', '.join(f'`{field}`' for field in one.fields)} |\n"
        for kind, one in DOCUMENTS.items()
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else PAGE).write_text(page())
