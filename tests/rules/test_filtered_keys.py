"""Keys of a checkpoint that are chosen by name: a choice that leaves nothing is named, one that leaves a part is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

SAVED = """
    ckpt = {"model": nn.DataParallel(Net()).state_dict()}
    model = Net()
    own = model.state_dict()
"""
BARE = """
    ckpt = {"model": Net().state_dict()}
    model = Net()
    own = model.state_dict()
"""
TRAINED = """
    train(model, torch.optim.SGD(model.parameters(), lr=0.05))
"""

BUGS = {
    "updated": SAVED
    + """
    fits = {k: v for k, v in ckpt["model"].items() if k in own and v.shape == own[k].shape}  # HERE
    own.update(fits)
    model.load_state_dict(own)
""",
    "given the same name": SAVED
    + """
    state = ckpt["model"]
    state = {k: v for k, v in state.items() if k in own}  # HERE
    model.load_state_dict(state, strict=False)
""",
    "in the call": SAVED
    + """
    state = ckpt["model"]
    model.load_state_dict({k: v for k, v in state.items() if k in own}, strict=False)  # HERE
""",
    "in a loop": SAVED
    + """
    for name, value in ckpt["model"].items():
        if name in own:  # HERE
            own[name] = value
    model.load_state_dict(own)
""",
}

NEAR_MISSES = {
    "another head": BARE
    + """
    state = {k: v for k, v in ckpt["model"].items() if k in own and "head" not in k}
    own.update(state)
    model.load_state_dict(own)
""",
    "loaded in another way after that": SAVED
    + """
    state = ckpt["model"]
    model.load_state_dict({k: v for k, v in state.items() if k in own}, strict=False)
    model.load_state_dict({k[7:]: v for k, v in state.items()})
""",
    "assigned": BARE
    + """
    state = {k: v for k, v in ckpt["model"].items() if k in own}
    model.load_state_dict(state, assign=True)
""",
}


@pytest.mark.parametrize("name", BUGS)
def test_a_choice_that_leaves_nothing(foundry: Foundry, tmp_path: Path, name: str) -> None:
    script = training(BUGS[name] + TRAINED)
    ran = foundry.watched(script, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    first = diagnose(ran.recording)[0]
    assert first.rule == "state-not-loaded"
    assert first.source is not None
    assert first.source.line == marked(script)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_choice_that_leaves_a_part(foundry: Foundry, tmp_path: Path, name: str) -> None:
    ran = foundry.watched(training(NEAR_MISSES[name] + TRAINED), tmp_path)
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    assert [finding.title for finding in diagnose(ran.recording) if finding.severity != "info"] == []
