"""Where ranks stand, from the files that they write: who waits for whom."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tensonde.store.collectives import CAPACITY, GRADIENTS, Call, CollectivesFile, Kind, read_collectives
from tensonde.store.standing import PATIENCE, Standing, stuck
from tensonde.store.whereabouts import Whereabouts, WhereaboutsFile, read_whereabouts

LOOP = {"file": "train.py", "what": "for", "line": 10, "end": 20, "parting": 0, "breaks": [], "made": 0}
EPOCHS = {**LOOP, "line": 9, "end": 30}


def call(number: int, kind: Kind, *, ago: float = 60.0, seconds: float | None = None, index: int = 0) -> Call:
    return Call(index, number, kind, 3, time.time() - ago, seconds)


def kind(op: str, what: str = "", *, line: int = 1, around: tuple[dict[str, object], ...] = ()) -> Kind:
    return Kind(op, what, "SUM", "0", 2, "train.py", line, list(around))


def at(rank: int, step: int, *calls: Call, over: bool = False, gone: bool = False, failed: bool = False) -> Standing:
    return Standing(rank, Whereabouts(step), over, gone, calls, failed)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = WhereaboutsFile(tmp_path)
    file.step(3)
    file.still(12.5, "worker", "/a/train.py", 41)
    found = read_whereabouts(tmp_path)
    assert found is not None
    assert found.still is not None
    assert (found.still.since, found.still.function, found.still.line) == (12.5, "worker", 41)
    file.still(0.0)
    found = read_whereabouts(tmp_path)
    assert found is not None
    assert (found.still, found.step) == (None, 3)


def test_files_of_an_older_version_are_read(tmp_path: Path) -> None:
    WhereaboutsFile(tmp_path).step(5)
    path = tmp_path / "whereabouts"
    path.write_bytes(path.read_bytes()[:4096])
    found = read_whereabouts(tmp_path)
    assert found is not None
    assert (found.step, found.still) == (5, None)


def test_calls_that_run_beside_the_program(tmp_path: Path) -> None:
    file = CollectivesFile(tmp_path)
    one = file.kind("a", lambda: kind("all_reduce"))

    def states() -> list[tuple[float | None, bool]]:
        return [(call.seconds, call.beside) for call in read_collectives(tmp_path)]

    first = file.begins(one, 1, step=0)
    file.runs_on(first)
    file.tell()  # as a thread does when the program does something else for long
    assert states() == [(None, True)]
    second = file.begins(one, 2, step=0)
    file.runs_on(second)
    file.begins(one, 3, step=0)
    assert states() == [(None, True), (None, True), (None, False)]
    file.waited_for(first)
    assert states() == [(None, False), (None, True), (None, False)]
    file.ended(first, 0.5)
    assert states() == [(0.5, False), (None, True), (None, False)]


@pytest.mark.parametrize(("sent", "asked", "told"), [(1, 2, "tags"), (1, 1, None), (-1, 2, None)])
def test_a_tensor_with_another_tag_is_never_received(sent: int, asked: int, told: str | None) -> None:
    """-1: there were too many tags to know them."""
    sends = call(1, Kind("send", "float32[2]", "", "0", 2, "train.py", 7, [], peer=1, tag=sent))
    receives = call(1, Kind("recv", "float32[2]", "", "0", 2, "train.py", 9, [], peer=0, tag=asked))
    found = stuck([at(0, 3, sends), at(1, 3, receives)])
    assert (found.why if found is not None else None) == told
    if found is not None:
        assert found.culprit is not None
        assert found.culprit.line == 9
        assert "with tag 2" in found.sentence()


def test_both_receive_first() -> None:
    calls = [call(1, Kind("recv", "float32[2]", "", "0", 2, "train.py", 7, [], peer=1 - rank)) for rank in (0, 1)]
    found = stuck([at(rank, 3, calls[rank]) for rank in (0, 1)])
    assert found is not None
    assert found.why == "crossed"
    assert "each waits for the other" in found.sentence()
    sent = call(1, Kind("send", "float32[2]", "", "0", 2, "train.py", 9, [], peer=0))
    assert stuck([at(0, 3, calls[0]), at(1, 3, sent)]) is None  # it is on its way


def test_a_chain_of_receivers_leads_to_the_one_that_is_busy() -> None:
    waits = [call(1, Kind("recv", "float32[2]", "", "0", 3, "train.py", 7, [], peer=rank - 1)) for rank in (1, 2)]
    found = stuck([at(0, 3), at(1, 3, waits[0]), at(2, 3, waits[1])])
    assert found is not None
    assert (found.other.rank, found.why, [one.rank for one in found.waiting]) == (0, "busy", [1])


def test_the_last_calls_are_kept(tmp_path: Path) -> None:
    file = CollectivesFile(tmp_path)
    one = file.kind("a", lambda: kind("all_reduce", "float32[4]", line=7, around=(LOOP,)))
    other = file.kind("b", lambda: kind("barrier"))
    assert file.kind("a", lambda: kind("never")) == one
    for number in range(CAPACITY + 5):
        file.ended(file.begins(one, number, step=number // 2), 0.25)
    file.begins(other, CAPACITY + 5, step=1)
    found = read_collectives(tmp_path)
    assert len(found) == CAPACITY
    assert [call.number for call in found] == list(range(6, CAPACITY + 6))
    assert (found[0].kind.op, found[0].kind.what, found[0].seconds, found[0].step) == (
        "all_reduce",
        "float32[4]",
        0.25,
        3,
    )
    assert found[0].kind.around == [LOOP]
    assert (found[-1].kind.op, found[-1].seconds) == ("barrier", None)


def test_damaged_files_of_collectives_are_passed_over(tmp_path: Path) -> None:
    assert read_collectives(tmp_path) == []
    file = CollectivesFile(tmp_path)
    file.begins(file.kind("a", lambda: kind("barrier")), 1, 0)
    with open(tmp_path / "collectives.jsonl", "a") as lines:
        lines.write('{"kind": 7, "op":')
    assert [call.kind.op for call in read_collectives(tmp_path)] == ["barrier"]
    (tmp_path / "collectives.ring").write_bytes(b"something else, and longer than a head")
    assert read_collectives(tmp_path) == []


def test_nothing_is_said_while_all_is_well() -> None:
    assert stuck([at(0, 3), at(1, 3)]) is None
    short = call(5, kind("all_reduce"), ago=PATIENCE / 2)
    assert stuck([at(0, 3, short), at(1, 3, over=True)]) is None
    both = call(5, kind("all_reduce"))
    assert stuck([at(0, 3, both), at(1, 3, both)]) is None, "all of them are there: the network is slow"
    assert stuck([at(0, 3, short), at(1, 3)], after_the_end=True) is None, "Ctrl-C in the middle of a step"


def test_a_rank_that_has_ended_is_named() -> None:
    wait = call(57, kind("all_reduce", "float32[4]", line=15, around=(LOOP,)))
    before = call(56, kind("all_reduce", "float32[4]", line=15, around=(LOOP,)), seconds=0.1)
    found = stuck([at(0, 19, before, over=True), at(1, 19, before, wait)])
    assert found is not None
    assert (found.why, found.other.rank) == ("ended", 0)
    assert found.sentence().startswith("rank 1 waits for all_reduce of float32[4] (number 57) in step 19")
    assert found.sentence().endswith("rank 0 has ended after 19 steps; it left the loop at train.py:10 after step 18")
    assert found.culprit is not None
    assert found.culprit.line == 10


def test_a_loop_that_one_rank_has_left_is_named_whichever_waits_longer() -> None:
    inner = kind(GRADIENTS, line=15, around=(EPOCHS, LOOP))
    after = kind("all_reduce", "float32[]", line=25, around=(EPOCHS,))
    for ago in (60.0, 6.5):
        inside = at(0, 9, call(9, inner, seconds=0.1), call(10, inner, ago=ago))
        outside = at(1, 9, call(9, inner, seconds=0.1), call(1, after, ago=30.0))
        found = stuck([inside, outside])
        assert found is not None
        assert found.culprit is not None
        assert found.culprit.line == 10


def test_who_has_left_the_loop_is_said_rightly() -> None:
    """The one that waits longest has left it, for a barrier behind it."""
    gradients = kind(GRADIENTS, line=12, around=(LOOP,))
    here = at(0, 6, call(6, gradients, seconds=0.1), call(7, gradients, ago=20, index=1))
    done = at(1, 6, call(6, gradients, seconds=0.1), call(1, kind("barrier", line=25), ago=60, index=1))
    found = stuck([here, done])
    assert found is not None
    assert (found.waiting, found.other, found.loop) == ((here,), done, LOOP)
    assert (
        "rank 1 waits for barrier (number 1) in step 6 at train.py:25; it left the loop at train.py:10"
        in found.sentence()
    )


def test_a_loop_that_one_rank_left_calls_ago_is_named() -> None:
    """The next calls of the rank that left it fit those that the other makes inside the loop, from the same line; they are stuck when both have
    come out of it."""
    steps = {**LOOP, "line": 5, "end": 30}
    words = {"file": "train.py", "what": "while", "line": 12, "end": 16, "breaks": [15]}
    writing = kind("all_gather", "float32[4]", line=2, around=(steps, words))
    training = kind("all_gather", "float32[4]", line=2, around=(steps,))
    reducing = kind("reduce_scatter", "float32[4]", line=22, around=(steps,))
    both = [call(n, writing, seconds=0.1, index=n) for n in (1, 2)]
    left = at(0, 4, *both, call(3, training, seconds=0.1, index=3), call(4, reducing, ago=60.0, index=4))
    after = at(1, 4, *both, call(3, writing, seconds=0.1, index=3), call(4, training, ago=40.0, index=4))
    for ranks in ([left, after], [after, left]):
        found = stuck(ranks)
        assert found is not None
        assert found.culprit is not None
        assert (found.other, found.loop, found.culprit.line) == (left, words, 15)


def test_the_call_that_only_one_rank_makes_is_the_culprit() -> None:
    everyone, alone = kind(GRADIENTS, line=15), kind("all_reduce", "float32[]", line=18)
    past = call(3, everyone, seconds=0.1)
    for ago in (60.0, 7.0):
        found = stuck([at(0, 8, past, call(4, everyone, ago=30.0)), at(1, 8, past, call(1, alone, ago=ago))])
        assert found is not None
        assert found.culprit is not None
        assert (found.why, found.culprit.line) == ("elsewhere", 18)


def test_a_condition_that_only_one_rank_goes_into_is_named() -> None:
    epochs = {"file": "train.py", "what": "for", "line": 5, "end": 30, "breaks": []}
    batches = {"file": "train.py", "what": "for", "line": 6, "end": 12, "breaks": [], "made": 2}
    better = {"file": "train.py", "what": "if", "line": 20, "end": 24}
    gradients = replace(kind(GRADIENTS, line=8), group="", around=[epochs, batches])
    scores = replace(kind("reduce", "float32[]", line=15), around=[epochs])
    saving = replace(kind("broadcast", "float32[4]", line=22), around=[epochs, better])
    for one in ([call(1, gradients, seconds=0.1), call(1, scores, seconds=0.1)], [call(1, gradients, seconds=0.1)]):
        met = [call(2, saving, seconds=0.1)] if len(one) == 1 else []  # the other rank was inside of it before
        ranks = [at(0, 8, *one, *met, call(2, gradients, ago=30.0)), at(1, 8, *one, call(3, saving, ago=20.0))]
        found = stuck(ranks)
        assert found is not None
        assert found.culprit is not None
        assert (found.culprit.line, "only one of them went into" in found.sentence()) == (20, True)


def test_other_causes_are_told_apart() -> None:
    cases = {
        "died": at(1, 3, gone=True),
        "elsewhere": at(1, 3, call(5, kind("broadcast", "float32[1]"))),
        "shapes": at(1, 3, call(5, kind("all_reduce", "float32[3]"), ago=1.0)),
        "busy": at(1, 3),
    }
    for why, other in cases.items():
        found = stuck([at(0, 3, call(5, kind("all_reduce", "float32[4]"), ago=90)), other])
        assert found is not None, why
        assert found.why == why


def test_a_rank_that_has_come_out_of_a_call_that_does_not_fit() -> None:
    """Gloo lets the rank with the longer tensor go on."""
    longer = call(5, kind("all_reduce", "float64[1]", line=43), seconds=0.1)
    shorter = call(5, kind("all_reduce", "float32[1]", line=43))
    found = stuck([at(0, 4, longer, call(9, kind(GRADIENTS, line=39))), at(1, 4, shorter)])
    assert found is not None
    assert found.culprit is not None
    assert (found.why, found.culprit.line) == ("shapes", 43)
    assert "rank 0 calls all_reduce of float64[1] (number 5) there" in found.sentence()
    fits = call(5, kind("all_reduce", "float32[1]", line=43), seconds=0.1)
    other = stuck([at(0, 4, fits, call(9, kind(GRADIENTS, line=39))), at(1, 4, shorter)])
    assert other is None or other.why != "shapes"
