"""How an op of the graph fared: NaN and Inf are bad, but for the -inf of a mask."""

from __future__ import annotations

import pytest

from tensonde.model.trace import OpRecord, TensorFact
from tensonde.server.health import health_of_op


@pytest.mark.parametrize(
    ("op", "stats", "expected"),
    [
        ("softmax", {"nan": 3}, "bad"),
        ("log", {"neg_inf": 1}, "bad"),
        ("masked_fill", {"neg_inf": 9, "nan": 0}, "ok"),
        ("masked_fill", {"neg_inf": 9, "nan": 1}, "bad"),
        ("where", {"pos_inf": 1}, "bad"),
        ("masked_fill", {}, "none"),
        ("add", {"nan": 0}, "ok"),
    ],
)
def test_health_of_an_op(op: str, stats: dict[str, float], expected: str) -> None:
    tensor = TensorFact(0, (2,), "float32", stats=stats)
    assert health_of_op(OpRecord(0, op, f"net/{op}#0", "net", "Net", None, (), (tensor,))) == expected
