"""The same rows have the same health, whether they have just come or are read from a recording."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tensonde.digest.layout import ROW
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.model.watchpoint import Hit
from tensonde.protocol import messages
from tensonde.server.live import LiveRank
from tensonde.server.onlookers import digests_out
from tensonde.server.place import Place
from tensonde.server.reading import status
from tensonde.server.recorded import RecordedRank
from tensonde.store.claim import claim_rank, create_run
from tensonde.store.codec import hit_out, site_out
from tensonde.store.writer import RecordingWriter

LAST = 9
CASES = [
    # site, what its row has, steps of its hits, health
    (Site(0, "a", Role.OUT, Kind.MODULE, dtype="float32"), {}, (), "ok"),
    (Site(1, "b", Role.OUT, Kind.MODULE, dtype="float32"), {"count": 0}, (), "none"),
    (Site(2, "c", Role.OUT, Kind.MODULE, dtype="float32"), {"nan": 1}, (), "bad"),
    (Site(3, "d", Role.OUT, Kind.MODULE, dtype="float32"), {"absmax": 7e4}, (), "warn"),
    (Site(4, "e", Role.OUT, Kind.MODULE, dtype="int64"), {"absmax": 7e4}, (), "ok"),
    (Site(5, "f", Role.GRAD, Kind.PARAMETER, dtype="float32"), {"zero": 8}, (), "warn"),
    (Site(6, "g", Role.VALUE, Kind.PARAMETER, dtype="float32"), {"zero": 8}, (), "ok"),
    (Site(7, "h", Role.GRAD, Kind.BUFFER, dtype="float32"), {"zero": 8}, (), "ok"),
    (Site(8, "i", Role.OUT, Kind.MODULE, dtype="float32"), {}, (2, LAST), "bad"),
    (Site(9, "j", Role.OUT, Kind.MODULE, dtype="float32"), {}, (2,), "warn"),
    (Site(10, "k", Role.OUT, Kind.MODULE, dtype="float32"), {"step": 4}, (4,), "bad"),
    # The -inf of a mask is intended, also in the parts of a softmax that a compiler makes; that of a logarithm is not.
    (Site(11, "l/masked_fill#0", Role.OUT, Kind.OP, dtype="float32"), {"neg_inf": 3}, (), "ok"),
    (Site(12, "l/softmax-sub#0", Role.OUT, Kind.OP, dtype="float32"), {"neg_inf": 3}, (), "ok"),
    (Site(13, "l/masked_fill#1", Role.OUT, Kind.OP, dtype="float32"), {"neg_inf": 3, "nan": 1}, (), "bad"),
    (Site(14, "l/softmax#0", Role.OUT, Kind.OP, dtype="float32"), {"nan": 8}, (), "bad"),
    (Site(15, "l/log#0", Role.OUT, Kind.OP, dtype="float32"), {"neg_inf": 1}, (), "bad"),
    (Site(16, "where", Role.OUT, Kind.MODULE, dtype="float32"), {"neg_inf": 1}, (), "bad"),
    # A buffer of zeros and -inf is a mask; any other number in it speaks against that.
    (Site(17, "mask", Role.VALUE, Kind.BUFFER, dtype="float32"), {"neg_inf": 3, "absmax": 0.0}, (), "ok"),
    (Site(18, "running_mean", Role.VALUE, Kind.BUFFER, dtype="float32"), {"neg_inf": 3}, (), "bad"),
    (Site(19, "weight", Role.VALUE, Kind.PARAMETER, dtype="float32"), {"neg_inf": 3, "absmax": 0.0}, (), "bad"),
    (None, {"absmax": 7e4}, (), "ok"),
    (None, {"neg_inf": 1}, (), "bad"),
]
EXPECTED = [health for *_, health in CASES]


def made_rows() -> np.ndarray:
    rows = np.zeros(len(CASES), ROW)
    rows["site"], rows["step"], rows["count"], rows["absmax"] = np.arange(len(CASES)), LAST, 8, 1.0
    for k, (_, fields, _, _) in enumerate(CASES):
        for name, value in fields.items():
            rows[name][k] = value
    return rows


def made_hits() -> list[Hit]:
    pairs = [(step, site) for site, _, steps, _ in CASES if site is not None for step in steps]
    return [
        Hit(1, site.address, Moment(step, Phase.FORWARD, 0), "norm > 1", {}, {})
        for step, site in sorted(pairs, key=lambda pair: pair[0])
    ]


def live() -> LiveRank:
    hello = messages.Hello(protocol=1, session="s", run="r", name="run", rank=0, rank_name="rank0", path="", machine="")
    rank = LiveRank("r", hello, asyncio.new_event_loop())
    rows = made_rows()
    rank.take(messages.Sites(sites=[site_out(site) for site, *_ in CASES if site is not None]))
    for ord, hit in enumerate(made_hits()):
        rank.take(messages.Hit(seq=ord + 1, ord=ord, hit=hit_out(hit)))
    rank.take(messages.Digests(ords=np.arange(len(rows)).tobytes(), rows=rows.tobytes()))
    rank.take(messages.State(step=LAST))
    return rank


@pytest.fixture
def recorded(tmp_path: Path) -> RecordedRank:
    run = create_run(tmp_path, "run", {"script": "train.py", "argv": []})
    writer = RecordingWriter(claim_rank(run, 0), {"rank": 0})
    for site, *_ in CASES:
        if site is not None:
            writer.site(site)
    writer.digests(made_rows())
    for hit in made_hits():
        writer.hit(hit)
    writer.close({})
    return RecordedRank(writer.folder)


def test_rows_that_come_are_judged_as_those_that_are_read(recorded: RecordedRank) -> None:
    rank = live()
    assert digests_out(rank, ("r", "rank0"), made_rows())["status"] == EXPECTED
    for place in (Place("r", "rank0", None, rank), Place("r", "rank0", recorded)):
        found = status(place, LAST, "health")
        assert dict(zip(found["sites"], found["status"], strict=True)) == dict(enumerate(EXPECTED))


def test_a_later_hit_is_not_known_at_an_earlier_step(recorded: RecordedRank) -> None:
    found = status(Place("r", "rank0", recorded), 4, "health")
    assert dict(zip(found["sites"], found["status"], strict=True)) == {10: "bad"}
