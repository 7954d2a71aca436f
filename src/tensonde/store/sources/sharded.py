"""Checkpoints in several files with an index (`model.safetensors.index.json`, `pytorch_model.bin.index.json`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.errors import RecordingError
from tensonde.store.damage import reading
from tensonde.store.documents import read_json
from tensonde.store.sources.entry import Entry
from tensonde.store.sources.safetensors import SafetensorsFile
from tensonde.store.sources.source import TensorSource
from tensonde.store.sources.torch_zip import TorchFile

Array = np.ndarray[Any, Any]


class Sharded(TensorSource):
    kind, format = "checkpoint", "sharded"

    def _entries(self) -> list[Entry]:
        with reading(self.path, "the index of a checkpoint"):
            weights = read_json(self.path, dict)["weight_map"]
            wanted: dict[str, list[str]] = {}
            for key, file in weights.items():
                wanted.setdefault(str(file), []).append(str(key))
        found: list[Entry] = []
        self._shards: dict[int, tuple[TensorSource, Entry]] = {}
        for file in sorted(wanted):
            path = self.path.parent / file
            if Path(file).name != file or not path.is_file():
                raise RecordingError(
                    f"{self.path} names the shard {file}, which is not there; the checkpoint is not whole."
                )
            shard: TensorSource = SafetensorsFile(path) if path.suffix == ".safetensors" else TorchFile(path)
            there = {entry.name: entry for entry in shard.entries}
            self.problems += shard.problems
            missing = [key for key in wanted[file] if key not in there]
            if missing:
                raise RecordingError(f"{path} lacks {missing[0]}, which the index {self.path.name} expects in it.")
            for key in wanted[file]:
                entry = replace(there[key], order=len(found))
                self._shards[entry.order] = (shard, there[key])
                found.append(entry)
        return found

    def _made(self, entry: Entry) -> Array:
        shard, inner = self._shards[entry.order]
        return shard.raw(inner)
