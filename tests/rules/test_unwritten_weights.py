"""Weights that nobody has written hold what memory held: NaN, or huge numbers. They are named, not the data and not the op that meets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from silent_trainings import training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

ALONE = """
    model = Net()
    with torch.no_grad():
        model.head.weight.fill_(0.1)[2] = {value}
    train(model, torch.optim.Adam(model.parameters()))
"""
SHARDED = """
    import os
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def work(rank, world):
        dist.init_process_group("gloo", init_method=f"file://{{os.getcwd()}}/rendezvous", rank=rank, world_size=world)
        model = Net()
        with torch.no_grad():
            model.head.weight.fill_(0.1)[2] = {value}
        fully_shard(model.head, mesh=(mesh := init_device_mesh("cpu", (world,))))
        fully_shard(model, mesh=mesh)
        train(model, torch.optim.Adam(model.parameters()), steps=2)
        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)  # gloo may wait for ever at exit

    if __name__ == "__main__":
        mp.start_processes(work, args=(2,), nprocs=2, start_method="fork")
"""


@pytest.mark.parametrize("value", ["float('nan')", "3e38"], ids=["nan", "huge"])
@pytest.mark.parametrize("script", [ALONE, SHARDED], ids=["alone", "fsdp2"])
def test_a_weight_that_was_never_written_is_named(foundry: Foundry, tmp_path: Path, script: str, value: str) -> None:
    ran = foundry.watched(training(script.format(value=value)), tmp_path)
    first = diagnose(ran.recording)[0]
    assert first.rule == "nan-in-weights", first
    assert first.title.startswith("head.weight holds " + ("NaN" if "nan" in value else "values up to 3e+38"))


def test_data_that_are_huge_are_not_the_weights(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(
        training("x[3] = 3e38\nmodel = Net()\ntrain(model, torch.optim.Adam(model.parameters()), size=256)"), tmp_path
    )
    assert "nan-in-weights" not in [finding.rule for finding in diagnose(ran.recording)]
