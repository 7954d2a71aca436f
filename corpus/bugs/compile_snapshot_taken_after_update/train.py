# pattern source: pytorch/pytorch#198131
import torch
import torch.nn as nn

torch.manual_seed(0)
N, D = 16, 4


class Tracker(nn.Module):
    """smoothed position and its change since the last call"""

    def __init__(self):
        super().__init__()
        self.register_buffer("cur", torch.zeros(N, D))
        self.register_buffer("prev", torch.zeros(N, D))

    def forward(self, obs):
        vel = self.cur - self.prev
        self.prev[0:, :] = self.cur[0:, :]
        self.cur.add_(obs)
        return obs, vel


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tracker = Tracker()
        self.fc = nn.Sequential(nn.Linear(2 * D, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, obs):
        with torch.no_grad():
            pos, vel = self.tracker(obs)
        return self.fc(torch.cat([pos, vel], 1)).squeeze(1)


def main():
    model = Model()
    compiled = torch.compile(model)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    obs = torch.zeros(N, D)
    for step in range(200):
        obs, last = torch.randn(N, D), obs
        y = obs[:, 0] - last[:, 1]
        loss = ((compiled(obs) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 39:
            vel = (model.tracker.cur - model.tracker.prev).abs().mean().item()
            print(f"step {step} loss {loss.item():.4f} mean |velocity| {vel:.4f}")


if __name__ == "__main__":
    main()
