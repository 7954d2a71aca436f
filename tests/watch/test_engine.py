from __future__ import annotations

import math
import statistics
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch_rows import row, rows

from tensonde.errors import SyntaxProblem, UsageError
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.model.watchpoint import Watchpoint
from tensonde.watch.engine import MAX_HITS, Engine
from tensonde.watch.parse import watchpoint
from tensonde.watch.recommended import recommended

SITES = [
    Site(0, "loss", Role.OUT, Kind.LOSS),
    Site(1, "fc", Role.OUT, Kind.MODULE, type="ReLU"),
    Site(2, "fc.weight", Role.VALUE, Kind.PARAMETER, trainable=True, shape=(2, 2)),
    Site(3, "fc.weight", Role.UPDATE, Kind.PARAMETER, trainable=True, shape=(2, 2)),
    Site(4, "fc.weight", Role.GRAD, Kind.PARAMETER, trainable=True, shape=(2, 2)),
]


def engine_with(*texts, sites=SITES):
    engine = Engine(watchpoint(text, id=i + 1) for i, text in enumerate(texts))
    for site in sites:
        engine.add_site(site)
    return engine


def shown(found):
    """Hits as values that compare equal also where a number is NaN."""
    return [
        (h.watchpoint, h.site, h.moment, h.condition, str(dict(h.preset)), str(dict(h.actual)), h.rank) for h in found
    ]


def test_a_hit_says_where_when_and_why():
    engine = Engine([watchpoint("**:grad norm > 4 and nan", id=7)], rank=3)
    engine.add_site(SITES[4])
    (hit,) = engine.evaluate(row([3, 4, np.nan], 4, step=12, call=1, phase=Phase.BACKWARD).repeat(1)) or [None]
    assert (hit.watchpoint, hit.site, hit.rank, hit.condition) == (7, "fc.weight:grad", 3, "norm > 4 and nan")
    assert hit.moment == Moment(12, Phase.BACKWARD, 1)
    assert hit.preset == {"norm >": 4.0, "nan >": 0.0}
    assert hit.actual == {"norm": 5.0, "nan": 1.0}


def test_hits_come_in_execution_order():
    engine = engine_with("** nan", "** absmax > 5")
    found = engine.evaluate(rows(row([np.nan, 6], 4), row([1.0], 1), row([9.0], 0), row([np.nan], 2)))
    assert [(hit.site, hit.watchpoint) for hit in found] == [
        ("fc.weight:grad", 1), ("fc.weight:grad", 2), ("loss:out", 2), ("fc.weight:value", 1),
    ]  # fmt: skip


def test_reports_again_only_after_it_was_false_and_counts_the_rest():
    engine = engine_with("loss mean > 5")
    values = [9, 9, 1, 9, 9, 9, 1]
    one_batch = [h.moment.step for h in engine.evaluate(rows(*(row([v], 0, s) for s, v in enumerate(values))))]
    assert one_batch == [0, 3]
    assert engine.suppressed == {(1, "loss:out"): 3}
    steps = [engine.evaluate(row([v], 0, s)) for s, v in enumerate([9, 9, 1, 9], start=7)]
    assert [len(found) for found in steps] == [1, 0, 0, 1]
    assert engine.suppressed == {(1, "loss:out"): 4}


def test_one_batch_gives_a_bounded_number_of_hits_and_counts_the_others():
    sites = [Site(i, f"m{i}", Role.OUT, Kind.MODULE) for i in range(MAX_HITS + 50)]
    engine = engine_with("** nan", sites=sites)
    found = engine.evaluate(rows(*(row([np.nan], site.id) for site in sites)))
    assert [hit.site for hit in found] == [site.address for site in sites[:MAX_HITS]]
    assert sum(engine.suppressed.values()) == 50


