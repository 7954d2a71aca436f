import torch
import torch.nn as nn

torch.manual_seed(5)
S, V, T = 4, 12, 25
allowed = torch.eye(S, dtype=torch.bool) | torch.eye(S, dtype=torch.bool).roll(1, dims=1)


class HMM(nn.Module):
    def __init__(self):
        super().__init__()
        self.trans = nn.Parameter(torch.zeros(S, S))
        self.emit = nn.Parameter(0.5 * torch.randn(S, V))
        self.start = nn.Parameter(torch.zeros(S))

    def log_likelihood(self, obs):
        log_a = self.trans.masked_fill(~allowed, float("-inf")).log_softmax(1)
        log_b = self.emit.log_softmax(1)
        alpha = self.start.log_softmax(0) + log_b[:, obs[:, 0]].T
        for t in range(1, obs.size(1)):
            alpha = torch.logsumexp(alpha[:, :, None] + log_a, dim=1) + log_b[:, obs[:, t]].T
        return torch.logsumexp(alpha, 1)


def sample(n=32):
    state = torch.randint(0, S, (n,))
    seq = []
    for _ in range(T):
        seq.append(3 * state + torch.randint(0, 3, (n,)))
        state = torch.where(torch.rand(n) < 0.4, (state + 1) % S, state)
    return torch.stack(seq, 1)


model = HMM()
opt = torch.optim.Adam(model.parameters(), lr=5e-2)
for step in range(80):
    loss = -model.log_likelihood(sample()).mean() / T
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 16 == 15:
        print(f"step {step} nll per symbol {loss.item():.4f}")
