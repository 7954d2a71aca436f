"""A step that begins with a long rollout: the trace shows some of it, and all of what is learnt from."""

from __future__ import annotations

from pathlib import Path

from launch import Foundry

AGENT = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for step in range(3):
        seen = []
        for k in range(200):
            with torch.no_grad():
                place = torch.randn(4)
                seen.append((place, policy(place).softmax(-1).argmax()))
        places, actions = (torch.stack(list(column)) for column in zip(*seen))
        loss = nn.functional.cross_entropy(policy(places), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_rollout_is_traced_in_part_and_the_loss_whole(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(AGENT, tmp_path)
    assert ran.code == 0, ran.err
    first = ran.rank.traces[0]
    assert 16 <= sum(op.op == "argmax" for op in first.ops) <= 17
    assert first.loss is not None
    assert first.ops[first.loss].op == "cross_entropy"
    assert sum(call.module == "policy" and call.grad_enabled for call in first.calls) == 1
    assert any("without gradients" in note for note in first.notes)


MOVING = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), {part}nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    place, clock = torch.zeros(32), torch.zeros(32)
    for step in range(14):
        seen = []
        for k in range(4):
            with torch.no_grad():
                obs = torch.stack([place, clock], 1)
                action = policy(obs).softmax(-1).multinomial(1)[:, 0]
            place[:16] = place[:16] + action[:16] - 0.5
            clock += 1
            seen.append((obs, action, -place.abs()))
        obs, action, returns = (torch.stack(part).flatten(0, 1) for part in zip(*seen))
        chosen = policy(obs).log_softmax(-1).gather(1, action[:, None])[:, 0]
        loss = {sign}(chosen * returns).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def _asked(foundry: Foundry, folder: Path, sign: str, part: str = "") -> tuple[list[bool | None], list[str]]:
    ran = foundry.watched(MOVING.format(sign=sign, part=part), folder, experiments=2.0)
    assert ran.code == 0, ran.err
    answers = ran.rank.facts["answers"]
    told = [a["healthy"] for a in answers if a["experiment"] == "reward"]
    return told, [a["why"] for a in answers if not a["experiment"]]


def test_an_environment_that_moves_in_place_leaves_the_step_askable(foundry: Foundry, tmp_path: Path) -> None:
    for name, sign, healthy in (("right", "-", True), ("wrong", "", False)):
        folder = tmp_path / name
        folder.mkdir()
        told, declined = _asked(foundry, folder, sign)
        assert not declined
        assert told
        assert set(told) == {healthy}


def test_a_model_with_buffers_is_not_taken_for_data(foundry: Foundry, tmp_path: Path) -> None:
    told, declined = _asked(foundry, tmp_path, "-", "nn.BatchNorm1d(16), ")
    assert not told
    assert any("changed in place" in why for why in declined)
