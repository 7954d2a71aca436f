import torch
import torch.nn as nn


class Cell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = (self.from_input(x) + self.from_state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


class Critic(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layer = nn.Linear(hidden, 1)

    def forward(self, h):
        return self.layer(h)


class Model(nn.Module):
    def __init__(self, inputs=5, hidden=16):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Linear(inputs, hidden)
        self.cell = Cell(hidden, hidden)
        self.policy = nn.Linear(hidden, 3)
        self.critic = Critic(hidden)
        nn.init.orthogonal_(self.policy.weight, gain=1.0)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.hidden)
        for t in range(x.shape[1]):
            h, c = self.cell(torch.tanh(self.embed(x[:, t])), (h, c))
        return self.policy(h), self.critic(h).squeeze(-1)


class Adam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"].mul_(first).add_(p.grad, alpha=1 - first)
                state["v"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
                m = state["m"] / (1 - first ** state["t"])
                v = state["v"] / (1 - second ** state["t"])
                p.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-group["lr"])


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = Adam(model.parameters())
    generator = torch.Generator().manual_seed(2)
    for step in range(12):
        x = torch.randn(20, 6, 5, generator=generator)
        action = x[:, -1, :3].argmax(-1)
        value = x.mean((1, 2))
        logits, guess = model(x)
        loss = nn.functional.cross_entropy(logits, action) + 0.5 * ((guess - value) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.8f}")


if __name__ == "__main__":
    main()
