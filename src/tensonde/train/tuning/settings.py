"""What a study is about, kept beside it, so that the same command goes on with it and another one does not."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.store.files import dump_json, replace_file
from tensonde.train.tuning.metric import Metric
from tensonde.train.tuning.space import Parameter

FILE = "study.json"


@dataclass(frozen=True, slots=True)
class Settings:
    target: tuple[str, ...]
    """The script (or `script.py:function`) and the arguments that do not change."""
    parameters: tuple[Parameter, ...]
    metric: Metric

    @property
    def calls_function(self) -> bool:
        """The target is `script.py:function`."""
        return ":" in os.path.basename(self.target[0])

    def space(self, *, numbers: bool) -> dict[str, Any]:
        """Optuna's distributions by name; see `Parameter.distribution`."""
        return {parameter.name: parameter.distribution(numbers=numbers) for parameter in self.parameters}

    def keep(self, folder: Path) -> None:
        """Writes them, or compares with what is there. Raises UsageError where they differ."""
        path = folder / FILE
        mine = json.loads(json.dumps(asdict(self)))
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, dump_json(mine, indent=2) + b"\n")
            return
        try:
            there: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as problem:
            raise UsageError(f"{path} cannot be read: {problem}.") from None
        for what, value in mine.items():
            if there.get(what) != value:
                raise UsageError(
                    f"the study in {folder} has other {what} than were given; give the same to go on with it, or another "
                    "folder with --study."
                )
