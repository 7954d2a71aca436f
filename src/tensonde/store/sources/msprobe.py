"""Dumps of msprobe: `step0/rank0/dump.json` says what was seen, in order, and `dump_tensor_data/` holds a file a tensor.

`Module.blocks.0.attn.Attention.forward.1` is the second call of `blocks.0.attn`; the inputs of its backward are the gradients
of its outputs (`:grad`), the outputs those of its inputs (`:grad_in`). `construct.json` tells which module an API call belongs to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.errors import RecordingError
from tensonde.store.damage import reason
from tensonde.store.documents import read_json
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.npy import entry_of, load
from tensonde.store.sources.source import TensorSource
from tensonde.store.sources.torch_zip import TorchFile

Array = np.ndarray[Any, Any]

MODULE = re.compile(
    r"(?:Module|Cell)\.(?P<name>.+)\.(?P<type>[^.]+)\.(?P<way>forward|backward|parameters_grad)(?:\.(?P<call>\d+))?"
)
API = re.compile(r"(?P<family>[^.]+)\.(?P<type>.+)\.(?P<call>\d+)\.(?P<way>forward|backward)")
_RANK, _STEP = re.compile(r"(?:rank|proc)(\d+)$"), re.compile(r"step(\d+)$")
_ROLES = {
    ("forward", "input_args"): "in", ("forward", "input_kwargs"): "in", ("forward", "input"): "in", ("forward", "output"): "out",
    ("backward", "input"): "grad", ("backward", "output"): "grad_in",
    ("backward", "grad_input"): "grad", ("backward", "grad_output"): "grad_in",
}  # fmt: skip


class MsprobeDump(TensorSource):
    kind, format = "msprobe", "msprobe"

    def _entries(self) -> list[Entry]:
        self._paths: dict[int, Path] = {}
        self._torch: dict[int, tuple[TorchFile, Entry]] = {}
        manifests = [self.path] if self.path.is_file() else self.path.rglob("dump.json")
        placed = sorted((*_place(path), path) for path in manifests)
        found: list[Entry] = []
        for rank, step, path in placed:
            self._manifest(path, rank, step, found)
        if not found and not self.problems:
            raise RecordingError(
                f'{self.path} is a dump of msprobe without tensors (task statistics); dump again with "task": "tensor".'
            )
        return found

    def _manifest(self, path: Path, rank: int, step: int, found: list[Entry]) -> None:
        try:
            content = read_json(path, dict)
            calls = dict(content["data"])
            parents = (
                read_json(path.with_name("construct.json"), dict) if path.with_name("construct.json").is_file() else {}
            )
        except Exception as problem:  # any text may stand there
            self.problems.append(f"{path} cannot be read: {reason(problem)}")
            return
        counts: Counter[tuple[str, str]] = Counter()
        for call, parts in calls.items():
            for site, facts, name in self._seen(call, parts, parents, counts):
                file = path.parent / "dump_tensor_data" / name
                try:
                    entry = self._entry(file, site, {**facts, "rank": rank, "step": step, "order": len(found)})
                except RecordingError as problem:
                    self.problems.append(str(problem))
                    continue
                self._paths[entry.order] = file
                found.append(entry)

    def _seen(
        self, call: str, parts: Any, parents: dict[str, Any], counts: Counter[tuple[str, str]]
    ) -> Iterator[tuple[str, dict[str, Any], str]]:
        """(site, facts, file's name) of every tensor of one call."""
        module, api = MODULE.fullmatch(call), API.fullmatch(call)
        match = module or api
        if match is None or not isinstance(parts, dict):
            self.problems.append(f"{call} is no name of msprobe's that is known here; it is left out")
            return
        way = match["way"]
        facts: dict[str, Any] = {
            "type": match["type"], "kind": "module" if module else "op", "call": int(match["call"] or 0) if module else 0,
            "phase": "forward" if way == "forward" else "backward",
        }  # fmt: skip
        if module:
            name = module["name"]
        else:
            name = _op_name(call, match, parents, counts)
        if way == "parameters_grad":
            for parameter, tensors in parts.items():
                for k, file in _files(tensors):
                    site = f"{name}.{parameter}:grad" + (f"[{k}]" if k else "")
                    yield site, {**facts, "kind": "parameter"}, file
            return
        for part, tensors in parts.items():
            if part == "parameters" and isinstance(tensors, dict):
                for parameter, tensor in tensors.items():
                    for _, file in _files([tensor]):
                        yield f"{name}.{parameter}:value", {**facts, "kind": "parameter"}, file
            role = _ROLES.get((way, part))
            if role is not None:
                given = list(_files(tensors))
                for k, file in given:
                    yield f"{name}:{role}" + (f"[{k}]" if len(given) > 1 else ""), facts, file

    def _entry(self, file: Path, site: str, facts: dict[str, Any]) -> Entry:
        if not file.is_file():
            raise RecordingError(f"{file} is missing: {site} cannot be read.")
        if file.suffix == ".npy":
            return entry_of(file, site, **facts)
        held = TorchFile(file)
        if len(held.entries) != 1:
            raise RecordingError(f"{file} holds {len(held.entries)} tensors where one is expected.")
        inner = held.entries[0]
        if inner.file is None:
            self._torch[facts["order"]] = (held, inner)
        return Entry(site, inner.dtype, inner.shape, inner.nbytes, inner.file, inner.offset, **facts)

    def _made(self, entry: Entry) -> Array:
        if entry.order in self._torch:
            held, inner = self._torch[entry.order]
            return held.raw(inner)
        return load(self._paths[entry.order])


def _op_name(call: str, match: re.Match[str], parents: dict[str, Any], counts: Counter[tuple[str, str]]) -> str:
    """`0/linear#0`: the k-th in that call of its module, as Tensonde counts; by msprobe's own count where no module is known.

    A backward is called as its forward was."""
    forward = call.removesuffix("backward") + "forward" if match["way"] == "backward" else call
    parent = parents.get(forward)
    parent = parent[0] if isinstance(parent, list) and parent else parent
    inside = MODULE.fullmatch(parent) if isinstance(parent, str) else None
    if inside is None:
        return f"/{match['type']}#{match['call']}"
    siblings = [
        other for other, holder in parents.items()
        if (holder[0] if isinstance(holder, list) and holder else holder) == parent
        and (found := API.fullmatch(other)) is not None and found["type"] == match["type"] and found["way"] == "forward"
    ]  # fmt: skip
    return f"{inside['name']}/{match['type']}#{siblings.index(forward) if forward in siblings else 0}"


def _files(tensors: Any) -> Iterator[tuple[int, str]]:
    """(position, file's name) of what is a tensor with a file, in nested lists and dictionaries."""
    flat: list[Any] = []
    waiting = [tensors]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, dict) and "type" not in item:
            waiting = [*item.values(), *waiting]
        elif isinstance(item, list):
            waiting = [*item, *waiting]
        elif isinstance(item, dict):
            flat.append(item)
    k = 0
    for item in flat:
        if isinstance(item.get("data_name"), str):
            yield k, Path(item["data_name"]).name
            k += 1


def _place(path: Path) -> tuple[int, int]:
    """Rank and step from the folders' names; a process that is no rank (`proc4711`) counts as rank 0."""
    rank = step = 0
    for part in path.absolute().parts:
        if (found := _RANK.match(part)) and part.startswith("rank"):
            rank = int(found[1])
        elif found := _STEP.match(part):
            step = int(found[1])
    return rank, step


def looks_like(path: Path) -> bool:
    """Whether this `dump.json` is msprobe's."""
    try:
        content = read_json(path, dict)
    except (OSError, ValueError):
        return False
    return "dump_data_dir" in content and isinstance(content.get("data"), dict)
