"""A verdict as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from tensonde.compare.advice import advice, headline
from tensonde.compare.verdict import Verdict
from tensonde.version import __version__

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --line: #d7dde5; --soft: #667; --good: #1a7f4b; --bad: #c0352b; --odd: #a36a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --paper: #14181f; --line: #333c49; --soft: #9aa6b5; --good: #4cc38a; --bad: #ff7b72; --odd: #e3b341; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
.equivalent { color: var(--good); } .divergent { color: var(--bad); } .incomparable { color: var(--odd); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.soft { color: var(--soft); } section { border-left: 3px solid var(--line); padding-left: 1rem; margin-top: 2rem; }
"""


def page_of(verdict: Verdict) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(verdict.verdict)}: {escape(headline(verdict))}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(_body(verdict))
        + f'\n<p class="soft">tensonde {escape(__version__)}</p></body></html>\n'
    )


def _body(verdict: Verdict) -> Iterable[str]:
    yield f'<h1><span class="{verdict.verdict}">{verdict.verdict}</span>: {escape(headline(verdict))}</h1>'
    yield _table((), [("A", verdict.labels[0]), ("B", verdict.labels[1])])
    first = verdict.first
    if first is not None:
        yield "<h2>Where they part</h2>"
        yield f"<p>{escape(first.why)}</p>"
        rows: list[tuple[Any, ...]] = [("site", first.site), ("in B", first.other_site)]
        rows.append(("when", f"step {first.step}, {first.phase}"))
        for label, source in (("line in A", first.source), ("line in B", first.other_source)):
            if source is not None:
                rows.append((label, f"{source}  {source.code}"))
        rows += [(name, _text(value)) for name, value in first.evidence.items()]
        yield _table((), rows)
    for line in advice(verdict):
        yield f"<p><b>{escape(line)}</b></p>"
    if verdict.settings:
        yield "<h2>Settings that differ</h2>"
        yield _table(("setting", "A", "B"), [(s.what, _text(s.a), _text(s.b)) for s in verdict.settings])
    if verdict.losses.get("steps"):
        yield "<h2>Losses</h2>"
        losses = verdict.losses
        inside = "yes" if losses["within_1_permille"] else f"no, not from step {losses['first_off_step']} on"
        rows = [
            ("steps", losses["steps"]),
            ("within 1 permille", inside),
            ("largest difference", _text(losses["max_rel"])),
        ]
        yield _table((), rows)
        yield _table(("step", "A", "B"), [(k, _text(x), _text(y)) for k, (x, y) in enumerate(losses["first"])])
    if verdict.renamed:
        yield f"<details><summary>{len(verdict.renamed)} renamed</summary>"
        yield _table(("A", "B"), list(verdict.renamed.items())) + "</details>"
    for label, names in (("A", verdict.unmatched_a), ("B", verdict.unmatched_b)):
        if names:
            yield f"<details><summary>{len(names)} only in {label}</summary>{_table((), [(n,) for n in names])}</details>"
    if verdict.coverage:
        yield "<h2>Coverage</h2>"
        yield _table((), [(name, _text(value)) for name, value in verdict.coverage.items()])
    for note in verdict.notes:
        yield f'<p class="soft">{escape(note)}</p>'
    if verdict.then is not None:
        yield "<section><p>Once that is made equal, there is more:</p>"
        yield from _body(verdict.then)
        yield "</section>"


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    top = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td><code>{escape(str(cell))}</code></td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{top}{body}</table>"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(entry) for entry in value)
    return str(value)
