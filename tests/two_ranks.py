"""A training of two ranks, forked and joined by gloo: how many steps, and the file whose presence ends it."""

RANKS = """
import hashlib, os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn

kept = []

def worker(rank, steps, end):
    torch.set_num_threads(1)
    # A file, not a port: another test could take a port between its choice and its use.
    seconds = float(os.environ.get("GROUP_TIMEOUT", "600"))
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/rendezvous", rank=rank, world_size=2, timeout=timedelta(seconds=seconds))
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    kept.append(model)  # torch 2.13 may hang in the destructor
    for step in range(steps):
        optimizer.zero_grad()
        out = model(torch.randn(16, 8))
        loss = out.pow(2).mean()
        if rank == 1 and os.path.exists("poison"):
            loss = loss + 1e9  # no gradient changes
        loss.backward()
        optimizer.step()
        flag = torch.tensor([float(os.path.exists(end))])
        dist.all_reduce(flag)
        if flag.item():
            break
    parameters = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    # One write: print makes several where PYTHONUNBUFFERED is set, and those of the ranks mix.
    sys.stdout.write(f"{rank} {step} {hashlib.sha256(parameters).hexdigest()}\\n")
    sys.stdout.flush()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(worker, args=(int(sys.argv[1]), sys.argv[2]), nprocs=2, start_method="fork")
"""
