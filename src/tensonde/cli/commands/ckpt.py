"""`tensonde ckpt`: what is in a checkpoint, or what changed between two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
from rich.text import Text

from tensonde.cli.choosing import chosen
from tensonde.cli.show.echo import echo
from tensonde.cli.show.progress import progress_of
from tensonde.cli.show.screen import console as screen
from tensonde.cli.show.screen import print_json, table
from tensonde.errors import UsageError
from tensonde.model.documents import version_of
from tensonde.store.sources import TensorSource, open_source
from tensonde.store.weights import Change, Statistics, Status, Weight, diff, inspect, label, pair

BAD = ("nan", "inf")
WORDS: dict[Status, str] = {
    "unchanged": "unchanged", "changed": "changed", "new": "new", "missing": "missing",
    "dtype": "dtype changed", "shape": "shape changed",
}  # fmt: skip


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False)
@click.option("--site", "sites", multiple=True, metavar="NAME", help="Only these, e.g. 'blocks.*.weight'; repeatable.")
@click.option(
    "--flagged", is_flag=True, help="Only flagged tensors; for two checkpoints, only those that are not unchanged."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def ckpt(file: Path, other: Path | None, sites: tuple[str, ...], flagged: bool, as_json: bool) -> None:
    """Inspect a checkpoint, or see what changed from FILE to OTHER.

    Reads torch, safetensors, npz, npy, MindSpore .ckpt and sharded folders with an index, without the framework, without
    running any code in the file, and without loading it all into memory. Flags: nan, inf, zero (all of it), constant,
    outlier (more than 30 standard deviations from the mean). Exit code 1: NaN or Inf was found.

    \b
    tensonde ckpt model.pt
    tensonde ckpt step100.safetensors step200.safetensors
    tensonde ckpt --json --flagged net.ckpt
    """
    first = open_source(file)
    older = chosen(first.entries, sites, None)
    if other is None:
        if not older:
            raise UsageError(f"{file} holds no tensor" + (f" that matches {', '.join(sites)}." if sites else "."))
        with progress_of("reading", sum(entry.nbytes for entry in older)) as advance:
            weights = list(inspect(first, older, advance))
        bad = _show_one(first, weights, flagged, as_json)
    else:
        second = open_source(other)
        newer = chosen(second.entries, sites, None)
        if not older and not newer:
            raise UsageError(
                f"neither {file} nor {other} holds a tensor" + (f" that matches {', '.join(sites)}." if sites else ".")
            )
        with progress_of("comparing", sum(entry.nbytes for entry in newer)) as advance:
            changes = list(diff(first, second, pair(older, newer), advance))
        bad = _show_two(first, second, changes, flagged, as_json)
    raise SystemExit(1 if bad else 0)


# -- one checkpoint --------------------------------------------------------------------------------


def _show_one(source: TensorSource, weights: list[Weight], flagged: bool, as_json: bool) -> bool:
    shown = [weight for weight in weights if weight.statistics.flags or not flagged]
    bad = any(flag in BAD for weight in weights for flag in weight.statistics.flags)
    total = sum(weight.statistics.count for weight in weights)
    size = sum(weight.entry.nbytes for weight in weights)
    if as_json:
        tensors = [
            {
                "name": label(weight.entry), "dtype": weight.entry.dtype, "shape": list(weight.entry.shape),
                "flags": weight.statistics.flags, **weight.statistics.to_json(),
            }
            for weight in shown
        ]  # fmt: skip
        document = {
            "path": str(source.path),
            "format": source.format,
            "tensors": tensors,
            "values": total,
            "bytes": size,
        }
        print_json({"schema": version_of("checkpoint"), **document, "problems": source.problems})
        return bad
    rows: list[list[str | Text]] = [
        [
            Text(label(weight.entry)),
            weight.entry.dtype,
            _shape(weight.entry.shape),
            *_numbers(weight.statistics),
            _flags(weight.statistics),
        ]
        for weight in shown
    ]
    out = screen()
    right = ("min", "max", "mean", "std")
    out.print(table(("name", "dtype", "shape", *right, "flags"), rows, right=right))
    flags = Counter(flag for weight in weights for flag in weight.statistics.flags)
    told = ", ".join(f"{count} with {flag}" for flag, count in flags.items()) or "nothing to flag"
    out.print(f"{len(weights)} tensors, {total:,} values, {size / 1e6:,.1f} MB ({source.format}); {told}")
    _problems(source)
    return bad


# -- two -------------------------------------------------------------------------------------------


def _show_two(old: TensorSource, new: TensorSource, changes: list[Change], flagged: bool, as_json: bool) -> bool:
    bad = any(flag in BAD for change in changes if change.statistics for flag in change.statistics.flags)
    counts = Counter(change.status for change in changes)
    shown = [change for change in changes if not flagged or change.status != "unchanged"]
    if as_json:
        tensors = [
            {
                "name": change.name, "status": change.status, "update_ratio": change.update_ratio, "max_abs": change.max_abs,
                "dtype": [entry.dtype if entry else None for entry in (change.old, change.new)],
                "shape": [list(entry.shape) if entry else None for entry in (change.old, change.new)],
                "flags": change.statistics.flags if change.statistics else [],
            }
            for change in shown
        ]  # fmt: skip
        document = {"old": str(old.path), "new": str(new.path), "counts": dict(counts), "tensors": tensors}
        print_json({"schema": version_of("changes"), **document, "problems": [*old.problems, *new.problems]})
        return bad
    rows = []
    for change in shown:
        style = {"unchanged": "dim", "changed": ""}.get(change.status, "yellow")
        note = _flags(change.statistics) if change.statistics else Text()
        if change.old and change.new and change.status in ("dtype", "shape"):
            pairs = (
                (change.old.dtype, change.new.dtype)
                if change.status == "dtype"
                else map(_shape, (change.old.shape, change.new.shape))
            )
            note = Text(" → ".join(pairs))
        ratio = "" if change.update_ratio is None else f"{change.update_ratio:.3g}"
        largest = "" if change.max_abs is None else f"{change.max_abs:.3g}"
        rows.append((Text(change.name, style=style), Text(WORDS[change.status], style=style), ratio, largest, note))
    out = screen()
    right = ("update ratio", "largest change")
    out.print(table(("name", "what", *right, "note"), rows, right=right))
    told = ", ".join(f"{counts[status]} {word}" for status, word in WORDS.items() if counts[status])
    if counts["unchanged"] and not counts["changed"] and len(counts) == 1:
        told += ": between these two nothing was learned"
    out.print(f"{len(changes)} tensors: {told}")
    _problems(old)
    _problems(new)
    return bad


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _numbers(facts: Statistics) -> list[str]:
    if not facts.finite:
        return [""] * 4
    return [f"{value:.3g}" for value in (facts.min, facts.max, facts.mean, facts.std)]


def _flags(facts: Statistics) -> Text:
    text = Text()
    for flag in facts.flags:
        count = {"nan": facts.nan, "inf": facts.inf}.get(flag)
        style = "bold red" if flag in BAD else "yellow" if flag == "outlier" else "dim"
        text.append((" " if text else "") + flag + (f" ({count})" if count else ""), style=style)
    return text


def _problems(source: TensorSource) -> None:
    for problem in source.problems:
        echo(f"tensonde: {problem}", err=True)
