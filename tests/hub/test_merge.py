"""Ranks that were recorded apart become one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tensonde.errors import UsageError
from tensonde.store.format import FINDINGS
from tensonde.store.merging import merge
from tensonde.store.reader import Recording

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def part(folder: Path, rank: int, world: int = 2) -> Path:
    """A recording of one rank, as another machine would leave it."""
    source = next(path.parent for path in sorted(GOLDEN.glob("v*/**/run.json")))
    made = folder / f"node{rank}" / "run"
    shutil.copytree(source, made)
    only, *others = sorted(made.glob("rank*"))
    for other in others:
        shutil.rmtree(other)
    own = made / f"rank{rank}"
    if only != own:
        only.rename(own)
    session = json.loads((own / "session.json").read_text())
    (own / "session.json").write_text(json.dumps({**session, "rank": rank, "world_size": world}))
    return made


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != FINDINGS]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_two_parts_become_one_run(tmp_path: Path) -> None:
    parts = [part(tmp_path, 0), part(tmp_path, 1)]
    before = [sorted(path.name for path in one.rglob("*")) for one in parts]
    ranks = merge(tmp_path / "whole", parts)
    assert [rank.rank for rank in ranks] == [0, 1]
    whole, first = Recording.open(tmp_path / "whole"), Recording.open(parts[0])
    assert content(whole.ranks[1].folder) == content(parts[1] / "rank1")
    assert whole.manifest["id"] != first.manifest["id"]
    assert whole.manifest["script"] == first.manifest["script"]
    assert [sorted(path.name for path in one.rglob("*")) for one in parts] == before


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    zero, one = part(tmp_path, 0), part(tmp_path, 1, world=4)
    with pytest.raises(UsageError, match="with 2 and 4 ranks"):
        merge(tmp_path / "whole", [zero, one])
    with pytest.raises(UsageError, match="rank 0 is in both"):
        merge(tmp_path / "whole", [zero, zero])
    assert not (tmp_path / "whole").exists()
