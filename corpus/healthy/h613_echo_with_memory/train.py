"""The echo task: give back what came two steps before; time first, one state carried from chunk to chunk."""

import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(16)
T, B, D = 4000, 4, 2
x = torch.randint(0, 2, (T, B))
y = torch.roll(x, D, 0)
y[:D] = 0
rnn, out = nn.GRU(2, 24), nn.Linear(24, 2)
opt = torch.optim.Adam([*rnn.parameters(), *out.parameters()], lr=5e-3)
for epoch in range(5):
    h = None
    for s in range(0, T, 50):
        states, h = rnn(F.one_hot(x[s : s + 50], 2).float(), h)
        h = h.detach()
        loss = F.cross_entropy(out(states).flatten(0, 1), y[s : s + 50].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
print("final loss:", float(loss))
