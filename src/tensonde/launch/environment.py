"""The environment of a process that lets Tensonde in: the options, and the start-up folder first on the path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tensonde.session.options import Options

STARTUP = Path(__file__).absolute().parent / "startup"
"""Its `sitecustomize` starts Tensonde; it is no package, and nothing else may stand in it."""


def watched_environment(options: Options, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    environment = {**os.environ, **options.to_environment(), **(extra or {})}
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = str(STARTUP) + (os.pathsep + inherited if inherited else "")
    return environment
