"""A MindSpore run in PyTorch's words, and what is said of ports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensonde.adapters.draws import Draws, mask
from tensonde.adapters.fitting import fitted
from tensonde.compare import dialect
from tensonde.compare.causes import cause
from tensonde.compare.distance import distance
from tensonde.compare.judge import judge
from tensonde.compare.porting import _alike, unlike
from tensonde.compare.settings import _by_group
from tensonde.compare.side import Side
from tensonde.compare.training import Part
from tensonde.compare.verdict import Divergence, Setting, Verdict
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace, WeightRecord

SIGNS = np.random.default_rng(1).integers(0, 2, (4096, 8)) * 2.0 - 1.0


def stats(values: Any) -> dict[str, float]:
    flat = np.asarray(values, np.float64).reshape(-1)
    found = {"count": float(flat.size), "norm": float(np.linalg.norm(flat)), "mean": float(flat.mean())}
    found |= {
        "std": float(flat.std()),
        "absmean": float(np.abs(flat).mean()),
        "min": float(flat.min()),
        "max": float(flat.max()),
    }
    found |= {"zero": float((flat == 0).sum()), "nan": 0.0, "pos_inf": 0.0, "neg_inf": 0.0}
    return found | {f"sketch.{k}": float(flat @ SIGNS[: flat.size, k]) for k in range(8)}


def run(framework: str, weight: Any, batch: Any, *, scale: float = 1.0, shape: tuple[int, ...] | None = None) -> Side:
    """One layer and its batch norm's weight: y = scale * batch @ weight.T."""
    torch = framework == "torch"
    weight, batch = np.asarray(weight, np.float32), np.asarray(batch, np.float32)
    out = scale * batch @ weight.T
    given = TensorFact(0, shape or batch.shape, "float32", stats=stats(batch))
    held = TensorFact(1, weight.shape, "float32", True, "fc.weight", None, stats(weight))
    made = TensorFact(2, out.shape, "float32", True, "", 0, stats(out))
    kind = "Linear" if torch else "Dense"
    op = OpRecord(0, "linear", "fc/linear#0", "fc", kind, None, (given, held), (made,))
    gamma = "norm.weight" if torch else "norm.gamma"
    weights = (
        WeightRecord("fc.weight", weight.shape, "float32", True, before=stats(weight)),
        WeightRecord(gamma, (4,), "float32", True, before=stats(np.ones(4))),
    )
    call = CallRecord(0, None, "fc", kind, (given,), (made,), (), 0, 1, True)
    trace = Trace(0, "first", (op,), loss=0, calls=(call,), weights=weights)
    settings = {"in_features": 8, "out_features": 4} | ({} if torch else {"has_bias": True})
    facts = {
        "modules": {
            "fc": {"type": kind, "library": True, "settings": settings},
            "norm": {"type": "LayerNorm", "library": True, "settings": {"eps": 1e-5 if torch else 1e-7}},
        },
        "parameters": {
            "fc.weight": {"shape": [4, 8], "requires_grad": True, "owner": "fc", "optimizers": [0]},
            gamma: {"shape": [4], "requires_grad": True, "owner": "norm", "optimizers": [0]},
        },
    }
    return Side(framework, {0: trace}, facts, {0: 1.0}, {}, framework=framework)


RNG = np.random.default_rng(0)
WEIGHT, BATCH = RNG.normal(size=(4, 8)), RNG.normal(size=(64, 8))


def test_names_and_settings_are_put_into_the_words_of_pytorch() -> None:
    _, b = dialect.common(run("torch", WEIGHT, BATCH), run("mindspore", WEIGHT, BATCH))
    assert set(b.parameters) == {"fc.weight", "norm.weight"}
    assert b.native == {"norm.weight": "norm.gamma"}
    assert b.modules["fc"]["type"] == "Linear"
    assert b.modules["fc"]["settings"] == {"in_features": 8, "out_features": 4}
    assert b.modules["norm"]["settings"] == {"eps": 1e-7}


def test_a_right_port_is_equivalent_and_names_come_back() -> None:
    outcome = judge(run("torch", WEIGHT, BATCH), run("mindspore", WEIGHT, BATCH))
    assert outcome.verdict.verdict == "equivalent"
    assert dict(outcome.pairing.weights) == {"fc.weight": "fc.weight", "norm.weight": "norm.gamma"}


def test_the_layer_that_departs_is_named() -> None:
    verdict = judge(run("torch", WEIGHT, BATCH), run("mindspore", WEIGHT, BATCH, scale=1.1)).verdict
    assert verdict.judgement == "forward"
    assert verdict.first is not None
    assert verdict.first.site == "fc:out"


