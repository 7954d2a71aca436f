"""The load test in small: whatever the load, no hit is lost, every pause is accepted, and the hub's memory does not run away."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_hit_is_lost_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parent.parent.parent / "benchmarks" / "hub.py"
    spec = importlib.util.spec_from_file_location("hub_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    monkeypatch.setenv("PYTHONPATH", str(path.parent.parent / "src"))
    found = benchmark.measure(count=4, rate=2000, browsers=2, seconds=4)
    assert found["hits_lost"] == found["browsers_missed_hits"] == 0
    assert found["hits"] > 0
    assert found["pauses"] > 0
    assert found["hub_rss_mb"]["last"] < found["hub_rss_mb"]["first"] + 150
