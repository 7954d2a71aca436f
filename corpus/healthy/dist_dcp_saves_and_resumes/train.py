import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)

class App(Stateful):
    def __init__(self, model, opt):
        self.model, self.opt, self.step = model, opt, 0

    def state_dict(self):
        model, opt = get_state_dict(self.model, self.opt)
        return {"model": model, "opt": opt, "step": torch.tensor(self.step)}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.opt, model_state_dict=state["model"], optim_state_dict=state["opt"])
        self.step = int(state["step"])


def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 2))
    for layer in model[::2]:
        fully_shard(layer)
    fully_shard(model)
    return App(model, torch.optim.AdamW(model.parameters(), lr=0.01))


def train(app, rank, until):
    while app.step < until:
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1000 * rank + app.step))
        loss = nn.functional.mse_loss(app.model(x), x[:, :2] * x[:, 2:4])
        app.opt.zero_grad()
        loss.backward()
        app.opt.step()
        app.step += 1
    return loss


def worker(rank, world, port):
    setup(rank, world, port)
    app = build(0)
    train(app, rank, 25)
    dcp.save({"app": app}, checkpoint_id="checkpoint")
    resumed = build(7)
    dcp.load({"app": resumed}, checkpoint_id="checkpoint")
    loss = train(resumed, rank, 50)
    full = get_model_state_dict(resumed.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        torch.save(full, "weights.pt")
    dist.barrier()
    print(f"rank {rank} step {resumed.step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
