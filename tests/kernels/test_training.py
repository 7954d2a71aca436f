"""A training on the stand-in whose digests the kernels make, under Triton's interpreter: how they are launched, and what is recorded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from launch import Ran, cli

if find_spec("triton") is None:
    pytest.skip("there is no Triton; make test-kernels installs it", allow_module_level=True)

STANDIN = Path(__file__).parent.parent / "standin"
SCRIPT = f"""
import json, os, sys; sys.path.append({str(STANDIN)!r})
import standin, torch
from torch import nn
import tensonde.adapters.torch.digests.device.digests as digests

launched = []
if os.environ["BY"] == "kernels":
    digests.WITH_TRITON = frozenset({{"standin"}})
    from tensonde.adapters.torch.digests.device import kernels

    class Counted:
        def __init__(self, name):
            self.name, self.kernel = name, getattr(kernels, name)

        def __getitem__(self, grid):
            launched.append(self.name)
            standin.ext.synchronize(-1)  # the interpreter reads memory at once, and not in the order of the stream
            return self.kernel[grid]

    for name in ("digest_one", "digest_many", "combine"):
        setattr(kernels, name, Counted(name))

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to("standin")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
each = []
for step in range(4):
    x = torch.randn(5, 6).to("standin")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    each.append([launched.count(name) for name in ("digest_one", "digest_many", "combine")])
    launched.clear()
json.dump(each, open(os.environ["RESULT"], "w"))
"""


def trained(folder: Path, by: str, budget: str) -> Ran:
    """In a process of its own, for Triton must not have been imported before."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    env = {"BY": by, "TRITON_INTERPRET": "1"}
    words = ("run", "--budget", budget, "--record", "run", "train.py")
    ran = cli(*words, cwd=folder, env=env, folder=folder / "run")
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    return ran


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_recording_is_that_of_the_ops(tmp_path: Path) -> None:
    kernels, ops = (trained(tmp_path / by, by, "off") for by in ("kernels", "ops"))
    assert kernels.result[1] == [1 + 4 + 4 + 1, 2, 1], "one for each output, its gradient, the batch and the loss"
    assert len(kernels.rows) == len(ops.rows) > 4 * 10
    for here, there in zip(kernels.rows, ops.rows, strict=True):
        assert [here[name] for name in ("address", "step", "call", "phase", "count", "min", "max", "zero")] == [
            there[name] for name in ("address", "step", "call", "phase", "count", "min", "max", "zero")
        ]
        for name in ("norm", "std", "absmean"):
            np.testing.assert_allclose(here[name], there[name], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_launches_of_a_step(tmp_path: Path) -> None:
    """The loss; all gradients, all parameters; and one that adds up."""
    assert trained(tmp_path / "sentinel", "kernels", "0").result[1:] == [[1, 2, 1]] * 3
