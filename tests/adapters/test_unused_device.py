"""A build of torch for CUDA on a machine without a GPU: the module is there, and whatever asks the driver raises."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tensonde.adapters.torch import capture, randomness


def test_a_device_that_was_never_used_is_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(*_: Any) -> Any:
        raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")

    for name in ("is_current_stream_capturing", "get_rng_state", "device_count", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, no_driver)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(capture, "_known", False)
    monkeypatch.setattr(randomness, "_found", None)
    with torch.random.fork_rng(devices=[]):
        assert not capture.capturing()
        assert randomness.device_states() == []
        randomness.Drawn().put()
        randomness.seed(1)
    monkeypatch.setattr(capture, "_known", False)