def reference(function, values, n):
    past = [v for v in values[-n:] if not math.isnan(v)]
    if function == "prev":
        return values[-n] if len(values) >= n else math.nan
    if len(past) < min(n, 3):
        return math.nan
    if function == "trend":
        xs = [i for i, v in enumerate(values[-n:]) if not math.isnan(v)]
        return np.polyfit(xs, past, 1)[0] if len(set(xs)) > 1 else math.nan
    simple = {"avg": statistics.fmean, "med": statistics.median, "lowest": min, "highest": max}
    return simple[function](past)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["avg", "med", "lowest", "highest", "trend", "prev"]),
    st.integers(1, 6),
    st.lists(st.sampled_from([0.0, 1.0, -2.0, 3.5, 10.0, math.nan]), min_size=1, max_size=14),
    st.lists(st.integers(1, 5), min_size=14, max_size=14),
)
def test_history_functions_say_what_they_are_defined_to_say(function, n, values, cuts):
    """Only even steps can hit, so that every hit is a new one."""
    engine = engine_with(f"loss {function}(mean, {n}) > -1e9 and step % 2 == 0")
    got, at = {}, 0
    for cut in cuts:
        part = values[at : at + cut]
        for hit in engine.evaluate(rows(*(row([v], 0, at + i) for i, v in enumerate(part)))):
            got[hit.moment.step] = hit.actual[f"{function}(mean, {n})"]
        at += cut
    for step in range(0, len(values), 2):
        expected = reference(function, values[:step], n)
        assert (step in got) is not math.isnan(expected)
        if step in got:
            assert got[step] == pytest.approx(expected, abs=1e-9)


