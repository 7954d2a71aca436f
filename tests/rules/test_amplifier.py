"""Huge numbers are traced back to the op that made them out of ordinary ones."""

from __future__ import annotations

from tensonde.diagnose.analysis.path import amplifier
from tensonde.model.trace import OpRecord, TensorFact, Trace


def trace(*steps: tuple[str, float]) -> Trace:
    """A chain of ops, each with the largest value that it gives; the first is given 1."""
    ops = []
    given = TensorFact(0, (4,), "float32", stats={"absmax": 1.0})
    for k, (name, most) in enumerate(steps):
        out = TensorFact(k + 1, (4,), "float32", producer=k, stats={"absmax": most})
        ops.append(OpRecord(k, name, f"model/{name}#0", "model", "Net", None, (given,), (out,)))
        given = out
    return Trace(0, "replay", tuple(ops))


def test_the_one_op_that_makes_them_huge_is_found() -> None:
    found = trace(("linear", 60.0), ("exp", 1e26), ("linear", 1e26), ("mse_loss", float("inf")))
    op = amplifier(found, found.ops[-1])
    assert op is not None
    assert op.op == "exp"


def test_growth_from_layer_to_layer_has_none() -> None:
    found = trace(*((f"linear{k}", 1000.0 ** (k + 1)) for k in range(8)), ("mse_loss", float("inf")))
    assert amplifier(found, found.ops[-1]) is None


def test_ordinary_numbers_have_none() -> None:
    found = trace(("linear", 10.0), ("exp", 2e4), ("mul", float("inf")))
    assert amplifier(found, found.ops[-1]) is None
