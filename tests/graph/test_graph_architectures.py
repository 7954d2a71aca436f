"""Every architecture, with dynamic shapes, a graph break among them: where NaN came from, and stops inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

SCRIPT = Path(__file__).parent / "architectures.py"
ENV = {"TEST_SECONDS": "280"}


@pytest.mark.parametrize(
    ("architecture", "backend"),
    [
        ("convolutional", "aot_eager"),
        ("attentive", "aot_eager"),
        ("recurrent", "aot_eager"),
        ("broken", "aot_eager"),
        pytest.param("broken", "inductor", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(600)
def test_nan_is_traced_to_its_line(architecture: str, backend: str, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SCRIPT, tmp_path, argv=(architecture, backend, "dynamic", "2"), budget=0.05, env=ENV)
    assert ran.code == 0, ran.err
    first = diagnose(ran.recording)[0]
    assert (first.rule, first.step, first.op) == ("nan-origin", 2, "log")
    assert first.source is not None
    assert "torch.log(scale)" in first.source.code
    assert not ran.session["failures"]


@pytest.mark.parametrize(
    ("architecture", "inside", "backend"),
    [
        ("convolutional", "bn:out", "aot_eager"),
        ("attentive", "**/softmax#0:out", "aot_eager"),
        ("recurrent", "cell:out", "aot_eager"),
        ("broken", "second:out", "aot_eager"),
        pytest.param("broken", "second:out", "inductor", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(600)
def test_stops_inside_forward_and_backward(
    architecture: str, inside: str, backend: str, foundry: Foundry, tmp_path: Path
) -> None:
    """And every graph compared in between. With aot_eager, whose kernels are those of the stops, all bits stay as they are."""
    commands = f"until {inside}\nnext op\nverify\nuntil **:grad_in\nwhere\nstep\nverify\ncontinue\n"
    ran = foundry.watched(
        SCRIPT, tmp_path, argv=(architecture, backend, "dynamic"), debug=True, stdin=commands, env=ENV
    )
    assert ran.code == 0, ran.err
    seen = ran.out + ran.err
    assert f"step 0 · forward · {inside.removeprefix('**')}" in seen
    assert "step 0 · backward · " in seen
    (made,) = (line for line in seen.splitlines() if line.startswith("made in the forward pass by"))
    assert "architectures.py:" in made
    compared = [line for line in seen.splitlines() if line.strip().startswith("graph ")]
    assert {line.split()[2] for line in compared} == {"forward", "backward"}
    assert all(" equal " in line for line in compared), compared
    if backend == "aot_eager":
        (tmp_path / "bare").mkdir()
        bare = foundry.bare(SCRIPT, tmp_path / "bare", argv=(architecture, backend, "dynamic"), env=ENV)
        assert ran.result == bare.result
