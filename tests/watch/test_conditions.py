"""Every named condition fires on a case that it is made for and is silent on one just short of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from watch_rows import row, rows

from tensonde.model.site import Kind, Role, Site
from tensonde.model.watchpoint import Watchpoint
from tensonde.watch.announcing import announcement
from tensonde.watch.conditions import CONDITIONS
from tensonde.watch.conditions import parse as condition
from tensonde.watch.document import markdown
from tensonde.watch.engine import Engine
from tensonde.watch.parse import loads, watchpoint
from tensonde.watch.pattern import Pattern

SITES = {
    "loss": Site(0, "loss", Role.OUT, Kind.LOSS),
    "fc": Site(1, "fc", Role.OUT, Kind.MODULE, type="Linear"),
    "op": Site(2, "fc/log#0", Role.OUT, Kind.OP, type="log"),
    "tanh": Site(3, "t", Role.OUT, Kind.MODULE, type="Tanh"),
    "sigmoid": Site(4, "s", Role.OUT, Kind.MODULE, type="Sigmoid"),
    "relu": Site(5, "r", Role.OUT, Kind.MODULE, type="ReLU"),
    "weight": Site(6, "fc.weight", Role.VALUE, Kind.PARAMETER, type="Linear", trainable=True, shape=(4, 4)),
    "update": Site(7, "fc.weight", Role.UPDATE, Kind.PARAMETER, type="Linear", trainable=True, shape=(4, 4)),
    "grad": Site(8, "fc.weight", Role.GRAD, Kind.PARAMETER, type="Linear", trainable=True, shape=(4, 4)),
    "buffer": Site(9, "bn.running_var", Role.VALUE, Kind.BUFFER, type="BatchNorm1d"),
    "frozen": Site(10, "emb.weight", Role.VALUE, Kind.PARAMETER, type="Embedding", trainable=False, shape=(4, 4)),
    "bias": Site(11, "fc.bias", Role.VALUE, Kind.PARAMETER, type="Linear", trainable=True, shape=(4,)),
    "in": Site(12, "fc", Role.IN, Kind.MODULE, type="Linear"),
}


def engine_for(text):
    engine = Engine([Watchpoint(1, "**", text)])
    for site in SITES.values():
        engine.add_site(site)
    return engine


def hits(text, *steps, scaled=False):
    """Hits of one condition over steps, each a list of (site, values)."""
    engine = engine_for(text)
    engine.loss_scaling = scaled
    found = []
    for number, step in enumerate(steps):
        found += engine.evaluate(rows(*(row(values, SITES[site].id, number) for site, values in step)))
    return found


def each(site, *values):
    return [[(site, value)] for value in values]


rng = np.random.default_rng(0)
N = rng.standard_normal(200)
ONES = np.ones(200)
saturated_tanh = np.where(np.arange(1000) % 2, 1.0, -1.0)
one_free = np.append(saturated_tanh[:-100], np.full(100, 0.3))
STUCK = [[("fc", N), ("loss", [0.5 + i]), ("grad", N), ("weight", ONES)] for i in range(102)]
UNSTUCK = [[("fc", N), ("loss", [0.5 + i]), ("grad", N), ("weight", ONES * (1 + (i == 60)))] for i in range(102)]
NO_GRAD = [[("fc", N), ("loss", [0.5]), ("grad", 0 * N)] for _ in range(102)]
falling = [5 - i / 100 for i in range(400)]


def growing(norms, losses=None, count=20):
    """Steps with a loss and a weight of these norms."""
    unit = np.ones(count) / np.sqrt(count)
    losses = [1.0] * len(norms) if losses is None else losses
    return [[("loss", [loss]), ("weight", norm * unit)] for norm, loss in zip(norms, losses, strict=True)]


GROWTH = [1.0] * 70 + [1.013**k for k in range(12)]
RUNAWAY = growing(GROWTH)
AS_FAST_AS_EVER = growing([1 + 0.035 * k for k in range(80)])
CASES = {
    "tensor_overflow": ("tensor_overflow", each("in", [np.inf]), each("in", [1e308])),
    "operator_overflow": ("operator_overflow", each("op", [-np.inf]), each("in", [np.nan])),
    "all_zero": ("all_zero", each("in", [0, 0]), each("in", [0, 1e-30])),
    "too_large": ("too_large(absmean=10)", each("in", [-11, 10]), each("in", [-10, 10])),
    "too_small": ("too_small(min=-1)", each("in", [-2, 3]), each("in", [-1, 3])),
    "out_of_range": (
        "out_of_range(low=-1, high=1, below=0.5)",
        each("fc", [4, 5, 6, 7, 0]),
        each("fc", [4, 0, 0, 0, 0]),
    ),
    "weight_initialization": (
        "weight_initialization",
        each("weight", np.zeros(4)),
        [[("weight", [0, 0, 0, 1]), ("bias", [0, 0])]],
    ),
    "weight_overflow": ("weight_overflow", each("weight", [np.nan, 1]), each("frozen", [-np.inf, 1])),
    "weight_too_large": ("weight_too_large(max=5)", each("weight", [6]), [[("weight", [5]), ("grad", [9])]]),
    "weight_too_small": ("weight_too_small(1e-3)", each("weight", [5e-4]), each("weight", [1e-3])),
    "weight_unchanged": (
        "weight_unchanged",
        [[("weight", ONES), ("update", ONES * 9e-6)]],
        [[("weight", ONES), ("update", ONES * 1.1e-5)]],
    ),
    "weight_change_too_large": (
        "weight_change_too_large",
        [[("weight", ONES), ("update", -ONES * 0.11)]],
        [[("weight", ONES), ("update", ONES * 0.09)]],
    ),
    "weight_change_too_small": (
        "weight_change_too_small",
        [[("weight", ONES), ("update", ONES * 9e-5)]],
        [[("weight", ONES), ("update", ONES * 2e-4)]],
    ),
    "activation_range": ("activation_range", each("tanh", saturated_tanh), each("tanh", one_free)),
    "gradient_exploding": (
        "gradient_exploding",
        each("grad", [np.inf]),
        [[("grad", [1e300]), ("fc", [np.inf])]],
    ),
    "gradient_too_large": (
        "gradient_too_large(absmean=10)",
        each("grad", [11]),
        [[("grad", [9]), ("weight", [99])]],
    ),
    "gradient_vanishing": ("gradient_vanishing(1e-7)", each("grad", [9e-8]), each("grad", [2e-7])),
    "exploding": ("exploding", each("fc", *[N] * 5, N * 5e3), each("fc", *[N * 100] * 5, N * 5e3)),
    "vanishing": ("vanishing", each("grad", *[[1e-10]] * 4), each("grad", [1e-10], [1e-8], *[[1e-10]] * 2)),
    "unchanged": ("unchanged", each("in", N, N), each("in", N, N * (1 + 1e-15))),
    "saturated": ("saturated", each("sigmoid", [0, 0, 1, 1]), each("sigmoid", [0, 0.1, 1, 1])),
    "dead": ("dead", each("relu", *[0 * N] * 21), each("relu", N, *[0 * N] * 20)),
    "constant": ("constant", each("in", [3, 3]), each("in", [3, 3.0001])),
    "poor_initialization": ("poor_initialization", each("weight", N * 20), each("weight", N * 5, N * 20)),
    "spike": ("spike", each("loss", *falling[:25], 7), each("loss", *falling[:25], 5.3)),
    "plateau": (
        "plateau",
        each("loss", *(1 + 1e-6 * i for i in range(201))),
        each("loss", *(1 + 1e-4 * i for i in range(201))),
    ),
    "loss_not_decreasing": ("loss_not_decreasing(50)", each("loss", *range(51)), each("loss", *falling)),
    "diverging": (
        "diverging",
        each("loss", *falling[:60], *(4 + i for i in range(30))),
        each("loss", *falling[:60], *[4.6] * 30),
    ),
    "loss_overflow": ("loss_overflow", each("loss", np.nan), [[("loss", [1]), ("fc", [np.nan])]]),
    "output_nan": (
        "output_nan",
        each("fc", [np.nan, 1]),
        [[("fc", [-np.inf, 1]), ("in", [np.nan]), ("op", [np.nan])]],
    ),
    "output_overflow": ("output_overflow", each("fc", *[N] * 5, [np.inf]), each("fc", *[[np.inf, 1.0]] * 20)),
    "gradient_overflow": ("gradient_overflow", each("grad", [np.inf, 1]), each("fc", [np.inf, 1])),
    "buffer_nan": ("buffer_nan", each("buffer", [1], [np.nan]), each("buffer", [np.nan], [np.nan], [1])),
    "gradient_runaway": (
        "gradient_runaway",
        each("grad", *[N] * 30, *[N * 5e3] * 5),
        each("grad", *[N] * 30, N * 5e3, *[N] * 30),
    ),
    "loss_runaway": (
        "loss_runaway",
        each("loss", *[1.0] * 30, *[2e4] * 5),
        each("loss", *[1.0] * 30, 2e4, *[1.0] * 20),
    ),
    "weight_runaway": ("weight_runaway", RUNAWAY, AS_FAST_AS_EVER),
    "loss_stuck": ("loss_stuck", each("loss", *[0.7] * 101), each("loss", 0.7001, *[0.7] * 200)),
    "weight_stuck": ("weight_stuck", STUCK, UNSTUCK),
    "gradient_stuck": (
        "gradient_stuck",
        NO_GRAD,
        [s if i != 50 else [("grad", N * 1e-30)] for i, s in enumerate(NO_GRAD)],
    ),
}


@pytest.mark.parametrize("name", [one.name for one in CONDITIONS])
def test_fires_and_just_does_not(name):
    text, firing, silent = CASES[name]
    assert hits(text, *firing)
    assert hits(text, *silent) == []


def test_more_shapes_of_conditions():
    assert hits("activation_range", *each("sigmoid", [1.0] * 600 + [1e-9] * 600))
    assert not hits("activation_range", *each("sigmoid", [1.0] * 600 + [1e-3] * 600))
    assert hits("activation_range", *each("relu", [0.0] * 4000 + [1.0]))
    assert not hits("activation_range", *each("relu", [0.0] * 900 + [1.0]))
    assert hits("activation_range(kind=tanh)", *each("fc", saturated_tanh))
    assert not hits("activation_range(relu)", *each("in", [0.0]))
    assert hits("saturated", *each("tanh", saturated_tanh))
    assert not hits("saturated", *each("tanh", one_free))
    assert hits("saturated", *each("relu", [0.0] * 999 + [1.0]))
    assert hits("weight_unchanged", *each("weight", N, N))
    assert not hits("weight_unchanged", *each("weight", N, N + 1e-12))
    assert not hits("weight_unchanged", *each("frozen", N, N))
    assert hits("weight_overflow", *each("update", [np.nan]))
    assert hits("out_of_range(spread_below=1)", *each("in", [1, 1.5]))
    assert not hits("out_of_range(spread_above=1)", *each("in", [1, 1.5]))
    assert hits("Tensor_Overflow", *each("in", [np.nan]))
    assert not hits("dead", *each("relu", *[[]] * 30))


def test_weights_may_grow_while_the_loss_falls_or_from_next_to_nothing():
    assert not hits("weight_runaway", *growing(GROWTH, [5 - 0.01 * k for k in range(82)]))
    assert not hits("weight_runaway", *growing(GROWTH, count=15))
    assert not hits("weight_runaway", *growing([0.3, *GROWTH]))
    assert not hits("weight_runaway", *growing([0.01 * k**2 for k in range(120)]))
    assert not hits("weight_runaway", *growing(GROWTH[30:]))
    (hit,) = hits("weight_runaway", *RUNAWAY)
    assert hit.moment.step == 79
    assert "fc.weight grew by 12% in 10 steps" in announcement(hit)


def test_nothing_runs_away_between_looks_that_are_far_apart():
    engine = engine_for("weight_runaway")
    found = []
    for number, step in enumerate(RUNAWAY):
        found += engine.evaluate(rows(*(row(values, SITES[site].id, 2 * number) for site, values in step)))
    assert not found


def test_loss_scaling_may_overflow_now_and_then():
    some = each("grad", *[[np.inf, 1.0]] * 19, [1.0], *[[np.inf]] * 20)
    assert hits("gradient_overflow", *some, scaled=True) == []
    assert len(hits("gradient_overflow", *some, scaled=False)) == 2
    assert len(hits("gradient_overflow", *some, [("grad", [np.inf])], scaled=True)) == 1


def test_zero_gradients_are_explained_by_a_zero_loss_or_an_unused_module():
    assert not hits("gradient_stuck", *([("fc", N), ("loss", [0.0]), ("grad", 0 * N)] for _ in range(150)))
    assert not hits("gradient_stuck", *([("fc", []), ("loss", [1.0]), ("grad", 0 * N)] for _ in range(150)))
    assert not hits("weight_stuck", *([("loss", [1.0]), ("weight", N)] for _ in range(150)))


def test_update_ratio_looks_at_the_value_before_it():
    def ratio(*step):
        return [hit.actual["update_ratio"] for hit in hits("update_ratio > 0", step)]

    assert ratio(("weight", ONES * 2), ("update", ONES)) == [pytest.approx(0.5)]
    assert ratio(("weight", ONES * 4), ("weight", ONES * 2), ("update", ONES)) == [pytest.approx(0.5)]
    assert ratio(("update", ONES), ("weight", ONES * 2)) == []
    across = hits("weight_change_too_large(0.4)", [("weight", ONES * 2)], [("update", ONES), ("weight", ONES)])
    assert [hit.actual for hit in across] == [{"update_ratio": pytest.approx(0.5)}]


def test_names_and_expressions_combine_where_they_fit():
    text = "gradient_exploding or zeros > 0.99 and step >= 1"
    found = hits(text, [("grad", [np.nan]), ("fc", [0.0])], [("fc", [0.0]), ("in", [np.nan])])
    assert [(hit.site, hit.moment.step) for hit in found] == [("fc.weight:grad", 0), ("fc:out", 1)]
    assert found[0].preset == {"nan >": 0.0, "inf >": 0.0, "zeros >": 0.99, "step >=": 1.0}
    assert found[1].preset == {"zeros >": 0.99, "step >=": 1.0}
    assert hits("not gradient_exploding", [("fc", [1.0])]) == []
    assert hits("nan and gradient_exploding", [("fc", [np.nan])]) == []
    assert [hit.site for hit in hits("not gradient_exploding", [("grad", [1.0])])] == ["fc.weight:grad"]


@pytest.mark.parametrize("one", CONDITIONS, ids=lambda one: one.name)
def test_a_nan_does_not_disable_a_check(one):
    """The firing case with a NaN put into every tensor of 3 or more values still fires."""
    if one.name in ("weight_initialization", "all_zero", "gradient_stuck", "constant"):
        pytest.skip("means every element; a NaN is none of them")
    text, firing, _ = CASES[one.name]
    dirty = [
        [(s, np.append(v, np.nan) if np.size(v) >= 100 and s != "relu" else v) for s, v in step] for step in firing
    ]
    assert hits(text, *dirty)


def test_the_documentation_is_generated():
    page = Path(__file__).parents[2] / "docs" / "conditions.md"
    assert page.read_text() == markdown(), "run: python -m tensonde.watch.document > docs/conditions.md"


def test_every_example_of_the_language_page_parses():
    text = (Path(__file__).parents[2] / "docs" / "watch-language.md").read_text()
    history = text.split("### History")[1].split("```")[1].partition("\n")[2]  # without its language
    conditions = [line.split("#")[0].strip() for line in history.strip().splitlines()]
    conditions += re.findall(r"`([^`]+)`", text.split("## Conditions")[1].split("\n")[2])
    patterns = re.findall(r"^\| `([^`]+)` \|", text, re.M)
    watchpoints = re.findall(r"--watch '([^']+)'", text)
    (entry,) = loads(text.split("```toml")[1].split("```")[0])
    assert (len(conditions), len(patterns), len(watchpoints), entry.action) == (8, 10, 7, "pause")
    for example in conditions:
        condition(example)
    for example in patterns:
        Pattern.parse(example)
    for example in watchpoints:
        watchpoint(example, id=1)
