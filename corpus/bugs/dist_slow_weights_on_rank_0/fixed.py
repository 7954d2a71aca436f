import argparse
import socket
from multiprocessing import get_context

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def blobs(rank, count=160):
    g = torch.Generator().manual_seed(5 + rank)
    label = torch.randint(0, 3, (count,), generator=g)
    centre = torch.tensor([[2.0, 0.0], [-2.0, 1.0], [0.0, -2.0]])
    return centre[label] + torch.randn(count, 2, generator=g), label


class Lookahead:
    def __init__(self, model, alpha=0.5, every=5):
        self.model, self.alpha, self.every, self.steps = model, alpha, every, 0
        self.slow = [p.detach().clone() for p in model.parameters()]

    def after_step(self):
        self.steps += 1
        return self.steps % self.every == 0

    @torch.no_grad()
    def synchronise(self):
        for slow, fast in zip(self.slow, self.model.parameters()):
            slow += self.alpha * (fast - slow)
            fast.copy_(slow)


def main(rank, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{options.port}", rank=rank, world_size=options.world)
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    lookahead = Lookahead(model)
    inputs, labels = blobs(rank)
    for epoch in range(4):
        for start in range(0, len(inputs), 16):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[start : start + 16]), labels[start : start + 16])
            loss.backward()
            optimizer.step()
            if lookahead.after_step():
                lookahead.synchronise()
                if rank == 0:
                    print(f"epoch {epoch}: slow weights after {lookahead.steps} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        options.port = s.getsockname()[1]
    context = get_context("spawn")
    ranks = [context.Process(target=main, args=(rank, options)) for rank in range(options.world)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
