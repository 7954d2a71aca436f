from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_material import make

from launch import Foundry


@pytest.fixture(scope="session")
def base(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything that can be read, all of it whole."""
    made = tmp_path_factory.mktemp("whole")
    make(foundry, made)
    return made
