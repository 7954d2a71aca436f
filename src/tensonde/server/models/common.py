"""What the models of all areas are made of.

Numbers that JSON cannot hold are the strings "NaN", "Infinity" and "-Infinity". A statistic is null where nobody has
computed it: compiled graphs compute a few only.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from tensonde.model.site import SourceLine

Source = SourceLine
Number = float | Literal["NaN", "Infinity", "-Infinity"]
Health = Literal["ok", "warn", "bad", "none"]


class Model(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class Problem(Model):
    """One sentence that says what to do."""

    error: str


class Version(Model):
    tensonde: str


class Message(Model):
    message: str
