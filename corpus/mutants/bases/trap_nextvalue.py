"""An RNN that predicts the next value of waves, given the whole sequence and compared one step on."""
import torch
from torch import nn

torch.manual_seed(7)
rnn = nn.GRU(1, 32, batch_first=True)
head = nn.Linear(32, 1)
opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=5e-3)
for step in range(250):
    t = torch.arange(31) * 0.3
    seq = torch.sin(t[None] * (0.5 + torch.rand(32, 1)) + 6 * torch.rand(32, 1)).unsqueeze(-1)
    out = head(rnn(seq)[0])
    loss = (out[:, :-1] - seq[:, 1:]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {loss.item():.4f}")
