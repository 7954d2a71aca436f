"""Shell completion for what the commands take: recordings and the sites in them. A completion never fails
aloud."""

from __future__ import annotations

import json
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tensonde.errors import TensondeError


def complete_recording(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders, and the names of the runs in .tensonde/runs."""
    runs = Path(".tensonde") / "runs"
    names: list[str] = []
    if runs.is_dir() and "/" not in incomplete:
        names = sorted(path.name for path in runs.iterdir() if (path / "run.json").exists())
    found = [CompletionItem(name, help="recording") for name in names if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="dir")]


def complete_site(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The addresses of the recording that was typed before. Reads only its sites.jsonl, so that it is
    quick."""
    from tensonde.store.codec import site_in
    from tensonde.store.resolve import resolve

    addresses: dict[str, str] = {}
    try:
        run, only = resolve(ctx.params.get("recording") or ".")
        for path in sorted(run.glob(f"{only or 'rank*'}/sites.jsonl")):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                site = site_in(json.loads(line))
                addresses[site.address] = site.type
    except (TensondeError, OSError, ValueError, KeyError, TypeError):
        pass
    return [CompletionItem(text, help=kind) for text, kind in addresses.items() if text.startswith(incomplete)]
