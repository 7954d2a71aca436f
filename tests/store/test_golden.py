"""The recordings of every format version that was ever released must open for ever. Never regenerate them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, SourceLine
from tensonde.store.query import query
from tensonde.store.reader import Recording

GOLDEN = Path(__file__).parent.parent / "golden"
NUMBERS = {
    "zero": 7, "norm": 1.1005868224716817,
    "exponents": [
        20, 54, 57, 19, 47, 28, 37, 40, 45, 51, 55, 29, 60, 1, 17, 5,
        23, 39, 30, 13, 29, 4, 62, 23, 26, 3, 18, 36, 35, 39, 46, 3,
    ],
}  # fmt: skip


@pytest.fixture
def v1() -> Recording:
    return Recording.open(GOLDEN / "v1")


def test_every_part_of_format_1_can_be_read(v1: Recording) -> None:
    assert v1.manifest["format"] == 1
    assert v1.manifest["script"] == "train.py"
    assert v1.manifest["argv"] == ["--lr", "0.1"]
    first, second = v1.ranks
    assert [rank.state for rank in v1.ranks] == ["finished", "killed"]
    assert first.session["overhead"] == {"ratio": 1.03, "budget": 0.05}
    assert first.sites[1].address == "fc1:out"
    assert first.sites[2].address == "fc2:out[0]"
    assert first.sites[1].source == SourceLine("train.py", 31, "h = torch.relu(self.fc1(x))")
    assert (first.sites[4].role, first.sites[4].kind, first.sites[4].trainable) == (
        Role.GRAD,
        Kind.PARAMETER,
        True,
    )
    for rank in v1.ranks:
        table = rank.digests()
        assert table.num_rows == 160
        assert table["ord"].to_pylist() == list(range(160))
        assert table["site"].to_pylist() == list(range(8)) * 20
        assert rank.scalars("loss")["value"].to_pylist()[:2] == [1.0, 0.5]
        (hit,) = rank.hits
        assert (hit.site, hit.condition, hit.actual["absmax"]) == ("fc2:out[0]", "nan or inf", math.inf)
        (value,) = rank.values
        assert (value.site, value.dtype, value.shape) == ("fc2:out[0]", "bfloat16", (8, 2))
        assert rank.load(value).ravel()[1] == 2.0**-133
        assert rank.events[0]["kind"] == "started"
    assert first.values[0].moment == Moment(12, Phase.FORWARD, 0)
    assert [finding.rule for finding in v1.findings] == ["nan-origin", "loss-nan"]
    assert v1.findings[1].caused_by == 0
    assert second.folder.joinpath("digests", "000002.arrows").exists(), "the golden recording keeps a live segment"
    assert v1.problems == []


def test_a_digest_of_format_1_keeps_its_numbers(v1: Recording) -> None:
    row = v1.ranks[0].digests(sites=[3], steps=(5, 5)).to_pylist()[0]
    assert {key: row[key] for key in ("ord", "step", "phase", "dtype", "count", "nan", "zero")} == {
        "ord": 43, "step": 5, "phase": 1, "dtype": 1, "count": 64, "nan": 0, "zero": NUMBERS["zero"],
    }  # fmt: skip
    assert row["norm"] == NUMBERS["norm"]
    assert row["exponents"] == NUMBERS["exponents"]


def test_format_1_answers_sql(v1: Recording) -> None:
    sql = "SELECT rank, min(step) AS step, count(*) AS n FROM digests WHERE nans > 0 GROUP BY rank"
    assert query(v1, sql).to_pylist() == [{"rank": 0, "step": 12, "n": 48}]
    sites = query(v1, "SELECT DISTINCT site FROM digests WHERE phase = 'backward' ORDER BY site")
    assert sites["site"].to_pylist() == ["fc1.weight:grad", "fc2.weight:grad"]


def test_a_large_trace_of_format_2_is_compressed() -> None:
    v2 = Recording.open(GOLDEN / "v2")
    (rank,) = v2.ranks
    assert (v2.manifest["format"], rank.session["steps"], v2.problems) == (2, 2, [])
    assert [path.name for path in rank.folder.joinpath("traces").iterdir()] == ["000000.json.gz"]
    (trace,) = rank.traces
    assert trace.step == 0
    assert (len(trace.ops), trace.ops[-1].op) == (56, "cross_entropy")
