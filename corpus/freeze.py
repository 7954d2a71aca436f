"""Freezes what Tensonde says about the corpus, and shows what a change alters.

    python corpus/run.py --keep DIR            run the corpus and keep every recording
    python corpus/freeze.py store DIR          note the findings, facts, sites and traces of each kept recording
    python corpus/freeze.py check DIR          diagnose the kept recordings again: findings must be byte-equal (no torch needed)
    python corpus/freeze.py differ OLD NEW     facts, sites and traces of two corpus runs, both stored
    python corpus/freeze.py pack DIR TESTS     small recordings with their findings become tests/frozen

A recording varies from run to run in times, sizes of memory and paths. These are left out; everything else must be equal.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import io
import json
import lzma
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

FROZEN = "frozen.json"
VOLATILE = frozenset({"seconds", "time", "pid", "rss", "memory", "started", "closed", "cwd", "host", "recording"})
"""Keys whose values change from run to run."""
NEEDED = ("run.json", "rank*/*.json", "rank*/*.jsonl", "rank*/digests/*", "rank*/scalars/*", "rank*/traces/*")
"""The files of a recording that rules read."""
MOST_BYTES = 70_000
"""A packed recording that is larger stays out of tests/frozen."""


def steady(thing: Any) -> Any:
    """The same value without what changes from run to run."""
    if isinstance(thing, dict):
        return {key: steady(value) for key, value in thing.items() if key not in VOLATILE}
    if isinstance(thing, list):
        return [steady(value) for value in thing]
    if isinstance(thing, str):
        return re.sub(r"/\S*/corpus-\w+", "…", re.sub(r"0x[0-9a-f]{6,}", "0x…", thing))
    return thing


def findings_of(folder: Path) -> list[Any]:
    """The findings of a recording by the rules as they are now."""
    from tensonde.diagnose.diagnose import diagnose
    from tensonde.store.codec import finding_out
    from tensonde.store.reader import Recording

    found = [finding_out(finding) for finding in diagnose(Recording.open(folder))]
    return list(steady(json.loads(json.dumps(found))))


def contents(folder: Path) -> dict[str, Any]:
    """Facts, sites and digests of traces, as they stand in the files."""
    from tensonde.store.files import numbered

    kept: dict[str, Any] = {}
    for rank in sorted(folder.glob("rank*")):
        facts = rank / "facts.json"
        sites = (rank / "sites.jsonl").read_text().splitlines() if (rank / "sites.jsonl").exists() else []
        kept[rank.name] = {
            "facts": steady(json.loads(facts.read_text())) if facts.exists() else None,
            "sites": [steady(json.loads(line)) for line in sites],
            "traces": {path.name: _trace(path) for path in numbered(rank / "traces")},
        }
    return kept


def _trace(path: Path) -> dict[str, Any]:
    from tensonde.store.damage import read_file

    trace = steady(json.loads(read_file(path)))
    ops = [f"{op['site']} {op['op']}" for op in trace.get("ops", [])]
    exact = hashlib.sha256(json.dumps(trace, sort_keys=True).encode()).hexdigest()[:16]
    return {"step": trace.get("step"), "reason": trace.get("reason"), "ops": ops, "sha256": exact}


def cases(root: Path) -> Iterator[Path]:
    """The kept recordings: DIR/KIND/NAME."""
    yield from (path for path in sorted(root.glob("*/*")) if (path / "run.json").exists())


def _noted(folder: Path) -> dict[str, Any]:
    return {"findings": findings_of(folder), **contents(folder)}


def store(root: Path) -> int:
    folders = list(cases(root))
    with ProcessPoolExecutor(2) as pool:
        noted = dict(zip((f"{f.parent.name}/{f.name}" for f in folders), pool.map(_noted, folders), strict=True))
    (root / FROZEN).write_text(json.dumps(noted, indent=1) + "\n")
    print(f"{len(noted)} recordings stored")
    return 0


def check(root: Path) -> int:
    stored = json.loads((root / FROZEN).read_text())
    folders = list(cases(root))
    with ProcessPoolExecutor(2) as pool:
        now = pool.map(findings_of, folders)
        changed = sum(
            _told(f"{folder.parent.name}/{folder.name} findings", stored[f"{folder.parent.name}/{folder.name}"]["findings"], found)
            for folder, found in zip(folders, now, strict=True)
        )  # fmt: skip
    print(f"{len(folders) - changed} recordings give the same findings, {changed} others")
    return int(changed > 0)


def differ(old: Path, new: Path) -> int:
    one, other = (json.loads((root / FROZEN).read_text()) for root in (old, new))
    changed = 0
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if mine is None or theirs is None:
            print(f"{name}: only in {old if theirs is None else new}")
            changed += 1
            continue
        parts = sorted(mine.keys() | theirs.keys())
        changed += sum(_told(f"{name} {part}", mine.get(part), theirs.get(part)) for part in parts) > 0
    print(f"{len(one) - changed} recordings are the same, {changed} differ")
    return int(changed > 0)


def _told(name: str, mine: Any, theirs: Any) -> bool:
    """Prints where two values differ; whether they do."""
    if mine == theirs:
        return False
    lines = [json.dumps(side, indent=1, sort_keys=True).splitlines() for side in (mine, theirs)]
    print(f"--- {name}")
    for line in list(difflib.unified_diff(*lines, lineterm="", n=1))[2:22]:
        print(f"    {line[:200]}")
    return True


def pack(root: Path, tests: Path) -> int:
    """Each small recording as NAME.tar.xz beside NAME.json, its findings. Names of the machine and its folders are left out."""
    tests.mkdir(parents=True, exist_ok=True)
    folders = list(cases(root))
    packed = 0
    for folder in folders:
        files = sorted({path for pattern in NEEDED for path in folder.glob(pattern) if path.name != "findings.json"})
        contents = {str(path.relative_to(folder)): _anonymous(path) for path in files}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in contents.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        data = lzma.compress(buffer.getvalue(), preset=9)
        if len(data) > MOST_BYTES:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            for name, content in contents.items():
                (Path(scratch) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(scratch) / name).write_bytes(content)
            found = findings_of(Path(scratch))
        name = f"{folder.parent.name}-{folder.name}"
        (tests / f"{name}.tar.xz").write_bytes(data)
        (tests / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        packed += 1
    print(f"{packed} of {len(folders)} recordings packed")
    return 0


def _anonymous(path: Path) -> bytes:
    """The content of a file, as if it had been written on no particular machine."""
    content = path.read_bytes()
    if path.suffix not in (".json", ".jsonl"):
        return content
    text = content.decode()
    for name in sorted({sys.prefix, sys.base_prefix}, key=len, reverse=True):
        text = text.replace(name, "/python")
    text = re.sub(r"/[\w./-]*/corpus-\w+", "/corpus", text)
    text = re.sub(r"/[\w./-]*/src/tensonde/", "/tensonde/", text)
    return re.sub(r'"host": ?"[^"]*"', '"host":"machine"', text).encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("store", "check", "differ", "pack"))
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    given = parser.parse_args()
    if len(given.folders) != (1 if given.what in ("store", "check") else 2):
        parser.error(f"{given.what} takes {'one folder' if given.what in ('store', 'check') else 'two folders'}")
    commands: dict[str, Any] = {"store": store, "check": check, "differ": differ, "pack": pack}
    return int(commands[given.what](*given.folders))


if __name__ == "__main__":
    sys.exit(main())
