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
