"""Sites, hits and findings are defined in `model/`; what is written to files and sent to browsers has the same fields."""

from __future__ import annotations

from dataclasses import fields

from tensonde.model.finding import Finding, Place
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Part, Role, Site, SourceLine
from tensonde.model.watchpoint import Hit
from tensonde.server import models
from tensonde.store import codec

LINE = SourceLine("train.py", 7, "loss.backward()")
SITE = Site(3, "a.b", Role.OUT, Kind.MODULE, 1, "Linear", None, (2, 3), "float32", LINE)
HIT = Hit(2, "a.b:out[1]", Moment(5, Phase.BACKWARD, 1), "norm > 3", {"norm": 3.0}, {"norm": 4.5}, 1)
FINDING = Finding(
    "nan-origin", "error", "log of 0", "Clamp it.", 5, "forward", 1, "a.b:out", "log", LINE, {"in.min": 0.0}, 0.9, 2,
    (Place(0, "a.b:out", 5, "forward", LINE), Place(1)),
)  # fmt: skip


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_files_hold_every_field_and_give_it_back() -> None:
    assert codec.site_in(codec.site_out(SITE)) == SITE
    assert codec.hit_in(codec.hit_out(HIT)) == HIT
    assert codec.finding_in(codec.finding_out(FINDING)) == FINDING
    assert names(Finding) == set(codec.finding_out(FINDING))
    assert names(Hit) - {"moment"} | names(Moment) == set(codec.hit_out(HIT))
    whole = Site(3, "a.b", Role.VALUE, Kind.PARAMETER, part=Part(("S",), (2,), (0,)))
    assert codec.site_in(codec.site_out(whole)) == whole


def test_browsers_get_the_same_records() -> None:
    assert models.Finding is Finding
    assert models.Source is SourceLine
    assert names(Site) - {"part"} == set(models.Site.model_fields) - {"address"}
