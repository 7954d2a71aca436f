"""Agents and editors work over a hub: its tests have what drives one."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "hub"))