TEXTS = [
    "** mean > avg(mean, 4)",
    "** absmax > 2 * med(absmax, 5) or nan",
    "** lowest(norm, 3) > 1 and highest(norm, 6) < 9",
    "** trend(mean, 5) > 0",
    "** norm == prev(norm) or norm > prev(norm, 3)",
    "** seen() >= 3 and zeros > 0.2",
    "** update_ratio > 0.5",
    "** fed > 1 and loss > 0",
    "** inside(-1, 1) > 0.4",
    "** exploding(2, 1, 3) or dead(0.5, 2) or weight_unchanged",
    "fc.** not nan and absmean > 1",
]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_batches_do_not_matter(data):
    """Any cut of a stream of rows into batches gives the same hits and counts as one row at a time."""
    small = st.lists(st.sampled_from([0.0, 1.0, -1.5, 4.0, math.nan, math.inf]), min_size=1, max_size=3)
    stream = data.draw(st.lists(st.tuples(st.integers(0, len(SITES) - 1), small), min_size=1, max_size=30))
    steps = [i // 6 for i in range(len(stream))]
    every = rows(*(row(values, site, step) for (site, values), step in zip(stream, steps, strict=True)))
    alone, together = engine_with(*TEXTS), engine_with(*TEXTS)
    expected = [hit for i in range(len(every)) for hit in alone.evaluate(every[i : i + 1])]
    got, at = [], 0
    while at < len(every):
        size = data.draw(st.integers(1, 12))
        got += together.evaluate(every[at : at + size])
        at += size
    assert shown(got) == shown(expected)
    assert together.suppressed == alone.suppressed


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_recheck_repeats_what_evaluate_said_and_changes_nothing(data):
    small = st.lists(st.sampled_from([0.0, 1.0, -1.5, 4.0]), min_size=1, max_size=3)
    pick = st.tuples(st.integers(0, 4), small)
    texts = [text for text in TEXTS if "fed" not in text and "update" not in text and "weight" not in text]
    before = rows(*(row(v, s) for s, v in data.draw(st.lists(pick, min_size=1, max_size=20))))
    last = rows(*(row(v, s) for s, v in data.draw(st.lists(pick, min_size=1, max_size=6, unique_by=lambda p: p[0]))))
    engine, other = engine_with(*texts), engine_with(*texts)
    for each in (engine, other):
        each.evaluate(before)
    fresh = engine.evaluate(last)
    again = engine.recheck(last)
    assert set(shown(fresh)) <= set(shown(again))
    assert shown(engine.recheck(last)) == shown(again)
    other.evaluate(last)
    assert shown(engine.evaluate(before)) == shown(other.evaluate(before))
    assert engine.suppressed == other.suppressed


def test_recheck_tries_other_watchpoints_on_the_data_at_hand():
    engine = engine_with("loss mean > 2 * avg(mean, 4)")
    for step in range(5):
        engine.evaluate(row([1.0 + step], 0, step))
    extra = Watchpoint(9, "loss", "mean > avg(mean, 4) and prev(mean) == 4")
    assert [hit.watchpoint for hit in engine.recheck(row([5.0], 0, 4), [extra])] == [9]
    assert [w.id for w in engine.watchpoints] == [1]


def test_recheck_of_many_rows_does_not_take_newer_ones_for_history():
    engine = engine_with("loss prev(mean) > 0")
    every = rows(*(row([float(step)], 0, step) for step in range(20)))
    engine.evaluate(every)
    found = engine.recheck(every[10:])
    assert [hit.moment.step for hit in found] == [11]  # what came before step 10 is no longer kept


def test_watchpoints_come_and_go_without_losing_history():
    engine = engine_with("loss mean > 100 + avg(mean, 3)")
    for step in range(10):
        engine.evaluate(row([float(step)], 0, step))
    engine.add(Watchpoint(5, "loss", "prev(mean, 3) == 7 and prev(mean, 9) < 99"))
    engine.add(Watchpoint(6, "loss", "prev(mean, 3) == 7"))
    assert [hit.watchpoint for hit in engine.evaluate(row([10.0], 0, 10))] == [6]
    engine.remove(5)
    assert [hit.actual["prev(mean, 3)"] for hit in engine.recheck(row([10.0], 0, 10), [engine.watchpoints[1]])] == [7.0]
    with pytest.raises(UsageError, match="no watchpoint 5"):
        engine.remove(5)
    with pytest.raises(UsageError, match="exists already"):
        engine.add(Watchpoint(6, "loss", "nan"))
    with pytest.raises(SyntaxProblem):
        engine.add(Watchpoint(7, "loss", "nann"))
    assert [w.id for w in engine.watchpoints] == [1, 6]


def test_sites_may_be_added_late_and_in_either_order():
    engine = engine_with("** update_ratio > 0.1", "** mean > avg(mean, 2)", sites=[SITES[3]])
    engine.add_site(SITES[2])
    many = [Site(i, f"x{i}", Role.OUT, Kind.MODULE) for i in range(5, 300)]
    for site in many:
        engine.add_site(site)
    found = engine.evaluate(rows(row([1.0], 2), row([0.5], 3)))
    assert [hit.site for hit in found] == ["fc.weight:update"]
    for value, expected in ((1.0, 0), (1.0, 0), (2.0, 295)):
        assert len(engine.evaluate(rows(*(row([value], s.id) for s in many)))) == expected
    with pytest.raises(UsageError, match="was not added"):
        engine.evaluate(row([1.0], 999))
    with pytest.raises(UsageError, match="already"):
        engine.add_site(SITES[2])


def test_wanted_means_watched_or_looked_up():
    engine = Engine([watchpoint("**.weight:update weight_change_too_large", id=1)])
    assert engine.wanted(SITES[3])
    assert engine.wanted(SITES[2])  # its value is what the change is compared with
    assert not engine.wanted(SITES[4])
    assert not engine.wanted(SITES[1])
    assert not Engine().wanted(SITES[0])
    assert Engine(recommended()).wanted(SITES[0])


def test_memory_depends_on_sites_and_lengths_only():
    sites = [Site(i, f"m{i}", Role.OUT, Kind.MODULE) for i in range(100)]
    engine = engine_with("** norm > 10 * avg(norm, 50)", sites=sites)
    every = rows(*(row([1.0], site.id) for site in sites))
    engine.evaluate(every)
    size = engine.nbytes
    for _ in range(200):
        engine.evaluate(every)
    assert engine.nbytes == size
    for i in range(100):
        engine.add(Watchpoint(10 + i, "**", f"norm > {10 + i} * avg(norm, {1 + i % 50})"))
    assert engine.nbytes == size
    narrow = engine_with("m1 norm > 10 * avg(norm, 1000)", sites=sites)
    assert narrow.nbytes < 100_000
    for one in engine.watchpoints:
        engine.remove(one.id)
    assert engine.nbytes < size / 4


def test_an_empty_batch_and_no_watchpoints():
    assert engine_with("** nan").evaluate(rows()) == []
    assert engine_with().evaluate(row([np.nan], 0)) == []
    assert engine_with("** nan").recheck(rows()) == []


@pytest.mark.slow
def test_a_batch_of_two_thousand_rows_takes_milliseconds():
    sites = [Site(i, f"b{i}.w", Role.GRAD, Kind.PARAMETER, trainable=True) for i in range(2000)]
    engine = Engine(recommended())
    for site in sites:
        engine.add_site(site)
    every = rows(*(row([1.0, i], i) for i in range(2000)))
    took = []
    for _ in range(120):
        start = time.perf_counter()
        engine.evaluate(every)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.002
