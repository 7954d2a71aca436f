"""Exceptions as MindSpore words them."""

from __future__ import annotations

from typing import Any

import pytest

from tensonde.diagnose import rules as _rules  # noqa: F401
from tensonde.diagnose.exceptions import explanation

CALL = {"type": "SGD", "made": None, "parameters": 4, "given": [None] * 4, "rates": None, "differentiated": None}
LINE = {"file": "train.py", "line": 20, "code": "return self.x[n], self.y[n], np.int32(n)"}


@pytest.mark.parametrize(
    ("event", "family", "title"),
    [
        (
            {
                "type": "ValueError",
                "op": "add",
                "message": "For 'AddExt', input.shape and other.shape need to broadcast, but got input.shape = [32, 16] and other.shape = [32, 12]",
            },
            "shape-mismatch",
            "`add` of tensors that differ in dimension 1, 16 against 12",
        ),
        (
            {
                "type": "ValueError",
                "op": "matmul",
                "message": "For 'MatMul' the input dimensions must be equal, but got 'x1_col': 400 and 'x2_row': 1600.",
            },
            "shape-mismatch",
            "`matmul` multiplies a matrix with 400 columns by one with 1600 rows",
        ),
        (
            {
                "type": "TypeError",
                "op": "cross_entropy",
                "message": "For 'CrossEntropyLoss', the 'labels' should be Int32, but got 'mindspore.float32'.",
            },
            "label-dtype",
            "CrossEntropyLoss needs int32 class labels, but the labels are float32",
        ),
        (
            {
                "type": "ValueError",
                "message": "",
                "columns": {"taken": 2, "given": 3, "names": ["x", "y", "index"], "line": LINE},
            },
            "data-columns",
            "the data set gives 3 columns (x, y, index), the training takes 2",
        ),
        (
            {
                "type": "TypeError",
                "op": "conv2d",
                "message": "For primitive[Conv2D], the input type must be same.",
                "inputs": {
                    "input": {
                        "shape": [32, 3, 16, 16],
                        "dtype": "uint8",
                        "origin": {"kind": "data", "dataset": "NumpySlicesDataset", "line": LINE},
                    },
                    "weight": {"shape": [8, 3, 3, 3], "dtype": "float32", "parameter": "conv.weight"},
                },
            },
            "dtype-mismatch",
            "conv2d has float32 weights, but is given uint8 (from NumpySlicesDataset)",
        ),
        (
            {"type": "RuntimeError", "message": "", "optimizer_call": {**CALL, "given": [None, 4]}},
            "gradients-of-inputs",
            "SGD gets the gradients of the inputs in addition to those of its 4 parameters",
        ),
        (
            {
                "type": "RuntimeError",
                "message": "For 'Gather', the 'input_indices' should be in the range [0, 12), but got 12",
                "step": 12,
                "optimizer_call": {**CALL, "rates": 12},
            },
            "too-few-rates",
            "SGD has 12 learning rates, one for each step, and none for step 12",
        ),
        (
            {
                "type": "UnboundLocalError",
                "message": "The local variable 'scale' is not defined in false branch, but defined in true branch.",
            },
            "unset-in-a-branch",
            "`scale` has no value where the condition is false, but it is used afterwards",
        ),
    ],
)
def test_a_message_is_understood(event: dict[str, Any], family: str, title: str) -> None:
    found = explanation(event)
    assert found is not None
    assert (found[0], found[1].title) == (family, title)


def test_shapes_that_broadcast_are_no_mismatch() -> None:
    message = "For 'Mul', something else, but got input.shape = [32, 1] and other.shape = [12]"
    found = explanation({"type": "ValueError", "op": "mul", "message": message})
    assert found is None or found[0] != "shape-mismatch"


@pytest.mark.parametrize("given", [[None] * 4, [None, 3], [None, None], []])
def test_other_gradients_are_not_those_of_inputs(given: list[int | None]) -> None:
    found = explanation({"type": "RuntimeError", "message": "", "optimizer_call": {**CALL, "given": given}})
    assert found is None or found[0] != "gradients-of-inputs"
