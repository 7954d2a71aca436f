"""What programs do to compiled models, and the compiler does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose
from tensonde.model.finding import Finding

BUFFER = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 2, bias=False)
    compiled = torch.compile(model, backend={backend!r})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    buffer = torch.randn(3, 5, 4)
    for step in range(4):
        loss = compiled(buffer).mean(1).square().mean()
        {before}
        loss.backward()
        {after}
        optimizer.step()
        optimizer.zero_grad()
"""
HOOK = """
    import torch
    from torch import nn

    seen = []
    def look(module, args, output):
        seen.append(output)

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {before}
    compiled(torch.randn(2, 4))
    {after}
    for step in range(4):
        compiled(torch.randn({size}, 4)).sum().backward()
        optimizer.step()
"""
REGISTER = "model[1].register_forward_hook(look)"


def found(foundry: Foundry, tmp_path: Path, text: str, rule: str) -> list[Finding]:
    ran = foundry.watched(text, tmp_path)
    assert ran.code == 0, ran.err
    assert not ran.session["failures"]
    return [finding for finding in diagnose(ran.recording) if finding.rule == rule]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_input_that_is_filled_too_early(foundry: Foundry, tmp_path: Path) -> None:
    """Inductor keeps a view of the input, and autograd does not notice that it is written to."""
    text = BUFFER.format(backend="inductor", before="buffer.normal_()", after="")
    (finding,) = found(foundry, tmp_path, text, "input-overwritten-before-backward")
    assert finding.source is not None
    assert finding.source.code == "buffer.normal_()"
    assert finding.evidence["variable"] == "buffer"


@pytest.mark.parametrize("before", ["", "other = buffer + 1; other.normal_()"])
def test_an_input_that_is_filled_afterwards(before: str, foundry: Foundry, tmp_path: Path) -> None:
    text = BUFFER.format(backend="aot_eager", before=before, after="buffer.normal_()")
    assert not found(foundry, tmp_path, text, "input-overwritten-before-backward")


def test_a_hook_that_comes_too_late(foundry: Foundry, tmp_path: Path) -> None:
    (finding,) = found(foundry, tmp_path, HOOK.format(before="", after=REGISTER, size=2), "hook-after-compiling")
    assert finding.source is not None
    assert finding.source.code == REGISTER
    assert finding.site == "1:out"


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        (REGISTER, "", 2),
        ("", f"{REGISTER}; torch.compiler.reset()", 2),
        ("", "other = nn.Linear(2, 2); other.register_forward_hook(look)", 2),
    ],
)
def test_hooks_that_are_called(before: str, after: str, size: int, foundry: Foundry, tmp_path: Path) -> None:
    text = HOOK.format(before=before, after=after, size=size)
    assert not found(foundry, tmp_path, text, "hook-after-compiling")


LENGTHS = """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    compiled = torch.compile(model, backend="aot_eager", dynamic={dynamic})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
        compiled(torch.randn({size}, 4)).sum().backward()
        optimizer.step()
"""


def test_a_length_that_is_compiled_in(foundry: Foundry, tmp_path: Path) -> None:
    text = LENGTHS.format(dynamic=False, size="2 + step")
    (finding,) = found(foundry, tmp_path, text, "compiled-again-and-again")
    assert finding.source is not None
    assert finding.source.code.startswith("compiled = torch.compile")
    assert "size mismatch at index 0" in finding.title


@pytest.mark.parametrize(("dynamic", "size"), [(None, "2 + step"), (True, "2 + step"), (False, "2 + step % 3")])
def test_lengths_that_are_not(dynamic: bool | None, size: str, foundry: Foundry, tmp_path: Path) -> None:
    assert not found(foundry, tmp_path, LENGTHS.format(dynamic=dynamic, size=size), "compiled-again-and-again")
