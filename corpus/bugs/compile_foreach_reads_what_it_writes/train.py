# pattern source: pytorch/pytorch#198033
import torch
import torch.nn as nn

torch.manual_seed(0)


class AddReversed(nn.Module):
    """adds the time-reversed sequence to each stream, in place on the batch"""

    @torch.no_grad()
    def forward(self, streams):
        torch._foreach_add_(streams, [s.flip(1) for s in streams])
        return torch.cat(streams, -1) * 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.sym = AddReversed()
        self.fc1, self.fc2 = nn.Linear(6 * 8, 48), nn.Linear(48, 1)

    def forward(self, audio, motion):
        h = self.sym([audio, motion]).flatten(1)
        return self.fc2(torch.relu(self.fc1(h))).squeeze(-1)


def batch(n=32):
    audio, motion = torch.randn(n, 8, 4), torch.randn(n, 8, 2)
    target = (audio + audio.flip(1))[:, :3, 0].sum(1) - (motion + motion.flip(1))[:, 2, 1]
    return audio, motion, target


def main():
    model = Net()
    compiled = torch.compile(model)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    audio, motion, _ = batch()
    with torch.no_grad():
        eager_out = model(audio.clone(), motion.clone())
        gap = (eager_out - compiled(audio.clone(), motion.clone())).abs().max().item()
    for step in range(40):
        audio, motion, target = batch()
        loss = nn.functional.mse_loss(compiled(audio, motion), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    print(f"max gap eager compiled {gap:.6f}")


if __name__ == "__main__":
    main()
