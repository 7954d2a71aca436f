"""The environment of a process that Tensonde is to be let into: the options, and the start-up folder first on the path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import tensonde
from tensonde.session.options import Options


def watched_environment(options: Options, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    environment = {**os.environ, **options.to_environment(), **(extra or {})}
    startup = str(Path(tensonde.__file__).parent / "startup")
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = startup + (os.pathsep + inherited if inherited else "")
    return environment
