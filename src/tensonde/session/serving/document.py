"""Writes docs/requests.md from the table of requests: `python -m tensonde.session.serving.document [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from tensonde.session.serving.requests import REQUESTS

PAGE = "docs/requests.md"
HEAD = """\
# Requests

This page is made from the table of requests: `python -m tensonde.session.serving.document` writes it.

The hub sends these requests to a training (docs/hub.md is about the hub's own API, which people and programs call). Requests *at once*
are answered while the training runs. Requests *between steps* wait for the end of the step. Requests *at a stop* are refused
while the training runs. An agent declares its capabilities; clients show the controls for them.

| request | answered | | capabilities |
|---|---|---|---|
"""


def page() -> str:
    rows = (
        f"| `{kind}` | {row.where} | {row.tells} | {', '.join(f'`{word}`' for word in row.capabilities)} |\n"
        for kind, row in REQUESTS.items()
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else PAGE).write_text(page())
