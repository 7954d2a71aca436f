"""Models that a rank runs without gradients: what their weights are then, so that ranks can be compared by it.

These are the trained model in an evaluation, and copies of it: a teacher, an average of the weights.
"""

from __future__ import annotations

import sys
import weakref
import zlib
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.checksum import memory_sum
from tensonde.adapters.torch.observers.copies import shaped_like_trained
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING
from tensonde.adapters.torch.observers.stale_statistics import update_line
from tensonde.adapters.torch.tensors import is_dense
from tensonde.program import queries
from tensonde.program.frames import user_place
from tensonde.program.lines import CodeLine, Json, line_at, line_of

MOST_MODELS, MOST_LOOKS = 8, 12
FIRST = 4
"""Looks at steps that follow each other; later ones are each twice as far on as the one before."""
LARGEST = 1 << 27
"""Bytes of a model that are summed up."""
MOST_RENEWED = 16
_RENEWED: dict[int, CodeLine | None] = {}
"""Running statistics as `update_bn` left them, by checksum, and the line that called it."""


class EvaluatedWeights:
    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[nn.Module], dict[str, Any]]] = {}
        self._tries = 0

    def called(self, root: nn.Module, name: str, step: int) -> None:
        known = self._seen.get(id(root))
        if known is None or known[0]() is not root:
            if len(self._seen) >= MOST_MODELS or not _is_one(root):
                return
            entry: dict[str, Any] = {"name": name, "looks": [], "made": KNOWN.made.line(root), "called": None}
            known = self._seen[id(root)] = weakref.ref(root), entry
        if _RENEWED and not root.training and self._tries < MOST_RENEWED:
            self._compare(root, step, known[1])
        looks = known[1]["looks"]
        last = looks[-1][0] if looks else -1
        if len(looks) >= MOST_LOOKS or step <= last or (len(looks) >= FIRST and step < 2 * last):
            return
        found = _content(root)
        if found is not None:
            looks.append([step, found])
            place = user_place(sys._getframe(2))
            known[1]["called"] = line_of(place)
            known[1]["made"] = known[1]["made"] or _bound(known[1]["name"], place)

    def _compare(self, root: nn.Module, step: int, entry: dict[str, Any]) -> None:
        """Whether it is run with what `update_bn` has computed."""
        self._tries += 1
        statistics = _statistics(root)
        if statistics in _RENEWED:
            entry["statistics"], entry["renewed"] = [step, statistics], line_of(_RENEWED[statistics])

    def facts(self) -> list[dict[str, Any]]:
        return [
            {**entry, "update_line": update_line(inside=True)} for _, entry in self._seen.values() if entry["looks"]
        ]


def renewed(root: nn.Module, place: CodeLine | None) -> None:
    """`update_bn` has computed the running statistics of a model."""
    if len(_RENEWED) < MOST_RENEWED:
        _RENEWED[_statistics(root)] = place


def _statistics(root: nn.Module) -> int:
    """The same for a model and for what is wrapped around it."""
    found = 0
    for module in root.modules():
        for buffer in (getattr(module, "running_mean", None), getattr(module, "running_var", None)):
            if isinstance(buffer, Tensor) and READING.may_wait(buffer):
                found = zlib.crc32(str(memory_sum(buffer)).encode(), found)
    return found


def _bound(name: str, place: CodeLine | None) -> Json | None:
    """A copy was made without its class's `__init__` (`copy.deepcopy`): where its variable got its value."""
    if place is None:
        return None
    path = place[0].co_filename
    found = queries.assignment(path, name, before=place[1])
    return line_at(path, found) if found else None


def _is_one(root: nn.Module) -> bool:
    """The trained model, or one whose parameters have the shapes of the trained ones."""
    own = list(root.parameters())
    held = {id(p) for o in list(KNOWN.optimizers) for group in o.param_groups for p in group["params"]}
    if not own or not all(is_dense(p) for p in own) or not READING.may_wait(own[0]):
        return False
    return all(id(p) in held for p in own) or shaped_like_trained(root)


def _content(root: nn.Module) -> int | None:
    own = list(root.parameters())
    if sum(p.numel() * p.element_size() for p in own) > LARGEST:
        return None
    found = 0
    for parameter in own:
        found = zlib.crc32(str(memory_sum(parameter)).encode(), found)
    return found