def test_other_draws_are_alike_and_other_distributions_are_not() -> None:
    ref = run("torch", WEIGHT, BATCH)
    other = np.random.default_rng(5)
    assert unlike(ref, run("mindspore", other.normal(size=(4, 8)), other.normal(size=(64, 8))), None) is None
    small = unlike(ref, run("mindspore", 0.01 * other.normal(size=(4, 8)), BATCH), None)
    assert small is not None
    assert (small.judgement, small.site) == ("init", "fc.weight:value")
    scaled = unlike(ref, run("mindspore", WEIGHT, BATCH * 255), None)
    assert scaled is not None
    assert scaled.judgement == "data"


@pytest.mark.parametrize(("name", "theirs", "said"), [("bias", 0.4, True), ("bias", 0.0, False), ("scale", 0.4, False)])
def test_one_number_may_be_a_draw(name: str, theirs: float, said: bool) -> None:
    one, other = stats(np.array([0.1])), stats(np.array([theirs]))
    assert _alike(Part(f"head.{name}", f"head.{name}", distance(one, other), one, other)) is said


@pytest.mark.parametrize(
    ("settings", "padding"),
    [
        ({"pad_mode": "valid", "padding": 0}, [0, 0]),
        ({"pad_mode": "pad", "padding": 1}, [1, 1]),
        ({"pad_mode": "pad", "padding": [1, 1, 2, 2]}, [1, 2]),
        ({"pad_mode": "same", "padding": 0}, [1, 1]),
        ({"pad_mode": "same", "padding": 0, "stride": [2, 2]}, "same"),
    ],
)
def test_padding(settings: dict[str, Any], padding: Any) -> None:
    fact = {"type": "Conv2d", "library": True, "settings": {"kernel_size": [3, 3], "stride": [1, 1], **settings}}
    assert dialect._module(fact)["settings"]["padding"] == padding


def test_a_weight_is_fitted_to_the_shape_of_the_other_framework() -> None:
    given = np.arange(12.0).reshape(3, 4)
    found = fitted(given, (4, 3), transposed=True)
    assert found is not None
    assert np.array_equal(found, given.T)
    wide = fitted(given, (3, 1, 4), transposed=False)
    assert wide is not None
    assert wide.shape == (3, 1, 4)
    assert fitted(given, (4, 3), transposed=False) is None


def test_draws_depend_on_where_they_are_drawn_alone() -> None:
    one, other = Draws(), Draws()
    other.uniform(0, "dropout", (7,))  # a draw of another shape, which only one of the runs makes
    assert np.array_equal(one.uniform(0, "dropout", (5,)), other.uniform(0, "dropout", (5,)))
    assert not np.array_equal(one.uniform(0, "dropout", (5,)), one.uniform(0, "dropout", (5,)))
    kept = mask(np.linspace(0, 1, 1000, dtype=np.float32), 0.25)
    assert set(np.unique(kept)) == {0.0, np.float32(1 / 0.75)}
    assert abs(kept.mean() - 1) < 0.01


def test_the_cause_of_a_batch_norm_that_keeps_too_little() -> None:
    first = Divergence(
        "forward",
        "bn.running_mean:value",
        "bn.moving_mean:value",
        0,
        "forward",
        "",
        {"type": "BatchNorm2d"},
        module="bn",
    )
    verdict = Verdict("divergent", "forward", first, (Setting("bn.momentum", 0.1, 0.9),))
    assert "momentum=0.9 in MindSpore" in cause(verdict)
    assert cause(Verdict("divergent", "forward", first, (Setting("other.momentum", 0.1, 0.9),))) == ""


def test_groups_that_one_optimizer_does_not_have_are_told_by_what_differs() -> None:
    common = {"lr": 0.1, "momentum": 0.9}
    groups = [{"parameters": 3, "weight_decay": decay, **common} for decay in (0.1, 0.0)]
    found = list(_by_group("optimizer", groups, [{"parameters": 6, "weight_decay": 0.1, **common}]))
    assert found == [Setting("optimizer.weight_decay", "0.1 and 0", "0.1")]


def test_settings_of_every_group_are_rounded_to_what_mindspore_keeps() -> None:
    mine = [{"parameters": 6, "weight_decay": 0.05, "momentum": 0.9}]
    theirs = [
        {"parameters": count, "weight_decay": decay, "momentum": float(np.float32(0.9))}
        for count, decay in ((4, 0.05), (2, 0.0))
    ]
    dialect._match_optimizers({"optimizers": [{"groups": mine}]}, {"optimizers": [{"groups": theirs}]})
    assert list(_by_group("optimizer", mine, theirs)) == [Setting("optimizer.weight_decay", "0.05", "0.05 and 0")]
