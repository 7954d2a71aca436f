"""Parts of tensors, and setting an element of one."""

from __future__ import annotations

from pydantic import Field

from tensonde.server.models.common import Model, Number


class Against(Model):
    """The same part of another tensor, and how the two differ over that part. `steps`: of which the other place has it."""

    label: str
    step: int | None = None
    steps: list[int] = []
    values: list[list[Number]]
    difference: list[list[Number]]
    max_abs: Number
    rel_l2: Number
    cosine: Number
    equal: bool


class Tile(Model):
    """A part of a tensor, as rows and columns of the two free dimensions of `index`.

    For an overview, `rows` and `cols` span the whole, `values` hold the largest magnitude of each patch with its sign, and `stride` says
    how many elements a patch covers each way. `min` and `max` are of the whole selected plane as far as it was looked at.
    """

    address: str
    step: int | None
    shape: list[int]
    dtype: str
    index: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    plane: tuple[int, int] = (1, 1)
    values: list[list[Number]]
    digest: dict[str, Number | None] | None = None
    min: Number | None = None
    max: Number | None = None
    note: str = ""
    against: Against | None = None
    steps: list[int] = []


class TensorHistogram(Model):
    edges: list[Number]
    counts: list[int]
    nan: int
    pos_inf: int
    neg_inf: int
    sampled: bool = False


class TensorAtHand(Model):
    address: str
    steps: list[int]
    live: bool
    shape: list[int] = []
    dtype: str = ""


class Assign(Model):
    address: str = Field(max_length=1000)
    index: str = Field(default="", max_length=200)
    value: Number
