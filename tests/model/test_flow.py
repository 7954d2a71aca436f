"""What feeds a module and what it feeds. The trace is that of head(drop(x + enc(x))), where enc changes its tensor in place and drop
gives what it takes."""

from __future__ import annotations

import pytest

from tensonde.model.flow import around_module, users_of
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace


def tensor(id: int, producer: int | None, name: str = "") -> TensorFact:
    return TensorFact(id, (4,), "float32", name=name, producer=producer)


def op(index: int, name: str, module: str, takes: tuple[TensorFact, ...], gives: TensorFact) -> OpRecord:
    return OpRecord(index, name, f"{module}/{name}#0", module, "", None, takes, (gives,))


def call(
    number: int, parent: int | None, module: str, takes: TensorFact, gives: TensorFact, first: int, last: int
) -> CallRecord:
    return CallRecord(number, parent, module, "", (takes,), (gives,), (), first, last)


X, WEIGHT = tensor(0, None), tensor(9, None, "head.weight")
LINEAR, RELU, SUM, OUT = tensor(1, 0), tensor(1, 1), tensor(2, 2), tensor(3, 3)
TRACE = Trace(
    0, "first",
    (
        op(0, "linear", "enc.0", (X,), LINEAR), op(1, "relu_", "enc.1", (LINEAR,), RELU),
        op(2, "add", "model", (X, RELU), SUM), op(3, "linear", "head", (SUM, WEIGHT), OUT),
    ),
    calls=(
        call(2, 1, "enc.0", X, LINEAR, 0, 1), call(3, 1, "enc.1", LINEAR, RELU, 1, 2), call(1, 0, "enc", X, RELU, 0, 2),
        call(4, 0, "drop", SUM, SUM, 3, 3), call(5, 0, "head", SUM, OUT, 3, 4), call(0, None, "model", X, OUT, 0, 4),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("enc.0", ["input#0"], ["enc.1"]),
        ("enc.1", ["enc.0"], ["model/add#0"]),
        ("enc", ["input#0"], ["model/add#0"]),  # not what is inside of it
        ("drop", ["model/add#0"], ["head"]),
        ("head", ["drop"], []),
        ("model", ["input#0"], []),
    ],
)
def test_modules_are_named_where_a_tensor_is_theirs(module: str, before: list[str], after: list[str]) -> None:
    assert around_module(TRACE, module) == (before, after)


def test_what_the_trace_does_not_have() -> None:
    assert around_module(TRACE, "tail") is None
    assert users_of(TRACE, "head.weight") == ["head/linear#0"]
    assert users_of(TRACE, "tail.weight") == []
