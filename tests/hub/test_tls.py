"""The hub over TLS, with real sockets: known by the fingerprint of its certificate, and nobody else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hub_drive import HubProcess, Timeline, hub, training

from launch import Foundry
from tensonde.protocol.client import Client, HubError

pytest.importorskip("cryptography")


@pytest.mark.timeout(120)
def test_a_training_and_a_client_trust_the_fingerprint(foundry: Foundry, tmp_path: Path) -> None:
    with hub(tmp_path, more=("--tls",)) as there, there.client.live() as live:
        assert there.address.url.startswith("https://")
        assert len(there.address.pin) == 64
        with training(foundry, tmp_path, there.address.link) as it:
            place = Timeline(live).follow(there.client)
            place.control("pause")
            Timeline(live).stopped()
            assert place.get("tensor", address="0.weight:value")["shape"] == [32, 16]
            it.finish()
            place.control("continue")
            assert it.end().code == 0

        stranger = replace(there.address, pin="00" * 32)
        with pytest.raises(HubError, match="shows another certificate"):
            Client(stranger).runs()
        unpinned = replace(there.address, pin="")
        with pytest.raises(HubError, match="certificate verify failed"):
            Client(unpinned).runs()
        first = there.address.pin
    again = HubProcess(tmp_path, more=("--tls",))
    assert again.address.pin == first
    assert (tmp_path / "tensonde" / "hub.key").stat().st_mode & 0o777 == 0o600
    again.close()
